"""The command line as a whole: help, version, exit codes, and what is imported."""

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from dpgateway.cli import main
from dpgateway.cli.group import COMMANDS


def python(code, *arguments):
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


CLI = "import sys; from dpgateway.cli import main; main(sys.argv[1:], prog_name='dpgateway')"


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_names_every_command_without_importing_one(flag):
    code = """
import sys
from dpgateway.cli import main
try:
    main(sys.argv[1:])
finally:
    loaded = {"rich", "grpc", "uvloop", "ruamel.yaml", "dpgateway_simulator"} & set(sys.modules)
    assert loaded <= {"ruamel.yaml"}, loaded
"""
    result = python(code, flag)
    assert (result.returncode, result.stderr) == (0, "")
    for name, (_, line) in COMMANDS.items():
        assert f"  {name} " in result.stdout
        assert line.split()[0] in result.stdout
    assert "Exit codes: 0 done" in result.stdout


def test_the_version(line):
    result = line("--version")
    assert result.exit_code == 0
    assert result.stdout.startswith("dpgateway 0.")


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["check", "--nonsense"],
        ["check", "--output", "xml"],
        ["check", "--config", ""],
        ["run", "--device-plugins-dir", ""],
    ],
)
def test_wrong_usage_is_2(line, arguments):
    assert line(*arguments).exit_code == 2


def test_run_says_what_is_wrong_in_the_logs_own_format_and_imports_no_table_printer(tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text("resources: [{name: a, driver: b}]\nkubelet: {apis: []}")
    code = f"import atexit, sys; atexit.register(lambda: print('rich' in sys.modules)); {CLI}"
    result = python(code, "run", "--config", config)
    assert (result.returncode, result.stdout) == (2, "False\n")
    entries = [json.loads(line) for line in result.stderr.splitlines()]
    assert [(entry["level"], entry["message"].partition(": found")[0]) for entry in entries] == [
        ("error", f"{config}:1: resources[0].name"),
        ("error", f"{config}:2: kubelet.apis"),
    ]


def test_grpcs_own_lines_are_off():
    code = (
        "import os; os.environ.pop('GRPC_VERBOSITY', None); import dpgateway.cli; print(os.environ['GRPC_VERBOSITY'])"
    )
    assert python(code).stdout == "NONE\n"


def test_simulate_without_its_extra_says_how_to_get_it(tmp_path):
    """A module that raises is what an absent package looks like."""
    for name in ("grpclib", "betterproto", "h2"):
        (tmp_path / f"{name}.py").write_text(f"raise ModuleNotFoundError('No module named {name}', name='{name}')")
    result = python(f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {CLI}", "simulate", "--help")
    assert result.returncode == 1
    assert result.stderr.endswith("pip install 'dpgateway[simulator]'\n")


def test_a_path_that_no_file_can_have_is_wrong_usage():
    result = CliRunner().invoke(main, ["check", "--config", "\ud800"])
    assert result.exit_code == 2
    assert r"expected a path, found '\ud800'" in result.output


def test_levels_and_formats_may_be_in_capitals(line):
    result = line("devices", "--log-level", "ERROR", "--log-format", "TEXT", "--config", "/nonexistent.yaml")
    assert result.exit_code == 2
    assert "/nonexistent.yaml" in result.stderr
    assert "--log" not in result.stderr
