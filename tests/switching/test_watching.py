"""The facts of a node at a simulated API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest

from dpgateway import Device
from dpgateway.cluster.server import ApiServer, ObjectKind
from dpgateway.cluster.watching import WatchedObjects
from dpgateway.dra.publishing import Publisher, Us
from dpgateway.dra.slices.layout import contents
from dpgateway.dra.slices.offered import Offered, pool
from dpgateway.kit.complaint import Complaint
from dpgateway.kit.log import bind
from dpgateway.kit.observable import Observable
from dpgateway.node.runtime import CdiSupport
from dpgateway.resource.standing import Standing
from dpgateway.switching.facts import DraFacts, Fact
from dpgateway.switching.watching import MUTE, FactSources, WatchedFacts, extended
from dpgateway_simulator.apiserver import SimulatedApiServer as Simulated
from tests.dra.conftest import LateServer
from tests.support.resources import configured
from tests.support.time import Clock, hurry
from tests.support.waiting import until

DRIVER, NAME, POOL = "dra.example.com", "example.com/serial", "n1/example.com/serial"
US = Us(DRIVER, "n1")
SOFTWARE = {"kubeletVersion": "v1.37.1", "containerRuntimeVersion": "containerd://2.1.4"}
SELECTOR = f'device.driver == "{DRIVER}" && device.attributes["{DRIVER}"].resource == "{NAME}"'


class Rig:
    """The facts, and what they are made of."""

    def __init__(self, server: ApiServer, simulated: Simulated) -> None:
        complaint = Complaint(bind("test"))
        self.simulated, self.store = simulated, simulated.store
        self.kubelet, self.standing = Observable(True), Observable(Standing("dra", "unready"))
        self.seen = WatchedObjects(server, ObjectKind.SLICE, US.fields, complaint)
        self.publisher = Publisher(server, US, self.seen, Observable(True), complaint)
        self.clock, self.cdi = Clock(), CdiSupport(None)
        sources = FactSources(self.kubelet, self.standing, self.publisher, self.seen, self._asked)
        self.watched = WatchedFacts(server, US, sources, self.clock)
        self.watched.need([configured(name=NAME)])

    async def _asked(self) -> CdiSupport:
        return self.cdi

    @property
    def facts(self) -> DraFacts:
        return self.watched.facts.value

    async def until(self, holds: Callable[[DraFacts], object]) -> None:
        async with asyncio.timeout(60):
            await self.watched.facts.wait_for(holds)

    async def hang_up(self) -> None:
        """Cuts off the watch of slices, too: a dry run may be answered before the watch is connected."""
        await until(lambda: "GET resourceslices watch" in self.simulated.asked)
        self.simulated.hang_up()

    async def forget(self) -> None:
        """Has the server forget what the watches know."""
        await until(lambda: "GET resourceslices watch" in self.simulated.asked)
        self.store.create("nodes", "", {"metadata": {"name": "n2"}})
        self.store.compact()

    def node(self, name: str = "n1", **status: Any) -> None:
        status = {"nodeInfo": SOFTWARE, **status}
        self.store.update(("nodes", "", name), lambda one: one.update({"status": status}))

    def device_class(self, name: str, expression: str = SELECTOR) -> None:
        spec = {"extendedResourceName": NAME, "selectors": [{"cel": {"expression": expression}}]}
        self.store.create("deviceclasses", "", {"metadata": {"name": name}, "spec": spec})

    def want(self, *, shares: int = 1) -> None:
        offered = [Offered(Device("a"), NAME, "a", frozenset({"a"}), "", shares)]
        self.publisher.wanted.set({POOL: contents(pool(offered, DRIVER, {}))})


@pytest.fixture
async def rig(server: ApiServer, simulated: Simulated) -> AsyncIterator[Rig]:
    one = Rig(server, simulated)
    runs = one.seen.run, one.publisher.run, one.watched.run
    tasks = [asyncio.create_task(run()) for run in runs]
    yield one
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


def class_of(facts: DraFacts) -> Fact:
    return (facts.classes or {}).get(NAME, Fact(None))


async def test_nothing_is_known_before_anybody_said_something(server: ApiServer, simulated: Simulated) -> None:
    facts = Rig(server, simulated).facts
    known = {one.value for one in (facts.registered, facts.node, facts.slices, facts.rights)}
    assert (known, facts.classes, facts.allocatable) == ({None}, None, None)
    assert facts.fields[POOL].value is None
    assert all(one.text for one in (facts.registered, facts.slices, facts.rights, facts.fields[POOL]))


async def test_all_becomes_known(rig: Rig) -> None:
    rig.node()
    rig.device_class("serial")
    rig.standing.set(replace(rig.standing.value, state="registered", registered=True))
    rig.want()
    await rig.until(lambda it: [*it.fields.values(), class_of(it)] == [Fact(True, "", rig.clock.now)] * 2)
    await rig.until(lambda it: (it.registered.value, it.node.value, it.slices.value, it.rights.value) == (True,) * 4)


async def test_a_fact_has_the_time_since_which_it_is_so(rig: Rig) -> None:
    await rig.until(lambda it: class_of(it).value is False)
    assert "no DeviceClass has" in class_of(rig.facts).text
    began, rig.clock.now = rig.clock.now, rig.clock.now + 100
    rig.device_class("serial", "true")
    await rig.until(lambda it: "DeviceClass serial" in class_of(it).text)
    assert class_of(rig.facts)[::2] == (False, began)
    rig.store.update(
        ("deviceclasses", "", "serial"),
        lambda one: one["spec"].update({"selectors": [{"cel": {"expression": SELECTOR}}]}),
    )
    await rig.until(lambda it: class_of(it).value)
    assert class_of(rig.facts) == (True, "", began + 100)
    rig.store.delete(("deviceclasses", "", "serial"))
    await rig.until(lambda it: class_of(it).value is False)


class TestNode:
    @pytest.mark.parametrize(
        ("software", "value", "said"),
        [
            ({}, True, ""),
            ({"kubeletVersion": "v1.34.2"}, False, "kubelet v1.34.2 of node n1"),
            ({"containerRuntimeVersion": "containerd://1.6.20"}, False, "containerd 1.6.20 of node n1"),
            ({"kubeletVersion": ""}, None, "the version of the kubelet"),
            ({"containerRuntimeVersion": "containerd://1.7.20"}, None, "handles CDI names isn't known"),
        ],
    )
    async def test_what_it_says(self, rig: Rig, software: dict[str, str], value: bool | None, said: str) -> None:
        rig.node(nodeInfo=SOFTWARE | software)
        await rig.until(lambda it: it.node.value is value and said in it.node.text)

    @pytest.mark.parametrize("by_name", [True, False])
    async def test_the_runtime_itself_knows_better(self, rig: Rig, by_name: bool) -> None:
        rig.cdi = CdiSupport(by_name)
        rig.node(nodeInfo=SOFTWARE | {"containerRuntimeVersion": "containerd://1.7.20"})
        await rig.until(lambda it: it.node.value is by_name)
        rig.node()
        rig.cdi = CdiSupport(not by_name)
        await rig.until(lambda it: it.node.value is not by_name)

    async def test_what_another_runtime_does_isnt_known_from_the_one_before(self, rig: Rig) -> None:
        rig.cdi = CdiSupport(True)
        rig.node()
        await rig.until(lambda it: it.node.value)
        rig.cdi = CdiSupport(None)
        rig.node(nodeInfo=SOFTWARE | {"containerRuntimeVersion": "containerd://1.7.20"})
        await rig.until(lambda it: it.node.value is None and "containerd 1.7.20" in it.node.text)

    async def test_another_runtime_that_nobody_can_ask(self, rig: Rig) -> None:
        """It may drop CDI names: containers would run without their devices."""
        old = SOFTWARE | {"containerRuntimeVersion": "containerd://1.7.20"}
        rig.node()
        await rig.until(lambda it: it.node.value)
        rig.node(nodeInfo=old)
        await rig.until(lambda it: it.node.value is None)
        rig.clock.now += MUTE
        rig.node(nodeInfo=old, conditions=[{"type": "Ready", "lastHeartbeatTime": "2026-11-27T00:05:00Z"}])
        await rig.until(lambda it: it.node.value is False and "handles CDI names isn't known" in it.node.text)

    async def test_cdi_is_switched_on_under_the_same_kubelet(self, rig: Rig) -> None:
        """A runtime starts again without its kubelet, whose Node has nothing new then."""
        old = SOFTWARE | {"containerRuntimeVersion": "containerd://1.7.20"}
        rig.cdi = CdiSupport(False)
        rig.node(nodeInfo=old)
        await rig.until(lambda it: it.node.value is False)
        rig.cdi = CdiSupport(True)
        rig.node(nodeInfo=old, conditions=[{"type": "Ready", "lastHeartbeatTime": "2026-11-27T00:05:00Z"}])
        await rig.until(lambda it: it.node.value)

    async def test_another_kubelet(self, rig: Rig) -> None:
        rig.node()
        await rig.until(lambda it: it.node.value)
        rig.node(nodeInfo=SOFTWARE | {"kubeletVersion": "v1.34.0"})
        await rig.until(lambda it: it.node.value is False)

    async def test_there_is_none(self, rig: Rig) -> None:
        rig.store.delete(("nodes", "", "n1"))
        await rig.until(lambda it: "--node-name" in it.node.text)
        assert (rig.facts.node.value, rig.facts.allocatable) == (None, None)
        rig.store.create("nodes", "", {"metadata": {"name": "n1"}, "status": {"nodeInfo": SOFTWARE}})
        await rig.until(lambda it: it.node.value and it.allocatable == {})
        rig.store.delete(("nodes", "", "n1"))
        rig.device_class("later")
        await rig.until(lambda it: "later" in class_of(it).text or class_of(it).value)
        assert rig.facts.node.value

    async def test_its_extended_resources(self, rig: Rig) -> None:
        rig.node(allocatable={NAME: "2", "cpu": "4", "memory": "1Ki"}, capacity={NAME: "3"})
        await rig.until(lambda it: it.allocatable == {NAME: 3})
        rig.node(allocatable={NAME: "0"}, capacity={NAME: "0"})
        await rig.until(lambda it: it.allocatable == {NAME: 0})


def test_many_devices_have_a_suffix() -> None:
    many = {"example.com/a": "1k", "example.com/b": "12k", "example.com/c": "1001", "example.com/d": "x"}
    found = extended({"status": {"capacity": many, "allocatable": {"example.com/a": "999"}}})
    assert found == {"example.com/a": 1000, "example.com/b": 12000, "example.com/c": 1001}


class TestRegistration:
    @pytest.mark.parametrize(
        ("kubelet", "standing", "value", "said"),
        [
            (True, Standing("dra", "registered", registered=True), True, ""),
            (True, Standing("dra", "waiting"), False, "hasn't registered"),
            (True, Standing("dra", "waiting", failure="too old"), False, "refuses dra.example.com: too old"),
            (True, Standing("dra", "unready", failure="another gateway"), None, "another gateway"),
            (False, Standing("dra", "waiting"), None, "there is no kubelet"),
        ],
    )
    async def test_what_is_known(
        self, rig: Rig, kubelet: bool, standing: Standing, value: bool | None, said: str
    ) -> None:
        rig.standing.set(standing)
        rig.kubelet.set(kubelet)
        await rig.until(lambda it: it.registered.value is value and said in it.registered.text)


class TestAway:
    async def test_what_was_known_stays(self, rig: Rig) -> None:
        rig.node(allocatable={NAME: "2"})
        rig.device_class("serial")
        await rig.until(
            lambda it: all(one.value for one in (it.node, it.slices, it.rights, it.fields[POOL], class_of(it)))
        )
        before = rig.facts
        await rig.simulated.down()
        await until(lambda: rig.seen.failure.value)
        assert rig.facts == before
        await rig.simulated.up()
        rig.node(nodeInfo=SOFTWARE | {"kubeletVersion": "v1.34.0"})
        await rig.until(lambda it: it.node.value is False)

    async def test_nothing_is_known_of_a_server_that_was_never_there(self, rig: Rig) -> None:
        await rig.simulated.down()
        await rig.until(lambda it: rig.simulated.url in it.slices.text and rig.simulated.url in it.rights.text)
        assert (rig.facts.slices.value, rig.facts.rights.value, rig.facts.classes) == (None, None, None)


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("nodes", {"status": {"nodeInfo": ["v1.37.1"]}}),
        ("nodes", {"status": {"allocatable": "4"}}),
        ("deviceclasses", {"spec": "device.driver"}),
        ("deviceclasses", {"spec": {"extendedResourceName": NAME, "selectors": [{"cel": "true"}]}}),
    ],
    ids=str,
)
async def test_an_object_of_other_types_changes_nothing_and_stops_nobody(
    rig: Rig, kind: str, change: dict[str, Any]
) -> None:
    rig.node()
    rig.device_class("serial")
    rig.want()
    await rig.until(lambda it: it.node.value and class_of(it).value and it.rights.value)
    await rig.publisher.state.wait_for(lambda it: it.right and it.slices)
    before = rig.facts
    key = (kind, "", "n1" if kind == "nodes" else "serial")
    good = dict(rig.store.get(key))
    rig.store.update(key, lambda one: one.update(change))
    rig.want(shares=2)
    await until(lambda: "allowMultipleAllocations" in str(rig.store.list("resourceslices")))
    assert (rig.facts.node, class_of(rig.facts)) == (before.node, class_of(before))
    rig.store.update(key, lambda one: one.update({name: good[name] for name in change}))
    rig.node(nodeInfo=SOFTWARE | {"kubeletVersion": "v1.34.0"})
    await rig.until(lambda it: it.node.value is False)


class TestRefused:
    @pytest.mark.parametrize("verb", ["list", "watch"])
    @pytest.mark.parametrize(
        ("plural", "fact"), [("nodes", "rights"), ("deviceclasses", "rights"), ("resourceslices", "slices")]
    )
    async def test_a_right_that_is_missing(self, rig: Rig, verb: str, plural: str, fact: str) -> None:
        rig.node()
        history: list[bool | None] = [None]

        def note() -> None:
            if (value := getattr(rig.facts, fact).value) is not history[-1]:
                history.append(value)

        rig.watched.facts.subscribe(note)
        rig.simulated.forbidden.add((verb, plural))
        await rig.until(lambda it: getattr(it, fact).value is False)
        assert f"the right to list and watch {plural}" in getattr(rig.facts, fact).text
        # A list between two watches makes nothing right, not even for a moment.
        asks = f"GET {plural} watch" if verb == "watch" else f"GET {plural}"
        count = rig.simulated.asked.count(asks)
        await until(lambda: rig.simulated.asked.count(asks) > count)
        assert history[history.index(False) :] == [False]
        rig.simulated.forbidden.clear()
        await rig.until(lambda it: getattr(it, fact).value)

    async def test_an_api_that_isnt_served(self, rig: Rig) -> None:
        rig.simulated.unserved.add("resourceslices")
        await rig.until(lambda it: it.slices.value is False)
        assert "1.34 and later" in rig.facts.slices.text

    async def test_an_older_server_has_a_page_for_it(self, rig: Rig) -> None:
        rig.simulated.faults += [("GET resourceslices", 404, {"Content-Type": "text/plain", "Audit-Id": "1"})]
        await rig.until(lambda it: it.slices.value is False)

    async def test_a_balancers_page_is_no_refusal(self, rig: Rig) -> None:
        rig.simulated.faults += [("GET resourceslices", 404, {"Content-Type": "text/plain"})]
        await rig.until(lambda it: "404" in it.slices.text)
        assert rig.facts.slices.value is None


class TestFields:
    """Whether the API server keeps what slices need."""

    @pytest.mark.parametrize(
        ("gate", "config", "lost"),
        [
            ("DRADeviceTaints", {}, "taints"),
            ("DRAConsumableCapacity", {"shares": 4}, "allowMultipleAllocations"),
            ("DRAPartitionableDevices", {"pool": "boards"}, "sharedCounters"),
            ("DRAConsumableCapacity", {"pool": "boards"}, ""),
            ("DRAPartitionableDevices", {"shares": 4}, ""),
        ],
    )
    async def test_it_is_known_before_there_are_slices(
        self, rig: Rig, gate: str, config: dict[str, Any], lost: str
    ) -> None:
        rig.store.off.add(gate)
        rig.watched.need([configured(name=NAME, **config)])
        pool_ = f"n1/{config.get('pool', NAME)}"
        await rig.until(lambda it: it.fields[pool_].value is (not lost))
        assert lost in rig.facts.fields[pool_].text
        assert not rig.store.list("resourceslices")

    @pytest.mark.parametrize("end_watches", [Rig.hang_up, Rig.forget])
    async def test_a_server_that_is_back_is_tried_again(self, rig: Rig, end_watches: Any) -> None:
        rig.store.off.add("DRADeviceTaints")
        await rig.until(lambda it: it.fields[POOL].value is False)
        rig.store.off.clear()
        await end_watches(rig)
        await rig.until(lambda it: it.fields[POOL].value)

    async def test_features_that_are_switched_on_are_noticed_without_a_failure(self, rig: Rig) -> None:
        rig.store.off.add("DRADeviceTaints")
        await rig.until(lambda it: it.fields[POOL].value is False)
        rig.store.off.clear()
        hurry(500)
        await until(lambda: rig.facts.fields[POOL].value)

    async def test_what_the_server_before_would_do_says_nothing_of_the_next_one(
        self, late_server: LateServer, simulated: Simulated
    ) -> None:
        rig = Rig(late_server, simulated)
        rig.store.off.add("DRADeviceTaints")
        tasks = [asyncio.create_task(run()) for run in (rig.seen.run, rig.watched.run)]
        await until(lambda: late_server.answered)
        rig.store.off.clear()
        await rig.hang_up()
        await rig.seen.failure.wait_for(bool)
        await rig.seen.failure.wait_for(lambda text: not text)
        late_server.hear.set()
        await rig.until(lambda it: it.fields[POOL].value)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    @pytest.mark.parametrize(("status", "value"), [(403, False), (422, False), (500, None)])
    async def test_a_slice_that_may_not_be_written(self, rig: Rig, status: int, value: bool | None) -> None:
        rig.simulated.faults += [("POST resourceslices", status, {})]
        await rig.until(lambda it: it.fields[POOL].value is value and str(status) in it.fields[POOL].text)
        await rig.until(lambda it: it.fields[POOL].value)

    async def test_what_the_publisher_found_is_remembered(self, rig: Rig) -> None:
        """Shares aren't in the configuration here: so is hardware that only the driver knows."""
        rig.store.off.add("DRAConsumableCapacity")
        await rig.until(lambda it: it.fields[POOL].value)
        rig.want(shares=4)
        await rig.until(lambda it: "isn't published" in it.fields[POOL].text)
        rig.publisher.wanted.set({})
        await rig.publisher.state.wait_for(lambda state: not state.refused)
        assert rig.facts.fields[POOL].value is False
        rig.store.off.clear()
        await rig.hang_up()
        await rig.until(lambda it: it.fields[POOL].value)

    async def test_what_the_publisher_found_is_tried_again_without_a_failure(
        self, server: ApiServer, simulated: Simulated
    ) -> None:
        rig = Rig(server, simulated)
        rig.store.off.add("DRAConsumableCapacity")
        lists, *tasks = [asyncio.create_task(run()) for run in (rig.seen.run, rig.publisher.run, rig.watched.run)]
        await rig.until(lambda it: it.fields[POOL].value)
        rig.want(shares=4)
        await rig.until(lambda it: "isn't published" in it.fields[POOL].text)
        rig.publisher.wanted.set({})
        await rig.publisher.state.wait_for(lambda state: not state.refused)
        lists.cancel()  # no watch fails
        hurry(500)
        before = len(rig.simulated.asked)
        await until(lambda: sum("POST resourceslices" in one for one in rig.simulated.asked[before:]) > 1)
        assert rig.facts.fields[POOL].value is False
        rig.store.off.clear()
        await until(lambda: rig.facts.fields[POOL].value)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
