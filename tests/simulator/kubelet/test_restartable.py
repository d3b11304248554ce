"""Restarts and upgrades: what survives from one kubelet to the next."""

from pathlib import Path

import pytest

from dpgateway_simulator import Kubelet, NotRunningError, UnknownVersionError
from tests.simulator.rig import Rig, X


async def test_stop_removes_the_socket(rig: Rig, era: str) -> None:
    kubelet = await rig.kubelet(era)
    await kubelet.stop()
    assert (kubelet.directory / "kubelet.sock").exists() == (era == "1.8")
    with pytest.raises(NotRunningError, match="isn't running"):
        kubelet.capacity()


Ids = tuple[str, ...]


async def crossing(rig: Rig, old: str, new: str) -> tuple[Ids, bool, bool, list[Ids], list[Ids]]:
    """A pod holds a device and the node changes its release: is Allocate repeated, what gets the next pod?"""
    kubelet, plugin = await rig.both(old)
    await kubelet.admit("p1", {"c": {X: 1}})
    (held,) = plugin.asked()
    await plugin.stop()
    await kubelet.kill()
    kubelet = await rig.kubelet_again(kubelet, new)
    early = await kubelet.admit("p1", {"c": {X: 1}}, start=False)
    again = await rig.plugin(kubelet, "again.sock").start()
    late = await kubelet.admit("p1", {"c": {X: 1}}, start=False)
    repeated = again.asked()
    kubelet.sources_ready()
    await kubelet.admit("p2", {"c": {X: 1}})
    return held, early["ok"], late["ok"], repeated, again.asked()[len(repeated) :]


KEPT = [
    "1.9 1.10", "1.12 1.19", "1.12 1.24", "1.12 1.25", "1.19 1.20", "1.24 1.25", "1.25 1.31", "1.31 1.36", "1.36 1.37",
    "1.37 1.36", "1.36 1.31", "1.31 1.25", "1.25 1.24", "1.10 1.9",
]  # fmt: skip


CROSSINGS: dict[str, tuple[bool, list[Ids], list[Ids]]] = {
    **dict.fromkeys(KEPT, (True, [], [("d1",)])),
    **dict.fromkeys(["1.10 1.12", "1.12 1.10", "1.24 1.12"], (True, [("d0",)], [("d1",)])),  # the plugin is asked again
    **dict.fromkeys(["1.12 1.31", "1.9 1.8"], (True, [], [("d0",)])),  # a device is given twice
    "1.8 1.9": (False, [("d0",)], [("d1",)]),  # pods are refused
}


@pytest.mark.parametrize("step", CROSSINGS)
async def test_crossings(rig: Rig, step: str) -> None:
    held, early, late, repeated, following = await crossing(rig, *step.split())
    assert (held, late) == (("d0",), True)
    assert (early, repeated, following) == CROSSINGS[step]


async def test_an_upgrade_takes_the_pods_along(rig: Rig) -> None:
    kubelet, _ = await rig.both("1.24")
    await kubelet.admit("p1", {"c": {X: 1}})
    assert await kubelet.upgrade("1.37") == [{"pod": "p1", "ok": True}]
    assert (kubelet.version, kubelet.pods, kubelet.counts(X)) == ("1.37", ("p1",), (0, 0))
    await rig.plugin(kubelet, "again.sock").start()
    assert (await kubelet.admit("p2", {"c": {X: 2}}))["ok"] is False
    assert [one.kind for one in kubelet.events].count("started") == 2


async def test_an_unknown_version_changes_nothing(rig: Rig) -> None:
    kubelet = await rig.kubelet("1.24")
    with pytest.raises(UnknownVersionError, match=r"'1\.99', expected 1\.8 to 1\.37"):
        await kubelet.upgrade("1.99")
    assert kubelet.running


async def test_a_kubelet_as_a_context(tmp_path: Path) -> None:
    async with Kubelet("1.37", tmp_path / "dp") as kubelet:
        assert kubelet.running
        with pytest.raises(RuntimeError, match="running already"):
            await kubelet.start()
    assert not kubelet.running


async def test_a_path_too_long_for_an_address(rig: Rig, tmp_path: Path) -> None:
    rig.directory = tmp_path / ("a" * 60) / ("b" * 60)
    kubelet = await rig.kubelet("1.37")
    assert (kubelet.directory / "kubelet.sock").is_socket()


def test_an_unknown_policy_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'strict', expected one of none, "):
        Kubelet("1.37", tmp_path, policy="strict")
