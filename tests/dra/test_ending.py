"""Ends of claims that a gateway has begun, and that another goes on with."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dpgateway import Allocation, Device
from dpgateway.dra.claims import files
from dpgateway.dra.claims.files import ClaimFiles
from dpgateway.dra.claims.holdings import ClaimHoldings
from dpgateway.dra.claims.reading import Asked
from dpgateway.dra.claims.records import ClaimRecord, Phase
from dpgateway.dra.preparing import NodeClaims
from dpgateway.errors import DriverError
from dpgateway.resource.front import Unreleased
from dpgateway.resource.use import hardware_use
from tests.dra.claim_node import IN_VAIN, ClaimedResource, ClaimNode, Pods, lanes, one
from tests.support.resource import FakeLanes
from tests.support.resources import NAME
from tests.support.specs import own
from tests.support.time import hurry
from tests.support.waiting import turns, until


class Begun(NamedTuple):
    """A gateway that has recorded that a claim ends, and whose driver hasn't released its device yet."""

    claims: NodeClaims
    resource: ClaimedResource
    asked: Asked


async def begun(node: ClaimNode) -> Begun:
    resource = ClaimedResource(lanes("release"), Device("a"))
    claims, asked = await node.gateway(resource, patience=IN_VAIN), node.allocate("c", "a")
    await claims.prepare([asked])
    resource.releases.rest()
    await claims.unprepare([asked])
    assert node.records["c"]["phase"] == "ending"
    return Begun(claims, resource, asked)


async def another_ends(node: ClaimNode) -> None:
    """What is left to it, another gateway does."""
    resource = ClaimedResource(lanes("release"), Device("a"))
    await node.gateway(resource)
    await until(lambda: not node.records)
    assert resource.lanes.released == ["a"]


async def test_a_claim_whose_pod_still_runs_ends_after_it(node: ClaimNode) -> None:
    """A kubelet asks for that of a pod that was deleted by force."""
    resource, pods = ClaimedResource(lanes("release"), Device("a")), Pods("uid-c")
    claims, asked = await node.gateway(resource), node.allocate("c", "a")
    await claims.prepare([asked])
    claims.running = pods.running
    ending = asyncio.ensure_future(claims.unprepare([asked]))
    await until(lambda: pods.asked > 1)
    assert (node.records["c"]["phase"], resource.lanes.released) == ("prepared", [])
    pods.uids = frozenset()
    assert await one(await ending) == ()
    assert (node.records, resource.lanes.released) == ({}, ["a"])


async def test_a_claim_whose_pod_goes_on_doesn_t_end(node: ClaimNode) -> None:
    resource, pods = ClaimedResource(lanes("release"), Device("a")), Pods("uid-c")
    claims, asked = await node.gateway(resource), node.allocate("c", "a")
    await claims.prepare([asked])
    claims.running = pods.running
    hurry(10)
    assert "its pod still runs (pod-c)" in await one(await claims.unprepare([asked]))
    assert (node.records["c"]["phase"], resource.lanes.released) == ("prepared", [])


async def test_a_gateway_that_is_killed_while_an_end_waits_for_a_pod(node: ClaimNode) -> None:
    """Nothing has ended yet, so the kubelet asks its successor."""
    killed, asked = await node.gateway(ClaimedResource(lanes(), Device("a"))), node.allocate("c", "a")
    pods = Pods("uid-c")
    await killed.prepare([asked])
    killed.running = pods.running
    ending = asyncio.ensure_future(killed.unprepare([asked]))
    await until(lambda: pods.asked > 1)

    resource = ClaimedResource(lanes("release"), Device("a"))
    claims = await node.gateway(resource, patience=IN_VAIN)
    assert "free" in await one(await claims.prepare([node.allocate("d", "a")]))
    assert (node.records["c"]["phase"], resource.lanes.released) == ("prepared", [])
    assert await one(await claims.unprepare([asked])) == ()
    await until(lambda: not node.records)  # on a busy machine that takes longer than its patience
    assert resource.lanes.released == ["a"]
    ending.cancel()


async def test_an_end_that_was_begun_goes_on_by_itself(node: ClaimNode) -> None:
    await begun(node)
    await another_ends(node)


async def test_an_end_waits_for_a_resource_that_is_going_to_be_served(node: ClaimNode) -> None:
    asked = (await begun(node)).asked
    claims = await node.gateway(patience=IN_VAIN)
    assert await one(await claims.unprepare([asked])) == ()
    assert node.records["c"]["phase"] == "ending"
    resource = ClaimedResource(lanes("release"), Device("a"))
    claims.store.add(NAME, resource)
    await until(lambda: not node.records)
    assert resource.lanes.released == ["a"]


async def test_an_end_that_waits_for_its_resource_holds_up_no_handover(node: ClaimNode) -> None:
    """The newer gateway's driver may be the one that works."""
    await begun(node)
    claims = await node.gateway()
    async with asyncio.timeout(60):
        await claims.idle()
    claims.rest()
    await asyncio.sleep(0)
    claims.store.drop(NAME)
    await another_ends(node)  # what the older one hasn't forgotten


async def test_a_driver_that_hangs_in_release_holds_up_no_handover_for_ever(node: ClaimNode) -> None:
    claims, *_ = await begun(node)
    async with asyncio.timeout(60):
        await claims.turned_over()
        await claims.idle()
    claims.ends.rest()
    claims.store.drop(NAME)
    claims.rest()
    await asyncio.sleep(0)
    assert node.records["c"]["phase"] == "ending", "not forgotten by the older one"
    await another_ends(node)


class SlowLanes(FakeLanes):
    """Refuses to prepare what it has allocated. A release is over when the test says so."""

    over: Callable[[], None] | None = None

    def release(self, devices: Any, free: Any, told: Callable[[], None]) -> None:
        super().release(devices, free, lambda: None)
        self.over = told

    def refuse(self) -> None:
        if self.prepared:
            raise DriverError("no")


@pytest.mark.parametrize("hangs", [False, True])
async def test_a_handover_waits_for_what_a_failed_preparation_owes(node: ClaimNode, *, hangs: bool) -> None:
    slow = SlowLanes("prepare", "release")
    slow.meanwhile = slow.refuse
    claims = await node.gateway(ClaimedResource(slow, Device("a")), patience=40)
    assert "no" in await one(await claims.prepare([node.allocate("c", "a")]))
    idle = asyncio.create_task(claims.idle())
    await turns()
    assert (slow.released, idle.done()) == (["a"], False)
    if hangs:
        hurry(100)
    else:
        assert slow.over is not None
        slow.over()
    await until(idle.done)


async def test_what_a_failed_preparation_owes_is_left_to_another_gateway(node: ClaimNode) -> None:
    """A gather() that is cancelled ends with an exception: nobody retrieved it, so it was logged as a bug."""
    said: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context))
    slow = SlowLanes("prepare", "release")
    slow.meanwhile = slow.refuse
    claims = await node.gateway(ClaimedResource(slow, Device("a")), patience=40)
    assert "no" in await one(await claims.prepare([node.allocate("c", "a")]))
    await turns()
    claims.rest()
    await turns()
    gc.collect()
    assert said == []


async def failed(claims: NodeClaims, slow: SlowLanes, asked: Asked, meanwhile: Callable[[], object] = int) -> None:
    """A preparation. ``meanwhile``: what happens before the driver refuses."""

    def refuse() -> None:
        if slow.prepared:
            meanwhile()
        slow.refuse()

    slow.meanwhile = refuse
    assert "no" in await one(await claims.prepare([asked]))


async def test_what_a_failed_preparation_owes_is_not_lost_with_its_gateway(
    node: ClaimNode, caplog: pytest.LogCaptureFixture
) -> None:
    """Its journal may not have that yet, or its resource may be on another front by then."""
    caplog.set_level(logging.INFO)
    slow, asked = SlowLanes("prepare", "release"), node.allocate("c", "a")
    await failed(await node.gateway(ClaimedResource(slow, Device("a"))), slow, asked)
    assert node.records["c"]["phase"] == "ending"
    await another_ends(node)
    await until(lambda: "released what drivers gave for claim default/c" in caplog.text)
    assert "unprepared" not in caplog.text


async def test_the_end_of_a_failed_preparation_is_not_logged_as_a_claims(
    node: ClaimNode, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    slow = SlowLanes("prepare", "release")
    claims = await node.gateway(ClaimedResource(slow, Device("a")))
    await failed(claims, slow, node.allocate("c", "a"))
    assert slow.over is not None
    slow.over()
    await until(lambda: "released what drivers gave for claim default/c" in caplog.text)
    assert "unprepared" not in caplog.text


async def test_what_a_failed_preparation_owes_in_doubt_goes_with_its_resource(node: ClaimNode) -> None:
    slow, debts = SlowLanes("prepare", "release"), Debts()
    resource = ClaimedResource(slow, Device("a"))
    resource.releases.rest()
    claims = await node.gateway(resource)
    claims.store.owe = debts.owe
    await failed(claims, slow, node.allocate("c", "a"), lambda: claims.store.doubts.missing("another claim is lost"))
    claims.store.drop(NAME)
    await until(lambda: not node.records)
    assert debts.told == [f"a of {NAME}"]


async def test_the_next_call_waits_for_what_a_failed_preparation_owes(node: ClaimNode) -> None:
    slow, asked = SlowLanes("prepare", "release"), node.allocate("c", "a")
    claims = await node.gateway(ClaimedResource(slow, Device("a")))
    await failed(claims, slow, asked)
    slow.meanwhile = lambda: None
    again = asyncio.create_task(claims.prepare([asked]))
    await until(lambda: slow.over is not None)
    assert not again.done()
    assert slow.over is not None
    slow.over()
    assert [it.device for it in await one(await again)] == ["a"]


class LateLanes(FakeLanes):
    """Its allocate() goes on without its call, until the test says otherwise."""

    call: asyncio.Future[None]

    async def allocate(self, devices: Any, late: Any, options: object = None) -> Allocation:
        self.call = asyncio.get_running_loop().create_future()
        late(self.call)
        raise DriverError("no")


@pytest.mark.parametrize("hangs", [False, True])
async def test_a_handover_waits_for_an_allocate_without_its_claim(node: ClaimNode, *, hangs: bool) -> None:
    late = LateLanes("release")
    claims = await node.gateway(ClaimedResource(late, Device("a")), patience=40)
    assert "no" in await one(await claims.prepare([node.allocate("c", "a")]))
    idle = asyncio.create_task(claims.idle())
    await turns()
    assert not idle.done()
    if hangs:
        hurry(100)
    else:
        late.call.set_result(None)
    await until(idle.done)
    assert late.released == ([] if hangs else ["a"])


async def test_an_allocate_that_goes_on_goes_with_its_resource(node: ClaimNode) -> None:
    late, debts = LateLanes("release"), Debts()
    resource = ClaimedResource(late, Device("a"))
    claims = await node.gateway(resource)
    claims.store.owe = debts.owe
    assert "no" in await one(await claims.prepare([node.allocate("c", "a")]))
    resource.releases.rest()  # its driver ends
    claims.store.drop(NAME)
    used_there = hardware_use(NAME, claims.parts.left.value[NAME], lambda _: None)
    assert used_there.by_hardware.keys() == {"a"}
    late.call.set_result(None)
    await until(lambda: debts.told)
    await until(lambda: not (claims.store.records or node.records))
    assert (debts.told, late.released, claims.parts.left.value) == ([f"a of {NAME}"], [], {})


async def test_a_resource_that_is_not_configured_any_more_holds_up_no_end(node: ClaimNode) -> None:
    await begun(node)
    claims = await node.gateway()
    claims.store.drop(NAME)
    await until(lambda: not node.records)


async def test_an_end_waits_for_the_driver_on_another_front(node: ClaimNode) -> None:
    """At a gateway's start none runs yet; its pod ends after the patience, and the devices stay withheld."""
    asked = (await begun(node)).asked
    claims = await node.gateway(patience=IN_VAIN)
    answers: list[bool | None] = [None]
    told: list[str] = []

    def owe(resource: str, id_: str, _: Unreleased) -> bool | None:
        told.append(f"{id_} of {resource}")
        return answers[-1]

    claims.store.owe = owe
    claims.store.drop(NAME)
    assert await one(await claims.unprepare([asked])) == ()
    assert node.records["c"]["phase"] == "ending"
    answers.append(True)
    await until(lambda: not node.records)
    assert set(told) == {f"a of {NAME}"}


async def test_a_resource_that_stops_holds_up_no_end(node: ClaimNode) -> None:
    await begun(node)
    resource = ClaimedResource(lanes("release"), Device("a"))
    resource.releases.rest()
    claims = await node.gateway(resource)
    claims.store.drop(NAME)
    await until(lambda: not node.records)
    assert isinstance(resource.usage.value, ClaimHoldings)
    assert "a" in resource.usage.value.unreleased  # as its journal has it


class Debts:
    """What drivers on other fronts are asked to release."""

    def __init__(self, *, served: bool = True) -> None:
        """``served``: whether one serves the resource."""
        self.served = served
        self.told: list[str] = []

    def owe(self, resource: str, id_: str, _: Unreleased) -> bool | None:
        self.told.append(f"{id_} of {resource}")
        return self.served or None


@pytest.mark.parametrize("served", [True, False])
async def test_a_release_that_waits_goes_with_its_resource(node: ClaimNode, *, served: bool) -> None:
    """The record says that the claim ends before the resource leaves DRA: nobody was told of the device then."""
    (claims, resource, _), debts = await begun(node), Debts(served=served)
    claims.store.owe = debts.owe
    claims.store.drop(NAME)
    await until(lambda: debts.told)
    if not served:
        await turns()
        assert node.records["c"]["phase"] == "ending"
        debts.served = True
        claims.store.served.notify()
    await until(lambda: not node.records)
    assert (set(debts.told), resource.lanes.released) == ({f"a of {NAME}"}, [])


async def test_a_release_that_waits_is_told_by_a_resource_that_begins_again(node: ClaimNode) -> None:
    (claims, _, _), debts = await begun(node), Debts()
    claims.store.owe = debts.owe
    claims.store.drop(NAME)
    claims.store.expect(NAME)
    await turns()
    assert node.records["c"]["phase"] == "ending"
    resource = ClaimedResource(lanes("release"), Device("a"))
    claims.store.add(NAME, resource)
    await until(lambda: not node.records)
    assert (debts.told, resource.lanes.released) == ([], ["a"])


@pytest.mark.parametrize("gone", ["meanwhile", "after it failed"])
async def test_what_a_failed_preparation_owes_goes_with_its_resource(node: ClaimNode, gone: str) -> None:
    slow, debts = SlowLanes("prepare", "release"), Debts()
    resource = ClaimedResource(slow, Device("a"))
    resource.releases.rest()
    claims = await node.gateway(resource, patience=40)
    claims.store.owe = debts.owe

    def refuse() -> None:
        if gone == "meanwhile":
            claims.store.drop(NAME)
        slow.refuse()

    slow.meanwhile = refuse
    assert "no" in await one(await claims.prepare([node.allocate("c", "a")]))
    if gone != "meanwhile":
        claims.store.drop(NAME)
    await until(lambda: debts.told)
    assert (debts.told, slow.released) == ([f"a of {NAME}"], [])


async def test_no_other_claim_gets_a_device_before_its_release(node: ClaimNode) -> None:
    claims, resource, _ = await begun(node)
    assert "free" in await one(await claims.prepare([node.allocate("d", "a")]))
    resource.releases.go_on()
    await until(lambda: not resource.usage.value.taken)
    assert len(await one(await claims.prepare([node.allocate("e", "a")]))) == 1
    assert resource.lanes.released == ["a"]


async def test_the_specs_are_gone_before_the_release(node: ClaimNode) -> None:
    resource = ClaimedResource(lanes("release"), Device("a"))
    claims, asked = await node.gateway(resource, patience=IN_VAIN), node.allocate("c", "a")
    await claims.prepare([asked])
    assert len(list(node.specs.glob("*.json"))) == 1
    ids = claims.store.records[asked.uid].given[0].spec_ids(asked.uid)
    assert resource.usage.value.one_has(ids)
    resource.releases.rest()
    await claims.unprepare([asked])
    await until(lambda: not list(node.specs.glob("*.json")))
    assert resource.lanes.released == []
    assert not resource.usage.value.one_has(ids)  # so the keeper doesn't write it again


async def test_the_spec_of_the_next_claim_is_another_one(node: ClaimNode) -> None:
    """The first one's may still be being removed when the device is free."""
    resource = ClaimedResource(lanes("release"), Device("a"))
    claims, names = await node.gateway(resource), set()
    for name in ("c", "d"):
        asked = node.allocate(name, "a")
        for answer in await one(await claims.prepare([asked])):
            names |= set(answer.cdi)
        await claims.unprepare([asked])
    assert len(names) == 2


class NotedFiles(ClaimFiles):
    """Notes what is written."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.written: list[Phase] = []

    def write(self, one: ClaimRecord) -> None:
        self.written.append(one.phase)
        super().write(one)


class FaultyFiles(ClaimFiles):
    """Fails twice in a way that nobody expects."""

    faults = 2

    def remove(self, uid: str) -> None:
        if self.faults:
            self.faults -= 1
            raise LookupError(uid)
        super().remove(uid)


async def test_an_end_goes_on_after_a_bug(node: ClaimNode, caplog: pytest.LogCaptureFixture) -> None:
    resource = ClaimedResource(lanes("release"), Device("a"))
    disk, asked = (FaultyFiles(node.folder), own(node.specs)), node.allocate("c", "a")
    claims = await node.gateway(resource, disk=disk, patience=IN_VAIN)
    await claims.prepare([asked])
    await claims.unprepare([asked])
    assert node.records["c"]["phase"] == "ending"
    hurry(5)  # a second for the disk
    await until(lambda: not node.records)
    assert [one.getMessage() for one in caplog.records if one.exc_info] == [
        f"a bug: the end of claim default/c failed, and is tried again: LookupError({asked.uid!r})"
    ]


async def test_an_end_that_goes_on_is_not_recorded_again(node: ClaimNode) -> None:
    """The record might be written after its removal, and stay."""
    asked, files = (await begun(node)).asked, NotedFiles(node.folder)
    resource = ClaimedResource(lanes("release"), Device("a"))
    claims = await node.gateway(resource, disk=(files, own(node.specs)))
    assert await one(await claims.unprepare([asked])) == ()
    await until(lambda: not node.records)
    assert files.written == []


class StuckFiles(ClaimFiles):
    """The first end that is to be written waits."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.stuck, self.done = threading.Event(), threading.Event()

    def write(self, one: ClaimRecord) -> None:
        first = one.phase is Phase.ENDING and not self.done.is_set()
        if first:
            self.stuck.wait(60)
        super().write(one)
        if first:
            self.done.set()


async def test_a_write_that_took_too_long_does_not_come_after_later_ones(
    node: ClaimNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the next gateway would end a claim that its next pod has."""
    disk, asked = StuckFiles(node.folder), node.allocate("c", "a")
    claims = await node.gateway(ClaimedResource(lanes("release"), Device("a")), disk=(disk, own(node.specs)))
    await claims.prepare([asked])
    with monkeypatch.context() as short:
        short.setattr(files, "DISK", 0.5)
        assert "can't be written" in await one(await claims.unprepare([asked]))
        assert await one(await claims.unprepare([asked])) == ()
        meanwhile = await one(await claims.prepare([asked]))
    disk.stuck.set()
    await asyncio.to_thread(disk.done.wait)
    assert len(await one(await claims.prepare([asked]))) == 1
    assert node.records["c"]["phase"] == "prepared"
    assert "can't be written" in meanwhile


class StuckSpecs:
    """The gateway's own CDI specs: the first removal waits."""

    def __init__(self, specs: Any) -> None:
        self._specs, self.stuck, self.done = specs, threading.Event(), threading.Event()
        self.write = specs.write

    def withdraw(self, names: Any) -> None:
        first = not self.done.is_set()
        self.done.set()
        if first:
            self.stuck.wait(60)
        self._specs.withdraw(names)
        if first:
            self.stuck.clear()


async def test_specs_that_are_removed_late_are_not_those_of_the_next_preparation(node: ClaimNode) -> None:
    disk, asked = StuckSpecs(own(node.specs)), node.allocate("c", "a")
    specs: Any = disk
    claims = await node.gateway(ClaimedResource(lanes("release"), Device("a")), disk=(node.files, specs))
    await claims.prepare([asked])
    hurry(50)
    for call in (claims.unprepare, claims.prepare):
        calling = asyncio.create_task(call([asked]))
        await until(calling.done)
    disk.stuck.set()
    await until(lambda: not disk.stuck.is_set())
    hurry(0.02)
    assert len(await one(await claims.prepare([asked]))) == 1
    assert list(node.specs.glob("dpgateway-*.json"))


async def test_a_handover_waits_for_a_write_that_takes_too_long(
    node: ClaimNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would come after those of the newer gateway."""
    disk, asked = StuckFiles(node.folder), node.allocate("c", "a")
    claims = await node.gateway(ClaimedResource(lanes("release"), Device("a")), disk=(disk, own(node.specs)))
    await claims.prepare([asked])
    with monkeypatch.context() as short:
        short.setattr(files, "DISK", 0.5)
        await claims.unprepare([asked])
    idle = asyncio.create_task(claims.idle())
    await turns()
    assert not idle.done()
    disk.stuck.set()
    await idle
    assert node.records["c"]["phase"] == "ending"
