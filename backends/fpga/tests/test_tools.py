"""Arguments that no tool could get are refused when the configuration is read."""

from pathlib import Path

import pytest
from dpgateway_fpga import Command
from dpgateway_fpga.tools import PLACEHOLDERS, PRESETS


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Command(preset="xrt-smi", argv=("x",)), "^argv: expected it without a preset$"),
        (lambda: Command(arguments=("x",)), "^arguments: expected it with a preset"),
        (lambda: Command(argv=("x",), read=("y",)), "^expect: expected it together with read"),
        (lambda: Command(argv=("x",), expect="{sha256}"), "^expect: expected it together with read"),
        (lambda: Command(argv=("x", "{path}")), r"^argv: expected one of accelerator, .* in braces, found 'path'$"),
        (lambda: Command(argv=("x", "{")), r"^argv: expected placeholders in braces, found '{'"),
        (
            lambda: Command(argv=("x", "{port:02d}")),
            r"^argv: expected placeholders of texts in braces, found '{port:02d}': Unknown format code 'd'",
        ),
        (lambda: Command(argv=("x", "{port:{x}}")), r"^argv: .*, found '{port:{x}}': 'x'"),
        (lambda: Command(argv=("x",), read=("y", "{file}"), expect="x"), r"^read: expected one of .*, found 'file'$"),
        (lambda: Command(argv=("x",), read=("y",), expect="{file}"), r"^expect: .* found 'file'$"),
        (
            lambda: Command(argv=("x",), pattern="("),
            r"^pattern: expected a regular expression that RE2 takes .*, found '\('",
        ),
        (
            lambda: Command(argv=("x",), pattern="(?=x)(x)"),
            "^pattern: expected a regular expression without look-around",
        ),
        (lambda: Command(argv=("x",), pattern="x"), "^pattern: expected one group, found 0$"),
        (lambda: Command(argv=("x",), files=Path("x")), "^files: expected an absolute path, found 'x'$"),
    ],
)
def test_wrong_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_valid(name):
    tool = PRESETS[name]
    assert Command(argv=tool.argv, read=tool.read, pattern=tool.pattern, expect=tool.expect).tool == tool
    assert Command(preset=name).tool == tool


def test_every_placeholder_is_documented():
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    for name, meaning in PLACEHOLDERS.items():
        assert f"| `{{{name}}}` | {meaning} |" in readme
