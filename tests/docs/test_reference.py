"""The reference of drivers names all that a driver author can import, each method and each field, and nothing else."""

import dataclasses
import inspect
import re
from collections.abc import Mapping
from typing import get_type_hints

import pytest

import dpgateway
import dpgateway.cli.packages
import dpgateway.sysfs
import dpgateway.testing
from dpgateway.config import Timeouts
from dpgateway.drivers import running
from dpgateway.drivers.contract import ABILITIES, REQUIRED
from tests.docs.pages import Page

TEXT = Page("reference/drivers.md").text
SECTIONS = dict(re.findall(r"^##+ `?([^`\n]+?)`?\n(.*?)(?=^##+ |\Z)", TEXT, re.MULTILINE | re.DOTALL))
VALUES = [value for name in dpgateway.__all__ if dataclasses.is_dataclass(value := getattr(dpgateway, name))]


def rows(text):
    """The cells of each row, without the two of its head."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[2:]]


def names(text):
    return [row[0].strip("`") for row in rows(text)]


@pytest.mark.parametrize(
    ("text", "module"),
    [
        (TEXT[: TEXT.index("## The class")], dpgateway),
        (SECTIONS["Testing"], dpgateway.testing),
        (SECTIONS["A command of the package"], dpgateway.cli.packages),
        (Page("reference/sysfs.md").text, dpgateway.sysfs),
    ],
)
def test_each_name_that_can_be_imported(text, module):
    assert sorted(names(text)) == sorted(module.__all__)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: value.__name__)
def test_each_field(value):
    documented = {row[0].strip("`"): row[1:] for row in rows(SECTIONS[value.__name__])}
    fields = {field.name: field for field in dataclasses.fields(value)}
    assert list(documented) == list(fields)
    for name, cells in documented.items():
        if len(cells) == 3:
            assert cells[1].strip("`") == default(fields[name])
            kind = str(get_type_hints(value)[name])
            assert cells[0].strip("`").replace("\\", "") == re.sub(r"<class '([\w.]+)'>|\b[a-z_.]+\.", shortened, kind)


def shortened(match):
    return (match[1] or "").rpartition(".")[2]


def default(field):
    if field.default_factory is not dataclasses.MISSING:
        made = field.default_factory()
        return repr(dict(made) if isinstance(made, Mapping) else made)
    if field.default is dataclasses.MISSING:
        return ""
    if field.default == dpgateway.Health.healthy():
        return "healthy"
    return repr(field.default).replace("'", '"')


def test_each_method_with_lane_and_section():
    signatures = [name.partition("(")[0] for name in names(SECTIONS["The class"])]
    assert sorted(signatures) == sorted({"__init__", *REQUIRED, *ABILITIES})
    assert {row[0].strip("`") for row in rows(SECTIONS["Threads and deadlines"])} == set(signatures) - {"Options"}
    assert [name for name in names(SECTIONS["The class"]) if name not in SECTIONS] == []


@pytest.mark.parametrize("method", ["__init__", "devices", "allocate"])
def test_a_methods_parameters(method):
    parameters = list(inspect.signature(getattr(dpgateway.Driver, method)).parameters)[1:]
    assert f"{method}({', '.join(parameters)})" in SECTIONS


def test_deadlines_as_configured():
    found = dict(re.findall(r"`timeouts\.(\w+)` \((\d+) s\)", SECTIONS["Threads and deadlines"]))
    defaults = {name: f"{value.total_seconds():g}" for name, value in dataclasses.asdict(Timeouts()).items()}
    assert found == defaults
    closing = f"{running.CLOSING:g} s, {running.CLOSING_LAST:g} s when the gateway ends"
    assert closing in SECTIONS["Threads and deadlines"]


def test_how_long_a_test_waits() -> None:
    (seconds,) = re.findall(r"After (\d+) seconds in vain", SECTIONS["Testing"])
    until = inspect.signature(dpgateway.testing.Recorder.until)
    assert float(seconds) == until.parameters["seconds"].default


def test_each_error_is_a_row():
    errors = [
        name
        for name in dpgateway.__all__
        if inspect.isclass(kind := getattr(dpgateway, name)) and issubclass(kind, Exception)
    ]
    assert sorted(names(SECTIONS["Errors"])) == sorted([*errors, "anything else"])
