"""Every command and every option is in the reference, with its environment variable and the commands that have it."""

import re
from importlib import import_module
from pathlib import Path

import pytest

from dpgateway.cli.group import COMMANDS
from dpgateway_simulator.prompt.verbs import VERBS

REFERENCE = (Path(__file__).parents[2] / "docs/reference/command-line.md").read_text()
ROWS = {
    option: (set(re.findall(r"`(\w+)`", variables)), set(commands.split(", ")))
    for option, variables, commands in re.findall(r"^\| `(--[\w-]+)` \| (.*?) \| (.*?) \|", REFERENCE, re.MULTILINE)
}


def options(name):
    module, _, attribute = COMMANDS[name][0].partition(":")
    command = getattr(import_module(module), attribute)
    return {option: parameter for parameter in command.params for option in parameter.opts if option.startswith("--")}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_documented(name):
    assert re.search(rf"^\| `dpgateway {name}( NAME| example| PLUGIN FILE)?` \|", REFERENCE, re.MULTILINE)
    (listed,) = re.findall(r"^dpgateway (run .*)", REFERENCE, re.MULTILINE)
    assert name in listed.split(" | ")


@pytest.mark.parametrize("name", COMMANDS)
def test_its_options_are_documented(name):
    for option, parameter in options(name).items():
        variables, commands = ROWS[option]
        named = {parameter.envvar} if isinstance(parameter.envvar, str) else set(parameter.envvar)
        assert named == variables
        assert "DPGATEWAY_" + option.removeprefix("--").replace("-", "_").upper() in variables
        assert name in commands
        assert parameter.help


def test_each_documented_option_exists():
    for option, (_, commands) in ROWS.items():
        for name in commands:
            assert option in options(name)


def test_each_script_step_is_documented():
    rows = re.findall(r"^\| `(.*?)` \| .*\. \|$", REFERENCE[REFERENCE.index("| step |") :], re.MULTILINE)
    assert [row.replace("\\|", "|") for row in rows] == [f"{name} {verb.words}".strip() for name, verb in VERBS.items()]
