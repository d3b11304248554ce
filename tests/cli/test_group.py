"""The command line as a whole: help, version, exit codes, and what is imported."""

import gc
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from dpgateway.cli.group import COMMANDS, main
from tests.support.gateway import COMMAND

REFERENCE = (Path(__file__).parents[2] / "docs/reference/command-line.md").read_text()


def python(code, *arguments):
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_garbage_collection_after_an_import():
    assert main.get_command(click.Context(main), "check") is not None
    assert gc.isenabled()


CLI = "import sys; from dpgateway.cli import main; main(sys.argv[1:], prog_name='dpgateway')"


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_imports_no_command(flag):
    code = """
import sys
from dpgateway.cli import main
try:
    main(sys.argv[1:])
finally:
    loaded = {"rich", "grpc", "uvloop", "ruamel.yaml", "dpgateway_simulator"} & set(sys.modules)
    assert not loaded
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


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["chekc"], "No such command 'chekc'. Did you mean 'check'?"),
        (["device"], "No such command 'device'. Did you mean 'devices'?"),
        (["config", "exampel"], "No such command 'exampel'. Did you mean 'example'?"),
        (["check", "--confg"], "No such option '--confg'. Did you mean '--config'?"),
        (["xyz"], "No such command 'xyz'.\n"),
        (["check", "my.yaml"], "Got unexpected extra argument (my.yaml); --config names the configuration\n"),
        (["status", "a/b", "my.yaml"], "Got unexpected extra argument (my.yaml); --config names the configuration\n"),
        (["config", "example", "x"], "Got unexpected extra argument (x)\n"),
    ],
)
def test_what_was_probably_meant(line, arguments, hint):
    assert hint in line(*arguments).stderr


class TestCompletion:
    """As the shell asks for it."""

    @pytest.mark.parametrize(
        ("words", "begun", "expected"),
        [
            ([], "de", ["demo", "devices"]),
            (["config"], "ex", ["example"]),
            (["devices"], "--o", ["--output"]),
            (["devices", "--output"], "", ["table", "json"]),
            (["simulate", "--topology-policy"], "b", ["best-effort"]),
            (["import"], "smart", ["smarter-device-manager"]),
            (["drivers"], "char", ["chardev"]),
        ],
    )
    def test_commands_options_and_values(self, words, begun, expected):
        found = ShellComplete(main, {}, "dpgateway", "_DPGATEWAY_COMPLETE").get_completions(words, begun)
        assert [one.value for one in found] == expected

    def test_all_commands_without_importing_one(self, tmp_path):
        """A command that isn't installed is no reason either."""
        for name in ("grpclib", "rich"):
            (tmp_path / f"{name}.py").write_text("raise SystemExit('imported')")
        asked = {"_DPGATEWAY_COMPLETE": "bash_complete", "COMP_WORDS": "dpgateway ", "COMP_CWORD": "1"}
        environment = os.environ | asked | {"PYTHONPATH": str(tmp_path)}
        done = subprocess.run(COMMAND, env=environment, capture_output=True, text=True, check=False)
        assert (done.stdout, done.stderr) == ("".join(f"plain,{name}\n" for name in COMMANDS), "")

    def test_bash_takes_the_script(self, tmp_path):
        """Which is what the reference says to put into ~/.bashrc."""
        (line,) = re.findall(r"^eval .*bash_source.*$", REFERENCE, re.MULTILINE)
        command = ["bash", "-c", f"{line}\ncomplete -p dpgateway"]
        path = f"{Path(COMMAND[0]).parent}:{os.environ['PATH']}"
        done = subprocess.run(command, env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False)
        assert done.stdout.startswith("complete -o nosort -F _dpgateway_completion")


def test_run_fails_in_the_log_format(tmp_path):
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


def test_impossible_path_is_wrong_usage():
    result = CliRunner().invoke(main, ["check", "--config", "\ud800"])
    assert result.exit_code == 2
    assert r"expected a path, found '\ud800'" in result.output


@pytest.mark.parametrize(
    "words",
    [
        ["check", "--config", ""],
        ["new-driver", "tpm", "--directory", ""],
        ["import", "akri", ""],
        ["import", "akri", "/dev/null", "--output-file", ""],
        ["import", "akri", "/dev/null", "--dev", ""],
    ],
)
def test_an_empty_path_is_wrong_usage(line, tmp_path, monkeypatch, words):
    """As of an unset variable of the shell. It would mean the working directory."""
    monkeypatch.chdir(tmp_path)
    result = line(*words)
    assert result.exit_code == 2
    assert "expected a path, found an empty string" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_levels_and_formats_in_capitals(line):
    result = line("devices", "--log-level", "ERROR", "--log-format", "TEXT", "--config", "/nonexistent.yaml")
    assert result.exit_code == 2
    assert "/nonexistent.yaml" in result.stderr
    assert "--log" not in result.stderr
