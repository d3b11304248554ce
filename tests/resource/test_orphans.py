"""What containers hold of resources that aren't configured any more is known as long as they hold it."""

import asyncio
import contextlib
import math
import threading
import time

import pytest

from dpgateway.kit.threads import Threads
from dpgateway.node.holders import Container, Noted
from dpgateway.resource.front import Unreleased
from dpgateway.resource.journal import PATIENCE, Journal, JournalWriter
from dpgateway.resource.orphans import Orphans
from dpgateway.resource.ownership import FOLDER, Ownership
from dpgateway.resource.use import hardware_use
from tests.support.holdings import Told
from tests.support.resource import LOG
from tests.support.threads import Hanging, Scarce
from tests.support.time import advance, in_virtual_time
from tests.support.waiting import turns, until

SERVED, GONE = "example.com/served", "example.com/gone"
CLAIMS = {"b0": Unreleased("1", frozenset(["uid"]), frozenset(["fpga b0"]), 17)}
BROKEN = "0123456789abcdef.json"


class Watched:
    """What is left on a node that nobody watches, and how often somebody was told of it."""

    def __init__(self, folder, threads=None):
        self.state_dir, self.changes = folder / "state", 0
        threads = threads or Threads()
        self.node, self.directory = Told([SERVED]), folder / "device-plugins"
        self.left = Orphans(self.node, self.directory, self.state_dir, threads)
        self.task = None

    def journal(self, resource, unreleased=CLAIMS):
        journal = Journal(self.state_dir, self.directory, resource)
        journal.save(unreleased)
        return journal

    def lock(self, resource):
        """The one by which another gateway would serve it."""
        (self.directory / FOLDER).mkdir(mode=0o700, parents=True)
        return Ownership(self.directory, resource)

    def run(self, owe=lambda *_: False, **more):
        self.task = asyncio.ensure_future(self.left.run(self._changed, owe, **more))

    async def begin(self):
        self.run()
        await self.left.known.wait()

    def _changed(self):
        self.changes += 1

    async def end(self):
        if self.task is not None:
            self.task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self.task

    def publish(self, resource, change):
        holdings = self.node.by_resource[resource]
        holdings.set(change(holdings.value))


@pytest.fixture
async def watched(tmp_path):
    one = Watched(tmp_path)
    yield one
    await one.end()


async def test_journals_name_the_orphans(watched):
    watched.journal(GONE)
    watched.journal(SERVED)
    assert not watched.left.known.is_set()
    await watched.begin()
    assert watched.left.usages.keys() == {GONE}
    assert watched.left.usages[GONE] is watched.node.by_resource[GONE]
    value = watched.left.usages[GONE].value
    assert (value.unreleased, value.remembers) == (CLAIMS, True)
    await until(lambda: watched.changes)


async def test_a_journal_written_since(watched):
    await watched.begin()
    watched.journal(GONE)
    watched.journal(SERVED)
    assert await watched.left.look()
    assert watched.left.usages.keys() == {GONE}
    assert watched.node.by_resource[GONE].value.unreleased == CLAIMS
    assert not watched.node.by_resource[SERVED].value.unreleased


async def test_a_grant_of_an_orphan_since(watched):
    watched.journal(GONE)
    await watched.begin()
    watched.journal(GONE, {**CLAIMS, "b1": Unreleased("1", hardware=frozenset(["fpga b1"]))})
    await watched.left.look()
    assert watched.left.usages[GONE].value.unreleased.keys() == {"b0", "b1"}


@pytest.mark.parametrize("given", [{}, CLAIMS])
async def test_a_resource_that_was_moved_since(watched, given):
    """Another gateway did that, so this one knows only from the journal what the front gave before."""
    await watched.begin()
    if given:
        watched.journal(SERVED)
    watched.left.moved(SERVED)
    usage = watched.node.by_resource[SERVED]
    await until(lambda: usage.value.remembers)
    assert usage.value.unreleased == given


async def test_a_look_tells_whether_it_read_all(watched, caplog):
    watched.journal(GONE)
    (watched.state_dir / BROKEN).write_text("{")
    for _ in range(2):
        assert not await watched.left.look()
    assert watched.left.usages.keys() == {GONE}
    assert caplog.text.count(BROKEN) == 1


async def test_one_journal_that_cannot_be_read(watched, caplog):
    watched.journal(GONE)
    (watched.state_dir / BROKEN).write_text("{")
    await watched.begin()
    assert watched.left.usages.keys() == {GONE}
    assert "resources that aren't configured any more isn't known: " in caplog.text
    assert BROKEN in caplog.text


async def test_without_a_thread_it_is_told_that_nothing_is_known(tmp_path, caplog):
    one = Watched(tmp_path, Scarce())
    one.journal(GONE)
    await one.begin()
    assert one.left.usages == {}
    assert "the system has no thread left for journals" in caplog.text
    await one.end()


@in_virtual_time
async def test_a_disk_that_hangs_is_waited_for_a_little_while(tmp_path, caplog):
    one = Watched(tmp_path, Hanging())
    one.run()
    await advance(PATIENCE - 0.1)
    assert not one.left.known.is_set()
    await advance(0.2)
    assert one.left.known.is_set()
    assert "the disk hasn't answered for 2 s" in caplog.text
    await one.end()


async def test_a_resource_that_goes_is_an_orphan(watched):
    await watched.begin()
    watched.publish(SERVED, lambda value: value.remembered({}).began(("b0",)).gave(("b0",), time.monotonic()))
    watched.left.add(SERVED)
    await turns()
    assert watched.left.usages.keys() == {SERVED}
    changes = watched.changes
    watched.publish(SERVED, lambda value: value.noted({}, time.monotonic() + 60, time.monotonic() + 60))
    await turns()
    assert watched.left.usages == {}
    assert SERVED not in watched.node.by_resource
    assert watched.changes == changes + 1


async def test_a_resource_that_holds_nothing_leaves_nothing(watched):
    await watched.begin()
    watched.left.add(SERVED)
    await turns()
    assert (watched.left.usages, watched.node.by_resource) == ({}, {})


async def test_an_orphan_configured_again(watched):
    watched.journal(GONE)
    await watched.begin()
    watched.left.offered(GONE)
    watched.left.offered("example.com/never-seen")
    watched.publish(GONE, lambda value: value.noted({}, time.monotonic(), time.monotonic()).ended(frozenset(["uid"])))
    await turns()
    assert watched.left.usages == {}
    assert GONE in watched.node.by_resource, "its new owner decides"


async def test_a_resource_that_is_back_is_no_news(watched):
    """All pools would look at its every Allocate."""
    await watched.begin()
    watched.publish(SERVED, lambda value: value.remembered({}).began(("b0",)).gave(("b0",), time.monotonic()))
    watched.left.moved(SERVED)
    await turns()
    watched.left.offered(SERVED)
    await turns()
    changes = watched.changes
    watched.publish(SERVED, lambda value: value.heard({}, time.monotonic()))
    await turns()
    assert watched.changes == changes


async def test_changes_of_orphans_are_told(watched):
    watched.journal(GONE)
    await watched.begin()
    await turns()
    changes = watched.changes
    watched.publish(GONE, lambda value: value.heard({}, time.monotonic()))
    await turns()
    assert watched.changes == changes + 1


@pytest.mark.parametrize(("driver", "named"), [("fpga", "driver fpga"), (None, "its driver"), ("", "")])
async def test_a_leak_of_an_orphan(watched, caplog, driver, named):
    entry = CLAIMS["b0"]._replace(device="board", driver=driver)
    journal, lock = watched.journal(GONE, {"b0": entry}), watched.lock(GONE)
    await watched.begin()
    assert not caplog.messages
    watched.publish(GONE, lambda holdings: holdings.noted({}, 0.0, 0.0).ended(frozenset(["uid"])))
    await until(lambda: not watched.left.usages)
    await watched.left.look()
    await turns()
    text = (
        f"device board of {GONE} is free again, but {named} isn't told, so what release() undoes stays: "
        "the resource isn't configured any more; last held by pod uid"
    )
    assert caplog.messages == ([text] if named else [])
    assert not journal.path.exists(), "the next start would tell of it again"
    assert not lock.path.exists()


async def test_what_is_still_held_stays_in_an_orphans_journal(watched, caplog):
    held = CLAIMS["b0"]._replace(pods=frozenset(["other"]), device="other", driver="fpga")
    journal = watched.journal(GONE, {"b0": CLAIMS["b0"]._replace(device="board", driver="fpga"), "b1": held})
    watched.lock(GONE)
    await watched.begin()
    note = {"b1": Noted(containers=frozenset([Container("other", "c")]))}
    watched.publish(GONE, lambda holdings: holdings.noted(note, 0.0, 0.0).ended(frozenset(["uid"])))
    await until(lambda: journal.load().keys() == {"b1"})
    assert len(caplog.messages) == 1
    assert watched.left.usages.keys() == {GONE}


async def test_another_grant_of_the_id_stays_in_an_orphans_journal(watched, caplog):
    """Another gateway gave it just before it ended, and the kubelet hasn't noted that yet."""
    entry = CLAIMS["b0"]._replace(device="board", driver="fpga")
    journal, lock = watched.journal(GONE, {"b0": entry}), watched.lock(GONE)
    await watched.begin()
    journal.save(again := {"b0": entry._replace(pods=frozenset(), since=18)})
    watched.publish(GONE, lambda holdings: holdings.noted({}, 0.0, 0.0).ended(frozenset(["uid"])))
    await until(lambda: caplog.messages and not lock.path.exists())
    assert journal.load() == again


@pytest.mark.parametrize("released", [True, False])
async def test_an_orphan_that_another_gateway_serves(watched, caplog, released):
    """That one tells its driver, and strikes the id then."""
    had = {"b0": CLAIMS["b0"]._replace(device="board", driver="fpga")}
    journal, lock = watched.journal(GONE, had), watched.lock(GONE)
    await lock.acquire()
    await watched.begin()
    watched.publish(GONE, lambda holdings: holdings.noted({}, 0.0, 0.0).ended(frozenset(["uid"])))
    looks = watched.changes
    await until(lambda: watched.changes > looks + 1)
    assert (caplog.messages, journal.load()) == ([], had)
    if released:
        journal.save({})
    lock.end()
    await until(lambda: not watched.left.usages)
    assert ["board" in text for text in caplog.messages] == ([] if released else [True])
    assert not journal.path.exists()


class Slow(Threads):
    """Calls that write take until `go`: a disk that hangs."""

    def __init__(self):
        super().__init__()
        self.go, self.began = threading.Event(), asyncio.Event()
        self.writes = False

    def call(self, name, function, seconds=math.inf):
        if not self.writes:
            return super().call(name, function, seconds)
        self.began.set()
        return super().call(name, lambda: self.go.wait() and function(), seconds)


async def test_a_resource_that_is_back_waits_for_the_journal(tmp_path):
    """What the other front has released is struck from the journal of this one, and that may take long."""
    watched = Watched(tmp_path, threads := Slow())
    journal = watched.journal(SERVED, {"b0": CLAIMS["b0"]._replace(device="board", driver="fpga")})
    watched.left.moved(SERVED)
    watched.run(lambda *_: True)
    usage = watched.node.by_resource[SERVED]
    await until(lambda: usage.value.remembers)
    threads.writes = True
    try:
        usage.set(usage.value.noted({}, 0.0, 0.0).ended(frozenset(["uid"])))
        await threads.began.wait()
        watched.left.offered(SERVED)
        writer = JournalWriter(journal, usage, Threads(), LOG)
        writer.lanes = watched.left.journals.lanes
        loading = asyncio.ensure_future(writer.load())
        await turns()
        assert not loading.done()
    finally:
        threads.go.set()  # no thread outlives its test
    await loading
    assert journal.load().keys() == {"b0"}, "its own writer has it now"
    await watched.end()


@pytest.mark.parametrize("failures", [0, 2])
async def test_what_another_front_releases_is_in_one_of_the_journals(watched, failures):
    """A gateway may be killed at any moment. The other front has no journal before it serves the resource."""
    journal, asked = watched.journal(SERVED, {"b0": CLAIMS["b0"]._replace(device="board", driver="fpga")}), []

    async def record(resource):
        asked.append((resource, set(journal.load())))
        return len(asked) > failures

    watched.left.moved(SERVED)
    watched.run(lambda *_: True, record=record)
    usage = watched.node.by_resource[SERVED]
    await until(lambda: usage.value.remembers)
    usage.set(usage.value.noted({}, 0.0, 0.0).ended(frozenset(["uid"])))
    await until(lambda: not watched.left.usages)
    assert journal.load() == {}
    assert asked == [(SERVED, {"b0"})] * (failures + 1)


async def test_an_allocate_that_goes_on_is_owed_by_the_other_front(watched):
    """Its device has no container, and the driver works on it."""
    owed = []

    def owe(resource, id_, _):
        owed.append((resource, id_))
        return True

    watched.left.moved(SERVED)
    watched.run(owe)
    usage, flight = watched.node.by_resource[SERVED], {"b0": frozenset(["fpga b0"])}
    usage.set(usage.value.noted({}, 0.0, 0.0).abandons(flight))
    await until(lambda: usage.value.remembers)
    await turns(50)
    assert hardware_use(SERVED, watched.left.in_use(SERVED), lambda _: None).by_hardware.keys() == {"fpga b0"}
    usage.set(usage.value.returned(flight).owed(("b0",), flight, {"b0": "board"}, "fpga"))
    await until(lambda: not watched.left.usages)
    assert owed == [(SERVED, "b0")]


async def test_a_resource_that_moves_twice_owes_the_same_id_twice(watched):
    """Each time a grant has failed whose release wasn't over: such an id has no time."""
    owed = []

    def owe(resource, id_, _):
        owed.append((resource, id_))
        return True

    watched.run(owe)
    await watched.left.known.wait()
    for times in (1, 2):
        watched.left.offered(SERVED)
        usage = watched.node.by_resource[SERVED]
        given = usage.value.remembered({}).noted({}, 0.0, 0.0)
        usage.set(given.owed(("b0",), {"b0": frozenset(["fpga b0"])}, {"b0": "board"}, "fpga"))
        watched.left.moved(SERVED)
        await until(lambda: not watched.left.usages)
        assert owed == [(SERVED, "b0")] * times


@pytest.mark.parametrize("then", ["removed", "offered"])
async def test_what_is_owed_is_forgotten_with_its_resource(watched, then):
    """Removed, nobody writes it down, and it isn't waited for; back on this front, its journal is its own."""
    had, failed = {"b0": CLAIMS["b0"]._replace(device="board", driver="fpga")}, asyncio.Event()
    journal, on_disk = watched.journal(SERVED, had), False

    async def record(resource):
        failed.set()
        return on_disk

    watched.left.moved(SERVED)
    watched.run(lambda *_: True, record=record)
    usage = watched.node.by_resource[SERVED]
    await until(lambda: usage.value.remembers)
    usage.set(usage.value.noted({}, 0.0, 0.0).ended(frozenset(["uid"])))
    await failed.wait()
    await turns()
    getattr(watched.left, then)(SERVED)
    if then == "removed":
        await until(lambda: not watched.left.usages)
        return
    # It is given again, and moves once more with what a container has.
    usage.set(
        usage.value.ended(frozenset()).noted({"b0": Noted(containers=frozenset([Container("uid", "c")]))}, 1.0, 1.0)
    )
    on_disk = True
    watched.left.moved(SERVED)
    await turns(50)
    await until(lambda: not watched.left.journals.under_way(SERVED))
    assert journal.load() == had


async def test_a_leak_of_a_resource_on_another_front(watched, caplog):
    journal = watched.journal(GONE, {"b0": CLAIMS["b0"]._replace(device="board", driver="fpga")})
    await watched.begin()
    watched.left.moved(GONE)
    watched.publish(GONE, lambda holdings: holdings.noted({}, 0.0, 0.0).ended(frozenset(["uid"])))
    await until(lambda: not watched.left.usages)
    (text,) = caplog.messages
    assert "another front offers the resource now" in text
    assert not journal.path.exists(), "the next start would tell of it again"


async def test_a_journal_that_was_not_read_yet_keeps_what_it_knows(watched):
    """Another gateway gave the id, and has moved the resource."""
    asked = []

    def owe(_, __, entry):
        asked.append(entry.driver)
        return bool(entry.driver)

    watched.run(owe)
    await watched.left.known.wait()
    journal = watched.journal(SERVED, {"b0": CLAIMS["b0"]._replace(device="board", driver="fpga")})
    note = {"b0": Noted(containers=frozenset([Container("uid", "c")]))}
    watched.publish(SERVED, lambda holdings: holdings.noted(note, 1.0, 1.0).ended(frozenset(["uid"])))
    watched.left.moved(SERVED)
    await until(lambda: not watched.left.usages)
    assert (asked, journal.load()) == ([None, "fpga"], {})


async def test_an_old_note_of_a_moved_resource_is_no_leak(watched, caplog):
    """Its journal has nothing any more: an earlier gateway released the id."""
    watched.left.moved(GONE)
    await watched.begin()
    note = {"b0": Noted(containers=frozenset([Container("uid", "c")]))}
    watched.publish(GONE, lambda holdings: holdings.noted(note, 1.0, 1.0).ended(frozenset(["uid"])))
    await until(lambda: not watched.left.usages)
    assert not caplog.messages
