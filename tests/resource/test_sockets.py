import asyncio
import fcntl
import functools
import os
import re
import resource
import stat
import threading
import time

import pytest

from dpgateway.errors import KubeletError
from dpgateway.resource.sockets import MOST_LINKS, SocketNames, left_behind
from tests.support.counting import descriptors, leading_to
from tests.support.waiting import turns, until

NAME = "example.com/thing"


async def locked(folder, name=NAME, tell=print):
    names = SocketNames(folder, name)
    names.make_folder()
    await names.lock.take(tell)
    return names


def bound(names):
    names.base.touch()
    return names


def listing(names):
    return sorted(path.name for path in names.folder.iterdir())


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_names_are_short_and_differ_and_never_hold_the_resources_name(tmp_path):
    domain = ".".join(["d" * 59] * 4)
    names = {SocketNames(tmp_path, f"{domain}/{'n' * 62}{last}").base.name for last in "abc"}
    assert len(names) == 3
    assert all(re.fullmatch(r"[0-9a-f]{16}\.sock", name) for name in names)


async def test_a_name_that_cannot_be_removed_is_left(tmp_path):
    names = bound(await locked(tmp_path))
    old, _ = names.link(), names.link()
    (tmp_path / old).unlink()
    (tmp_path / old).mkdir()
    names.keep_newest()
    assert (tmp_path / old).is_dir()


def test_the_names_are_the_same_in_the_next_process(tmp_path):
    assert SocketNames(tmp_path, NAME).base == SocketNames(tmp_path, NAME).base


def test_the_folder_is_ours_alone_whatever_the_umask(tmp_path):
    before = os.umask(0)
    try:
        SocketNames(tmp_path, NAME).make_folder()
    finally:
        os.umask(before)
    assert mode(tmp_path / "dpgateway") == 0o700


def test_a_folder_that_was_open_to_others_is_closed(tmp_path):
    (tmp_path / "dpgateway").mkdir(mode=0o777)
    SocketNames(tmp_path, NAME).make_folder()
    assert mode(tmp_path / "dpgateway") == 0o700


@pytest.mark.parametrize("what", ["file", "link"])
def test_a_folder_that_is_no_directory_is_refused_and_left_alone(tmp_path, what):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o755)
    folder = tmp_path / "dpgateway"
    folder.write_text("precious") if what == "file" else folder.symlink_to(elsewhere)
    with pytest.raises(KubeletError):
        SocketNames(tmp_path, NAME).make_folder()
    assert mode(elsewhere) == 0o755


def test_the_kubelets_directory_is_never_made(tmp_path):
    with pytest.raises(KubeletError, match="can't make"):
        SocketNames(tmp_path / "kubelet" / "device-plugins", NAME).make_folder()
    assert not (tmp_path / "kubelet").exists()


async def test_the_lock_says_who_holds_it(tmp_path):
    names = await locked(tmp_path)
    (lock,) = names.folder.glob("*.lock")
    holder, resource, pool, end = lock.read_text().split("\n")
    assert re.fullmatch(rf"pid {os.getpid()} on \S+, since \d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\dZ", holder)
    assert (resource, pool, end, mode(lock)) == (NAME, "pool ", "", 0o600)
    names.remove()


async def test_the_lock_names_the_pod_because_each_container_counts_its_own_pids(tmp_path, monkeypatch):
    monkeypatch.setenv("POD_NAME", "dpgateway-x2v9k")
    monkeypatch.setenv("POD_NAMESPACE", "devices")
    names = await locked(tmp_path)
    holder = names.lock.held()
    assert holder is not None
    assert f"{NAME}: pid {os.getpid()} in pod devices/dpgateway-x2v9k, since " in holder.text
    names.remove()
    assert names.lock.held() is None


async def test_a_second_gateway_waits_and_says_who_holds_the_lock_and_takes_over(tmp_path):
    first = await locked(tmp_path)
    told: list[str] = []

    async def another():
        return await locked(tmp_path, tell=told.append)

    second = asyncio.ensure_future(another())
    await until(lambda: told)
    assert told[0].startswith(f"waiting because another gateway serves {NAME}: pid {os.getpid()}")
    first.remove()  # with the lock's file: the second one waited for the lock of a file that nobody finds any more
    names = await second
    third = asyncio.ensure_future(another())
    await until(lambda: len(told) == 2)
    assert not third.done()
    names.remove()
    (await third).remove()


async def test_other_resources_have_other_locks(tmp_path):
    one, another = await locked(tmp_path), await locked(tmp_path, "example.com/other")
    one.remove()
    another.remove()


async def test_no_descriptor_and_no_thread_stays_when_nobody_waits_any_more(tmp_path):
    first = await locked(tmp_path)
    before, threads = descriptors(), threading.active_count()
    for _ in range(20):
        told: list[str] = []
        waiting = asyncio.ensure_future(locked(tmp_path, tell=told.append))
        await until(functools.partial(bool, told))
        waiting.cancel()
        await asyncio.wait([waiting])
    await until(lambda: descriptors() < before + 10)  # others come and go
    await until(lambda: threading.active_count() <= threads)
    first.remove()
    (await locked(tmp_path)).remove()  # nobody who waited once gets it


def make_symbolic_link(lock, precious):
    lock.symlink_to(precious)


def make_hard_link(lock, precious):
    os.link(precious, lock)


def make_fifo(lock, precious):
    os.mkfifo(lock)


def make_device(lock, precious):
    os.mknod(lock, stat.S_IFCHR | 0o600, os.makedev(1, 3))


@pytest.mark.parametrize("make", [make_symbolic_link, make_hard_link, make_fifo, make_device])
async def test_a_lock_that_is_no_file_of_ours_is_refused_and_left_as_it_is(tmp_path, make):
    precious = tmp_path / "precious"
    precious.write_text("precious")
    names = SocketNames(tmp_path, NAME)
    names.make_folder()
    lock = names.base.with_suffix(".lock")
    make(lock, precious)
    with pytest.raises(KubeletError, match=f"{lock}: expected a lock, .*; remove it"):
        await names.lock.take(print)
    assert precious.read_text() == "precious"
    lock.unlink()
    await names.lock.take(print)
    names.remove()


async def test_a_lock_that_is_given_to_who_has_just_stopped_waiting_is_let_go(tmp_path):
    holder, waits = await locked(tmp_path), SocketNames(tmp_path, NAME)

    async def ask():
        stopping.cancel()
        return os.dup(holder.lock.descriptor)

    stopping = asyncio.ensure_future(waits.lock.take(print, ask))
    with pytest.raises(asyncio.CancelledError):
        await stopping
    await until(lambda: leading_to(holder.base.with_suffix(".lock")) == 1)
    holder.remove()


async def test_a_full_disk_costs_only_the_name_of_who_holds_the_lock(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        first = await locked(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    told: list[str] = []
    second = asyncio.ensure_future(locked(tmp_path, tell=told.append))
    await until(lambda: told)
    assert told[0].startswith(f"waiting because another gateway serves {NAME}: it left no name")
    first.remove()
    (await second).remove()


async def test_what_a_gateway_before_us_left_is_swept_and_nothing_else(tmp_path):
    names = await locked(tmp_path)
    hash_ = names.base.stem
    others = {f"{hash_}.lock", "0123456789abcdef.sock", "0123456789abcdef-1.sock", "README", f"x{hash_}-1.sock"}
    for name in [*others, f"{hash_}.sock", f"{hash_}-1.sock", f"{hash_}-999.sock"]:
        (names.folder / name).touch()
    (tmp_path / f"{hash_}-1.sock").touch()
    names.sweep()
    assert set(listing(names)) == others
    assert (tmp_path / f"{hash_}-1.sock").exists()
    names.remove()


async def test_each_link_is_another_name_of_the_socket_relative_to_the_kubelets_directory(tmp_path):
    names = bound(await locked(tmp_path))
    links = [names.link() for _ in range(3)]
    assert len(set(links)) == 3
    for link in links:
        assert re.fullmatch(rf"dpgateway/{names.base.stem}-\d+\.sock", link)
        assert (tmp_path / link).samefile(names.base)
    names.remove()


async def test_a_later_gateway_uses_other_names(tmp_path):
    first = bound(await locked(tmp_path))
    link = first.link()
    first.remove()
    made = time.time_ns() // 1_000_000  # with which the numbers of a link begin
    await until(lambda: time.time_ns() // 1_000_000 > made)
    second = bound(await locked(tmp_path))
    assert second.link() > link
    second.remove()


async def test_of_many_links_the_newest_stay(tmp_path):
    names = bound(await locked(tmp_path))
    links = [names.link() for _ in range(100)]
    assert [link for link in links if (tmp_path / link).exists()] == links[-MOST_LINKS:]
    names.keep_newest()
    assert [link for link in links if (tmp_path / link).exists()] == links[-1:]
    names.remove()


async def test_removing_takes_our_names_and_the_lock_and_nothing_else(tmp_path):
    names = bound(await locked(tmp_path))
    names.link()
    (names.folder / "README").touch()
    names.remove()
    assert listing(names) == ["README"]
    names.remove()


async def test_names_that_are_not_ours_any_more_are_not_removed(tmp_path):
    first = bound(await locked(tmp_path))
    first.folder.rename(tmp_path / "aside")
    second = bound(await locked(tmp_path))
    link = second.link()
    first.remove()
    assert second.base.exists()
    assert (tmp_path / link).exists()
    second.remove()


async def test_the_lock_is_free_after_removing(tmp_path):
    names = await locked(tmp_path)
    path = names.base.with_suffix(".lock")
    descriptor = os.open(path, os.O_RDWR)
    with pytest.raises(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    names.remove()
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(descriptor)


async def test_who_waits_for_the_end_of_another_gateway_hears_of_it_and_takes_nothing(tmp_path):
    holder, other = await locked(tmp_path), SocketNames(tmp_path, NAME)
    waiting = asyncio.ensure_future(other.unserved())
    await turns()
    assert not waiting.done()
    holder.lock.free()
    await waiting
    assert leading_to(holder.base.with_suffix(".lock")) == 0
    holder.base.with_suffix(".lock").unlink()
    await other.unserved()  # nobody ever served it


def sweep(folder, *resources):
    return [names.remove_unserved() for names in left_behind(folder, resources)]


def named_as_by_a_gateway(names, *, lock=True):
    hash_ = names.base.stem
    kinds = [".lock"] if lock else []
    return {f"{hash_}{kind}" for kind in [*kinds, ".sock", "-1.sock", "-22.sock", "-3.new"]}


@pytest.mark.parametrize("lock", [True, False])
async def test_what_is_left_of_a_resource_that_nobody_serves_any_more_is_removed_and_nothing_else(tmp_path, lock):
    ours, other = SocketNames(tmp_path, NAME), SocketNames(tmp_path, "example.com/other")
    ours.make_folder()
    hash_ = other.base.stem
    strange = {f"x{hash_}.sock", f"{hash_}.txt", f"{hash_}.sock.new", f"{hash_[1:]}.sock", "README", "0" * 16}
    for name in named_as_by_a_gateway(ours) | named_as_by_a_gateway(other, lock=lock) | strange:
        (ours.folder / name).touch()
    before = descriptors()
    assert sweep(tmp_path, NAME) == [True]
    assert set(listing(ours)) == named_as_by_a_gateway(ours) | strange
    await until(lambda: descriptors() <= before)


async def test_what_another_gateway_serves_is_left_to_it(tmp_path):
    other = bound(await locked(tmp_path, "example.com/other"))
    other.link()
    before = listing(other)
    assert sweep(tmp_path, NAME) == [False]
    assert listing(other) == before
    other.remove()


async def test_a_lock_that_is_no_file_of_ours_keeps_what_is_beside_it(tmp_path):
    other = SocketNames(tmp_path, "example.com/other")
    other.make_folder()
    other.base.touch()
    os.mkfifo(other.base.with_suffix(".lock"))
    with pytest.raises(KubeletError, match="expected a lock"):
        sweep(tmp_path, NAME)
    assert len(listing(other)) == 2


@pytest.mark.parametrize("what", ["nothing", "a link"])
def test_nothing_is_removed_from_a_folder_that_is_not_ours(tmp_path, what):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    precious = elsewhere / SocketNames(tmp_path, "example.com/other").base.name
    precious.touch()
    if what == "a link":
        (tmp_path / "dpgateway").symlink_to(elsewhere)
    assert sweep(tmp_path, NAME) == []
    assert precious.exists()
