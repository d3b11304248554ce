"""The states of groups on disk, and those that are nobody's any more."""

import asyncio
import os

import pytest

from dpgateway.kit.threads import Threads
from dpgateway.resource.ownership import Ownership
from dpgateway.switching.states import SwitchFiles, SwitchRecord, SwitchState
from tests.support.threads import StuckDisk
from tests.support.time import hurry
from tests.support.waiting import until

NAME, OTHER = "example.com/thing", "example.com/other"
D = SwitchState.DRA


@pytest.fixture
def files(tmp_path):
    return SwitchFiles(tmp_path / "state", Threads())


@pytest.fixture
async def owned(tmp_path):
    """Another gateway of the node: it has this resource, in this pool."""
    owned = []

    async def own(name, pool):
        one = Ownership(tmp_path, name)
        await one.acquire()
        owned.append(one)
        if pool is not None:
            one.join(pool)
        else:  # as the first releases
            one.path.write_text("pid 7\n")

    yield own
    for one in owned:
        one.end()


async def write(files, *groups):
    for group in groups:
        await files.write(SwitchRecord(group, D))


def left(files, *groups):
    return {group for group in groups if files.look(group) is not None}


async def hurried(call):
    """How a call ends whose disk may hang."""
    hurry(50)
    task = asyncio.ensure_future(call)
    await until(task.done)
    hurry(0.02)
    return task.exception()


@pytest.mark.parametrize("what", ["write", "fix"])
async def test_a_write_that_took_too_long_does_not_come_after_later_ones(tmp_path, what):
    disk = StuckDisk("fronts")
    files = SwitchFiles(tmp_path / "state", disk)
    disk.stick()
    first = files.write(SwitchRecord(NAME, SwitchState.LEAVING_PLUGIN))
    assert isinstance(await hurried(first), TimeoutError)
    disk.pass_by()
    later = files.write(SwitchRecord(NAME, D)) if what == "write" else files.fix(NAME, "dra", NAME)
    await hurried(later)
    disk.go_on()
    await until(lambda: not disk.hanging)
    found = await files.read(NAME)
    assert found is not None
    assert found.state is D


async def test_states_of_groups_that_are_gone_are_removed(files, tmp_path):
    await write(files, "boards", "renamed", NAME)
    killed = files.folder / ".boards.json.abcd_123"
    killed.touch()
    os.utime(killed, (0, 0))
    assert not await files.sweep(["renamed"], tmp_path)
    assert left(files, "boards", "renamed", NAME) == {"renamed"}
    assert not killed.exists()


@pytest.mark.parametrize(
    ("pool", "stays"), [("boards", {"boards"}), ("others", set()), ("", {NAME}), (None, {"boards", NAME})]
)
async def test_a_state_that_another_gateway_may_have_stays(files, tmp_path, owned, pool, stays):
    await write(files, "boards", NAME)
    await owned(NAME, pool)
    assert await files.sweep([OTHER], tmp_path) == bool(stays)
    assert left(files, "boards", NAME) == stays


async def test_without_a_state_there_is_nothing_to_remove(files, tmp_path):
    assert not await files.sweep([], tmp_path)
    assert not files.folder.exists()


@pytest.mark.parametrize(
    ("had", "has", "same"),
    [([NAME], [NAME], True), ([NAME], [NAME, OTHER], True), ([NAME], [OTHER], False), ([], [OTHER], True)],
)
def test_a_state_is_of_a_pool_with_its_resources(had, has, same):
    assert SwitchRecord("boards", D, resources=tuple(had)).is_of(has) is same


async def test_a_front_for_good_is_that_of_its_resources(files):
    await files.write(SwitchRecord("boards", D, resources=(NAME,)))
    await files.fix("boards", "dra", OTHER)
    assert files.look("boards").is_of([OTHER])
    await files.fix("boards", "deviceplugin", OTHER)
    assert (files.look("boards").state, files.look("boards").resources) == (SwitchState.PLUGIN, (OTHER,))
