"""The names of a resource's socket."""

import os
import re
import time

import pytest

from dpgateway.deviceplugin.server.sockets import MOST_LINKS, SocketNames, left_behind
from dpgateway.errors import KubeletError
from dpgateway.resource.ownership import Ownership
from tests.support.counting import descriptors
from tests.support.waiting import until

NAME = "example.com/thing"


def named(folder, name=NAME):
    """Its names, and the folder that they are in."""
    (folder / "dpgateway").mkdir(exist_ok=True)
    return SocketNames(Ownership(folder, name))


async def owned(folder, name=NAME):
    await (ownership := Ownership(folder, name)).acquire()
    return SocketNames(ownership)


def end(names):
    names.remove()
    names.ownership.end()


def bound(names):
    names.base.touch()
    return names


def listing(names):
    return sorted(path.name for path in names.base.parent.iterdir())


def test_names_are_hashes(tmp_path):
    domain = ".".join(["d" * 59] * 4)
    names = {named(tmp_path, f"{domain}/{'n' * 62}{last}").base.name for last in "abc"}
    assert len(names) == 3
    assert all(re.fullmatch(r"[0-9a-f]{16}\.sock", name) for name in names)


async def test_a_name_that_cannot_be_removed_is_left(tmp_path):
    names = bound(await owned(tmp_path))
    old, _ = names.link(), names.link()
    (tmp_path / old).unlink()
    (tmp_path / old).mkdir()
    names.keep(1)
    assert (tmp_path / old).is_dir()


def test_the_names_are_the_same_in_the_next_process(tmp_path):
    assert named(tmp_path).base == named(tmp_path).base


async def test_what_another_gateway_left_is_swept(tmp_path):
    """And nothing else."""
    names = await owned(tmp_path)
    hash_ = names.base.stem
    others = {f"{hash_}.lock", "0123456789abcdef.sock", "0123456789abcdef-1.sock", "README", f"x{hash_}-1.sock"}
    for name in [*others, f"{hash_}.sock", f"{hash_}-1.sock", f"{hash_}-999.sock"]:
        (names.base.parent / name).touch()
    (tmp_path / f"{hash_}-1.sock").touch()
    names.sweep()
    assert set(listing(names)) == others
    assert (tmp_path / f"{hash_}-1.sock").exists()
    end(names)


async def test_each_link_names_the_socket(tmp_path):
    names = bound(await owned(tmp_path))
    links = [names.link() for _ in range(3)]
    assert len(set(links)) == 3
    for link in links:
        assert re.fullmatch(rf"dpgateway/{names.base.stem}-\d+\.sock", link)
        assert (tmp_path / link).samefile(names.base)
    end(names)


async def test_a_later_gateway_uses_other_names(tmp_path):
    first = bound(await owned(tmp_path))
    link = first.link()
    end(first)
    made = time.time_ns() // 1_000_000  # with which the numbers of a link begin
    await until(lambda: time.time_ns() // 1_000_000 > made)
    second = bound(await owned(tmp_path))
    assert second.link() > link
    end(second)


async def test_of_many_links_the_newest_stay(tmp_path):
    names = bound(await owned(tmp_path))
    links = [names.link() for _ in range(100)]
    assert [link for link in links if (tmp_path / link).exists()] == links[-MOST_LINKS:]
    names.keep(1)
    assert [link for link in links if (tmp_path / link).exists()] == links[-1:]
    end(names)


async def test_removing_takes_names_and_lock(tmp_path):
    """And nothing else."""
    names = bound(await owned(tmp_path))
    names.link()
    (names.base.parent / "README").touch()
    end(names)
    assert listing(names) == ["README"]
    end(names)


async def test_names_of_others_are_not_removed(tmp_path):
    first = bound(await owned(tmp_path))
    first.base.parent.rename(tmp_path / "aside")
    second = bound(await owned(tmp_path))
    link = second.link()
    end(first)
    assert second.base.exists()
    assert (tmp_path / link).exists()
    end(second)


def sweep(folder, *resources):
    return [names.remove_unowned() for names in left_behind(folder, resources)]


def named_as_by_a_gateway(names, *, lock=True):
    hash_ = names.base.stem
    kinds = [".lock"] if lock else []
    return {f"{hash_}{kind}" for kind in [*kinds, ".sock", "-1.sock", "-22.sock", "-3.new", ".next.1-23"]}


@pytest.mark.parametrize("lock", [True, False])
async def test_names_that_nobody_owns_are_removed(tmp_path, lock):
    """And nothing else."""
    ours, other = named(tmp_path), named(tmp_path, "example.com/other")
    hash_ = other.base.stem
    strange = {f"x{hash_}.sock", f"{hash_}.txt", f"{hash_}.sock.new", f"{hash_[1:]}.sock", "README", "0" * 16}
    for name in named_as_by_a_gateway(ours) | named_as_by_a_gateway(other, lock=lock) | strange:
        (ours.base.parent / name).touch()
    before = descriptors()
    assert sweep(tmp_path, NAME) == [True]
    assert set(listing(ours)) == named_as_by_a_gateway(ours) | strange
    await until(lambda: descriptors() <= before)


async def test_what_another_gateway_serves_is_left_to_it(tmp_path):
    other = bound(await owned(tmp_path, "example.com/other"))
    other.link()
    before = listing(other)
    assert sweep(tmp_path, NAME) == [False]
    assert listing(other) == before
    end(other)


async def test_a_strange_lock_keeps_its_names(tmp_path):
    other = named(tmp_path, "example.com/other")
    other.base.touch()
    os.mkfifo(other.base.with_suffix(".lock"))
    with pytest.raises(KubeletError, match="expected a lock"):
        sweep(tmp_path, NAME)
    assert len(listing(other)) == 2


@pytest.mark.parametrize("what", ["nothing", "a link"])
def test_a_strange_folder_keeps_its_names(tmp_path, what):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    precious = elsewhere / SocketNames(Ownership(tmp_path, "example.com/other")).base.name
    precious.touch()
    if what == "a link":
        (tmp_path / "dpgateway").symlink_to(elsewhere)
    assert sweep(tmp_path, NAME) == []
    assert precious.exists()
