import logging
import threading
from pathlib import Path

import pytest

from dpgateway.sysfs import Interest, Notices, Watcher


def watches():
    """How many watches each inotify instance of this process has (proc(5), /proc/pid/fdinfo)."""
    files = [file for file in Path("/proc/self/fd").iterdir() if file.is_symlink()]
    instances = [file.name for file in files if "inotify" in str(file.readlink())]
    return sorted(Path("/proc/self/fdinfo", name).read_text().count("inotify wd:") for name in instances)


@pytest.fixture
def watched():
    """A watcher, and a semaphore that counts what it told."""
    told = threading.Semaphore(0)
    log = logging.LoggerAdapter(logging.getLogger(__name__))
    watcher = Watcher("test", told.release, Notices(log, logging.WARNING))
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


def test_a_directory_made_again_under_the_same_name_is_more_to_watch(watched, tmp_path):
    watcher, _ = watched
    inner = tmp_path / "inner"
    inner.mkdir()
    assert watcher.watch({str(inner): Interest({"x"})})
    inner.rename(tmp_path / "old")
    inner.mkdir()
    assert watcher.watch({str(inner): Interest({"x"})})


def test_a_watch_that_is_no_longer_wanted_ends_without_a_word(watched, tmp_path):
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


def change(path="/sys/devices/virtual/mem/null"):
    """Has the kernel say that an object of sysfs changed, which needs root."""
    Path(path, "uevent").write_text("change")


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
    watcher = Watcher("test", changed, Notices(log, logging.WARNING), lambda event: event.path.endswith("/null"))
    yield watcher, told, go_on
    go_on.set()
    watcher.close()


def test_changes_in_sysfs_in_a_row_are_one(listener, caplog):
    watcher, told, go_on = listener
    go_on.clear()
    watcher.watch({})
    change()
    assert told.acquire(timeout=5)
    for _ in range(5):
        change("/sys/devices/virtual/mem/zero")
        change()
    go_on.set()
    assert told.acquire(timeout=5)
    change("/sys/devices/virtual/mem/zero")
    watcher.close()
    assert not told.acquire(blocking=False)
    assert caplog.messages == []


def test_what_changed_last_is_told_before_the_end(listener):
    watcher, told, _ = listener
    watcher.watch({})
    change()
    watcher.close()
    assert told.acquire(blocking=False)


def test_a_directorys_changes_are_told_beside(listener, tmp_path):
    watcher, told, _ = listener
    watcher.watch({str(tmp_path): Interest({"x"})})
    (tmp_path / "x").touch()
    assert told.acquire(timeout=5)
