"""Parameters of class and claim, on their way to the driver."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from dpgateway import Device
from dpgateway.dra.claims.reading import Asked
from tests.dra.claim_node import DRIVER, ClaimedResource, ClaimNode, lanes, one


@dataclass(frozen=True)
class Functions:
    function: str = field(default="aes", metadata={"per_claim": True})


def board(*abilities: str) -> ClaimedResource:
    resource = ClaimedResource(lanes("prepare", "release", *abilities), Device("a"), Device("b"))
    config = resource.granting.config
    config.set(replace(config.value, options=Functions()))
    return resource


def claim(node: ClaimNode, name: str, device: str, options: Any) -> Asked:
    document = {"apiVersion": "dpgateway/v1alpha1", "kind": "Parameters", "options": options}
    asked = node.allocate(name, device)
    found = node.store.get(("resourceclaims", "default", name))["status"]["allocation"]["devices"]
    found["config"] = [{"source": "FromClass", "opaque": {"driver": DRIVER, "parameters": document}}]
    return asked


async def test_the_driver_gets_its_options_with_those_of_the_claim(node: ClaimNode) -> None:
    resource = board("with_options")
    claims = await node.gateway(resource)
    await claims.prepare([claim(node, "c", "a", {"function": "net"})])
    assert resource.lanes.options == [Functions("net"), Functions("net")]  # allocate and prepare
    assert node.records["c"]["given"][0]["parameters"] == {"function": "net"}
    await claims.prepare([node.allocate("d", "b")])
    assert resource.lanes.options[2:] == [None, None]


async def test_they_are_the_same_after_a_boot(node: ClaimNode) -> None:
    asked = claim(node, "c", "a", {"function": "net"})
    await (await node.gateway(board("with_options"))).prepare([asked])
    resource = board("with_options")
    await (await node.gateway(resource, "boot-2")).prepare([asked])
    assert resource.lanes.options == [Functions("net"), Functions("net")]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"function": 1}, "default/c: parameters of request r for example.com/thing: function: found 1, expected"),
        ({"fuction": "x"}, "fuction: found an unknown key, expected one of function; did you mean function?"),
    ],
)
async def test_wrong_parameters_keep_nothing(node: ClaimNode, options: Any, text: str) -> None:
    resource = board("with_options")
    claims = await node.gateway(resource)
    assert text in await one(await claims.prepare([claim(node, "c", "a", options)]))
    assert node.records == {}
    assert resource.lanes.allocated == []
    assert len(await one(await claims.prepare([node.allocate("d", "a")]))) == 1


async def test_a_driver_that_takes_no_parameters(node: ClaimNode) -> None:
    claims = await node.gateway(board())
    answer = await one(await claims.prepare([claim(node, "c", "a", {"function": "net"})]))
    assert "takes no parameters: it has no with_options()" in answer
    assert node.records == {}
