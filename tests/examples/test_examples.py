"""Each example finds in a tree of files exactly the devices that it is about, and gives exactly what it says."""

import re
from pathlib import Path

import pytest
from dpgateway_chardev import CharDevices
from ruamel.yaml import YAML

from dpgateway import from_plain
from dpgateway.config import load
from dpgateway.testing import FakeTree, Recorder
from tests.examples.trees import EXAMPLES

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "examples").glob("*.yaml"))
CASES = [(name, case) for name, example in EXAMPLES.items() for case in example.cases]


def test_every_example_is_tested_and_on_the_page_that_leads_here():
    assert [file.stem for file in FILES] == sorted(EXAMPLES)
    page = (ROOT / "docs/how-to/replace-a-plugin.md").read_text()
    assert sorted(re.findall(r"\(\.\./\.\./examples/([\w-]+)\.yaml\)", page)) == sorted(EXAMPLES)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_an_example_is_a_whole_configuration_and_says_what_differs(file):
    resources = [entry.name for entry in load(file).entries]
    assert resources == [case.resource for case in EXAMPLES[file.stem].cases]
    head = file.read_text().splitlines()[:4]
    assert head[0].startswith("# In place of ")
    assert head[1].startswith("# Differs: ")
    assert head[2].startswith("# ")
    assert head[3] == "resources:"


@pytest.mark.parametrize(("name", "case"), CASES, ids=[case.resource for _, case in CASES])
def test_an_example_finds_and_gives(name, case, tmp_path):
    tree = FakeTree(tmp_path)
    tree.write(EXAMPLES[name].tree)
    resources = YAML(typ="safe", pure=True).load(ROOT / f"examples/{name}.yaml")["resources"]
    (options,) = (one["options"] for one in resources if one["name"] == case.resource)
    roots = {root: str(tree.at(f"/{path}")) for root, path in (("sysfs", "sys"), ("dev", "dev"), ("proc", "proc"))}
    driver = CharDevices(from_plain({**options, **roots}, CharDevices.Options), Recorder().context(case.resource))
    devices = driver.devices()
    assert {device.id: device.health.reason for device in devices} == dict(case.devices)
    assert [device.numa_nodes for device in devices] == list(case.numa or [()] * len(devices))
    assert driver.allocate([device for device in devices if device.health.ok]) == case.allocation
    driver.close()
