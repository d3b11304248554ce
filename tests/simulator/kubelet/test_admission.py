"""Who gets devices, who doesn't and in which words; and what the real kubelet's code panics on."""

import pytest

from dpgateway_simulator import Crashed
from tests.simulator.rig import Rig, X


@pytest.mark.parametrize(("version", "crashes"), [("1.31", False), ("1.34", True), ("1.37", True)])
@pytest.mark.parametrize("listed", [True, False])
async def test_missing_held_device_with_policy(rig: Rig, version: str, crashes: bool, listed: bool) -> None:
    """Listed Unhealthy it does no harm."""
    kubelet = await rig.kubelet(version, policy="best-effort", numa=2)
    plugin = rig.plugin(kubelet)
    plugin.nodes = {"d0": [0], "d1": [1]}
    await plugin.start()
    assert (await kubelet.admit("p1", {"c": {X: 1}}))["ok"]
    assert plugin.asked() == [("d0",)]
    await plugin.set(d0="Unhealthy" if listed else None)
    await plugin.stop()
    await kubelet.kill()
    await kubelet.start(sources_ready=False, running=["p1/c"])
    again = rig.plugin(kubelet, "again.sock", **plugin.health)
    again.nodes = plugin.nodes
    await again.start()
    if crashes and not listed:
        with pytest.raises(Crashed, match="generateDeviceTopologyHints"):
            await kubelet.admit("p1", {"c": {X: 1}}, start=False)
    else:
        assert (await kubelet.admit("p1", {"c": {X: 1}}, start=False))["ok"]


async def test_single_numa_node_refuses_what_spans_two(rig: Rig) -> None:
    kubelet = await rig.kubelet("1.37", policy="single-numa-node", numa=2)
    plugin = rig.plugin(kubelet, d0="Healthy", d1="Healthy", d2="Healthy")
    plugin.nodes = {"d0": [0], "d1": [1], "d2": [1]}
    await plugin.start()
    reply = await kubelet.admit("p1", {"c": {X: 3}})
    assert (reply["reason"], reply["error"]) == (
        "TopologyAffinityError",
        "Resources cannot be allocated with Topology locality",
    )
    assert (await kubelet.admit("p2", {"c": {X: 2}}))["ok"]
    assert plugin.asked() == [("d1", "d2")]


async def test_app_container_reuses_init_devices(rig: Rig, era: str) -> None:
    kubelet, plugin = await rig.both(era)
    await kubelet.admit("p1", {"c": {X: 1}}, init={"i": {X: 1}})
    first, second = plugin.asked()
    assert (first == second) == (era != "1.8")


@pytest.mark.parametrize(("version", "same"), [("1.25", True), ("1.28", True), ("1.29", False), ("1.37", False)])
async def test_a_sidecar_keeps_its_devices(rig: Rig, version: str, same: bool) -> None:
    kubelet, plugin = await rig.both(version)
    sidecar = {"name": "i", "restartPolicy": "Always", "resources": {X: 1}}
    assert (await kubelet.admit("p1", {"c": {X: 1}}, init=[sidecar]))["ok"]
    first, second = plugin.asked()
    assert (first == second) == same


async def test_allocate_error_frees_devices(rig: Rig, era: str) -> None:
    kubelet, plugin = await rig.both(era)

    async def refuse(ids: tuple[str, ...]) -> None:
        raise RuntimeError("no")

    plugin.hooks["Allocate"] = refuse
    reply = await kubelet.admit("p1", {"c": {X: 1}})
    text = kubelet.behaviour.admission_error.split("{}")[0] + "rpc error: code = Unknown desc = "
    assert not reply["ok"]
    assert reply["error"].startswith(text)
    assert reply["stage"] == ("start" if era == "1.8" else "admit")
    plugin.hooks.clear()
    kubelet.remove("p1")
    assert (await kubelet.admit("p2", {"c": {X: 2}}))["ok"]


async def test_empty_container_responses(rig: Rig, era: str) -> None:
    kubelet, plugin = await rig.both(era)
    plugin.empty = True
    if era == "1.10":
        with pytest.raises(Crashed, match="index out of range"):
            await kubelet.admit("p1", {"c": {X: 1}})
        assert "index out of range" in kubelet.crashed
        assert not kubelet.running
        await kubelet.start()
        assert not kubelet.crashed
        return
    reply = await kubelet.admit("p1", {"c": {X: 1}})
    assert reply["ok"] == (kubelet.behaviour.minor < 10)
    if not reply["ok"]:
        assert "o containers return in allocation response" in reply["error"]
        again = await kubelet.admit("p2", {"c": {X: 2}})
        assert "Requested: 2, Available: 1" in again["error"], "the devices stay taken"


@pytest.mark.parametrize(("version", "crashes"), [("1.12", False), ("1.31", False), ("1.34", True), ("1.37", True)])
async def test_a_device_that_leaves_during_its_allocate(rig: Rig, version: str, crashes: bool) -> None:
    kubelet, plugin = await rig.both(version)

    async def vanish(ids: tuple[str, ...]) -> None:
        await plugin.set(**dict.fromkeys(ids))

    plugin.hooks["Allocate"] = vanish
    if crashes:
        with pytest.raises(Crashed, match=r"nil pointer dereference in .*allocateContainerResources"):
            await kubelet.admit("p1", {"c": {X: 1}})
        with pytest.raises(Crashed):
            kubelet.capacity()
    else:
        assert (await kubelet.admit("p1", {"c": {X: 1}}))["ok"]
