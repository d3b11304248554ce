"""The reference of the status names each field of its JSON, and nothing else."""

import dataclasses
import inspect
import re

import pytest

from dpgateway.daemon import control
from dpgateway.kit.log import events
from dpgateway.status import SCHEMA, values
from tests.docs.pages import Page

TEXT = Page("reference/status.md").text
SECTIONS = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##+ |\Z)", TEXT, re.MULTILINE | re.DOTALL))
KINDS = [kind for kind in vars(values).values() if inspect.isclass(kind) and dataclasses.is_dataclass(kind)]
CALLED = {"Status": "Status", "RefusedReload": "Refusal", "Standing": "Registration", "LogEvent": "Event"}
"""Sections of another name than the class, but for its ending."""
FIELDS = {
    CALLED.get(kind.__name__, kind.__name__.removesuffix("Status")): [one.name for one in dataclasses.fields(kind)]
    for kind in KINDS
}


@pytest.mark.parametrize("name", sorted({*SECTIONS, *FIELDS}))
def test_each_field(name):
    assert re.findall(r"^\| `(\w+)` \|", SECTIONS[name], re.MULTILINE) == FIELDS[name]


def test_the_numbers():
    assert f"the version of this format: {SCHEMA} |" in TEXT
    assert f"the last {events.MOST} lines" in TEXT
    assert f"at most {events.LONGEST_TEXT} characters" in TEXT
    assert f"at most {events.MOST_CHARACTERS // 1024} Ki characters" in TEXT
    assert f"within {control.Times().gathering} s make" in TEXT
    assert f"At most {control.MOST_CLIENTS} clients" in TEXT
    assert f"and {control.MOST_WATCHERS} more watch" in TEXT
    assert f"Each has {control.Times().patience:g} s" in TEXT
