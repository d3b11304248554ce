"""What each release's program does that no fact tells: it answers while a plugin hangs, and says how it ends."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.real_kubelet.device_manager import DeviceManager, Died
from tests.real_kubelet.plugin import Plugin, dialect_of
from tests.real_kubelet.programs import RELEASES
from tests.scenarios.kubelet import RESOURCE

ONE = {"c": {RESOURCE: 1}}


@pytest.fixture(params=RELEASES)
async def kubelet(request: pytest.FixtureRequest, short_path: Path) -> AsyncIterator[DeviceManager]:
    kubelet = DeviceManager(request.param, short_path / "device-plugins")
    await kubelet.start()
    yield kubelet
    await kubelet.kill()


@pytest.fixture
async def plugin(kubelet: DeviceManager) -> AsyncIterator[Plugin]:
    """Registered and listed."""
    plugin = await Plugin(dialect_of(kubelet.release), RESOURCE, kubelet.directory).serve()
    await plugin.register()
    await kubelet.wait_for(lambda seen: seen["allocatable"].get(RESOURCE) == 2)
    yield plugin
    await plugin.stop()


async def test_counts_while_an_allocate_hangs(kubelet: DeviceManager, plugin: Plugin) -> None:
    go = asyncio.Event()

    async def hang(_ids: list[str]) -> None:
        await go.wait()

    plugin.hooks = {"Allocate": hang}
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        admission = group.create_task(kubelet.admit("p1", ONE), name="admission")
        await plugin.wait_for("Allocate")
        assert (await kubelet.capacity())["capacity"] == {RESOURCE: 2}
        go.set()
    assert admission.result()["ok"]
    assert await kubelet.stop()


async def test_its_end_is_told(kubelet: DeviceManager, plugin: Plugin) -> None:
    """From 1.34 on a kubelet panics when an id leaves the list during its own Allocate."""

    async def vanish(ids: list[str]) -> None:
        await plugin.set(**dict.fromkeys(ids))
        await kubelet.wait_for(lambda seen: seen["allocatable"].get(RESOURCE) == 1)

    plugin.hooks = {"Allocate": vanish}
    if kubelet.minor >= 34:
        with pytest.raises(Died, match="panic: runtime error: invalid memory address"):
            await kubelet.admit("p1", ONE)
        assert not kubelet.running
    else:
        assert (await kubelet.admit("p1", ONE))["ok"]
