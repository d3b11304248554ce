import json

import pytest

from dpgateway.config.parsing import parse
from tests.support.drivers import GOOD, Site

pytestmark = pytest.mark.usefixtures("fake_driver")


def test_the_options_of_each_driver(line):
    result = line("drivers", "--output", "json")
    assert result.exit_code == 1  # broken is
    found = {one.pop("name"): one for one in json.loads(result.stdout)}
    own = {"per_claim": False}
    assert found["fake"] == {
        "distribution": "fake-driver",
        "version": "1.2",
        "failure": None,
        "options": [
            {"name": "mode", "type": "string", "required": True, "default": None, "help": "what to do", **own},
            {
                "name": "wait",
                "type": "duration",
                "required": False,
                "default": "1m30s",
                "help": "how long",
                "per_claim": True,
            },
            {"name": "inner", "type": "mapping", "required": False, "default": {"depth": 0}, "help": "more", **own},
            {"name": "inner.depth", "type": "integer", "required": False, "default": 0, "help": "how deep", **own},
        ],
    }
    assert "no_such_module_anywhere" in found["broken"]["failure"]
    assert found["broken"]["options"] == []


def test_a_table_for_people(line):
    result = line("drivers")
    assert result.exit_code == 1
    lines = [" ".join(text.split()) for text in result.stdout.splitlines()]
    for expected in (
        "fake (fake-driver 1.2)",
        "OPTION TYPE DEFAULT MEANING",
        "mode string required what to do",
        "wait duration 1m30s how long (per claim)",
        "inner mapping {depth: 0} more",
        "broken (fake-driver 1.2)",
        "can't be used: it can't be loaded: ModuleNotFoundError: No module named 'no_such_module_anywhere'",
    ):
        assert expected in lines


def test_one_driver_and_no_other_decides(line):
    result = line("drivers", "fake", "--output", "json")
    assert ([one["name"] for one in json.loads(result.stdout)], result.exit_code) == (["fake"], 0)
    assert line("drivers", "broken").exit_code == 1


def test_a_driver_that_there_is_not(line):
    result = line("drivers", "faek")
    assert result.exit_code == 2
    assert result.stderr.startswith("DRIVER: found 'faek', expected broken, ")
    assert result.stderr.endswith("; did you mean fake?\n")


@pytest.mark.parametrize("words", [[], ["--output", "json"]])
def test_a_default_of_no_plain_type(line, fake_driver, words):
    more = "from dataclasses import field\nfrom typing import Any\n"
    default = "more: Any = field(default_factory=lambda: [{b'x'}])"
    Site(fake_driver)(more + GOOD.replace("count: int = 1", default), module="td_default")
    result = line("drivers", "td_default", *words)
    assert result.exit_code == 0, result.output
    assert "{b'x'}" in result.stdout


@pytest.mark.parametrize(
    "texts", [["{devnode}", "a, b", "x: y", "#", "*", "true", "0403", "", "-"], ["/dev/a b", "30s", "(?s)(.*)"]]
)
def test_a_default_in_the_table_is_yaml(line, fake_driver, texts):
    more = "from dataclasses import field\nfrom collections.abc import Sequence\n"
    default = f"texts: Sequence[str] = field(default_factory=lambda: {texts})"
    Site(fake_driver)(more + GOOD.replace("count: int = 1", default), module=f"td_{len(texts)}")
    row = line("drivers", f"td_{len(texts)}").stdout.splitlines()[-1]
    written = parse(row[row.index("[") : row.rindex("]") + 1], "")
    assert written is not None
    assert written.plain() == texts


def test_a_default_in_the_table_has_only_what_was_chosen(line, fake_driver):
    more = "from dataclasses import field\nfrom dpgateway import from_plain\nfrom dpgateway.sysfs import Kind\n"
    chosen = {"subsystem": "pci", "attr": {"class": "0x02*"}}
    default = f"match: Kind = from_plain({chosen}, Kind)"
    Site(fake_driver)(more + GOOD.replace("count: int = 1", default), module="td_chosen")
    lines = [" ".join(text.split()) for text in line("drivers", "td_chosen").stdout.splitlines()]
    assert "match mapping {subsystem: pci, attr: {class: 0x02*}}" in lines

    options = json.loads(line("drivers", "td_chosen", "--output", "json").stdout)[0]["options"]
    assert options[0]["default"]["optional"] is False
