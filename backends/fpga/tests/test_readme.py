from dataclasses import fields
from pathlib import Path
from typing import get_args, get_type_hints

from dpgateway_fpga import Bitstream, Board, Command, FpgaManager, FpgaOptions, Overlay, Simulated
from dpgateway_fpga.programmers import PROGRAMMERS

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_every_option_is_documented():
    missing = [field.name for field in fields(FpgaOptions) if f"`{field.name}`" not in README]
    assert missing == []
    for kind in (Board, Bitstream, Command, FpgaManager, Overlay, Simulated):
        assert f"`{{{', '.join(field.name for field in fields(kind))}}}" in README


def test_documents_every_programmer(options):
    for name, make in PROGRAMMERS.items():
        assert f"| `{name}` | {make(options).verification}" in README or name == "command"
    assert set(get_args(get_type_hints(FpgaOptions)["programmer"])) == set(PROGRAMMERS)


def test_every_default_is_as_documented():
    simulated, options = Simulated(), FpgaOptions(Bitstream(Path("/x"), "x"))
    first, limit = options.retry_first.total_seconds(), options.retry_limit.total_seconds()
    for text in (
        f"(`{simulated.state_dir}`)",
        f"how long programming takes (`{simulated.duration.total_seconds():g}s`)",
        f"before one succeeds ({simulated.fail_first})",
        f"above which it is refused ({options.bitstream.max_mib})",
        f"(`{options.fpga_manager.firmware}`)",
        f"(`{options.command.files}`)",
        f"(`{options.overlay.configfs}`)",
        f"| `patience` | `{options.patience.total_seconds():g}s` |",
        f"| `sysfs`, `dev` | `{options.sysfs}`, `{options.dev}` |",
        f"| `prefetch` | `{str(options.prefetch).lower()}` |",
        f"| `wait` | `{options.wait.total_seconds():g}s` |",
        f"| `state_dir` | `{options.state_dir}` |",
        f"| `retry_first`, `retry_limit` | `{first:g}s`, `{limit:g}s` |",
    ):
        assert text in README
