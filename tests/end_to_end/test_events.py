"""Kubernetes events that the gateway's process writes, for pods on either front."""

import json
import signal

import pytest

from dpgateway.dra.publishing import Us
from dpgateway.events.writing import FILE
from dpgateway_simulator import Kubelet
from tests.dra.test_front import Node
from tests.support.gateway import Gateway
from tests.support.waiting import until

NAME = "example.com/thing"


class Rig:
    """A gateway, its kubelet, and faults of its devices."""

    def __init__(self, folder, api):
        self.api, self._control, self.said = api, folder / "faults.json", folder / "state" / FILE
        self.node = Node(folder, api)
        self.node.us = Us("dra.example.com", "node")
        self.gateway = Gateway(folder, folder / "device-plugins")
        self.gateway.runtime = {"cdi_dirs": [str(folder / "cdi")]}
        (folder / "token").write_text("first")
        self.cluster = {"server": api.url, "token": str(folder / "token"), "events": True}
        self.gateway.more = {"cluster": self.cluster}

    def resource(self, **more):
        options = {"count": 2, "control_file": str(self._control)}
        return {"name": NAME, "driver": "simulated", "options": options, **more}

    def faults(self, *faults):
        new = self._control.with_suffix(".new")
        new.write_text(json.dumps({"faults": faults}))
        new.rename(self._control)

    @property
    def events(self):
        found = [one for (plural, _, _), one in self.api.store.objects.items() if plural == "events"]
        return sorted(found, key=lambda one: one.get("series", {}).get("lastObservedTime") or one["eventTime"])

    async def has(self, *reasons):
        await until(lambda: [one["reason"] for one in self.events] == list(reasons), found=lambda: str(self.events))


@pytest.fixture
async def rig(short_path, api):
    one = Rig(short_path, api)
    yield one
    await one.gateway.close()


@pytest.fixture
async def kubelet(rig):
    async with Kubelet("1.36", rig.node.root / "device-plugins") as kubelet:
        assert (await kubelet.admit("other", {"c": {}}))["ok"]
        yield kubelet


async def test_a_pod_is_told_of_its_device(rig, kubelet):
    await rig.gateway.start(rig.resource())
    await kubelet.wait_for(lambda: kubelet.counts(NAME) == (2, 2))
    assert (await kubelet.admit("one", {"c": {NAME: 1}}))["ok"]
    (held,) = kubelet.devices("one", "c")["container"][NAME]

    rig.faults({"unhealthy": "no link"})
    await rig.has("DeviceUnhealthy")
    (event,) = rig.events
    regarding = event["regarding"]
    assert (regarding["kind"], regarding["name"], regarding["uid"]) == ("Pod", "one", "one")
    assert f"device {held} of {NAME} is Unhealthy: no link" in event["note"]

    # A successor repeats nothing, and goes on where the killed one was.
    await until(lambda: "no link" in rig.said.read_text())
    await rig.gateway.end(signal.SIGKILL)
    await rig.gateway.start()
    rig.faults({"absent": True, "devices": [held]})
    await rig.has("DeviceUnhealthy", "DeviceGone")
    assert not any("series" in one for one in rig.events)
    rig.faults()
    await rig.has("DeviceUnhealthy", "DeviceGone", "DeviceHealthy")
    assert not [line for line in rig.gateway.entries() if line["logger"].endswith("orphans")]

    # Without events nobody is told; a reload is enough.
    rig.gateway.more = {"cluster": {**rig.cluster, "events": False}}
    rig.gateway.reload(rig.resource())
    await rig.gateway.said("the configuration was read again")
    asked = len(rig.api.asked)
    rig.faults({"unhealthy": "no link"})
    await kubelet.wait_for(lambda: kubelet.counts(NAME)[1] == 0)
    assert await rig.gateway.end() == 0
    assert len(rig.api.asked) == asked


async def test_a_pod_of_a_claim_is_told_too(rig, kubelet):
    rig.gateway.more["dra"] = {"driver": rig.node.us.driver}
    await rig.gateway.start(rig.resource(front="dra"))
    await rig.node.register()
    await until(lambda: len(rig.node.devices) == 2)
    assert (await rig.node.prepare(rig.node.allocate("c", "node-0", "one"))).error == ""
    rig.faults({"unhealthy": "no link"})
    await rig.has("DeviceUnhealthy")
    assert rig.events[0]["regarding"]["uid"] == "uid-one"


async def test_the_node_is_told_of_a_resource_that_fails(rig, kubelet):
    await rig.gateway.start({"name": NAME, "driver": "none-such"})
    await rig.has("ResourceFailed")
    assert rig.events[0]["regarding"] == {"apiVersion": "v1", "kind": "Node", "name": "node", "uid": "node"}
    rig.gateway.reload(rig.resource())
    await rig.has("ResourceFailed", "ResourceServed")
