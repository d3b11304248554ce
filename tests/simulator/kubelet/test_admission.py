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
