"""The slices of a node at an API server, through restarts and faults of both sides."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from dpgateway import Device
from dpgateway.cluster.server import ApiServer, ObjectKind
from dpgateway.cluster.watching import WatchedObjects
from dpgateway.dra.publishing import KEPT_AT_START, TRY_AGAIN, Publisher, Us
from dpgateway.dra.refusals import SOONEST
from dpgateway.dra.slices.layout import contents
from dpgateway.dra.slices.offered import Offered, pool
from dpgateway.kit.complaint import Complaint
from dpgateway.kit.log import bind
from dpgateway.kit.observable import Observable
from dpgateway.node.runtime import CdiSupport
from dpgateway_simulator.apiserver import SimulatedApiServer as Simulated
from dpgateway_simulator.apiserver import Store
from tests.dra.conftest import LateServer
from tests.support.time import hurry
from tests.support.waiting import until

DRIVER, POOL = "dra.example.com", "n1/example.com/serial"
US = Us(DRIVER, "n1")
OURS = US.fields


class Rig:
    """A publisher, and what it publishes."""

    def __init__(self, server: ApiServer, simulated: Simulated) -> None:
        complaint = Complaint(bind("test"))
        self.allowed = Observable(False)
        self.watched = WatchedObjects(server, ObjectKind.SLICE, OURS, complaint)
        self.publisher = Publisher(server, US, self.watched, self.allowed, complaint)
        self.simulated, self.store = simulated, simulated.store
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [asyncio.create_task(one.run()) for one in (self.watched, self.publisher)]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)

    def want(self, *names: str, shares: int = 1, unhealthy: str = "") -> None:
        offered = [
            Offered(Device(n), "example.com/serial", n, frozenset({n}), "dead" if n == unhealthy else "", shares)
            for n in names
        ]
        self.publisher.wanted.set({POOL: contents(pool(offered, DRIVER, {}))})

    @property
    def devices(self) -> list[str]:
        slices = self.store.list("resourceslices", "", OURS)
        return [device["name"] for one in slices for device in one["spec"].get("devices", ())]

    def version(self, kubelet: str) -> None:
        node = self.store.get(("nodes", "", "n1"))
        self.store.replace(("nodes", "", "n1"), {**node, "status": {"nodeInfo": {"kubeletVersion": kubelet}}})

    async def until(self, holds: Callable[[], object]) -> None:
        async with asyncio.timeout(60):
            while not holds():
                await self.store.changed()

    async def has(self, *names: str) -> None:
        await self.until(lambda: self.devices == list(names) and self.store.list("resourceslices", "", OURS))

    async def publish(self, *names: str) -> None:
        """The kubelet accepts, and the slices have these devices."""
        self.allowed.set(True)
        self.want(*names)
        await self.has(*names)
        await self.publisher.state.wait_for(lambda state: state.right)


@pytest.fixture
async def rig(server: ApiServer, simulated: Simulated) -> AsyncIterator[Rig]:
    one = Rig(server, simulated)
    one.start()
    yield one
    await one.stop()


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """By the clock of the loop."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    yield
    assert loop.time() - began < seconds


def slowly(seconds: float) -> AbstractContextManager[None]:
    """By a clock on which a busy machine is as quick as an idle one."""
    hurry(0.05)
    return within(seconds)


def soon() -> AbstractContextManager[None]:
    """Of a pool that was refused: before it is due anyhow. The clock is twice as quick as a real one."""
    hurry(0.4)
    return within(3 * SOONEST)


async def test_nothing_is_published_before_the_kubelet_accepts(rig: Rig) -> None:
    rig.want("a", "b")
    await rig.watched.objects.wait(0)
    assert rig.devices == []
    rig.allowed.set(True)
    await rig.has("a", "b")


async def test_what_nobody_offers_goes_without_a_registration(rig: Rig) -> None:
    await rig.publish("a")
    rig.allowed.set(False)
    rig.want()
    rig.publisher.wanted.set({})
    await rig.until(lambda: not rig.store.list("resourceslices", "", OURS))
    await rig.publish("a")
    assert rig.publisher.writer.deleted == 0


async def test_an_old_kubelet_gets_no_slices_and_loses_those_it_had(rig: Rig) -> None:
    rig.version("v1.36.4")
    rig.allowed.set(True)
    rig.publisher.owner.registered()
    rig.want("a")
    await rig.has("a")
    rig.version("v1.34.9-eks-1")
    rig.publisher.owner.registered()
    await rig.until(lambda: not rig.store.list("resourceslices", "", OURS))
    await rig.publisher.state.wait_for(lambda state: "kubelet v1.34.9-eks-1 of node n1" in state.failure)
    assert not rig.publisher.state.value.right
    rig.version("v1.37.0")
    rig.publisher.owner.suits()  # somebody who watches the Node has seen that
    await rig.has("a")


@pytest.mark.parametrize(("version", "stay"), [("v1.33.4", False), ("v1.36.4", True)])
async def test_a_kubelet_that_refuses_the_driver_loses_slices_if_it_is_old(rig: Rig, version: str, stay: bool) -> None:
    """One without DRA registers no driver. A new one may say no for a moment, while gateways change."""
    rig.version("v1.36.4")
    rig.allowed.set(True)
    rig.publisher.owner.registered()
    rig.want("a")
    await rig.has("a")
    rig.version(version)
    rig.allowed.set(False)
    rig.publisher.owner.registered()
    if stay:
        await until(lambda: rig.publisher.owner.uid)
        assert rig.devices == ["a"]
    else:
        await rig.until(lambda: not rig.store.list("resourceslices", "", OURS))


@pytest.mark.parametrize("leaves", [False, True])
async def test_an_old_kubelet_is_no_warning_to_pools_that_leave(
    rig: Rig, caplog: pytest.LogCaptureFixture, leaves: bool
) -> None:
    rig.publisher.leaving = lambda pools: leaves and set(pools) == {POOL}
    rig.version("v1.34.9")
    rig.allowed.set(True)
    rig.want("a")
    await rig.publisher.state.wait_for(lambda state: "kubelet v1.34.9 of node n1" in state.failure)
    assert ("kubelet v1.34.9" in caplog.text) != leaves


async def test_a_runtime_that_is_mended_is_noticed_without_its_kubelet(rig: Rig) -> None:
    node = rig.store.get(("nodes", "", "n1"))
    info = {"kubeletVersion": "v1.36.4", "containerRuntimeVersion": "containerd://1.7.24"}
    rig.store.replace(("nodes", "", "n1"), {**node, "status": {"nodeInfo": info}})
    switched = [False]

    async def asked() -> CdiSupport:
        return CdiSupport(switched[0])

    rig.publisher.owner.runtime = asked
    rig.allowed.set(True)
    rig.want("a")
    await rig.publisher.state.wait_for(lambda state: "has CDI switched off" in state.failure)
    assert not rig.devices
    switched[0] = True
    hurry(50)
    await until(lambda: rig.devices == ["a"])


async def test_a_failure_is_over_once_nothing_is_to_be_published(rig: Rig) -> None:
    rig.simulated.faults += [("POST resourceslices", 500, {})] * 100
    rig.allowed.set(True)
    rig.want("a")
    await rig.publisher.state.wait_for(lambda state: state.failure)
    rig.allowed.set(False)
    await rig.publisher.state.wait_for(lambda state: not state.failure)


async def test_a_node_that_cant_be_read_is_read_again(rig: Rig) -> None:
    uid = rig.store.get(("nodes", "", "n1"))["metadata"].pop("uid")
    rig.allowed.set(True)
    rig.want("a")
    await rig.publisher.state.wait_for(lambda state: "node n1 can't be read" in state.failure)
    rig.store.get(("nodes", "", "n1"))["metadata"]["uid"] = uid
    await rig.has("a")


async def test_slices_belong_to_their_node(rig: Rig) -> None:
    await rig.publish("a")
    (one,) = rig.store.list("resourceslices", "", OURS)
    node = rig.store.get(("nodes", "", "n1"))
    (owner,) = one["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Node", node["metadata"]["uid"], True)


async def test_wiped_slices_come_back_at_once(rig: Rig) -> None:
    await rig.publish("a")
    with slowly(0.9):  # PAUSE doesn't count here
        rig.store.wipe("resourceslices", OURS)
        await rig.has("a")


async def test_slices_that_are_deleted_one_by_one_come_back_at_once(rig: Rig) -> None:
    rig.allowed.set(True)
    names = [f"d{number:03}" for number in range(130)]
    rig.want(*names)
    await rig.publisher.state.wait_for(lambda state: state.right)
    failures: list[str] = []
    rig.publisher.state.subscribe(lambda: failures.append(rig.publisher.state.value.failure))
    first, second, _ = (one["metadata"]["name"] for one in rig.store.list("resourceslices", "", OURS))

    # The first one is seen to be deleted; the second is gone when it is going to be updated.
    rig.watched.removed(first)
    for name in first, second:
        rig.store.delete(("resourceslices", "", name))
    with slowly(0.9):  # neither PAUSE nor a pause after a failure counts here
        await rig.has(*names)
    assert set(failures) <= {""}


async def test_a_look_that_ends_early_is_no_write(rig: Rig) -> None:
    await rig.publish("a", "b")
    (one,) = rig.store.list("resourceslices", "", OURS)
    name, asked = one["metadata"]["name"], len(rig.simulated.asked)
    rig.simulated.hang()
    rig.want("a")
    await until(lambda: f"PUT resourceslices {name}" in rig.simulated.asked[asked:])
    rig.store.delete(("resourceslices", "", name))
    rig.simulated.resume()
    await rig.publisher.state.wait_for(lambda state: state.devices == 1)
    assert rig.publisher.writer.writes == {"success": 2}


async def test_a_look_that_has_nothing_to_write_is_no_write(rig: Rig) -> None:
    reads, goes = asyncio.Event(), asyncio.Event()
    await rig.publish("a")

    async def asked() -> CdiSupport:
        reads.set()
        await goes.wait()
        return CdiSupport(None)

    # The slice is there again before the Node is read.
    rig.publisher.owner.runtime = asked
    (one,) = rig.store.list("resourceslices", "", OURS)
    rig.store.delete(("resourceslices", "", one["metadata"]["name"]))
    await reads.wait()
    rig.store.create("resourceslices", "", one)
    await rig.watched.objects.wait_for(bool)
    goes.set()
    rig.want("a", "b")
    await rig.publisher.state.wait_for(lambda state: state.devices == 2)
    assert rig.publisher.writer.writes == {"success": 2}


async def test_further_slices_are_none_that_somebody_has_deleted(rig: Rig) -> None:
    await rig.publish("a")
    names = [f"d{number:03}" for number in range(65)]
    rig.want(*names)
    await rig.has(*names)
    assert (len(rig.store.list("resourceslices", "", OURS)), rig.publisher.writer.deleted) == (2, 0)


async def test_another_uid_of_the_node_becomes_the_owner(rig: Rig) -> None:
    await rig.publish("a")
    rig.store.delete(("nodes", "", "n1"))
    new = rig.store.create("nodes", "", {"metadata": {"name": "n1"}})
    rig.store.wipe("resourceslices", OURS)
    await rig.has("a")
    (one,) = rig.store.list("resourceslices", "", OURS)
    assert one["metadata"]["ownerReferences"][0]["uid"] == new["metadata"]["uid"]


async def test_nothing_is_written_for_a_node_that_is_gone(rig: Rig) -> None:
    """The server would delete it again at once."""
    await rig.publish("a")
    rig.store.delete(("nodes", "", "n1"))
    asked = len(rig.simulated.asked)
    rig.store.wipe("resourceslices", OURS)
    hurry(10)
    await until(lambda: rig.simulated.asked[asked:].count("GET nodes n1") == 3)
    assert "POST resourceslices" not in rig.simulated.asked[asked:]
    new = rig.store.create("nodes", "", {"metadata": {"name": "n1"}})
    await until(lambda: rig.devices)
    (one,) = rig.store.list("resourceslices", "", OURS)
    assert one["metadata"]["ownerReferences"][0]["uid"] == new["metadata"]["uid"]


async def test_a_change_by_hand_is_undone(rig: Rig) -> None:
    await rig.publish("a")
    (one,) = rig.store.list("resourceslices", "", OURS)
    other = {**one, "spec": {**one["spec"], "devices": [{"name": "stranger"}]}}
    rig.store.replace(("resourceslices", "", one["metadata"]["name"]), other)
    await rig.has("a")


async def test_a_server_that_was_away_gets_the_newest(rig: Rig) -> None:
    await rig.publish("a")
    await rig.simulated.down()
    rig.want("a", "b")
    await rig.simulated.up()
    await rig.has("a", "b")


async def test_a_watch_too_old_starts_over(rig: Rig) -> None:
    await rig.publish("a")
    rig.simulated.hang_up()
    rig.store.compact()
    rig.store.wipe("resourceslices", OURS)
    await rig.has("a")


class Webhook(Store):
    """Of a cluster in which a webhook adds to the slices."""

    def create(self, plural: str, namespace: str, given: Any, *, dry_run: bool = False) -> Any:
        added = {"perDeviceNodeSelection": True} if plural == "resourceslices" else {}
        return super().create(plural, namespace, {**given, "spec": {**given.get("spec", {}), **added}}, dry_run=dry_run)

    def replace(self, key: Any, given: Any, *, part: str = "", dry_run: bool = False) -> Any:
        spec = {**given["spec"], "perDeviceNodeSelection": True}
        return super().replace(key, {**given, "spec": spec}, part=part, dry_run=dry_run)


@pytest.mark.parametrize("simulated", [Webhook()], indirect=True)
async def test_slices_that_somebody_alters_are_a_failure(rig: Rig) -> None:
    """Else they would be written again each second."""
    rig.allowed.set(True)
    rig.want("a", "b")
    await rig.publisher.state.wait_for(lambda state: "isn't kept as it was written" in state.failure)
    assert rig.devices == ["a", "b"]
    assert set(rig.publisher.writer.writes) == {"refused"}


async def test_a_refusal_is_said_and_tried_again(rig: Rig) -> None:
    rig.allowed.set(True)
    await rig.watched.objects.wait(0)
    rig.simulated.faults += [("POST resourceslices", 403, {})]
    rig.want("a")
    await rig.publisher.state.wait_for(lambda state: "403" in state.failure)
    await rig.has("a")
    await rig.publisher.state.wait_for(lambda state: not state.failure)


async def test_what_others_write_during_a_dry_run_is_no_conflict(rig: Rig) -> None:
    await rig.publish("a", "b")
    asked = len(rig.simulated.asked)
    rig.simulated.hang()
    rig.want("b", shares=2)
    await until(lambda: "POST resourceslices dry run" in rig.simulated.asked[asked:])
    (one,) = rig.store.list("resourceslices", "", OURS)
    other = {**one, "spec": {**one["spec"], "devices": [{"name": "stranger"}]}}
    rig.watched.wrote(rig.store.replace(("resourceslices", "", one["metadata"]["name"]), other))
    rig.simulated.resume()
    await rig.has("b")
    assert set(rig.publisher.writer.writes) == {"success"}


async def test_what_is_withheld_during_a_question_is_not_published(rig: Rig) -> None:
    rig.allowed.set(True)
    await rig.watched.objects.wait(0)
    rig.simulated.hang()
    rig.want("a", "b")
    await until(lambda: "GET nodes n1" in rig.simulated.asked)
    rig.want("a")
    published = set[str]()
    rig.watched.objects.subscribe(lambda: published.update(rig.devices))
    rig.simulated.resume()
    await rig.publisher.state.wait_for(lambda state: state.right)
    assert published == {"a"}


def writes(rig: Rig, since: int = 0) -> int:
    return sum(one.startswith("PUT") for one in rig.simulated.asked[since:])


async def passes(seconds: float) -> None:
    """So much time of a loop whose clock is quick."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    await until(lambda: loop.time() >= end)


@pytest.fixture(params=[500])
async def refused(rig: Rig, request: pytest.FixtureRequest) -> Rig:
    """Its server refuses all writes, and the next attempt isn't due for half a minute. The clock is five times as quick
    as a real one.
    """
    await rig.publish("a", "b")
    rig.simulated.faults += [("PUT resourceslices", request.param, {})] * 100
    rig.want("a", "b", "c")
    hurry(50)
    await until(lambda: rig.publisher.writer.writes.total() == 9)
    hurry(0.1)
    return rig


async def test_what_must_go_is_tried_soon_after_refusals(refused: Rig) -> None:
    refused.simulated.faults.clear()
    with soon():
        refused.want("b", "c")
        await until(lambda: refused.devices == ["b", "c"])


async def test_a_server_that_is_back_is_told_soon_what_must_go(refused: Rig) -> None:
    refused.want("b", "c")
    await until(lambda: refused.publisher.writer.writes.total() == 10)
    refused.simulated.faults.clear()
    with soon():
        refused.watched.failure.set("it is away")
        refused.watched.failure.set("")
        await until(lambda: refused.devices == ["b", "c"])


async def test_a_kubelet_that_registers_ends_the_pause_after_refusals(refused: Rig) -> None:
    refused.simulated.faults.clear()
    with soon():
        refused.publisher.owner.registered()
        await until(lambda: refused.devices == ["a", "b", "c"])


@pytest.mark.parametrize("refused", [403, 422], indirect=True)
async def test_a_pool_that_is_refused_does_not_hold_up_what_can_wait(refused: Rig) -> None:
    with soon():
        new = contents(pool([Offered(Device("d"), "example.com/new", "d", frozenset({"d"}))], DRIVER, {}))
        refused.publisher.wanted.set({**(refused.publisher.wanted.value or {}), "n1/example.com/new": new})
        await until(lambda: sorted(refused.devices) == ["a", "b", "d"])


@pytest.mark.parametrize("what", ["PUT resourceslices", "POST resourceslices dry run"])
async def test_a_pool_that_is_refused_does_not_slow_others_down(rig: Rig, what: str) -> None:
    """A pod may get a device that has just become Unhealthy for as long."""
    rig.allowed.set(True)
    want_two(rig, ("a",), ("b", "c"))
    await rig.publisher.state.wait_for(lambda state: state.devices == 3)
    by_pool = {one["spec"]["pool"]["name"]: one["metadata"]["name"] for one in rig.store.list("resourceslices")}
    fault = f"PUT resourceslices {by_pool['n1/example.com/first']}" if what.startswith("PUT") else what
    rig.simulated.faults += [(fault, 403, {})] * 100
    shares = 1 if what.startswith("PUT") else 2
    want_two(rig, ("z",), ("b", "c"), shares)
    hurry(50)
    await until(lambda: len(rig.simulated.faults) <= 94)
    hurry(1 / 100)  # half as quick as a real one
    left, loop = len(rig.simulated.faults), asyncio.get_running_loop()
    began = loop.time()
    for devices in (("b",), ("b", "c"), ("c",)):
        want_two(rig, ("z",), devices, shares)
        there = sorted(("a", *devices))
        await rig.until(lambda there=there: sorted(rig.devices) == there)  # type: ignore[misc]
    assert loop.time() - began < SOONEST - 1
    assert left - len(rig.simulated.faults) <= 2, "no more often than its own pauses say"
    assert "403" in rig.publisher.state.value.failure
    rig.simulated.faults.clear()
    hurry(50)
    await until(lambda: sorted(rig.devices) == ["c", "z"])
    await rig.publisher.state.wait_for(lambda state: state.right and not state.failure)


@pytest.mark.parametrize("registered", [True, False])
async def test_a_pool_whose_deletion_is_refused_does_not_slow_others_down(rig: Rig, *, registered: bool) -> None:
    """While nothing may be published: an admission policy refuses it, for example."""
    rig.allowed.set(True)
    want_two(rig, ("a",), ("b",))
    await rig.publisher.state.wait_for(lambda state: state.devices == 2)
    await rig.publisher.state.wait_for(lambda state: state.right)
    by_pool = {one["spec"]["pool"]["name"]: one["metadata"]["name"] for one in rig.store.list("resourceslices")}
    deletion = f"DELETE resourceslices {by_pool['n1/example.com/first']}"
    rig.simulated.faults += [(deletion, 403, {})] * 1000
    rig.allowed.set(registered)
    wanted = dict(rig.publisher.wanted.value or {})
    del wanted["n1/example.com/first"]
    rig.publisher.wanted.set(wanted)
    hurry(50)
    await until(lambda: rig.simulated.asked.count(deletion) >= 5)
    hurry(1 / 50)
    asked, loop = rig.simulated.asked.count(deletion), asyncio.get_running_loop()
    began = loop.time()
    rig.publisher.wanted.set({})
    await until(lambda: rig.devices == ["a"])
    assert loop.time() - began < SOONEST - 1
    assert rig.simulated.asked.count(deletion) - asked <= 1
    assert "403" in rig.publisher.state.value.failure
    assert not rig.publisher.state.value.right
    rig.simulated.faults.clear()
    hurry(50)
    await until(lambda: rig.devices == [])
    await rig.publisher.state.wait_for(lambda state: not state.failure)


async def test_a_deletion_that_is_refused_is_tried_again_seldom(rig: Rig) -> None:
    """Where something is in the way of DRA."""
    await rig.publish("a")
    rig.simulated.faults += [("DELETE resourceslices", 403, {})] * 100
    rig.version("v1.34.2")
    rig.publisher.owner.registered()
    await until(lambda: len(rig.simulated.faults) < 100)
    await passes(1)
    assert len(rig.simulated.faults) >= 90
    assert "1.34.2" in rig.publisher.state.value.failure


async def test_what_can_wait_does_after_refusals(refused: Rig) -> None:
    asked = len(refused.simulated.asked)
    for name in "defgh":
        refused.want("a", "b", "c", name)
        await passes(SOONEST / 2)
    assert writes(refused, asked) == 0


async def test_a_device_that_flaps_asks_a_refusing_server_seldom(refused: Rig) -> None:
    loop, asked = asyncio.get_running_loop(), len(refused.simulated.asked)
    end = loop.time() + 3 * SOONEST
    while loop.time() < end:
        for unhealthy in ("b", ""):
            refused.want("a", "b", "c", unhealthy=unhealthy)
            await passes(SOONEST / 50)
    assert 1 <= writes(refused, asked) <= 4


async def test_what_must_go_waits_as_long_as_the_server_says(rig: Rig) -> None:
    await rig.publish("a", "b")
    rig.simulated.faults += [("PUT resourceslices", 429, {"Retry-After": "40"})]
    rig.want("b")
    await rig.publisher.state.wait_for(lambda state: "429" in state.failure)
    asked = len(rig.simulated.asked)
    hurry(20)
    rig.want("a")
    await passes(35)
    assert writes(rig, asked) == 0
    await until(lambda: rig.devices == ["a"])


async def test_without_its_features_a_pool_is_not_published(rig: Rig) -> None:
    rig.store.off.add("DRAConsumableCapacity")
    rig.allowed.set(True)
    rig.want("a", shares=2)
    await rig.publisher.state.wait_for(lambda state: state.refused)
    assert rig.devices == []
    assert "allowMultipleAllocations" in rig.publisher.state.value.failure


async def test_a_dry_run_of_the_server_before_says_nothing_of_the_next_one(
    late_server: LateServer, simulated: Simulated
) -> None:
    """Else the pool wouldn't be published, or would be without its counters, until the server fails again."""
    rig = Rig(late_server, simulated)
    rig.store.off.add("DRAConsumableCapacity")
    rig.allowed.set(True)
    rig.want("a", shares=2)
    rig.start()
    await until(lambda: late_server.answered)
    rig.store.off.clear()
    rig.simulated.hang_up()
    await rig.watched.failure.wait_for(bool)
    await rig.watched.failure.wait_for(lambda text: not text)
    late_server.hear.set()
    await rig.has("a")
    await rig.stop()


async def test_features_that_are_switched_on_are_noticed_without_a_failure(rig: Rig) -> None:
    """Behind a balancer the watch of a server that is restarted goes on at another one."""
    rig.store.off.add("DRAConsumableCapacity")
    rig.allowed.set(True)
    rig.want("a", shares=2)
    await rig.publisher.state.wait_for(lambda state: state.refused)
    asked = rig.simulated.asked.count("POST resourceslices dry run")
    hurry(50)
    await passes(TRY_AGAIN / 10)
    assert rig.simulated.asked.count("POST resourceslices dry run") == asked
    hurry(10)
    rig.store.off.clear()
    await until(lambda: rig.devices == ["a"])


async def test_a_dry_run_is_made_again_after_a_version_that_was_forgotten(rig: Rig) -> None:
    """The server that lists then may be another one, although no request has failed."""
    rig.store.off.add("DRAConsumableCapacity")
    rig.allowed.set(True)
    rig.want("a", shares=2)
    await rig.publisher.state.wait_for(lambda state: state.refused)
    await until(lambda: "GET resourceslices watch" in rig.simulated.asked)
    rig.store.off.clear()
    rig.store.create("nodes", "", {"metadata": {"name": "n2"}})
    rig.store.compact()
    await rig.has("a")


async def test_a_withdrawn_device_does_not_wait(rig: Rig) -> None:
    await rig.publish("a", "b")
    with slowly(0.9):
        rig.want("a")
        await rig.has("a")


def want_two(rig: Rig, first: tuple[str, ...], second: tuple[str, ...], shares: int = 1) -> None:
    """``shares``: of each device of the first pool."""
    offered = {
        f"n1/{name}": [Offered(Device(n), name, n, frozenset({n}), "", count) for n in some]
        for name, some, count in (("example.com/first", first, shares), ("example.com/second", second, 1))
    }
    rig.publisher.wanted.set({name: contents(pool(some, DRIVER, {})) for name, some in offered.items()})


REFUSALS = pytest.mark.parametrize("status", [400, 403, 409, 422, 500])
"""Of the server, of a webhook, which may be broken, or of an admission policy."""


@REFUSALS
async def test_a_pool_that_the_server_refuses_keeps_no_other_one_as_it_was(rig: Rig, status: int) -> None:
    rig.allowed.set(True)
    want_two(rig, ("a",), ("b", "c"))
    await rig.publisher.state.wait_for(lambda state: state.devices == 3)
    by_pool = {one["spec"]["pool"]["name"]: one for one in rig.store.list("resourceslices", "", OURS)}
    refused = by_pool["n1/example.com/first"]["metadata"]["name"]
    rig.simulated.faults += [(f"PUT resourceslices {refused}", status, {})] * 100
    want_two(rig, ("z",), ("b",))
    await rig.until(lambda: sorted(rig.devices) == ["a", "b"])
    await rig.publisher.state.wait_for(lambda state: str(status) in state.failure)


async def test_several_pools_that_fail_hold_up_no_other_one(rig: Rig) -> None:
    """As if a webhook were broken for them: the next attempt may be a minute away."""
    rig.allowed.set(True)

    def want(which: str) -> None:
        ids = {name: name + which for name in "abc"}
        found = {name: [Offered(Device(id_), name, id_, frozenset({name}), "", 1)] for name, id_ in ids.items()}
        rig.publisher.wanted.set({f"n1/{name}": contents(pool(some, DRIVER, {})) for name, some in found.items()})

    want("1")
    await rig.publisher.state.wait_for(lambda state: state.devices == 3)
    by_pool = {one["spec"]["pool"]["name"]: one for one in rig.store.list("resourceslices", "", OURS)}
    failing = [by_pool[f"n1/{name}"]["metadata"]["name"] for name in "ab"]
    rig.simulated.faults += [(f"PUT resourceslices {name}", 500, {}) for name in failing] * 100
    want("2")
    await rig.until(lambda: sorted(rig.devices) == ["a1", "b1", "c2"])
    assert rig.publisher.writer.writes["away"] <= 1


@REFUSALS
async def test_a_pool_whose_dry_run_is_refused_keeps_no_other_one_as_it_was(rig: Rig, status: int) -> None:
    rig.allowed.set(True)
    want_two(rig, ("a",), ("b", "c"))
    await rig.publisher.state.wait_for(lambda state: state.devices == 3)
    rig.simulated.faults += [("POST resourceslices dry run", status, {})] * 100
    want_two(rig, ("a", "z"), ("b",), shares=2)
    await rig.until(lambda: sorted(rig.devices) == ["a", "b"])
    await rig.publisher.state.wait_for(lambda state: str(status) in state.failure)
    rig.simulated.faults.clear()
    await rig.until(lambda: sorted(rig.devices) == ["a", "b", "z"])


@pytest.fixture
async def next_one(rig: Rig, server: ApiServer, simulated: Simulated) -> AsyncIterator[Rig]:
    """Of the next gateway, which finds the slices of one with two devices, and isn't started."""
    await rig.publish("a", "b")
    await rig.stop()
    one = Rig(server, simulated)
    one.allowed.set(True)
    yield one
    await one.stop()


async def test_a_gateway_that_starts_leaves_no_device_out_that_it_takes_for_held(next_one: Rig) -> None:
    seen = next_one.store.list("resourceslices", "", OURS)
    asked = len(next_one.simulated.asked)
    next_one.want("b")
    next_one.start()
    await next_one.watched.objects.wait_for(lambda found: found is not None)
    await until(lambda: "GET nodes n1" in next_one.simulated.asked[asked:])
    next_one.want("a", "b")
    await next_one.publisher.state.wait_for(lambda state: state.right)
    assert next_one.store.list("resourceslices", "", OURS) == seen


async def test_a_device_that_is_gone_at_the_start_leaves_the_slices_later(next_one: Rig) -> None:
    began = time.monotonic()
    next_one.want("b")
    next_one.start()
    await next_one.has("b")
    assert time.monotonic() - began >= KEPT_AT_START


async def test_a_gateway_that_has_the_driver_back_begins_anew(rig: Rig) -> None:
    """Another one had it meanwhile."""
    await rig.publish("a", "b")
    await rig.stop()
    rig.want("b")
    rig.start()
    await rig.publisher.state.wait_for(lambda state: not state.right)
    assert rig.devices == ["a", "b"]


async def test_what_another_gateway_wrote_meanwhile_is_no_conflict(rig: Rig) -> None:
    await rig.publish("a")
    rig.want("a", "c", unhealthy="c")  # the server's features are known
    await rig.has("a", "c")
    await rig.stop()
    (one,) = rig.store.list("resourceslices", "", OURS)
    key = "resourceslices", "", one["metadata"]["name"]
    rig.store.update(key, lambda it: it["spec"].update(devices=[{"name": "b"}]))
    rig.want("a", "c", unhealthy="a")  # doesn't wait
    rig.start()
    await rig.has("a", "c")
    assert set(rig.publisher.writer.writes) == {"success"}


async def test_slices_that_stay_at_the_start_are_shown_and_missed(next_one: Rig) -> None:
    with slowly(KEPT_AT_START):
        next_one.want("b")
        next_one.start()
        await next_one.publisher.state.wait_for(lambda state: state.devices == 2)
        assert not next_one.publisher.state.value.right
        next_one.store.wipe("resourceslices", OURS)
        await next_one.has("b")
    assert next_one.publisher.writer.deleted == 1


@pytest.mark.parametrize("why", ["nobody offers it", "the kubelet is too old"])
async def test_a_pool_that_ends_at_the_start_does_not_wait(next_one: Rig, why: str) -> None:
    with slowly(KEPT_AT_START):
        if why == "nobody offers it":
            next_one.publisher.wanted.set({})
        else:
            next_one.version("v1.34.9")
            next_one.want("a", "b")
        next_one.start()
        await next_one.until(lambda: not next_one.store.list("resourceslices", "", OURS))


async def test_a_new_pool_does_not_wait_for_one_that_loses_a_device(next_one: Rig) -> None:
    with slowly(KEPT_AT_START):
        next_one.want("b")
        new = contents(pool([Offered(Device("c"), "example.com/new", "c", frozenset({"c"}))], DRIVER, {}))
        next_one.publisher.wanted.set({**(next_one.publisher.wanted.value or {}), "n1/example.com/new": new})
        next_one.start()
        await next_one.until(lambda: sorted(next_one.devices) == ["a", "b", "c"])


async def test_what_gets_a_taint_at_the_start_does_not_wait(next_one: Rig) -> None:
    with slowly(KEPT_AT_START):
        next_one.want("b")
        next_one.start()
        await next_one.watched.objects.wait_for(lambda found: found is not None)
        next_one.want("b", unhealthy="b")
        await next_one.has("b")


async def test_flapping_costs_few_writes(rig: Rig) -> None:
    await rig.publish("a", "b")
    before = len(rig.simulated.asked)
    for _ in range(20):
        rig.want("a", "b", unhealthy="b")
        rig.want("a", "b")
        await asyncio.sleep(0)
    rig.want("a", "b", "c")
    await rig.has("a", "b", "c")
    writes = [one for one in rig.simulated.asked[before:] if one.startswith(("PUT", "POST")) and "dry" not in one]
    assert len(writes) <= 4


async def test_a_new_token_is_read(rig: Rig, server: ApiServer, simulated: Simulated) -> None:
    await rig.publish("a")
    account = server._account
    simulated.token = "second"  # noqa: S105
    account.token.write_text("second")
    rig.want("a", "b")
    await rig.has("a", "b")
