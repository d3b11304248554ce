"""A standard output that can't be written."""

import os
import subprocess

import pytest

from dpgateway.cli.standard import told_in_one_line
from tests.support.gateway import COMMAND

CONFIG = "resources: [{name: example.com/a, driver: simulated, options: {count: 3}}]"


@pytest.fixture
def printing(tmp_path):
    """Runs a command whose standard output the shell has redirected; exit code and standard error."""
    (tmp_path / "config.yaml").write_text(CONFIG)
    (tmp_path / "script").write_text("pause 1000")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}

    def run(words, redirection, **more):
        command = ["sh", "-c", f'exec "$0" "$@" {redirection}', *COMMAND, *words.split()]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment | more, stderr=subprocess.PIPE, text=True, timeout=60, check=False
        )
        return done.returncode, done.stderr

    return run


@pytest.mark.parametrize(
    ("words", "redirection", "why"),
    [
        ("--help", "> /dev/full", "No space left on device"),
        ("devices --config config.yaml", "> /dev/full", "No space left on device"),
        ("simulate --device-plugins-dir dp --script script", "> /dev/full", "No space left on device"),
        ("devices --config config.yaml --output json", ">&-", "it is closed"),
    ],
)
def test_it_is_told_in_one_line(printing, words, redirection, why):
    assert printing(words, redirection) == (1, f"Error: standard output can't be written: {why}\n")


def test_error_without_buffering(printing):
    code, said = printing("config example", "> /dev/full", PYTHONUNBUFFERED="1")
    assert (code, said) == (1, "Error: standard output can't be written: No space left on device\n")


def test_a_gateway_needs_no_standard_output(printing):
    code, said = printing("run --config none.yaml", ">&-")
    assert code == 2
    assert "none.yaml: found no such file or directory" in said


def test_other_system_errors_pass(capsys):
    with pytest.raises(OSError, match="elsewhere"), told_in_one_line():
        raise OSError("elsewhere")
