"""The examples beside real kubelets: the devices of each resource in a tree of files, and what a container gets of all
of them. What each is to give, byte by byte, is said in tests/examples.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from dpgateway.config import ResourceKeys, Shares
from dpgateway.resource.shares import environment
from dpgateway.testing import FakeTree
from tests.examples.trees import EXAMPLES, Case
from tests.scenarios.gateway import Gateway
from tests.scenarios.kubelet import Kubelet
from tests.support.configurations import load

ROOT = Path(__file__).parents[2]


def rounds() -> list[list[str]]:
    """The examples that one gateway can serve: no two of a round have a resource in common."""
    whole: list[tuple[list[str], set[str]]] = []
    for name, example in EXAMPLES.items():
        offered = {case.resource for case in example.cases}
        free = next((one for one in whole if not one[1] & offered), None)
        if free is None:
            whole.append(free := ([], set()))
        free[0].append(name)
        free[1].update(offered)
    return [names for names, _ in whole]


def resources(name: str) -> Sequence[ResourceKeys]:
    return [entry.resource for entry in load(ROOT / f"examples/{name}.yaml").entries if entry.resource]


def served(name: str, tree: FakeTree) -> list[dict[str, Any]]:
    """The example's resources, as the gateway is told them. Without probes, because these nodes lead to no device."""
    roots = {**tree.roots, "host": str(tree.path)}
    return [
        {
            "name": one.name,
            "driver": one.driver,
            "shares": {"count": one.shares.count, "ids": one.shares.ids, "env": dict(one.shares.env)},
            "options": {**one.options, **roots, "health": None},
        }
        for one in resources(name)
    ]


def same_in_any_order(env: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Names and values: a kubelet asks for the devices in an order of its own, which numbers and lists follow."""
    return sorted(env), sorted(_in_order(text) for text in env.values())


def _in_order(text: str) -> str:
    return json.dumps(json.loads(text), sort_keys=True) if text.startswith("{") else ",".join(sorted(text.split(",")))


@pytest.mark.parametrize("names", rounds(), ids=lambda names: names[0])
@pytest.mark.parametrize("kubelet", ["1.8", "1.10", "1.37"], indirect=True)
async def test_a_container_gets_what_the_example_says(
    kubelet: Kubelet, gateway: Gateway, folder: Path, names: Sequence[str]
) -> None:
    gateway.resources = []
    for name in names:
        tree = FakeTree(folder / name)
        tree.write(f"/var/run/\n{EXAMPLES[name].tree}")
        gateway.resources += served(name, tree)
    await kubelet.start()
    await gateway.start()
    for name in names:
        for one, case in zip(resources(name), EXAMPLES[name].cases, strict=True):
            await admitted(kubelet, one.shares, case)


async def admitted(kubelet: Kubelet, shares: Shares, case: Case) -> None:
    """A pod that asks for all shares of all healthy devices."""
    healthy, unhealthy = (
        shares.count * sum((reason is None) == well for reason in case.devices.values()) for well in (True, False)
    )
    await kubelet.wait_for_devices(healthy, unhealthy, resource=case.resource)
    if not healthy:
        return
    reply = await kubelet.admit(case.resource, {"c": {case.resource: healthy}})
    assert reply["ok"], reply
    given, expected = reply["containers"][0]["options"], case.allocation
    nodes = {(one.host_path, one.container_path or one.host_path, one.permissions) for one in expected.device_nodes}
    assert {(one["host_path"], one["container_path"], one["permissions"]) for one in given["devices"]} == nodes
    mounts = {(one.host_path, one.container_path, one.read_only) for one in expected.mounts}
    assert {(one["host_path"], one["container_path"], one["read_only"]) for one in given["mounts"]} == mounts
    env = {**expected.env, **environment(shares.env, healthy, shares.count)}
    assert same_in_any_order(given["envs"]) == same_in_any_order(env)
    assert given["annotations"] == expected.annotations
