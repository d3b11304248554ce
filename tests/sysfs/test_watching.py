import logging
import os
import resource
import threading
import time
from pathlib import Path

import pytest

from dpgateway.kit.inotify import Subscription
from dpgateway.sysfs import ChangedPlaces, Complaint, Interest, Watcher
from dpgateway.sysfs.watching import LONGEST, MOST, SETTLE
from tests.support.counting import descriptors, inotify_watches


def watches():
    """How many watches each inotify instance of this process has."""
    return sorted(len(each) for each in inotify_watches().values())


@pytest.fixture
def watched():
    """A watcher, and a semaphore that counts what it told."""
    told = threading.Semaphore(0)
    log = logging.LoggerAdapter(logging.getLogger(__name__))
    watcher = Watcher("test", told.release, Complaint(log))
    yield watcher, told
    watcher.close()


def test_says_whether_more_is_watched_than_before(watched, tmp_path):
    watcher, _ = watched
    (tmp_path / "inner").mkdir()
    here, inner = str(tmp_path), str(tmp_path / "inner")
    assert watcher.watch({here: Interest({"a"})})
    assert not watcher.watch({here: Interest({"a"})})
    assert watcher.watch({here: Interest({"a", "b"})})
    assert watcher.watch({here: Interest({"a"}, {"c*"})})
    assert not watcher.watch({here: Interest({"a"})})
    assert watcher.watch({here: Interest({"a"}), inner: Interest({"x"})})
    assert not watcher.watch({inner: Interest({"x"})})


def test_watches_a_recreated_directory(watched, tmp_path):
    watcher, _ = watched
    inner = tmp_path / "inner"
    inner.mkdir()
    assert watcher.watch({str(inner): Interest({"x"})})
    inner.rename(tmp_path / "old")
    inner.mkdir()
    assert watcher.watch({str(inner): Interest({"x"})})


def test_unwanted_watch_ends_silently(watched, tmp_path):
    """Its end is an event of its own; taken for a change, it would have the driver asked once more each time."""
    watcher, told = watched
    before = watches()
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    watcher.watch({str(tmp_path / name): Interest({"x"}) for name in ("first", "second")})
    assert watches() == sorted([*before, 2])
    watcher.watch({str(tmp_path / "second"): Interest({"x"})})
    assert watches() == sorted([*before, 1])
    (tmp_path / "first/x").touch()
    (tmp_path / "second/x").symlink_to("y")
    watcher.close()  # tells all that happened before
    assert watches() == before
    assert told.acquire(blocking=False)
    assert not told.acquire(blocking=False)


def test_says_which_names_changed(watched, tmp_path):
    """Of a directory by all paths that lead to it. Nobody need ask twice."""
    watcher, told = watched
    (tmp_path / "link").symlink_to(tmp_path)
    watcher.watch({str(tmp_path): Interest({"x"}), f"{tmp_path}/link": Interest({"y"})})
    assert watcher.news() is None, "without an event anything may have changed"
    (tmp_path / "x").touch()
    (tmp_path / "other").touch()
    assert told.acquire(timeout=20)
    assert watcher.news() == ChangedPlaces(files=frozenset({f"{tmp_path}/x", f"{tmp_path}/link/x"}))
    assert watcher.news() is None


def test_which_directory_came_is_said_too(watched, tmp_path):
    watcher, told = watched
    watcher.watch({f"{tmp_path}/a/b": Interest({"x"})})
    (tmp_path / "a").mkdir()
    assert told.acquire(timeout=20)
    assert watcher.news() == ChangedPlaces(files=frozenset({f"{tmp_path}/a"}))


def test_watches_above_missing_directories(watched, tmp_path):
    watcher, told = watched
    assert watcher.watch({f"{tmp_path}/a{'/b' * 1500}": Interest({"x"})})
    (tmp_path / "a").mkdir()
    assert told.acquire(timeout=20)


@pytest.mark.parametrize("number", [MOST, MOST + 1])
def test_too_many_changes_may_be_anything(watched, tmp_path, number):
    watcher, _ = watched
    watcher.watch({str(tmp_path): Interest(globs={"*"})})
    for one in range(number):
        (tmp_path / f"{one}").symlink_to("x")
    watcher.close()
    changes = watcher.news()
    assert (changes and len(changes.files)) == (None if number > MOST else MOST)


def test_a_directory_that_goes_may_be_anything(watched, tmp_path):
    watcher, _ = watched
    (tmp_path / "a").mkdir()
    watcher.watch({str(tmp_path): Interest({"x"}), f"{tmp_path}/a": Interest({"y"})})
    (tmp_path / "a").rmdir()
    (tmp_path / "x").touch()
    watcher.close()
    assert watcher.news() is None


def test_incomplete_watch_knows_nothing(watched, tmp_path):
    watcher, _ = watched
    watcher.watch({str(tmp_path): Interest({"x"}), f"{tmp_path}/{300 * 'a'}": Interest({"x"})})  # a name too long
    (tmp_path / "x").touch()
    watcher.close()
    assert watcher.news() is None


def test_close_is_noticed_by_a_thread_that_is_just_awake() -> None:
    """Between its look at what is ready and its read of the number that woke it."""
    reads, closing, go_on = threading.Event(), threading.Event(), threading.Event()

    def hold(_: object, event: str, function: object) -> None:
        if event == "c_call" and function is os.eventfd_read:
            reads.set()
            go_on.wait(20)
        elif event == "c_return" and function is os.eventfd_write:
            closing.set()

    log = logging.LoggerAdapter(logging.getLogger(__name__))
    watcher = Watcher("test", lambda: None, Complaint(log), lambda _: False)
    closes = threading.Thread(target=watcher.close, daemon=True)
    threading.setprofile(hold)  # on each new thread
    try:
        watcher.watch()  # opens the uevent socket, and wakes the thread for it
        assert reads.wait(20)
        closes.start()
        assert closing.wait(20)
    finally:
        threading.setprofile(None)
        go_on.set()
    closes.join(20)
    assert not closes.is_alive()


def test_a_refused_thread_leaves_only_the_refresh(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """No driver fails for it, and what an attempt has opened is closed."""
    log = logging.LoggerAdapter(logging.getLogger(__name__))
    watcher = Watcher("test", lambda: None, Complaint(log), lambda _: True)
    interests = {str(tmp_path): Interest({"x"})}
    with Subscription():  # the thread that all watchers share runs already
        before, size = descriptors(), threading.stack_size(2**48)
        try:
            assert not any(watcher.watch(interests) for _ in range(100))
        finally:
            threading.stack_size(size)
        assert descriptors() < before + 50
        assert watcher.news() is None
        assert caplog.messages == [
            "can't watch for changes, changes are noticed only at the next refresh: the system has no thread left"
        ]
        assert watcher.watch(interests), "there are threads again"
        watcher.close()


@pytest.fixture
def listener():
    """A watcher that hears of /sys/devices/virtual/mem/null, and a semaphore that counts what it told. It goes on after
    having told only when it is let.
    """
    told, go_on = threading.Semaphore(0), threading.Event()
    go_on.set()

    def changed():
        told.release()
        go_on.wait()

    log = logging.LoggerAdapter(logging.getLogger(__name__))
    watcher = Watcher("test", changed, Complaint(log), lambda event: event.path.endswith("/null"))
    yield watcher, told, go_on
    go_on.set()
    watcher.close()


def test_changes_in_a_row_are_one(listener, change, caplog):
    watcher, told, go_on = listener
    go_on.clear()
    watcher.watch({})
    change("null")
    assert told.acquire(timeout=20)
    for _ in range(5):
        change("zero")
        change("null")
    go_on.set()
    assert told.acquire(timeout=20)
    change("zero")
    watcher.close()
    assert not told.acquire(blocking=False)
    assert caplog.messages == []


def test_a_refused_socket_is_opened_later(listener, change, caplog):
    watcher, told, _ = listener
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with Subscription():  # the thread that all watchers share runs already
        most = os.eventfd(0)  # the lowest number that is free
        os.close(most)
        try:
            while not caplog.messages or "no socket for the kernel's uevents" not in caplog.messages[-1]:
                resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
                assert not watcher.watch({})
                most += 1
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert watcher.news() is None
    assert watcher.watch({}), "it hears more than before, so that its owner looks again"
    assert not watcher.watch({})
    change("null")
    assert told.acquire(timeout=20)
    assert watcher.news() == ChangedPlaces(objects=frozenset({"devices/virtual/mem/null"}))


def test_close_changes_are_one(listener, change):
    """More are told only after LONGEST, or where the machine took its time before or after a change."""
    watcher, told, _ = listener
    watcher.watch({})
    most, slow, moments = 1, 0, [time.monotonic()]
    while len(moments) < max(100, 2 * most):  # as many as a slow machine needs to show it
        change("null")
        moments.append(time.monotonic())
        slow += moments[-1] - moments[-2] >= SETTLE / 2
        most = 1 + 2 * slow + int((moments[-1] - moments[0]) / LONGEST)
    watcher.close()
    assert sum(told.acquire(blocking=False) for _ in moments) <= most


def test_last_change_is_told(listener, change):
    watcher, told, _ = listener
    watcher.watch({})
    change("null")
    watcher.close()
    assert told.acquire(blocking=False)
    assert watcher.news() == ChangedPlaces(frozenset({"devices/virtual/mem/null"}))


def test_taken_news_is_no_doubt(change):
    """A look for another reason may come between an event and the word of it."""
    told, go_on, taken = threading.Semaphore(0), threading.Event(), []

    def changed():
        told.release()
        go_on.wait()

    def matters(event):
        """Everybody looks when something else happens."""
        if event.path.endswith("/zero"):
            taken.append(watcher.news())
        return event.path.endswith("/null")

    log = logging.LoggerAdapter(logging.getLogger(__name__))
    watcher = Watcher("test", changed, Complaint(log), matters)
    watcher.watch({})
    change("null")
    assert told.acquire(timeout=20)
    change("null")
    change("zero")
    go_on.set()
    watcher.close()
    assert taken == [ChangedPlaces(frozenset({"devices/virtual/mem/null"}))]
    assert told.acquire(blocking=False)
    assert watcher.news() == ChangedPlaces()


def test_a_directorys_changes_are_told_beside(listener, tmp_path):
    watcher, told, _ = listener
    watcher.watch({str(tmp_path): Interest({"x"})})
    (tmp_path / "x").touch()
    assert told.acquire(timeout=20)
