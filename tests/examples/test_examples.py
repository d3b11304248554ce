"""Each example finds in a tree of files exactly the devices that it is about, and gives exactly what it says."""

import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from dpgateway_chardev import CharDevices

from dpgateway import from_plain
from dpgateway.resource.shares import environment, share_ids
from dpgateway.testing import FakeTree, Recorder
from tests.examples.trees import EXAMPLES
from tests.support.configurations import load

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "examples").glob("*.yaml"))
CASES = [(name, case) for name, example in EXAMPLES.items() for case in example.cases]


@cache
def entries(name):
    return load(ROOT / f"examples/{name}.yaml").entries


def test_every_example_is_tested_and_on_the_page_that_leads_here():
    assert sorted(file.stem for file in FILES) == sorted(EXAMPLES)
    page = (ROOT / "docs/how-to/replace-a-plugin.md").read_text()
    assert sorted(re.findall(r"\(\.\./\.\./examples/([\w-]+)\.yaml\)", page)) == sorted(EXAMPLES)
    assert f": {len(EXAMPLES)} examples." in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_an_example_is_a_whole_configuration_and_says_what_differs(file):
    resources = [entry.name for entry in entries(file.stem)]
    assert resources == [case.resource for case in EXAMPLES[file.stem].cases]
    head = file.read_text().splitlines()[:4]
    assert head[0].startswith("# In place of ")
    assert head[1].startswith("# Differs: ")
    assert head[2].startswith("# ")
    assert head[3] == "resources:"


@pytest.mark.parametrize(("name", "case"), CASES, ids=[case.resource for _, case in CASES])
def test_an_example_finds_and_gives(name, case, tmp_path):
    tree = FakeTree(tmp_path)
    tree.write(f"/var/run/\n{EXAMPLES[name].tree}")
    (resource,) = (one.resource for one in entries(name) if one.name == case.resource)
    options, shares = resource.options, resource.shares
    roots = {**tree.roots, "host": str(tree.path)}
    # without probes, which take their time: these nodes lead to no device
    driver = CharDevices(
        from_plain({**options, **roots, "health": None}, CharDevices.Options), Recorder().context(case.resource)
    )
    devices = driver.devices()
    assert {device.id: device.health.reason for device in devices} == dict(case.devices)
    assert [device.numa_nodes for device in devices] == list(case.numa or [()] * len(devices))
    healthy = [device for device in devices if device.health.ok]
    allocation = driver.allocate(healthy)
    env = {**allocation.env, **environment(shares.env, len(healthy), shares.count)}
    assert replace(allocation, env=env) == case.allocation
    offered = [id_ for device in devices for id_ in share_ids(device.id, shares.count, shares.ids or "")]
    assert offered[: len(case.offered)] == list(case.offered)
    assert len(case.offered) or shares.ids is None
    files = tree.at("/var/run/k8s.cni.cncf.io/devinfo/dp").glob("*")
    assert {file.name: file.read_text() for file in files} == dict(case.files)
    driver.close()
