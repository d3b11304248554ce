"""The reference of the preflight has each finding with its levels, each field of the JSON, and the formats."""

import dataclasses
import inspect
import re

import pytest

from dpgateway.node.versions import NEWEST, OLDEST, Layout
from dpgateway.preflight import SCHEMA, Finding, Rehearsal, features, front, rehearsed, site, verdicts
from tests.docs.pages import Page

TEXT = Page("reference/preflight.md").text
SECTIONS = dict(re.findall(r"^##+ ([^\n]+)\n(.*?)(?=^##+ |\Z)", TEXT, re.MULTILINE | re.DOTALL))
ROWS = re.findall(r"^\| (`.*?`) \| ([a-z, ]+) \|", SECTIONS["What it finds"], re.MULTILINE)
SOURCE = "".join(inspect.getsource(module) for module in (verdicts, rehearsed, site, front))


def test_each_code_with_its_levels():
    documented = {code: level for codes, level in ROWS for code in re.findall(r"`([\w-]+)`", codes)}
    codes = set(re.findall(r'Finding\([^,\n]*, "([\w-]+)"', SOURCE))
    codes |= {f"{one.code}-{end}" for one in features.FEATURES for end in ("lost", "comes")}
    assert set(documented) == codes
    for code, level in re.findall(r'Finding\("(\w+)", "([\w-]+)"', SOURCE):
        assert code in documented[level].split(", ")


@pytest.mark.parametrize("kind", [Finding, Rehearsal])
def test_each_field(kind):
    documented = re.findall(r"^\| `(\w+)` \|", SECTIONS[kind.__name__], re.MULTILINE)
    assert documented == [one.name for one in dataclasses.fields(kind)]


def test_the_version():
    assert f"the version of this format: {SCHEMA} |" in TEXT


def test_the_formats_and_the_releases():
    assert [layout.value for layout in Layout if f"`{layout.value}`" not in TEXT] == []
    assert f"the releases from 1.{OLDEST} to 1.{NEWEST}" in TEXT
