"""A file or directory that changes, in the ways of editors, of copies and of the kubelet."""

import asyncio
import os
from pathlib import PosixPath

import pytest

from dpgateway.daemon.files import FileWatch
from tests.support.counting import inotify_watches
from tests.support.waiting import turns, until


@pytest.fixture
async def watch():
    tasks = []

    def make(path, **named):
        changes = []
        tasks.append(asyncio.ensure_future(FileWatch(path, **named).run(lambda: changes.append(path.exists()))))
        return changes

    yield make
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


def write(path):
    path.write_text(path.read_text() + "\n")


def replace(path):
    other = path.with_suffix(".new")
    other.write_text("other")
    other.rename(path)


@pytest.mark.parametrize("change", [write, replace, os.remove])
async def test_a_change_of_a_file_is_seen_once_each_time(watch, tmp_path, change):
    path = tmp_path / "config.yaml"
    path.write_text("one")
    changes = watch(path)
    change(path)
    await until(lambda: changes == [change is not os.remove])
    path.write_text("again")
    await until(lambda: len(changes) == 2)


@pytest.mark.parametrize("whole", [True, False], ids=["the directory", "a file in it"])
async def test_a_swap_of_a_config_map_is_seen(watch, tmp_path, whole):
    for version in ("..1", "..2"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "config.yaml").write_text("same")
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "config.yaml").symlink_to("..data/config.yaml")
    changes = watch(tmp_path if whole else tmp_path / "config.yaml")
    for version in ("..2", "..1"):
        before = len(changes)
        (tmp_path / "..data_tmp").symlink_to(version)
        (tmp_path / "..data_tmp").rename(tmp_path / "..data")
        await until(lambda: changes[before:])  # noqa: B023  it has returned when the loop goes on


async def test_many_changes_in_a_row_are_one(watch, tmp_path):
    changes = watch(tmp_path)
    for name in range(50):
        (tmp_path / f"{name}.yaml").touch()
        await asyncio.sleep(0)
    await until(lambda: changes)
    (tmp_path / "last.yaml").touch()
    await until(lambda: len(changes) == 2)


@pytest.mark.parametrize("name", [".config.yaml.swp", "config.log"])
async def test_files_that_are_not_read_may_change_all_the_time(watch, tmp_path, name):
    async def write_on():
        while True:
            (tmp_path / name).touch()
            await asyncio.sleep(0.01)

    writing = asyncio.ensure_future(write_on())
    try:
        changes = watch(tmp_path)
        for number in range(1, 3):
            (tmp_path / f"{number}.yaml").touch()
            await until(lambda: len(changes) == number)  # noqa: B023  it has returned when the loop goes on
    finally:
        writing.cancel()


async def test_files_that_are_not_read_cost_few_looks(watch, tmp_path):
    class Counted(PosixPath):
        looks = 0

        def iterdir(self):
            Counted.looks += 1
            return super().iterdir()

    changes = watch(Counted(tmp_path))
    for _ in range(300):
        (tmp_path / "config.log").touch()
        await asyncio.sleep(0.002)
    (tmp_path / "config.yaml").touch()
    await until(lambda: changes)
    assert Counted.looks < 150


async def test_what_a_link_from_elsewhere_leads_to_is_watched(watch, tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "here").mkdir()
    (tmp_path / "there" / "real.yaml").write_text("one")
    (tmp_path / "here" / "config.yaml").symlink_to("../there/real.yaml")
    changes = watch(tmp_path / "here" / "config.yaml")
    for count in (1, 2):
        write(tmp_path / "there" / "real.yaml")
        await until(lambda: len(changes) == count)  # noqa: B023  it has returned when the loop goes on


async def test_a_file_that_comes_with_its_directory_before_the_watch_begins_is_seen(watch, tmp_path):
    changes = watch(tmp_path / "etc" / "config.yaml")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.yaml").touch()
    (tmp_path / "other").rename(tmp_path / "etc")
    await until(lambda: changes == [True])


async def test_a_directory_that_came_is_watched_from_the_next_look_on(watch, tmp_path):
    def watched():
        return sum(len(each) for each in inotify_watches().values())

    path = tmp_path / "a" / "etc" / "config.yaml"
    before = watched()
    changes = watch(path, poll=0.05)
    (tmp_path / "a").mkdir()
    assert watched() == before
    (tmp_path / "a" / "etc").mkdir()
    await until(lambda: watched() == before + 1)
    path.touch()
    await until(lambda: changes == [True])


async def test_without_a_hint_nobody_looks(watch, tmp_path):
    looks = []

    class Counted(PosixPath):
        def iterdir(self):
            looks.append(self)
            return super().iterdir()

    watch(Counted(tmp_path))
    await until(lambda: len(looks) == 2)  # before and after inotify watches
    await turns(2000)
    assert len(looks) == 2
