from dataclasses import fields
from pathlib import Path

from dpgateway_fpga import Bitstream, Board, FpgaOptions, Simulated

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_every_option_is_documented():
    missing = [field.name for field in fields(FpgaOptions) if f"`{field.name}`" not in README]
    assert missing == []
    for kind in (Board, Bitstream, Simulated):
        assert f"`{{{', '.join(field.name for field in fields(kind))}}}" in README
