"""Pods by DRA while their resource is the device plugin's again: the scheduler counts them, so their devices count."""

import json

import pytest

from dpgateway_simulator.cluster import SimulatedCluster
from tests.end_to_end.test_dra_status import command
from tests.support.gateway import Gateway
from tests.support.waiting import BUSY

DRIVER, NAME, OTHER = "dra.example.com", "example.com/thing", "example.com/other"
FEW = "Insufficient example.com/thing"


def resource(front, **more):
    return {"name": NAME, "driver": "simulated", "front": front, "options": {"count": 4}, **more}


@pytest.fixture
async def cluster(short_path):
    async with SimulatedCluster() as cluster:
        await cluster.node("1.37", root=short_path, name="node").start()
        cluster.device_class("thing", DRIVER, resource=NAME)
        cluster.device_class("other", DRIVER, resource=OTHER)
        await cluster.run("agent", {"c": {}}, within=BUSY)
        yield cluster


@pytest.fixture
async def gateway(cluster, short_path):
    async with Gateway(short_path, short_path / "device-plugins") as gateway:
        gateway.runtime = {"cdi_dirs": [str(short_path / "cdi")]}
        gateway.more = {"dra": {"driver": DRIVER}, "cluster": cluster.account(short_path)}
        yield gateway


async def allocatable(cluster, count):
    while cluster.allocatable("node", NAME) != count:
        await cluster.server.store.changed()


async def test_a_node_gives_all_its_devices_after_a_change_back(cluster, gateway):
    await gateway.start(resource("dra"))
    for pod in ("dra1", "dra2"):
        await cluster.run(pod, {"c": {NAME: 1}}, within=BUSY)
    claimed = {name: cluster.allocated(name)[0] for name in ("dra1", "dra2")}
    gateway.reload(resource("deviceplugin"))
    await allocatable(cluster, 4)

    # The scheduler's sum is right, and the kubelet is led to the other devices.
    for pod in ("plugin1", "plugin2"):
        await cluster.run(pod, {"c": {NAME: 1}}, within=BUSY)
    cluster.create("waits", {"c": {NAME: 1}})
    await cluster.until("waits", "Pending", because=FEW, within=BUSY)
    kubelet = cluster.kubelets["node"]
    given = {id_ for pod in ("plugin1", "plugin2") for id_ in kubelet.devices(pod, "c")["container"][NAME]}
    assert given.isdisjoint(claimed.values())

    # People see who has a device, and why it isn't given.
    devices = json.loads(await command(gateway, "status", "--output=json"))["resources"][0]["devices"]
    (one,) = [one for one in devices if one["id"] == claimed["dra1"]]
    assert (one["healthy"], one["holders"][0]["pod"]) == (True, "dra1")
    assert one["reason"] == f"withheld: held as {NAME} on the other front by default/dra1"

    await cluster.end("dra1", within=BUSY)
    await cluster.until("waits", "Running", within=BUSY)
    assert kubelet.devices("waits", "c")["container"][NAME].keys() == {claimed["dra1"]}


async def test_a_pod_waits_for_the_claim_of_one_that_was_deleted_by_force(cluster, gateway):
    """The scheduler sends it at once, while the containers of the other one still end."""
    await gateway.start(resource("dra", options={"count": 1}))
    await cluster.run("dra1", {"c": {NAME: 1}}, within=BUSY)
    gateway.reload(resource("deviceplugin", options={"count": 1}))
    await allocatable(cluster, 1)
    cluster.create("waits", {"c": {NAME: 1}})
    await cluster.until("waits", "Pending", because=FEW, within=BUSY)
    cluster.delete("dra1", force=True)
    await cluster.until("waits", "Running", within=BUSY)


@pytest.mark.parametrize("asks", [OTHER, "a hand-written claim"])
async def test_a_device_whose_pod_is_not_counted_is_unhealthy(cluster, gateway, asks):
    await gateway.start(resource("dra"))
    if asks == OTHER:
        await cluster.run("dra1", {"c": {OTHER: 1}}, within=BUSY)
    else:
        cluster.claim("claim", {"name": "r", "exactly": {"deviceClassName": "thing"}})
        await cluster.run("dra1", {"c": {}}, claims={"claim": ["c"]}, within=BUSY)
    gateway.reload(resource("deviceplugin"))
    await allocatable(cluster, 3)
    for pod in ("plugin1", "plugin2", "plugin3"):
        await cluster.run(pod, {"c": {NAME: 1}}, within=BUSY)
    cluster.create("waits", {"c": {NAME: 1}})
    await cluster.until("waits", "Pending", because=FEW, within=BUSY)
