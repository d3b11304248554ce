"""Nodes whose kubelets are up- and downgraded under pods, with ``front: auto``: never one device to two pods."""

import signal
from dataclasses import replace

import pytest

from dpgateway_simulator.cluster import SimulatedCluster
from dpgateway_simulator.cluster.cluster import SHORT
from tests.support.gateway import Gateway
from tests.support.waiting import BUSY, until

DRIVER, THING = "dra.example.com", "example.com/thing"


def things(**more):
    options = {"count": 4, "env_prefix": "THING"}
    return {"name": THING, "driver": "simulated", "front": "auto", "options": options, **more}


@pytest.fixture
async def cluster(short_path):
    async with SimulatedCluster() as cluster:
        cluster.device_class("thing", DRIVER, resource=THING, attributes={"resource": THING})
        yield cluster


@pytest.fixture
async def gateways(cluster, short_path):
    """Several, over one state directory."""
    made = []

    def gateway():
        one = Gateway(short_path, short_path / "device-plugins")
        one.runtime = {"cdi_dirs": [str(short_path / "cdi")]}
        one.more = {"dra": {"driver": DRIVER}, "cluster": cluster.account(short_path)}
        made.append(one)
        return one

    yield gateway
    for one in made:
        await one.close()


@pytest.fixture
def gateway(gateways):
    return gateways()


def devices(cluster, *pods):
    """The device of each of these pods that runs; no two have the same."""
    found = {
        pod: name
        for pod in pods
        for one in cluster.given(pod).values()
        for name in one["envs"]
        if name.startswith("THING_")
    }
    assert len(set(found.values())) == len(found), found
    return found


async def test_a_node_is_upgraded_under_pods_and_comes_back(cluster, gateway, short_path):
    kubelet = cluster.node("1.34", root=short_path, name="node", pauses=replace(SHORT, reconcile=0.5))
    await kubelet.start()
    await gateway.start(things())
    await cluster.run("old", {"c": {THING: 1}}, within=BUSY)
    assert cluster.devices() == {}

    await kubelet.upgrade("1.37")
    await gateway.said("DRA offers it", seconds=BUSY)
    await cluster.run("new", {"c": {THING: 1}}, within=BUSY)
    assert cluster.allocated("new") != []
    assert devices(cluster, "old", "new").keys() == {"old", "new"}

    # The container of the older pod restarts as ever; its device is prepared by the plugin that stays for that.
    assert (await kubelet.start_container("old", "c"))["ok"]
    assert devices(cluster, "old", "new").keys() == {"old", "new"}

    await kubelet.upgrade("1.34")
    await gateway.said("the device plugin offers it", seconds=BUSY)
    await cluster.run("back", {"c": {THING: 1}}, within=BUSY)
    # The older kubelet has ended the pod that it can't give a device to, or keeps it.
    assert devices(cluster, "old", "new", "back").keys() >= {"old", "back"}
    for pod in ("old", "new", "back"):
        await cluster.end(pod, within=BUSY)
    await kubelet.wait_for(lambda: kubelet.counts(THING) == (4, 4), BUSY)
    said = [one["message"] for one in gateway.entries() if one["level"] in {"warning", "error"}]
    assert [text for text in said if "slices" in text or "Unhealthy" in text or "refuses" in text] == []


async def test_gateways_killed_on_the_way(cluster, gateway, short_path):
    """In each state, under a pod of each front."""
    kubelet = cluster.node("1.34", root=short_path, name="node", pauses=replace(SHORT, reconcile=0.5))
    await kubelet.start()
    await gateway.start(things())
    await cluster.run("old", {"c": {THING: 1}}, within=BUSY)

    async def killed(text, count=1):
        await gateway.said(text, count, BUSY)
        await gateway.end(signal.SIGKILL)
        await gateway.start()

    await kubelet.upgrade("1.37")
    await killed("it leaves the device plugin")
    await killed("DRA offers it")
    await cluster.run("new", {"c": {THING: 1}}, within=BUSY)
    assert devices(cluster, "old", "new").keys() == {"old", "new"}
    assert cluster.allocated("new") != []

    await kubelet.upgrade("1.34")
    await killed("it leaves DRA")
    await killed("the device plugin offers it")
    await cluster.run("back", {"c": {THING: 1}}, within=BUSY)
    assert devices(cluster, "old", "new", "back").keys() >= {"old", "back"}


@pytest.mark.parametrize("recorded", [False, True], ids=["before", "after"])
async def test_a_gateway_killed_at_its_first_choice(cluster, gateway, short_path, recorded):
    """Before, or after, the record of it."""
    kubelet = cluster.node("1.37", root=short_path, name="node")
    await kubelet.start()
    await cluster.run("agent", {"c": {}}, within=BUSY)
    for pod in ("first", "second"):
        cluster.create(pod, {"c": {THING: 1}})
    await gateway.start(things())
    if recorded:
        await until(lambda: any((short_path / "state" / "dra" / "fronts").glob("*.json")), BUSY)
    else:
        await gateway.said("serving 1 resource", seconds=BUSY)
    await gateway.end(signal.SIGKILL)
    await gateway.start()
    for pod in ("first", "second"):
        await cluster.until(pod, "Running", within=BUSY)
        assert cluster.allocated(pod) != []
    assert devices(cluster, "first", "second").keys() == {"first", "second"}


async def test_a_newer_gateway_takes_over_on_either_front(cluster, gateways, short_path):
    kubelet = cluster.node("1.37", root=short_path, name="node")
    await kubelet.start()
    await cluster.run("agent", {"c": {}}, within=BUSY)  # a kubelet that lists no pod may not know its pods yet
    first, second, third = gateways(), gateways(), gateways()
    cluster.server.store.delete(("deviceclasses", "", "thing"))
    await first.start(things())
    await until(lambda: cluster.allocatable("node", THING), BUSY)
    cluster.device_class("thing", DRIVER, resource=THING, attributes={"resource": THING})
    await first.said("it leaves the device plugin", seconds=BUSY)
    # The second one begins on the device plugin, whichever of the two then goes to DRA.
    await second.start(things())
    await until(lambda: cluster.devices(DRIVER), BUSY)
    await cluster.run("new", {"c": {THING: 1}}, within=BUSY)
    assert await first.end() == 0
    await cluster.run("next", {"c": {THING: 1}}, within=BUSY)
    await third.start(things())
    await second.said("handed dra.example.com over", seconds=BUSY)
    assert await second.end() == 0
    await cluster.run("last", {"c": {THING: 1}}, within=BUSY)
    assert devices(cluster, "new", "next", "last").keys() == {"new", "next", "last"}
    assert all(cluster.allocated(pod) for pod in ("new", "next", "last"))
    for pod in ("new", "next", "last"):
        await cluster.end(pod, within=BUSY)


async def test_an_older_gateway_that_lingers_takes_nothing_back(cluster, gateways, short_path):
    """It has another resource, and a front for good. The newer one changes the front, there and back."""
    kubelet = cluster.node("1.34", root=short_path, name="node", pauses=replace(SHORT, reconcile=0.5))
    await kubelet.start()
    older, newer = gateways(), gateways()
    older.environment["DPGATEWAY_LINGER"] = "10m"
    mine = {"name": "example.com/mine", "driver": "simulated", "front": "deviceplugin"}
    await older.start(things(front="deviceplugin"), mine)
    await cluster.run("old", {"c": {THING: 1, mine["name"]: 1}}, within=BUSY)
    older.process.send_signal(signal.SIGTERM)
    await older.said(f"taken over {THING}, {mine['name']}", seconds=BUSY)

    newer.folder = short_path / "newer"
    newer.folder.mkdir()
    newer.more = {**newer.more, "state_dir": str(short_path / "state")}
    await newer.start(things())
    await older.said("handed over to another gateway", seconds=BUSY)
    await kubelet.upgrade("1.37")
    await newer.said("DRA offers it", seconds=BUSY)
    await cluster.run("new", {"c": {THING: 1}}, within=BUSY)
    assert cluster.allocated("new") != []
    await kubelet.upgrade("1.34")
    await newer.said("the device plugin offers it", seconds=BUSY)
    await cluster.run("back", {"c": {THING: 1}}, within=BUSY)
    assert devices(cluster, "old", "back").keys() == {"old", "back"}
    assert older.running
    assert not any("took over" in line for line in older.log)
    assert sum("handed over" in line for line in older.log) == 1


async def test_an_older_kubelet_that_knows_no_dra(cluster, gateway, short_path):
    """It neither registers the driver nor deletes slices, so the gateway does."""
    kubelet = cluster.node("1.37", root=short_path, name="node", pauses=replace(SHORT, reconcile=0.5))
    await kubelet.start()
    await cluster.run("agent", {"c": {}}, within=BUSY)
    await gateway.start(things())
    await until(lambda: cluster.devices(DRIVER), BUSY)
    await kubelet.stop()
    await gateway.end(signal.SIGKILL)
    await kubelet.upgrade("1.31")
    await gateway.start()
    await gateway.said("the device plugin offers it", seconds=BUSY)
    assert not cluster.devices()
    await cluster.run("back", {"c": {THING: 1}}, within=BUSY)

    # From then on that isn't an error: nothing needs the driver there.
    await cluster.end("back", within=BUSY)
    await gateway.end()
    gateway.log.clear()
    await gateway.start()
    await gateway.said("no handler registered", seconds=BUSY)
    await cluster.run("next", {"c": {THING: 1}}, within=BUSY)
    assert gateway.warnings() == []


@pytest.mark.parametrize(("before", "after"), [("1.37", "1.34"), ("1.37", "1.31"), ("1.34", "1.37")])
async def test_dra_for_good_ends_with_its_kubelet(cluster, gateway, short_path, before, after):
    """The disk has the front that the configuration gave last, which the next kubelet may not know."""
    kubelet = cluster.node(before, root=short_path, name="node", pauses=replace(SHORT, reconcile=0.5))
    await kubelet.start()
    await cluster.run("agent", {"c": {}}, within=BUSY)
    await gateway.start(things(front="dra"))
    if before == "1.37":
        await cluster.run("old", {"c": {THING: 1}}, within=BUSY)
    else:
        await gateway.said("expected 1.36 or later", seconds=BUSY)
    await kubelet.stop()
    await gateway.end(signal.SIGKILL)
    await kubelet.upgrade(after)
    await gateway.start(things())
    if after == "1.37":
        await until(lambda: cluster.devices(DRIVER), BUSY)
    else:
        await kubelet.wait_for(lambda: kubelet.counts(THING)[0], BUSY)
        assert not cluster.devices()
    await cluster.run("new", {"c": {THING: 1}}, within=BUSY)
    assert bool(cluster.allocated("new")) == (after == "1.37")
    assert "new" in devices(cluster, "old", "new")
