"""The reference of the chart names its values, and what other charts' values are called here are values of it."""

import json
import re

from ruamel.yaml import YAML

from tests.docs.pages import DOCS, Page

CHART = DOCS.parent / "deploy/helm/dpgateway"
VALUES = YAML(typ="safe", pure=True).load(CHART / "values.yaml")
PROFILE = json.loads((CHART / "values.schema.json").read_text())["definitions"]["profile"]["properties"]
OWN, _, OTHERS = Page("reference/chart.md").text.partition("## From another chart")


def rows(text):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:3] == "| `"]


def named(text):
    return re.findall(r"`([^`]+)`", text)


def test_each_value_and_profile_is_documented():
    found = {key.strip("`"): profile == "yes" for key, profile, _ in rows(OWN)}
    assert found == {key: key in PROFILE for key in VALUES}


def test_each_counterpart_is_a_value():
    counterparts = {key: here for key, here in rows(OTHERS) if not here.startswith("none: ")}
    assert len(counterparts) > 20
    for key, here in counterparts.items():
        names = named(key) if here == "the same" else named(here)
        assert {name.partition(".")[0] for name in names} & set(VALUES), key
        if here == "the same":
            assert set(names) <= set(VALUES)
