"""A newer gateway that can't serve takes nothing over: the older one serves on, and ends as if it had been alone."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.gateway import Gateway
from tests.scenarios.kubelet import RESOURCE, Kubelet
from tests.support.waiting import until

pytestmark = pytest.mark.parametrize("kubelet", ["1.37"], indirect=True)


def simulated(**more: Any) -> dict[str, Any]:
    return {"name": RESOURCE, "driver": "simulated", "options": {"count": 2, **more}}


@pytest.fixture
async def newer(kubelet: Kubelet, served: Gateway, folder: Path) -> AsyncIterator[Gateway]:
    """Not yet started, with a configuration and a state_dir of its own."""
    (folder / "newer").mkdir()
    async with Gateway(folder / "newer", kubelet.directory) as newer:
        yield newer
        print("\n".join(["--- newer", *newer.log]))  # noqa: T201  shown when the scenario failed
        assert not [line for line in newer.log if "a bug:" in line]


def broken(folder: Path) -> dict[str, Any]:
    """A driver that fails when it is imported."""
    (folder / "broken.py").write_text("raise RuntimeError('no license')\n")
    info = folder / "broken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[dpgateway]\nbroken = broken\n")
    return {"name": RESOURCE, "driver": "broken"}


@pytest.mark.parametrize(
    ("resource", "said"),
    [
        (broken, "no license"),
        (lambda _: {**simulated(), "driver": "nosuch"}, "isn't installed"),
        (lambda _: simulated(faults=[{"call": "list", "error": "no bus"}]), "no bus"),
        (lambda _: simulated(faults=[{"call": "list", "hang": True}]), "waiting because another gateway serves"),
        (lambda _: simulated() | {"options": {"count": 0}}, "this one has no healthy device"),
    ],
    ids=["fails at import", "is missing", "fails to list", "hangs", "finds none"],
)
async def test_a_driver_that_lists_nothing(
    kubelet: Kubelet, served: Gateway, newer: Gateway, resource: Callable[[Path], dict[str, Any]], said: str
) -> None:
    newer.imported, newer.environment = False, {"PYTHONPATH": str(newer.folder)}
    await newer.start({**resource(newer.folder), "timeouts": {"list": "1s"}})
    await newer.said(said)
    await serves_on(kubelet, served, newer)


async def test_a_configuration_that_is_wrong(kubelet: Kubelet, served: Gateway, newer: Gateway) -> None:
    await newer.start({**simulated(), "sharse": 2})
    assert await newer.process.wait() == 2
    await serves_on(kubelet, served)


async def test_a_directory_of_another_kubelet(kubelet: Kubelet, served: Gateway, newer: Gateway) -> None:
    newer.device_plugins_dir = newer.folder / "device-plugins"
    newer.device_plugins_dir.mkdir()
    await newer.start(simulated())
    await newer.said("serving 1 resource")
    await serves_on(kubelet, served, newer)


async def serves_on(kubelet: Kubelet, served: Gateway, newer: Gateway | None = None) -> None:
    """There is nothing to wait for: whoever takes over does so within some tenths of a second."""
    await asyncio.sleep(1.5)
    assert (await kubelet.counts()) == (2, 2)
    assert (await kubelet.admit("p1", {"c": {RESOURCE: 1}}))["ok"]
    assert not [line for line in served.log if "handed over" in line or "stream ended" in line]
    if newer is not None:
        assert await newer.end() == 0
    assert (await kubelet.counts()) == (2, 2)
    assert (await kubelet.admit("p2", {"c": {RESOURCE: 1}}))["ok"]
    await until(lambda: len(served.names()) == 4, found=served.names)


# what a newer gateway with other resources, or several, take over


async def test_other_resources(kubelet: Kubelet, served: Gateway, newer: Gateway) -> None:
    """One stays, one is new. The state_dir is another one, but the kubelet knows what is held."""
    assert (await kubelet.admit("p1", {"c": {RESOURCE: 1}}))["ok"]
    await newer.start(simulated(prepare=True), {**simulated(), "name": "example.com/new"})
    await newer.said("took over from another gateway")
    await kubelet.wait_for_devices(2, resource="example.com/new")
    assert await served.end() == 0
    assert (await kubelet.counts()) == (2, 2)
    assert (await kubelet.admit("p2", {"c": {RESOURCE: 1, "example.com/new": 1}}))["ok"]
    assert await newer.end() == 0
    assert not newer.names()


async def test_a_name_that_changes(kubelet: Kubelet, served: Gateway, newer: Gateway) -> None:
    """Nobody takes the old name over: it goes with the older gateway."""
    await newer.start({**simulated(), "name": "example.com/new"})
    await newer.said(" registered resource=example.com/new", seconds=60)
    await kubelet.wait_for_devices(2, resource="example.com/new")
    assert (await kubelet.admit("p1", {"c": {RESOURCE: 1}}))["ok"]
    assert await served.end() == 0
    await kubelet.wait_for((2, 0))
    assert (await kubelet.admit("p2", {"c": {"example.com/new": 1}}))["ok"]
    assert await newer.end() == 0


async def test_two_newer_ones_at_once(kubelet: Kubelet, served: Gateway, newer: Gateway, folder: Path) -> None:
    (folder / "newest").mkdir()
    async with Gateway(folder / "newest", kubelet.directory) as newest:
        await asyncio.gather(newer.start(simulated()), newest.start(simulated()))
        await served.said("handed over to another gateway")
        await until(lambda: all("took over" in "".join(one.log) for one in (newer, newest)))
        assert await served.end() == 0
        assert (await kubelet.counts()) == (2, 2)
        assert (await kubelet.admit("p1", {"c": {RESOURCE: 1}}))["ok"]
        assert await newer.end() == 0
        assert await newest.end() == 0
        assert not newest.names()
