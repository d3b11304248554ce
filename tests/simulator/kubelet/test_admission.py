"""Who gets devices, who doesn't and in which words; and what the real kubelet's code panics on."""

import asyncio

import pytest

from dpgateway_simulator import Crashed, NotRunningError

X = "example.com/x"
NONE_HEALTHY = f"no healthy devices present; cannot allocate unhealthy devices {X}"


async def test_empty_container_responses(rig, era):
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
async def test_a_device_that_leaves_during_its_allocate(rig, version, crashes):
    kubelet, plugin = await rig.both(version)

    async def vanish(ids):
        await plugin.set(**dict.fromkeys(ids))

    plugin.hooks["Allocate"] = vanish
    if crashes:
        with pytest.raises(Crashed, match=r"nil pointer dereference in .*allocateContainerResources"):
            await kubelet.admit("p1", {"c": {X: 1}})
        with pytest.raises(Crashed):
            kubelet.capacity()
    else:
        assert (await kubelet.admit("p1", {"c": {X: 1}}))["ok"]


@pytest.mark.parametrize(("version", "crashes"), [("1.31", False), ("1.34", True), ("1.37", True)])
@pytest.mark.parametrize("listed", [True, False])
async def test_a_held_device_missing_after_a_restart_with_a_topology_policy(rig, version, crashes, listed):
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


async def test_a_kubelet_that_dies_while_it_is_asked(rig):
    kubelet, plugin = await rig.both("1.37")
    asked = asyncio.Event()

    async def hang(ids):
        asked.set()
        await asyncio.Event().wait()

    plugin.hooks["Allocate"] = hang
    admitting = asyncio.create_task(kubelet.admit("p1", {"c": {X: 1}}))
    await asked.wait()
    assert kubelet.counts(X) == (2, 2), "a slow Allocate doesn't hold up the node's status"
    await kubelet.kill()
    with pytest.raises(NotRunningError, match="ended while"):
        await admitting


@pytest.mark.parametrize(
    ("version", "running", "error"),
    [
        ("1.9", False, ""),
        ("1.24", False, ""),
        ("1.25", False, NONE_HEALTHY),
        ("1.25", True, ""),
        ("1.25.10", True, NONE_HEALTHY),
        ("1.26.4", False, ""),
        ("1.27.1", False, ""),
        ("1.27.2", True, NONE_HEALTHY),
        ("1.37", False, NONE_HEALTHY),
        ("1.37", True, ""),
    ],
)
async def test_readmission_before_the_plugin_is_back(rig, version, running, error):
    kubelet, _ = await rig.both(version)
    await kubelet.admit("p1", {"c": {X: 1}})
    await kubelet.kill()
    await kubelet.start(sources_ready=False, running=["p1/c"] if running else [])
    reply = await kubelet.admit("p1", {"c": {X: 1}}, start=False)
    assert reply["ok"] == (not error)
    assert reply.get("error", "") == (f"Allocate failed due to {error}, which is unexpected" if error else "")
    assert reply.get("reason") == ("UnexpectedAdmissionError" if error else None)


async def test_a_finished_init_container_is_the_pods_death_at_a_restart(rig):
    kubelet, _ = await rig.both("1.37")
    assert (await kubelet.admit("p1", {"c": {X: 1}}, init={"i": {X: 1}}))["ok"]
    (reply,) = await kubelet.restart()
    assert NONE_HEALTHY in reply["error"]
    assert kubelet.pods == ()


async def test_a_limit_of_zero(rig, era):
    kubelet = await rig.kubelet(era)
    await rig.plugin(kubelet, d0="Unhealthy").start()
    reply = await kubelet.admit("p1", {"c": {X: 0}})
    if kubelet.behaviour.minor >= 25:
        assert NONE_HEALTHY in reply["error"]
    elif era in {"1.10", "1.12", "1.16"}:
        text = f"no devices found allocated in local cache for pod p1, container c, resource {X}"
        assert reply["error"] == text
    else:
        assert reply["ok"]


async def test_a_pod_from_before_the_plugin_can_never_start_again(rig):
    """It runs without a device, and PreStartContainer finds nothing of it."""
    kubelet = await rig.kubelet("1.37")
    assert (await kubelet.admit("p1", {"c": {X: 1}}))["ok"]
    await rig.plugin(kubelet).start()
    again = await kubelet.start_container("p1", "c")
    assert again["error"] == f"no devices found allocated in local cache for pod p1, container c, resource {X}"
    full = await kubelet.admit("p2", {"c": {X: 2}})
    assert full["reason"] == f"OutOf{X}"
    assert full["error"] == f"Node didn't have enough resource: {X}, requested: 2, used: 1, capacity: 2"


async def test_single_numa_node_refuses_what_spans_two(rig):
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


async def test_a_pod_that_changes_its_wish_is_refused(rig):
    kubelet, _ = await rig.both("1.37")
    await kubelet.admit("p1", {"c": {X: 1}})
    reply = await kubelet.admit("p1", {"c": {X: 2}})
    assert f'pod "p1" container "c" changed request for resource "{X}" from 1 to 2' in reply["error"]


async def test_the_health_of_held_devices(rig):
    kubelet, plugin = await rig.both("1.37")
    await kubelet.admit("p1", {"c": {X: 1}})

    def health():
        (resource,) = kubelet.devices("p1", "c")["status"][0]["allocatedResourcesStatus"]
        changes = [one for one in kubelet.events if one.kind == "health changed"]
        return resource["resources"][0]["health"], len(changes)

    assert health() == ("Healthy", 0)
    await plugin.set(d0="Unhealthy")
    assert health() == ("Unhealthy", 1)
    await plugin.set(d0=None)
    assert health() == ("Healthy", 1), "a missing one counts as healthy, and nobody is told"


async def test_devices_of_a_pod_and_all_healthy_ones(rig):
    kubelet = await rig.kubelet("1.24")
    plugin = rig.plugin(kubelet)
    plugin.nodes = {"d1": [0]}
    await plugin.start()
    await kubelet.admit("p1", {"c": {X: 1}})
    assert kubelet.devices("p1", "c") == {
        "container": {X: {"d0": {}}},
        "allocatable": {
            X: {
                "d0": {"ID": "d0", "health": "Healthy"},
                "d1": {"ID": "d1", "health": "Healthy", "topology": {"nodes": [{}]}},
            }
        },
    }
