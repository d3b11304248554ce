"""The checkpoint is read on threads, and what it says is published for each resource."""

import asyncio
import itertools
import json
import os
import sys
import time

import pytest

from dpgateway.deviceplugin.holdings.observed import ResourceHoldings
from dpgateway.deviceplugin.holdings.reading import LARGEST_HELD, MOST_HELD, Reader
from dpgateway.deviceplugin.holdings.values import CLOCK_STEP, Holdings
from dpgateway.errors import KubeletError
from dpgateway.kit.threads import Threads
from dpgateway.node import checkpoint
from dpgateway.node.directory import stamped
from tests.support.threads import Scarce

THING, OTHER = "example.com/thing", "example.com/other"


class Read:
    """A reader that runs, and the file that it reads."""

    def __init__(self, directory, threads=None):
        self.file = directory / checkpoint.NAME
        self.holders = {name: ResourceHoldings(Holdings()) for name in (THING, OTHER)}
        self._reader = Reader(directory, self.holders, threads or Threads(), lambda: None)
        self.content = self._reader.content
        self.task = asyncio.ensure_future(self._reader.run())

    def write(self, ago=60.0, **held):
        """What containers hold, written so many seconds ago."""
        entries = [{"ResourceName": f"example.com/{name}", "DeviceIDs": {"0": ids}} for name, ids in held.items()]
        self.write_raw(json.dumps({"Data": {"PodDeviceEntries": entries}, "Checksum": 1}), ago)

    def write_raw(self, text, ago=60.0):
        self.file.write_text(text)
        os.utime(self.file, (time.time() - ago,) * 2)

    async def read(self):
        await self._reader.read()
        return self.holders[THING].value

    async def told(self, *asked):
        """The resources whose watchers hear of another look at the file."""
        before = {name: holdings.version for name, holdings in self.holders.items()}
        self._reader.ask(*asked)
        await self._reader.read()
        return {name for name, version in before.items() if self.holders[name].version > version}


@pytest.fixture
async def reads(tmp_path):
    one = Read(tmp_path)
    yield one
    one.task.cancel()
    await asyncio.wait([one.task])


async def test_each_resource_gets_its_note(reads):
    reads.write(thing=["a", "b"], other=["c"])
    assert (await reads.read()).held == {"a", "b"}
    assert reads.holders[OTHER].value.held == {"c"}
    reads.write(other=["c"])
    assert (await reads.read()).held == set()


async def test_the_file_tells_of_resources_that_nobody_follows(reads):
    with pytest.raises(FileNotFoundError):
        await reads.content()
    reads.write(thing=["a"], unknown=["b"])
    assert (await reads.content()).notes.keys() == {THING, "example.com/unknown"}
    reads.write_raw("{")
    with pytest.raises(KubeletError):
        await reads.content()


async def test_without_a_file_nobody_holds_anything(reads):
    assert (await reads.read()).held == set()


async def test_a_look_that_finds_the_same(reads):
    reads.write(thing=["a"], other=["c"])
    assert await reads.told() == {THING, OTHER}
    reads.write(ago=30, thing=["a"], other=["c"])
    assert await reads.told() == set()
    assert await reads.told(THING) == {THING}
    assert await reads.told() == set()
    reads.write(thing=["a"])
    assert await reads.told() == {OTHER}


async def test_what_is_freed_is_news_until_somebody_was_told(reads):
    reads.write(thing=["a"])
    await reads.read()
    reads.write(ago=30, thing=[])
    assert await reads.told() == {THING}
    assert await reads.told() == {THING}
    holdings = reads.holders[THING]
    holdings.set(holdings.value.released(["a"]))
    assert await reads.told() == set()


async def test_each_look_at_the_file_is_news(reads):
    reads.write(thing=["a"])
    first = await reads.read()
    reads.file.unlink()
    second = await reads.read()
    assert (first.note, first.note is second.note) == (second.note, False)


async def test_a_file_of_the_same_tick_as_a_grant_is_believed_later(reads):
    """A kubelet of 1.8 allocates again at each start, and then writes what the file has already."""
    reads.write(thing=["a"])
    first = await reads.read()
    reads.write(ago=0.0, thing=["a"])
    holdings, given = reads.holders[THING], stamped(reads.file.stat().st_mtime) + CLOCK_STEP / 2
    holdings.set(first.began(("a",)).gave(("a",), given))
    assert (await reads.read()).granted == {"a": given}
    async with asyncio.timeout(30):
        await holdings.wait_for(lambda value: not value.granted)


@pytest.mark.parametrize("deleted", [False, True])
async def test_a_damaged_file_is_to_be_written_anew(reads, deleted):
    """By a kubelet that gets a list again, one resource's after the other."""
    reads.write_raw('{"Data": {}}}', ago=0 if deleted else 60)
    assert not (await reads.read()).known
    if deleted:
        reads.file.unlink()
    async with asyncio.timeout(60):
        for holdings in reads.holders.values():
            await holdings.wait_for(lambda value: value.doubted > 0)
    reads.write(thing=["a"])
    assert (await reads.read()).held == {"a"}


async def test_nothing_is_known_without_a_thread(tmp_path, caplog):
    one = Read(tmp_path, threads := Scarce())
    one.write(thing=["a"])
    assert not (await one.read()).known
    assert "can't be read: the system has no thread left for read the checkpoint" in caplog.messages[-1]
    threads.none_left = False
    assert (await one.read()).held == {"a"}
    one.task.cancel()
    await asyncio.wait([one.task])


async def test_a_damaged_file_is_told_of_once(reads, caplog):
    for damaged in range(1, 3):
        reads.write_raw("{")
        for _ in range(3):
            assert not (await reads.read()).known
        assert len(caplog.records) == damaged
        assert "no id is dropped from any list, because the checkpoint can't be read" in caplog.messages[-1]
        reads.write(thing=["a"])
        assert (await reads.read()).held == {"a"}


async def test_a_file_that_may_just_be_written_is_not_told_of(reads, caplog):
    reads.write_raw("{", ago=-10.0)  # as good as now, whenever it is read
    assert not (await reads.read()).known
    assert caplog.records == []


async def test_a_file_that_cannot_be_read_is_named(reads, caplog):
    reads.file.mkdir()
    await reads.read()
    assert f"{reads.file}: expected a regular file" in caplog.text


async def test_more_ids_than_containers_can_hold_are_not_believed(reads, caplog):
    reads.write(thing=[str(number) for number in range(MOST_HELD)], other=["c"])
    assert len((await reads.read()).held or ()) == MOST_HELD
    assert caplog.records == []
    reads.write(thing=[str(number) for number in range(MOST_HELD + 1)], other=["c"])
    assert (await reads.read()).held is None
    assert reads.holders[OTHER].value.held == {"c"}
    (text,) = caplog.messages
    assert text == (
        "no id of example.com/thing is dropped from its list, because the checkpoint can't be true: "
        "found 10001 ids that containers hold, expected at most 10000"
    )


async def test_ids_that_fit_in_no_list_are_not_believed(reads, caplog):
    longest = "x" * (LARGEST_HELD - 1)
    reads.write(thing=[longest, "y"])
    assert (await reads.read()).held == {longest, "y"}
    reads.write(thing=[longest, "\u00e9"], other=["c"])
    assert (await reads.read()).held is None
    assert reads.holders[OTHER].value.held == {"c"}
    (text,) = caplog.messages
    assert text.endswith("found 3145729 bytes of ids that containers hold, expected at most 3145728")


def test_a_stamp_from_the_future_is_as_good_as_now():
    assert stamped(time.time() - 60) == pytest.approx(time.monotonic() - 60, abs=20)
    assert stamped(time.time() + 3600) == pytest.approx(time.monotonic(), abs=20)


async def test_a_file_from_the_future(reads):
    reads.write(ago=-3600.0, thing=["a"])
    first = await reads.read()
    assert first.written == pytest.approx(time.monotonic(), abs=20)
    assert (await reads.read()).written == first.written
    reads.write(ago=-3600.0, thing=["a", "b"])
    assert (await reads.read()).written > first.written


async def test_a_checkpoint_from_the_future_tells_what_is_free(reads):
    """The clock was an hour ahead when a device was given away and the kubelet wrote that down."""
    reads.write(ago=-3600.0, thing=["a"])
    granted = await reads.read()
    reads.holders[THING].set(granted.began(("b",)).gave(("b",), time.monotonic()))
    reads.write(ago=0.0, thing=["a", "b"])
    assert not (await reads.read()).granted
    reads.write(ago=0.0, thing=["b"])
    assert (await reads.read()).freed == {"a"}


def test_a_long_file_leaves_others_their_turns():
    """Another thread may run wherever the interpreter does, but not within a function in C, however long that takes."""
    ids = [f"device-{number}" for number in range(10_000)]
    raw = json.dumps({"Data": {"PodDeviceEntries": [], "RegisteredDevices": {THING: ids}}}).encode()
    assert len(raw) > checkpoint.SHORT
    turns = itertools.count()
    sys.setprofile(lambda *_: next(turns))
    try:
        checkpoint.parse(raw)
    finally:
        sys.setprofile(None)
    assert next(turns) > len(ids)


async def test_a_file_that_cannot_be_read_has_no_list_sent_at_each_look(reads):
    """The kubelet writes it after each list, which has it read again."""
    reads.file.mkdir()
    sent = set()
    for _ in range(5):
        await reads.read()
        sent |= {holdings.value.doubted for holdings in reads.holders.values() if holdings.value.doubted > 0}
    assert len(sent) == 1
