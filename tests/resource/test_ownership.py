"""Which gateway serves a resource: the lock, and what its file says."""

import asyncio
import fcntl
import functools
import os
import re
import resource
import stat
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

from dpgateway.errors import KubeletError
from dpgateway.resource.ownership import LockState, Ownership, hash_of, others
from tests.support.counting import descriptors, leading_to
from tests.support.waiting import turns, until

NAME = "example.com/thing"


async def acquired(folder, name=NAME):
    await (ownership := Ownership(folder, name)).acquire()
    return ownership


def lends(owner):
    """What whoever asks this gateway gets."""

    async def ask():
        return os.dup(owner.lend())

    return ask


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


async def test_the_folder_is_ours_alone_whatever_the_umask(tmp_path):
    before = os.umask(0)
    try:
        await acquired(tmp_path)
    finally:
        os.umask(before)
    assert mode(tmp_path / "dpgateway") == 0o700


async def test_a_folder_that_was_open_to_others_is_closed(tmp_path):
    (tmp_path / "dpgateway").mkdir(mode=0o777)
    await acquired(tmp_path)
    assert mode(tmp_path / "dpgateway") == 0o700


@pytest.mark.parametrize("what", ["file", "link"])
async def test_a_folder_that_is_no_directory(tmp_path, what):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o755)
    folder = tmp_path / "dpgateway"
    folder.write_text("precious") if what == "file" else folder.symlink_to(elsewhere)
    with pytest.raises(KubeletError):
        await acquired(tmp_path)
    assert mode(elsewhere) == 0o755


async def test_the_kubelets_directory_is_never_made(tmp_path):
    with pytest.raises(KubeletError, match="can't make"):
        await acquired(tmp_path / "kubelet" / "device-plugins")
    assert not (tmp_path / "kubelet").exists()


async def test_the_lock_says_who_holds_it(tmp_path):
    mine = await acquired(tmp_path)
    owner, resource, pool, end = mine.path.read_text().split("\n")
    assert re.fullmatch(rf"pid {os.getpid()} (in pid:\[\d+\] )?on \S+, since \d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\dZ", owner)
    assert (resource, pool, end, mode(mine.path)) == (NAME, "pool ", "", 0o600)
    mine.end()


async def test_the_lock_names_the_pod(tmp_path, monkeypatch):
    """Each container counts its own pids."""
    monkeypatch.setenv("POD_NAME", "dpgateway-x2v9k")
    monkeypatch.setenv("POD_NAMESPACE", "devices")
    mine = await acquired(tmp_path)
    owner = mine.owner()
    assert owner is not None
    assert f"{NAME}: pid {os.getpid()} in pod devices/dpgateway-x2v9k, since " in owner.text
    mine.end()
    assert mine.owner() is None


def test_gateways_in_the_nodes_network_are_two(monkeypatch):
    """Each in a container, without POD_NAME: pid and hostname are the same."""
    monkeypatch.delenv("POD_NAME", raising=False)
    tell = "from dpgateway.resource.owner import this_gateway; print(this_gateway(), flush=True); input()"
    command = ("unshare", "--pid", "--fork", "--kill-child", sys.executable, "-c", tell)
    with ExitStack() as ends:
        both = [ends.enter_context(Popen(command, stdin=PIPE, stdout=PIPE, text=True)) for _ in range(2)]
        first, second = [one.stdout.readline() for one in both if one.stdout]
        for one in both:
            one.communicate("\n")
    assert first.startswith("pid 1 in pid:[")
    assert first != second


async def test_a_second_gateway_waits(tmp_path, log, records):
    """It says for whom, and owns the resource afterwards."""
    first, second, third = (Ownership(tmp_path, NAME, log) for _ in range(3))
    await first.acquire()
    waiting = asyncio.ensure_future(second.acquire())
    await until(lambda: second.other.value)
    text = f"waiting because another gateway serves {NAME}: pid {os.getpid()}"
    assert [one.startswith(text) for one in (second.other.value, *records.texts())] == [True] * 2
    first.end()  # with the lock's file: the second one waited for the lock of a file that nobody finds any more
    await waiting
    assert (second.other.value, second.waited) == ("", True)
    waiting = asyncio.ensure_future(third.acquire())
    await until(lambda: third.other.value)
    assert not waiting.done()
    second.end()
    await waiting
    third.end()


async def test_other_resources_have_other_locks(tmp_path):
    one, another = await acquired(tmp_path), await acquired(tmp_path, "example.com/other")
    one.end()
    another.end()


async def test_a_wait_that_ends_leaves_nothing(tmp_path):
    first = await acquired(tmp_path)
    before, threads = descriptors(), threading.active_count()
    for _ in range(20):
        one = Ownership(tmp_path, NAME)
        waiting = asyncio.ensure_future(one.acquire())
        await until(functools.partial(getattr, one, "waited"))
        waiting.cancel()
        await asyncio.wait([waiting])
    await until(lambda: descriptors() < before + 10)  # others come and go
    await until(lambda: threading.active_count() <= threads)
    first.end()
    (await acquired(tmp_path)).end()  # nobody who waited once gets it


def make_symbolic_link(lock, precious):
    lock.symlink_to(precious)


def make_hard_link(lock, precious):
    os.link(precious, lock)


def make_fifo(lock, precious):
    os.mkfifo(lock)


def make_device(lock, precious):
    os.mknod(lock, stat.S_IFCHR | 0o600, os.makedev(1, 3))


@pytest.mark.parametrize("make", [make_symbolic_link, make_hard_link, make_fifo, make_device])
async def test_a_strange_lock_is_left_alone(tmp_path, make):
    precious = tmp_path / "precious"
    precious.write_text("precious")
    mine = Ownership(tmp_path, NAME)
    mine.folder.mkdir()
    make(mine.path, precious)
    with pytest.raises(KubeletError, match=f"{mine.path}: expected a lock, .*; remove it"):
        await mine.acquire()
    assert precious.read_text() == "precious"
    mine.path.unlink()
    await mine.acquire()
    mine.end()


async def test_a_lock_lent_too_late_is_closed(tmp_path):
    owner, waits = await acquired(tmp_path), Ownership(tmp_path, NAME)

    async def ask():
        stopping.cancel()
        return os.dup(owner.lend())

    stopping = asyncio.ensure_future(waits.acquire(ask))
    with pytest.raises(asyncio.CancelledError):
        await stopping
    await until(lambda: leading_to(owner.path) == 1)
    owner.release()


@pytest.mark.parametrize("turn", range(6))
async def test_a_wait_that_ends_once_the_lock_is_lent(tmp_path, turn):
    owner, waits, lent = await acquired(tmp_path), Ownership(tmp_path, NAME), asyncio.Event()

    async def ask():
        lent.set()
        return os.dup(owner.lend())

    waiting = asyncio.ensure_future(waits.acquire(ask))
    await lent.wait()
    await turns(turn)
    waiting.cancel()
    await asyncio.wait([waiting])
    waits.release()
    await until(lambda: leading_to(owner.path) == 1, 5)
    owner.release()


async def test_a_full_disk_costs_only_the_name(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        first = await acquired(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    owner = Ownership(tmp_path, NAME).owner()
    assert owner is not None
    assert owner.text == f"another gateway serves {NAME}: it left no name"
    first.end()


async def test_the_lock_is_free_at_the_end(tmp_path):
    mine = await acquired(tmp_path)
    with mine.path.open("r+") as another:
        with pytest.raises(BlockingIOError):
            fcntl.flock(another, fcntl.LOCK_EX | fcntl.LOCK_NB)
        mine.end()
        fcntl.flock(another, fcntl.LOCK_EX | fcntl.LOCK_NB)


async def test_what_a_killed_owner_bound_is_removed(tmp_path):
    """Not while another one may be binding it."""
    left = tmp_path / "dpgateway" / f"{hash_of(NAME)}.next.12-345"
    others = [left.with_name(name) for name in (f"{hash_of(NAME)}.next.x", "0123456789abcdef.next.12-345")]
    lender, borrower = await acquired(tmp_path), Ownership(tmp_path, NAME)
    for path in (left, *others):
        path.touch()
    await borrower.acquire(lends(lender))
    assert left.exists()
    lender.release()
    borrower.release()
    (await acquired(tmp_path)).release()
    assert not left.exists()
    assert all(path.exists() for path in others)


@pytest.mark.parametrize("lent", [False, True])
async def test_what_is_lent_stays_the_other_gateways(tmp_path, lent):
    mine = await acquired(tmp_path)
    borrowed = os.dup(mine.lend()) if lent else None
    mine.join("p")
    assert ("pool p" in mine.path.read_text(), mine.undivided) == (not lent, not lent)
    mine.end()
    assert mine.path.exists() == lent
    if borrowed is not None:
        os.close(borrowed)


@pytest.mark.parametrize("first", ["lender", "borrower"])
async def test_the_last_of_two_owners_removes_the_lock(tmp_path, first):
    """A lender may take the resource back, until it has let go."""
    lender, waits = await acquired(tmp_path), Ownership(tmp_path, NAME)
    borrower = Ownership(tmp_path, NAME)

    await borrower.acquire(lends(lender))
    waiting = asyncio.ensure_future(waits.acquire())
    await turns()
    lender.next.touch()
    found = lender.path.stat().st_ino
    one, another = (lender, borrower) if first == "lender" else (borrower, lender)
    one.end()
    assert lender.path.stat().st_ino == found
    assert lender.next.exists()
    assert not waiting.done()
    another.end()
    await waiting
    assert waits.undivided
    waits.end()
    assert not list(waits.folder.iterdir())


async def test_a_hung_borrower_that_was_taken_back_from_keeps_nobody_out(tmp_path):
    lender, borrower, waits = await acquired(tmp_path), Ownership(tmp_path, NAME), Ownership(tmp_path, NAME)

    await borrower.acquire(lends(lender))
    waiting = asyncio.ensure_future(waits.acquire())
    free = asyncio.ensure_future(Ownership(tmp_path, NAME).until_free())
    await turns()
    lender.take_back()
    lender.end()
    await asyncio.wait_for(waiting, 10)
    await asyncio.wait_for(free, 10)
    assert waits.undivided
    borrower.end()
    assert waits.undivided
    waits.end()


EVENTS = {
    "lend": (LockState.LENT, LockState.LENT),
    "inherit": (LockState.SOLE, LockState.SOLE),
    "take_back": (LockState.SOLE, LockState.BORROWED),
    "release": (LockState.NOT_THIS, LockState.NOT_THIS),
    "lend release": (LockState.GIVEN, LockState.GIVEN),
    "lend take_back": (LockState.SOLE, LockState.SOLE),
    "lend end": (LockState.GIVEN, LockState.GIVEN),
    "keep end": (LockState.SOLE, LockState.NOT_THIS),
    "keep lend end": (LockState.GIVEN, LockState.GIVEN),
    "keep lend take_back end": (LockState.SOLE, LockState.SOLE),
    "keep end forgo": (LockState.NOT_THIS, LockState.NOT_THIS),
}
"""The states of an owner that is alone, and of a borrower, after these events."""


@pytest.mark.parametrize("borrows", [False, True])
@pytest.mark.parametrize("events", EVENTS)
async def test_the_states_of_an_ownership(tmp_path, events, borrows):
    lender, one = await acquired(tmp_path), Ownership(tmp_path, NAME)

    assert one.state is LockState.NOT_THIS
    if borrows:
        await one.acquire(lends(lender))
    else:
        lender.end()
        await one.acquire()
    assert one.state is (LockState.BORROWED if borrows else LockState.SOLE)
    for event in events.split():
        getattr(one, event)()
    assert one.state is EVENTS[events][borrows]
    one.release()
    lender.release()


async def test_waiting_for_the_end_takes_nothing(tmp_path):
    owner, other = await acquired(tmp_path), Ownership(tmp_path, NAME)
    waiting = asyncio.ensure_future(other.until_free())
    await turns()
    assert not waiting.done()
    owner.release()
    await waiting
    assert leading_to(owner.path) == 0
    owner.path.unlink()
    await other.until_free()  # nobody ever served it


async def test_all_that_a_lock_says_is_read(tmp_path: Path) -> None:
    name, pool = f"{'d' * 253}/{'n' * 63}", "p" * 253
    after = frozenset(f"pid {number} in pod {'s' * 63}/{'p' * 253}" for number in range(10))
    mine = await acquired(tmp_path, name)
    mine.join(pool, after)
    owner = Ownership(tmp_path, name).owner()
    assert owner is not None
    assert (owner.pool, owner.after) == (pool, after)
    mine.end()


async def test_which_resources_others_have(tmp_path):
    """The lock alone counts: nothing else is there before a gateway serves."""
    mine, other = await acquired(tmp_path), await acquired(tmp_path, "example.com/other")
    for name in ("README", "0.lock", "0123456789abcdef.sock"):
        (mine.folder / name).touch()
    assert [one.path for one in others(tmp_path, [NAME])] == [other.path]
    mine.end()
    other.end()
