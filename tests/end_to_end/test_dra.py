"""The gateway's process with resources on both fronts, a simulated kubelet, and a simulated API server."""

import asyncio
import shutil
import signal
import socket

import pytest

from dpgateway.dra.publishing import Us
from dpgateway_simulator import Kubelet
from tests.dra.test_front import Node
from tests.support.containerd import containerd
from tests.support.files import texts
from tests.support.gateway import Gateway
from tests.support.waiting import until

NAME = "example.com/thing"
US = Us("dra.example.com", "node")
HANGS = {"count": 2, "faults": [{"call": "list", "hang": True}]}
"""Options with which the driver never lists."""


def resource(front="dra", **more):
    return {"name": NAME, "driver": "simulated", "front": front, "options": {"count": 2, "env_prefix": "THING"}, **more}


@pytest.fixture
def node(short_path, api):
    one = Node(short_path, api)
    one.us = US
    return one


@pytest.fixture
async def kubelet(node):
    async with Kubelet("1.36", node.root / "device-plugins") as kubelet:
        # A kubelet that lists no pod at all may not know its pods yet, so nothing would be published for 30 s.
        assert (await kubelet.admit("other", {"c": {}}))["ok"]
        yield kubelet


@pytest.fixture
async def gateways(short_path, node, api):
    """Several, over one state directory."""
    (short_path / "token").write_text("first")
    made = []

    def gateway():
        one = Gateway(short_path, short_path / "device-plugins")
        one.runtime = {"cdi_dirs": [str(short_path / "cdi")]}
        one.more = {"dra": {"driver": US.driver}, "cluster": {"server": api.url, "token": str(short_path / "token")}}
        made.append(one)
        return one

    yield gateway
    for one in made:
        await one.close()


@pytest.fixture
def gateway(gateways):
    return gateways()


async def publishes(node, gateway, **more):
    """It starts, and its two devices are in slices."""
    await gateway.start(resource(**more))
    await node.register()
    await until(lambda: len(node.devices) == 2)


async def gives(kubelet, gateway, **more):
    """It starts as a device plugin, and the pod `one` gets a device. Returns the device."""
    await gateway.start(resource("deviceplugin", **more))
    await kubelet.wait_for(lambda: kubelet.counts(NAME) == (2, 2))
    assert (await kubelet.admit("one", {"c": {NAME: 1}}))["ok"]
    (held,) = kubelet.devices("one", "c")["container"][NAME]
    return held


async def registered_again(node):
    """By the gateway that runs: sockets of ended ones may still be there."""
    await until(lambda: node.sockets and all(map(answers, node.sockets)))
    await node.register()


def answers(path):
    with socket.socket(socket.AF_UNIX) as one:
        return one.connect_ex(str(path)) == 0


async def test_a_pod_gets_its_device_by_a_claim(node, kubelet, gateway):
    await publishes(node, gateway)
    claim = node.allocate("c", next(iter(node.devices)))
    (answer,) = (await node.prepare(claim)).devices
    assert answer.cdi_device_ids
    assert await node.unprepare(claim) == ""
    assert await gateway.end() == 0
    assert len(node.devices) == 2, "the slices stay for a successor"


async def test_nothing_is_published_while_the_runtime_has_cdi_switched_off(node, kubelet, gateway, short_path):
    info = {"kubeletVersion": "v1.36.4", "containerRuntimeVersion": "containerd://1.7.24"}
    found = node.store.get(("nodes", "", US.node))
    node.store.replace(("nodes", "", US.node), {**found, "status": {"nodeInfo": info}})
    async with containerd(short_path / "containerd.sock", "v1.7.24", cdi=False) as socket:
        gateway.runtime["socket"] = str(socket)
        await gateway.start(resource())
        await node.register()
        await gateway.said("containerd 1.7.24 of node node has CDI switched off")
        assert not node.slices

    # It is configured anew, and restarted: the next registration tells, or the next look.
    async with containerd(short_path / "containerd.sock", "v1.7.24"):
        await node.register()
        await until(lambda: len(node.devices) == 2)


RELEASES = {"count": 2, "release": True}


async def test_what_the_other_front_gave_is_released_by_the_same_driver(node, kubelet, gateway):
    held = await gives(kubelet, gateway, options=RELEASES)
    gateway.reload(resource(options=RELEASES))
    await node.register()
    await until(lambda: len(node.devices) == 1)
    assert held not in node.devices
    kubelet.remove("one")
    await gateway.said(f"released {held}")
    await until(lambda: len(node.devices) == 2)

    claim = node.allocate("c", "node-0")
    await node.prepare(claim)
    gateway.reload(resource("deviceplugin", options=RELEASES))
    await kubelet.wait_for(lambda: kubelet.counts(NAME) == (2, 1))
    assert await node.unprepare(claim) == ""
    await gateway.said("released node-0", 2 if held == "node-0" else 1)
    await kubelet.wait_for(lambda: kubelet.counts(NAME) == (2, 2))
    assert not [line for line in gateway.log if "isn't told" in line]


async def test_that_is_so_once_over_restarts(node, kubelet, gateway):
    """The container ends while there is no gateway."""
    held = await gives(kubelet, gateway, options=RELEASES)
    gateway.reload(resource(options=RELEASES))
    await node.register()
    await until(lambda: len(node.devices) == 1)
    assert await gateway.end() == 0
    kubelet.remove("one")
    for _ in range(2):
        await gateway.start(resource(options=RELEASES))
        await registered_again(node)
        await until(lambda: len(node.devices) == 2)
        await gateway.said(f"released {held}")
        await until(lambda: not journals(node))
        assert await gateway.end() == 0
    assert len([line for line in gateway.log if f"released {held}" in line]) == 1
    assert not [line for line in gateway.log if "isn't told" in line]


def journals(node):
    """Those of the resource. A gateway removes them at any time."""
    return [path for path, text in texts(node.root / "state").items() if NAME in text]


async def test_nor_after_a_restart_without_journals(node, kubelet, gateway, short_path):
    held = await gives(kubelet, gateway)
    await until(lambda: node.sockets)
    await gateway.end(signal.SIGKILL)
    shutil.rmtree(short_path / "state")
    await gateway.start(resource())
    await registered_again(node)
    await until(lambda: len(node.devices) == 1)
    assert held not in node.devices


async def test_what_a_claim_has_is_not_on_the_list_of_a_device_plugin(node, kubelet, gateway):
    """A reload to that front is in test_what_the_other_front_gave_is_released_by_the_same_driver."""
    await publishes(node, gateway)
    claim = node.allocate("c", "node-0")
    await node.prepare(claim)
    await gateway.end(signal.SIGKILL)
    await gateway.start(resource("deviceplugin"))
    await registered_again(node)
    await kubelet.wait_for(lambda: kubelet.counts(NAME) == (2, 1))
    assert (await kubelet.admit("one", {"c": {NAME: 1}}))["ok"]
    assert kubelet.devices("one", "c")["container"][NAME].keys() == {"node-1"}

    # The claim ends as ever, and its device is free for the other front.
    assert await node.unprepare(claim) == ""
    await kubelet.wait_for(lambda: kubelet.counts(NAME) == (2, 2))
    await until(lambda: not node.devices)


async def counted(node, kubelet, gateway, *, restarts, allocate="8s"):
    """A claim of a pod that the scheduler counts has one device of the device plugin, and a pod the other one.
    ``allocate``: the timeout, of which an Allocate waits half for a claim's end.
    """
    node.store.create("deviceclasses", "", {"metadata": {"name": "things"}, "spec": {"extendedResourceName": NAME}})
    more = {"timeouts": {"allocate": allocate}}
    await publishes(node, gateway, **more)
    claim = node.allocate("c", "node-0", "owner", class_="things")
    await node.prepare(claim)
    if restarts:
        await gateway.end(signal.SIGKILL)
        await gateway.start(resource("deviceplugin", **more))
        await registered_again(node)
    else:
        gateway.reload(resource("deviceplugin", **more))
    await kubelet.wait_for(lambda: kubelet.counts(NAME) == (2, 2))

    # The kubelet is led to the device that is free.
    assert (await kubelet.admit("one", {"c": {NAME: 1}}))["ok"]
    assert kubelet.devices("one", "c")["container"][NAME].keys() == {"node-1"}
    return claim


@pytest.mark.parametrize("restarts", [False, True])
async def test_what_a_counted_claim_has_is_healthy_and_given_to_nobody(node, kubelet, gateway, restarts):
    await counted(node, kubelet, gateway, restarts=restarts)
    refused = await kubelet.admit("two", {"c": {NAME: 1}})
    assert f"device node-0 is withheld: held as {NAME} on the other front by default/owner" in refused["error"]


async def test_what_a_counted_claim_has_is_given_after_its_end(node, kubelet, gateway):
    claim = await counted(node, kubelet, gateway, restarts=False, allocate="2m")
    waits = asyncio.create_task(kubelet.admit("two", {"c": {NAME: 1}}))
    assert await node.unprepare(claim) == ""
    assert (await waits)["ok"]


@pytest.fixture
async def taken(node, kubelet, gateways):
    """A gateway whose device node-0 a claim has, and a second one that takes over: the kubelet hasn't seen it yet."""
    first, second = gateways(), gateways()
    await publishes(node, first)
    node.claim = node.allocate("c", "node-0")
    node.answer = await node.prepare(node.claim)
    node.versions = [one["metadata"]["resourceVersion"] for one in node.slices]
    await second.start(resource())
    await until(lambda: len(node.sockets) == 2)
    return first, second


async def test_another_gateway_takes_over(node, taken):
    first, _ = taken
    # The kubelet calls the old one until it knows the new one.
    other = node.allocate("other", "node-1")
    assert (await node.prepare(other)).devices
    (new,) = [one for one in node.sockets if one != node.registered]
    await node.register(new)
    await until(lambda: node.sockets == [new])
    assert await node.prepare(node.claim) == node.answer
    assert await node.unprepare(other) == ""
    assert [one["metadata"]["resourceVersion"] for one in node.slices] == node.versions
    assert await first.end() == 0
    assert await node.unprepare(node.claim) == ""


async def test_a_gateway_serves_on_when_its_successor_dies(node, taken):
    _, second = taken
    other = node.allocate("other", "node-1")
    asking = asyncio.create_task(node.prepare(other))
    await second.end(signal.SIGKILL)
    assert (await asking).devices
    assert await node.prepare(node.claim) == node.answer
    assert await node.unprepare(node.claim) == ""
    await until(lambda: len(node.devices) == 2)
    assert [one["metadata"]["resourceVersion"] for one in node.slices] == node.versions, "nothing was deleted meanwhile"


async def test_claims_end_without_a_configured_driver(node, kubelet, gateway):
    await publishes(node, gateway)
    claim = node.allocate("c", "node-0")
    await node.prepare(claim)
    await gateway.end()
    del gateway.more["dra"]
    await gateway.start(resource("deviceplugin"))
    await kubelet.wait_for(lambda: kubelet.counts(NAME) == (2, 1))
    await registered_again(node)
    gateway.more["dra"] = {"driver": "new.example.com"}
    gateway.reload(resource("deviceplugin"))
    await gateway.said("dra.driver changes with the next start of the gateway only")
    assert await node.unprepare(claim) == ""
    await kubelet.wait_for(lambda: kubelet.counts(NAME) == (2, 2))


@pytest.fixture
async def hanging(node, kubelet, gateway):
    """A gateway whose driver never lists. An earlier one has published its devices, and a claim has node-0."""
    await publishes(node, gateway)
    node.claim = node.allocate("c", "node-0")
    await node.prepare(node.claim)
    await gateway.end()
    await gateway.start(resource(options=HANGS))
    await registered_again(node)
    assert len(node.devices) == 2
    return gateway


async def test_a_resource_that_never_listed_may_leave_the_front(node, kubelet, hanging):
    hanging.reload(resource("deviceplugin"))
    await kubelet.wait_for(lambda: kubelet.counts(NAME) == (2, 1))
    assert await node.unprepare(node.claim) == ""
    await kubelet.wait_for(lambda: kubelet.counts(NAME) == (2, 2))
    await until(lambda: not node.slices)


async def test_sockets_of_killed_gateways_go(node, kubelet, gateway, short_path):
    for _ in range(2):
        await gateway.start(resource())
        await registered_again(node)
        await gateway.end(signal.SIGKILL)
    await gateway.start(resource())
    await registered_again(node)
    assert len(list((short_path / "plugins" / US.driver).glob("dra-*.sock"))) == 1


async def test_a_pool_on_both_fronts_is_handed_over(node, kubelet, gateways, short_path):
    """Each front hands over what it has of the pool, in whichever order."""
    control, other = short_path / "control.json", "example.com/other"
    control.write_text('{"faults": [{"call": "prepare", "hang": true}]}')
    options = {"count": 2, "prepare": True, "control_file": str(control)}
    resources = resource(pool="things", options=options), resource("deviceplugin", name=other, pool="things")
    first, second = gateways(), gateways()
    await first.start(*resources)
    await node.register()
    await until(lambda: len(node.devices) == 2)
    await kubelet.wait_for(lambda: kubelet.counts(other) == (2, 2))

    # A claim under way holds up the handover by DRA, so the device plugin's is asked for before.
    node.pool = "things"
    preparing = asyncio.create_task(node.prepare(node.allocate("c", next(iter(node.devices)))))
    await until(lambda: list((short_path / "state/dra/claims").glob("*.json")))
    await second.start(*resources)
    await second.said(f"waiting because another gateway serves {other}")
    control.unlink()
    assert (await preparing).devices
    await until(lambda: len(node.sockets) == 2)
    await node.register(next(one for one in node.sockets if one != node.registered))
    await first.said("handed dra.example.com over")
    await first.said("handed over to another gateway")
    assert await first.end() == 0
    assert (await kubelet.admit("one", {"c": {other: 1}}))["ok"]
