import asyncio
import os
import resource
import shutil

import pytest

from dpgateway.node import watch
from dpgateway.node.watch import DirectoryWatch
from tests.support.time import advance, in_virtual_time
from tests.support.waiting import until

CHECKPOINT = "kubelet_internal_checkpoint"


class Seen:
    """What a watch says of a directory."""

    def __init__(self, directory, poll):
        self.directory, self.looks, self.reads = directory, [], 0
        self.task = asyncio.ensure_future(DirectoryWatch(directory, self.look, self.read, poll).run())

    def look(self, created):
        self.looks.append((created, (self.directory / "kubelet.sock").exists()))

    def read(self):
        self.reads += 1

    async def ready(self):
        """The watch is installed."""
        await until(lambda: self.looks)
        self.looks.clear()
        self.reads = 0


@pytest.fixture
async def follow():
    made = []

    def make(directory, poll=watch.POLL):
        made.append(Seen(directory, poll))
        return made[-1]

    yield make
    for one in made:
        one.task.cancel()
        await asyncio.wait([one.task])


async def test_it_looks_and_reads_once_the_watch_is_installed(follow, tmp_path):
    (tmp_path / "kubelet.sock").touch()
    seen = follow(tmp_path)
    await until(lambda: seen.looks)
    assert (seen.looks, seen.reads) == ([(False, True)], 1)


async def test_a_created_socket_is_told_as_created(follow, tmp_path):
    seen = follow(tmp_path)
    await seen.ready()
    (tmp_path / "kubelet.sock").touch()
    await until(lambda: (True, True) in seen.looks)


@pytest.mark.parametrize("change", ["chmod", "touch", "renamed away and back", "deleted"])
async def test_other_changes_are_no_creation(follow, tmp_path, change):
    path = tmp_path / "kubelet.sock"
    path.touch()
    seen = follow(tmp_path)
    await seen.ready()
    match change:
        case "chmod":
            path.chmod(0o777)
        case "touch":
            os.utime(path)
        case "renamed away and back":
            path.rename(tmp_path / "aside").rename(path)
        case "deleted":
            path.unlink()
    await until(lambda: seen.looks)
    assert not any(created for created, _ in seen.looks)


async def test_other_files_are_none_of_its_business(follow, tmp_path):
    seen = follow(tmp_path)
    await seen.ready()
    for name in ("DEPRECATION", ".123456", "other.sock", "kubelet.sock.tmp"):
        (tmp_path / name).touch()
    os.mkfifo(tmp_path / "kubelet.sock")
    await until(lambda: seen.looks)
    assert (len(seen.looks), seen.reads) == (1, 0)


@pytest.mark.parametrize("how", ["renamed", "written in place", "deleted"])
async def test_the_checkpoint_is_read_when_it_changed(follow, tmp_path, how):
    path = tmp_path / CHECKPOINT
    path.write_text("{}")
    seen = follow(tmp_path)
    await seen.ready()
    if how == "renamed":
        (tmp_path / ".1").write_text("{}")
        seen.reads = 0
        (tmp_path / ".1").rename(path)
    elif how == "written in place":
        path.write_text('{"Entries": []}')
    else:
        path.unlink()
    await until(lambda: seen.reads)
    assert seen.looks == []


@pytest.mark.parametrize("levels", [1, 3])
async def test_a_directory_is_waited_for_and_never_made(follow, tmp_path, levels):
    directory = tmp_path.joinpath(*"abc"[:levels])
    seen = follow(directory)
    await seen.ready()
    for level in range(1, levels + 1):
        assert not tmp_path.joinpath(*"abc"[:level]).exists()
        tmp_path.joinpath(*"abc"[:level]).mkdir()
        await asyncio.sleep(0)
    (directory / "kubelet.sock").touch()
    await until(lambda: any(there for _, there in seen.looks))


async def test_a_directory_that_comes_with_its_socket(follow, tmp_path):
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "kubelet.sock").touch()
    seen = follow(tmp_path / "later")
    await seen.ready()
    (tmp_path / "new").rename(tmp_path / "later")
    await until(lambda: any(there for _, there in seen.looks))
    assert seen.looks[0] == (True, True)  # the socket may be as new as its directory


async def test_a_directory_below_a_former_file(follow, tmp_path, caplog):
    place = tmp_path / "place"
    place.touch()
    seen = follow(place / "d")
    await seen.ready()
    place.unlink()
    (place / "d").mkdir(parents=True)
    (place / "d" / "kubelet.sock").touch()
    await until(lambda: any(there for _, there in seen.looks))
    assert caplog.messages == []


@pytest.mark.parametrize("how", ["deleted", "renamed away"])
async def test_a_directory_that_goes_and_comes_back(follow, tmp_path, caplog, how):
    directory = tmp_path / "d"
    directory.mkdir()
    (directory / "kubelet.sock").touch()
    seen = follow(directory)
    await seen.ready()
    if how == "deleted":
        shutil.rmtree(directory)
    else:
        directory.rename(tmp_path / "aside")
    await until(lambda: seen.looks and not seen.looks[-1][1])
    directory.mkdir()
    (directory / "kubelet.sock").touch()
    await until(lambda: seen.looks[-1][1])
    seen.looks.clear()
    (directory / "kubelet.sock").unlink()
    await until(lambda: seen.looks)
    assert caplog.messages == []


async def test_a_directory_whose_parent_is_renamed_away_is_told(follow, tmp_path):
    directory = tmp_path / "p/d"
    directory.mkdir(parents=True)
    (directory / "kubelet.sock").touch()
    seen = follow(directory)
    await seen.ready()
    (tmp_path / "p").rename(tmp_path / "aside")
    await until(lambda: seen.looks and not seen.looks[-1][1])


async def test_events_of_a_renamed_directory_never_stop_the_poll(follow, tmp_path):
    directory = tmp_path / "g/p/d"
    directory.mkdir(parents=True)
    seen = follow(directory, poll=0.2)
    await seen.ready()
    (tmp_path / "g").rename(tmp_path / "aside")
    directory.mkdir(parents=True)
    (directory / "kubelet.sock").touch()

    def found():
        (tmp_path / "aside/p/d/other").touch()
        (tmp_path / "aside/p/d/other").unlink()
        return any(there for _, there in seen.looks)

    await until(found)


@in_virtual_time
async def test_all_is_looked_at_every_ten_seconds_if_nothing_happens(tmp_path):
    seen = Seen(tmp_path, watch.POLL)
    await seen.ready()
    for count in (1, 2):
        await advance(9.9)
        assert len(seen.looks) == count - 1
        await advance(0.1)
        assert len(seen.looks) == count
    seen.task.cancel()
    await asyncio.wait([seen.task])


async def test_without_inotify_it_polls_and_recovers(follow, tmp_path, caplog):
    caplog.set_level("INFO")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        blind = follow(tmp_path)
        await until(lambda: len(blind.looks) >= 2)
        assert [text[:11] for text in caplog.messages] == ["can't watch"]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    await until(lambda: any("with inotify again" in text for text in caplog.messages))
    blind.looks.clear()
    (tmp_path / "kubelet.sock").touch()
    await until(lambda: (True, True) in blind.looks)
