"""A file that is no claim's record: whatever it stands for stays withheld until its claim has ended."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from dpgateway import Allocation, Device
from dpgateway.dra.claims.files import ClaimFiles
from dpgateway.dra.claims.reading import Asked
from dpgateway.dra.claims.records import Damaged as Record
from dpgateway.dra.preparing import NodeClaims
from dpgateway.errors import DriverError
from dpgateway.kit.threads import Threads
from dpgateway.resource.specs import SpecKeeper
from tests.dra.claim_node import IN_VAIN, ClaimedResource, ClaimNode, lanes, one
from tests.support.specs import own
from tests.support.time import hurry
from tests.support.waiting import until


class Damaged:
    """The claim c has the device a, its record is damaged, and another gateway has begun."""

    def __init__(self, node: ClaimNode) -> None:
        self.node, self.asked = node, node.allocate("c", "a")
        self.file = node.folder / "dra" / "claims" / f"{self.asked.uid}.json"
        self.resource = ClaimedResource(lanes("release"), Device("a"), Device("b"))

    async def gateway(self, resource: ClaimedResource | None = None, **more: Any) -> NodeClaims:
        first = ClaimedResource(lanes("release"), Device("a"), Device("b"))
        await (await self.node.gateway(first)).prepare([self.asked])
        self.file.write_text("{")
        second = resource or self.resource
        second.usage.set(second.usage.value.remembered(first.usage.value.unreleased))  # the journal
        return await self.node.gateway(second, **more)


@pytest.fixture
def damaged(node: ClaimNode) -> Damaged:
    return Damaged(node)


@pytest.mark.parametrize("device", ["a", "b"])
async def test_no_claim_gets_devices_and_the_refusal_names_the_file(damaged: Damaged, device: str) -> None:
    claims = await damaged.gateway(patience=IN_VAIN)
    answer = await one(await claims.prepare([damaged.node.allocate("d", device)]))
    assert str(damaged.file) in answer
    assert "Expecting property name" in answer  # what is wrong with it
    assert damaged.resource.lanes.released == []


class Journals:
    """There are no journals."""

    known = asyncio.Event()

    async def look(self) -> bool:
        return True


@pytest.mark.parametrize("why", ["a damaged record", "another gateway has the records"])
async def test_a_spec_stays_while_its_claim_is_not_known(damaged: Damaged, why: str) -> None:
    claims, specs, journals = await damaged.gateway(), own(damaged.node.specs), Journals()
    if "another" in why:
        claims.store.rest()
    (needed,) = specs.all()
    specs.write("example.com/gone", ("over",), Allocation({"A": "B"}))
    for each in specs.all():
        os.utime(each.record, (1e9, 1e9))
    keeping = SpecKeeper(specs, [], journals, Threads(), pause=0.01)  # type: ignore[arg-type]
    keeping.unsure = claims.may_have
    journals.known.set()
    running = asyncio.create_task(keeping.run())
    await until(lambda: len(specs.all()) == 1)
    assert needed.spec.exists()
    running.cancel()


async def test_it_ends_with_its_claim(damaged: Damaged) -> None:
    claims = await damaged.gateway()
    assert await one(await claims.unprepare([damaged.asked])) == ()
    assert damaged.resource.lanes.released == ["a"]
    assert not damaged.file.exists()
    assert damaged.file.with_suffix(".json.damaged").read_text() == "{"
    assert len(await one(await claims.prepare([damaged.node.allocate("d", "a")]))) == 1


async def test_the_claim_itself_may_be_prepared_again(damaged: Damaged) -> None:
    claims = await damaged.gateway()
    assert len(await one(await claims.prepare([damaged.asked]))) == 1
    assert claims.store.doubts.damaged == {}
    assert damaged.node.records["c"]["phase"] == "prepared"
    assert damaged.resource.lanes.released == []
    assert len(await one(await claims.prepare([damaged.node.allocate("d", "b")]))) == 1


async def test_a_preparation_that_fails_frees_nothing(damaged: Damaged) -> None:
    resource = ClaimedResource(lanes("release", error=DriverError("no")), Device("a"))
    claims = await damaged.gateway(resource, patience=IN_VAIN)
    assert "no" in await one(await claims.prepare([damaged.asked]))
    assert damaged.node.records["c"]["phase"] == "preparing"
    resource.lanes.error = None
    assert "free" in await one(await claims.prepare([damaged.node.allocate("d", "a")]))


class LateFiles(ClaimFiles):
    """The disk hangs as a file is set aside."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.goes_on, self.done = threading.Event(), threading.Event()

    def set_aside(self, one: Record) -> None:
        self.goes_on.wait(60)
        super().set_aside(one)
        self.done.set()


async def test_a_record_that_was_made_again_is_not_set_aside_late(damaged: Damaged) -> None:
    files = LateFiles(damaged.node.folder)
    claims = await damaged.gateway(disk=(files, own(damaged.node.specs)))
    hurry(50)
    for call in (claims.unprepare, claims.prepare):
        calling = asyncio.create_task(call([damaged.asked]))
        await until(calling.done)
    files.goes_on.set()
    await until(files.done.is_set)
    hurry(0.02)
    assert len(await one(await claims.prepare([damaged.asked]))) == 1
    assert damaged.node.records["c"]["phase"] == "prepared"


async def test_claims_that_wait_look_again_once_one_of_several_damaged_records_is_gone(damaged: Damaged) -> None:
    claims = await damaged.gateway(patience=IN_VAIN)
    other = damaged.file.with_name("z.json")  # named after it, so the reason of the doubt stays as it is
    other.write_text("?")
    await claims.load()
    assert "Expecting" in await one(await claims.prepare([damaged.asked]))
    looked = claims.store.doubts.why.version
    other.unlink()
    await claims.store.doubts.look_for_damage()
    assert claims.store.doubts.why.version > looked
    assert len(await one(await claims.prepare([damaged.asked]))) == 1


async def test_another_damaged_record_leaves_the_doubt(damaged: Damaged) -> None:
    claims = await damaged.gateway(patience=IN_VAIN)
    other = damaged.file.with_name("other.json")
    other.write_text("?")
    await claims.load()
    assert "Expecting" in await one(await claims.prepare([damaged.asked]))
    await claims.unprepare([damaged.asked])
    assert damaged.resource.lanes.released == []
    assert "other.json" in await one(await claims.prepare([damaged.node.allocate("d", "b")]))
    await claims.unprepare([Asked("default", "other", "other")])
    assert damaged.resource.lanes.released == ["a"]


async def test_a_claim_waits_for_the_end_of_the_doubt(damaged: Damaged) -> None:
    await damaged.gateway()
    resource = ClaimedResource(lanes(), Device("a"), Device("b"))
    claims = await damaged.node.gateway(resource)
    waiting = asyncio.create_task(claims.prepare([damaged.node.allocate("d", "b")]))
    await claims.unprepare([damaged.asked])
    assert len(await one(await waiting)) == 1
