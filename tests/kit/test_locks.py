import asyncio
import fcntl
import os
import resource

import pytest

from dpgateway.kit import locks
from tests.support.counting import descriptors
from tests.support.time import advance, in_virtual_time
from tests.support.waiting import turns, until


@pytest.fixture
def file(tmp_path):
    """Opens a file, each time for somebody else."""
    opened = []

    def another():
        opened.append(os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT))
        return opened[-1]

    yield another
    for descriptor in opened:
        os.close(descriptor)


def test_one_takes_a_lock_and_no_other(file):
    one, other = file(), file()
    assert locks.take(one)
    assert not locks.take(other)
    fcntl.flock(one, fcntl.LOCK_UN)
    assert locks.take(other)


def test_what_can_not_be_locked_is_an_error(tmp_path):
    path = os.open(tmp_path, os.O_PATH)
    with pytest.raises(OSError, match="Bad file descriptor"):
        locks.take(path)
    os.close(path)


AGES = 9.5
"""Seconds after which who waits looks by himself once a second only, and does so half a second later."""


async def taken_after(task, change):
    """Seconds."""
    await advance(AGES)
    assert not task.done()
    began = asyncio.get_running_loop().time()
    change()
    await task
    return asyncio.get_running_loop().time() - began


@pytest.mark.parametrize("removed", [False, True])
async def test_a_lock_is_taken_once_its_file_is_closed(tmp_path, file, removed):
    holder = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    assert locks.take(holder)
    task = asyncio.ensure_future(locks.wait(file(), pause=3600))
    await turns()
    if removed:
        (tmp_path / "lock").unlink()
    os.close(holder)
    async with asyncio.timeout(20):
        await task


@in_virtual_time
async def test_who_is_not_told_looks_at_the_lock(file):
    holder, waits = file(), file()
    assert locks.take(holder)
    task = asyncio.ensure_future(locks.wait(waits))
    assert 0.4 < await taken_after(task, lambda: fcntl.flock(holder, fcntl.LOCK_UN)) < 0.6  # without closing the file


@in_virtual_time
async def test_without_inotify_a_lock_is_polled(file):
    holder, waits = file(), file()
    assert locks.take(holder)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        task = asyncio.ensure_future(locks.wait(waits))
        await turns()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert await taken_after(task, lambda: fcntl.flock(holder, fcntl.LOCK_UN)) <= 0.1
    assert not locks.take(file())


async def test_who_waits_no_longer_leaves_nothing(file):
    holder, waits = file(), file()
    assert locks.take(holder)
    before = descriptors()
    for _ in range(10):
        task = asyncio.ensure_future(locks.wait(waits))
        await turns()
        task.cancel()
        await asyncio.wait([task])
    await until(lambda: descriptors() <= before)
