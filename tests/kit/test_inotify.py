"""One instance of the kernel's, whoever watches, over real directories."""

import asyncio
import os
import resource
import threading

import pytest
from asyncinotify import Mask

from dpgateway.kit.inotify import MOST, Subscription, Watch
from tests.support.counting import inotify_watches
from tests.support.time import in_virtual_time


def instances():
    """How many inodes each inotify instance of this process watches."""
    return [len(watches) for watches in inotify_watches().values()]


@pytest.fixture
def subscribe():
    made = []

    def make():
        made.append(Subscription())
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_subscribers_share_instance_and_watch(tmp_path, subscribe):
    before = instances()
    for _ in range(200):
        subscribe().add(tmp_path, Mask.CREATE)
    assert instances() == [*before, 1]


def test_the_last_who_leaves_ends_the_instance(tmp_path):
    before, threads = instances(), threading.active_count()
    with Subscription() as first, Subscription():
        first.add(tmp_path, Mask.CREATE)
    assert instances() == before
    with Subscription() as next_:
        next_.add(tmp_path, Mask.CREATE)
        (tmp_path / "x").touch()
        assert [event.name for event in next_.read()] == ["x"]
    assert threading.active_count() <= threads + 2, "its threads are about to end"


def test_the_last_may_leave_before_the_thread_begins():
    before, left = set(threading.enumerate()), threading.Event()

    def hold(*_):
        left.wait(20)

    threading.settrace(hold)  # on each new thread, at its first call
    try:
        Subscription().close()
        begun = set(threading.enumerate()) - before
    finally:
        threading.settrace(None)
        left.set()
    (thread,) = begun
    thread.join(20)
    assert not thread.is_alive()


def test_each_gets_the_events_it_asked_for(tmp_path, subscribe):
    one, two, three = subscribe(), subscribe(), subscribe()
    watch = one.add(tmp_path, Mask.CREATE)
    assert two.add(tmp_path, Mask.DELETE) == watch
    assert three.add(tmp_path.parent, Mask.CREATE) != watch
    (tmp_path / "x").touch()
    (tmp_path / "x").unlink()
    assert [(event.watch, event.mask, event.name) for event in one.read()] == [(watch, Mask.CREATE, "x")]
    assert [(event.watch, event.mask, event.name) for event in two.read()] == [(watch, Mask.DELETE, "x")]
    assert three.read() == []


def test_who_removes_a_watch_leaves_it_to_the_others(tmp_path, subscribe):
    one, two = subscribe(), subscribe()
    watch = one.add(tmp_path, Mask.CREATE)
    two.add(tmp_path, Mask.CREATE)
    one.remove(watch)
    (tmp_path / "x").touch()
    assert one.read() == []
    assert [event.name for event in two.read()] == ["x"]
    two.remove(watch)
    assert instances()[-1:] == [0]
    assert two.read() == [], "our own removal is no news"
    two.remove(watch)


def test_the_end_of_a_directory_is_told_to_all(tmp_path, subscribe):
    (tmp_path / "a").mkdir()
    subscribers = [subscribe(), subscribe()]
    for one in subscribers:
        one.add(tmp_path / "a", Mask.CREATE)
    (tmp_path / "a").rmdir()
    for one in subscribers:
        assert [event.mask & Mask.IGNORED for event in one.read()] == [Mask.IGNORED]


async def test_a_cancelled_reader_loses_no_event(tmp_path, subscribe):
    one = subscribe()
    one.add(tmp_path, Mask.CREATE)
    waiting = asyncio.ensure_future(one.get())
    (tmp_path / "x").touch()
    assert (await waiting).name == "x"
    cancelled = asyncio.ensure_future(one.get())
    await asyncio.sleep(0)
    (tmp_path / "y").touch()
    subscribe().read()  # now it is heard
    cancelled.cancel()
    await asyncio.wait([cancelled])
    assert (await one.get()).name == "y"


def test_who_does_not_read_learns_that_events_were_lost(tmp_path, subscribe):
    lazy, busy = subscribe(), subscribe()
    lazy.add(tmp_path, Mask.ATTRIB)
    busy.add(tmp_path, Mask.ATTRIB)
    (tmp_path / "a").touch()
    (tmp_path / "b").touch()
    busy.read()
    for number in range(MOST + 1):
        os.chmod(tmp_path / "ab"[number % 2], 0o600)  # noqa: PTH101  the kernel joins events that are alike
        if number % 1000 == 0:
            busy.read()
    assert lazy.read()[0].mask & Mask.Q_OVERFLOW


def test_a_refused_thread_is_an_oserror():
    before, size = instances(), threading.stack_size(2**48)
    try:
        with pytest.raises(OSError, match="no thread left"):
            Subscription()
    finally:
        threading.stack_size(size)
    assert instances() == before
    with Subscription():
        assert instances() == [*before, 0]


@pytest.fixture
def watch():
    with Watch() as one:
        yield one


async def test_an_event_of_what_was_added_comes_at_once(watch, tmp_path):
    number = watch.add(tmp_path, Mask.CREATE)
    (tmp_path / "x").touch()
    event = await watch.next(20)
    assert (event.watch, event.name, watch.failure) == (number, "x", None)


@in_virtual_time
@pytest.mark.parametrize("path", ["", "missing"])
async def test_without_an_event_it_is_looked_at_from_time_to_time(tmp_path, path):
    loop = asyncio.get_running_loop()
    with Watch() as watch:
        assert (watch.add(tmp_path / path, Mask.CREATE) is None) == bool(path)
        assert isinstance(watch.failure, FileNotFoundError) == bool(path)
        began = loop.time()
        assert await watch.next(3) is None
        assert await watch.next(-1) is None
        assert loop.time() - began == pytest.approx(3)


async def test_what_could_not_be_watched_can_be_tried_again(watch, tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        assert watch.add(tmp_path, Mask.CREATE) is None
        assert await watch.next(0.001) is None
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert watch.add(tmp_path / "later", Mask.CREATE) is None
    (tmp_path / "later").mkdir()
    assert watch.add(tmp_path / "later", Mask.CREATE) is not None
    (tmp_path / "later" / "x").touch()
    assert (await watch.next(20)).name == "x"
