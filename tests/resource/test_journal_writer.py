"""What was given away is written down, whatever the disk does meanwhile."""

import asyncio
import os
import threading
import time
from pathlib import Path

import pytest

from dpgateway.deviceplugin.holdings.observed import ResourceHoldings
from dpgateway.deviceplugin.holdings.values import Holdings
from dpgateway.kit.threads import Threads
from dpgateway.node.holders import Noted
from dpgateway.resource.front import Unreleased
from dpgateway.resource.journal import Journal, JournalWriter
from tests.support.threads import Scarce
from tests.support.waiting import turns, until

THING = "example.com/thing"


class Disk(Journal):
    """A journal on a disk that waits until the test lets it go on."""

    def __init__(self, folder):
        super().__init__(folder / "state", folder / "device-plugins", THING)
        self.free = threading.Event()
        self.free.set()
        self.writing = 0

    def save(self, unreleased, **how):
        self.writing += 1
        try:
            assert self.writing == 1, "two at once"
            self.free.wait(20)
            return super().save(unreleased, **how)
        finally:
            self.writing -= 1


@pytest.fixture
def disk(tmp_path):
    return Disk(tmp_path)


@pytest.fixture
def holdings():
    return ResourceHoldings(Holdings().noted({}, 0.0, 0.0))


class Started(JournalWriter):
    async def start(self):
        await self.load()
        self.task = asyncio.create_task(self.follow())


class Impatient(Started):
    again = 0.01


async def test_nothing_is_written_before_the_load(disk, holdings, log):
    disk.save({"a": Unreleased("")})
    give(holdings, "b")
    waiting = JournalWriter(disk, holdings, Threads(), log)
    await waiting.finish()
    assert set(disk.load()) == {"a"}


async def test_a_fresh_grant_is_held(disk, holdings, log):
    now = int(time.time())
    disk.save({"new": Unreleased("", since=now), "old": Unreleased("", since=now - 60)})
    await JournalWriter(disk, holdings, Threads(), log).load()
    assert holdings.value.held == {"new"}


async def test_held_as_the_checkpoint_says(disk, holdings, log):
    disk.save({"new": Unreleased("", since=int(time.time()))})
    now = time.monotonic()
    holdings.set(holdings.value.noted({"new": Noted()}, now, now))
    await JournalWriter(disk, holdings, Threads(), log).load()
    assert not holdings.value.granted


@pytest.fixture
async def one(disk, holdings, log):
    one = Started(disk, holdings, Threads(), log)
    yield one
    disk.free.set()
    one.task.cancel()
    await asyncio.wait({one.task})


def give(holdings, *ids):
    holdings.set(holdings.value.began(ids).gave(ids, 1.0))


async def rest(one):
    """Again once it is written, where the disk takes longer than an end may."""
    while True:
        try:
            return await one.rest()
        except OSError:
            one.go_on()
            await until(lambda: not (one.complaint or one.under_way()))


async def test_each_change_is_written_down(one, disk, holdings):
    await one.start()
    give(holdings, "a")
    await until(lambda: disk.load().keys() == {"a"})
    give(holdings, "b")
    await until(lambda: disk.load().keys() == {"a", "b"})
    holdings.set(holdings.value.noted({}, 100.0, 100.0).released({"a", "b"}))
    await until(lambda: not disk.path.exists())


async def test_what_an_earlier_gateway_wrote_is_taken(one, disk, holdings):
    disk.save({"a": Unreleased("", hardware=frozenset(["char 188:0"]))})
    await one.start()
    assert holdings.value.remembers
    assert holdings.value.unreleased["a"].hardware == {"char 188:0"}


async def test_without_a_thread(disk, holdings, log, records):
    threads = Scarce()
    one = JournalWriter(disk, holdings, threads, log)
    await one.load()
    unread = f"{disk.path} can't be read: the system has no thread left for journal"
    assert f"known from the kubelet alone for now: {unread}" in records.texts()[-1]
    give(holdings, "a")
    await one.finish()
    assert "nobody will remember what is given away now" in records.texts()[-1]
    threads.none_left = False
    await one.finish(20)
    assert disk.load().keys() == {"a"}


async def test_a_damaged_file_is_said_and_stops_nothing(one, disk, holdings, records):
    disk.path.parent.mkdir(mode=0o700)
    disk.path.write_text("{")
    await one.start()
    aside = disk.path.with_suffix(".damaged")
    known = f"known from the kubelet alone, and the file is {aside} now: {disk.path}: not a journal"
    assert known in str(records.texts())
    give(holdings, "a")
    await until(disk.path.exists)
    assert disk.load().keys() == {"a"}
    assert aside.read_text() == "{"


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, lambda path: path.symlink_to("other")])
async def test_what_is_no_file_is_put_aside(one, disk, holdings, records, make):
    """Although it can't replace the one before."""
    aside = disk.path.with_suffix(".damaged")
    aside.parent.mkdir(mode=0o700)
    (Path.touch if make is os.mkdir else os.mkdir)(aside)
    make(disk.path)
    await one.start()
    assert f"known from the kubelet alone, and the file is {aside}-" in records.texts()[0]
    give(holdings, "a")
    await until(disk.path.is_file)
    assert (disk.load().keys(), one.complaint) == ({"a"}, "")


async def test_a_late_load_before_a_write(disk, holdings, log, records):
    disk.save({"earlier": Unreleased("", hardware=frozenset(["char 188:0"]))})
    threads = Scarce()
    one = JournalWriter(disk, holdings, threads, log)
    await one.load()
    give(holdings, "a")
    await one.finish()
    assert disk.load().keys() == {"earlier"}
    threads.none_left = False
    await one.finish(20)
    assert disk.load().keys() == {"earlier", "a"}
    assert holdings.value.unreleased["earlier"].hardware == {"char 188:0"}


async def test_a_late_load_without_a_change(disk, holdings, log):
    disk.save({"earlier": Unreleased("")})
    threads = Scarce()
    one = Impatient(disk, holdings, threads, log)
    await one.start()
    assert one.complaint.startswith(f"{disk.path} can't be read: ")
    threads.none_left = False
    await until(lambda: not one.complaint)
    assert holdings.value.unreleased.keys() == disk.load().keys() == {"earlier"}
    one.task.cancel()
    await asyncio.wait({one.task})


async def test_a_disk_that_refuses_is_said_once_and_tried_again(one, disk, holdings, records):
    await one.start()
    disk.path.parent.mkdir(mode=0o700)
    disk.path.parent.chmod(0o777)
    give(holdings, "a")
    await until(lambda: "nobody will remember what is given away now" in str(records.texts()))
    give(holdings, "b")
    await asyncio.sleep(0)
    disk.path.parent.chmod(0o700)
    give(holdings, "c")
    await until(lambda: disk.path.exists() and disk.load().keys() == {"a", "b", "c"})
    assert str(records.texts()).count("nobody will remember") == 1


@pytest.mark.parametrize("changes", [False, True], ids=["as it is", "nothing to write"])
async def test_a_disk_that_refused_is_tried_again(disk, holdings, log, records, changes):
    disk.path.parent.mkdir(mode=0o700)
    disk.path.parent.chmod(0o777)
    one = Impatient(disk, holdings, Threads(), log)
    await one.start()
    before = holdings.value
    give(holdings, "a")
    await until(lambda: one.complaint)
    assert one.complaint.startswith(f"{disk.path}: ")
    if changes:
        holdings.set(before)
    disk.path.parent.chmod(0o700)
    await until(lambda: not one.complaint)
    assert disk.load().keys() == (set() if changes else {"a"})
    assert "what is given away is written down again" in records.texts()
    one.task.cancel()
    await asyncio.wait({one.task})


async def test_a_change_that_has_to_be_on_disk_now(one, disk, holdings):
    await one.start()
    give(holdings, "a")
    await until(one.record)
    assert set(disk.load()) == {"a"}
    await rest(one)
    give(holdings, "b")
    assert not await one.record(), "it is another gateway's"
    disk.path.unlink()
    disk.path.mkdir()
    one.go_on()
    assert not await one.record()


async def test_what_another_gateway_wrote_is_replaced_once_it_is_ours_again(one, disk, holdings):
    await one.start()
    give(holdings, "a")
    await rest(one)
    disk.save({"theirs": Unreleased("")})
    one.go_on()
    await until(lambda: disk.load().keys() == {"a"})


@pytest.mark.parametrize("empty", [False, True])
async def test_a_late_write_replaces_nothing_of_another_gateway(one, disk, holdings, empty):
    await one.start()
    before = holdings.value
    give(holdings, "a")
    await until(one.record)
    disk.free.clear()
    holdings.set(before)
    if not empty:
        give(holdings, "b")
    await one.finish(0.01)
    one.leave()
    Journal.save(disk, {"theirs": Unreleased("")})
    disk.free.set()
    await asyncio.wait(one.under_way())
    assert set(disk.load()) == {"theirs"}


async def test_a_late_write_replaces_nothing_before_the_next_load(one, disk, holdings):
    """The journal is ours again, and what the other gateway wrote is read once the disk answers."""
    await one.start()
    disk.free.clear()
    give(holdings, "a")
    await one.finish(0.01)
    one.leave()
    Journal.save(disk, {"theirs": Unreleased("")})
    read = asyncio.create_task(one.load())
    await turns()
    disk.free.set()
    await read
    assert "theirs" in holdings.value.unreleased


async def test_a_journal_isn_t_given_away_while_a_write_hangs(one, disk, holdings):
    await one.start()
    disk.free.clear()
    give(holdings, "a")
    await one.finish(0.01)
    with pytest.raises(OSError, match="is still being written"):
        await one.rest()
    disk.free.set()
    one.go_on()
    await until(one.record)
    await rest(one)


async def test_a_writer_that_follows_another_one_waits_for_its_last_write(disk, holdings, log):
    """The lock stays with the gateway if the driver is started again."""
    following = ResourceHoldings(Holdings().noted({}, 0.0, 0.0))
    first, second = (JournalWriter(disk, usage, Threads(), log) for usage in (holdings, following))
    second.lanes = first.lanes
    await first.load()
    disk.free.clear()
    give(holdings, "a")
    await first.finish(0.01)
    loading = asyncio.create_task(second.load())
    await turns(5)
    assert not loading.done()
    disk.free.set()
    await loading
    assert following.value.unreleased.keys() == {"a"}


async def test_a_change_during_a_write(one, disk, holdings):
    await one.start()
    disk.free.clear()
    give(holdings, "a")
    await until(lambda: disk.writing)
    give(holdings, "b")
    last = asyncio.create_task(one.finish(20))
    await asyncio.sleep(0)
    disk.free.set()
    await last
    assert disk.load().keys() == {"a", "b"}


async def test_what_goes_during_a_write_goes_from_the_disk(disk, holdings, log):
    """The disk has nothing when the second call begins, as the usage does then."""
    one = JournalWriter(disk, holdings, Threads(), log)
    await one.load()
    disk.free.clear()
    given = holdings.value
    give(holdings, "a")
    recording = asyncio.create_task(one.record())
    await until(lambda: disk.writing)
    holdings.set(given)
    second = asyncio.create_task(one.record())
    await turns(5)
    disk.free.set()
    assert all(await asyncio.gather(recording, second))
    assert disk.load() == {}


async def test_a_disk_that_hangs_is_not_waited_for_at_the_end(one, disk, holdings, records):
    await one.start()
    disk.free.clear()
    give(holdings, "a")
    await one.finish(0.01)
    assert "the disk hasn't answered for 0.01 s" in str(records.texts())


@pytest.mark.parametrize("answers", [False, True])
async def test_a_change_after_the_last_write_that_was_waited_for(disk, holdings, log, answers):
    one = JournalWriter(disk, holdings, Threads(), log)
    await one.load()
    disk.free.clear()
    give(holdings, "a")
    await one.finish(0.01)
    if answers:
        disk.free.set()
        await until(lambda: not one.under_way())
    give(holdings, "b")
    await one.finish()
    disk.free.set()
    await until(lambda: not one.under_way())
    assert disk.load().keys() == {"a", "b"}
