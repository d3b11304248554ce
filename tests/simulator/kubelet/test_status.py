"""What the node's status and its pods' say of devices."""

from dpgateway_simulator import ManualClock
from tests.simulator.rig import Rig, X


async def test_health_moves_allocatable(rig: Rig, era: str) -> None:
    kubelet, plugin = await rig.both(era)
    await plugin.set(d0="Unhealthy")
    assert kubelet.counts(X) == ((2, 1) if kubelet.behaviour.minor >= 10 else (1, 1))
    await plugin.set(d0="Healthy")
    assert kubelet.counts(X) == (2, 2)
    await plugin.set(d0=None)
    assert kubelet.counts(X) == (1, 1)


async def test_a_resource_is_forgotten_after_five_minutes(rig: Rig, era: str) -> None:
    clock = ManualClock()
    kubelet, plugin = await rig.both(era, clock=clock)
    await plugin.stop()
    await kubelet.wait_for(lambda: kubelet.counts(X)[1] in {0, None})
    clock.advance(300)
    assert kubelet.counts(X)[0] in {0, 2, None}
    clock.advance(1)
    removed = kubelet.capacity()["removed"]
    assert removed == ([X] if era != "1.8" else [])
    assert kubelet.counts(X) == (None, None)


async def test_the_health_of_held_devices(rig: Rig) -> None:
    kubelet, plugin = await rig.both("1.37")
    await kubelet.admit("p1", {"c": {X: 1}})

    def health() -> tuple[str, int]:
        (resource,) = kubelet.devices("p1", "c")["status"][0]["allocatedResourcesStatus"]
        changes = [one for one in kubelet.events if one.kind == "health changed"]
        return resource["resources"][0]["health"], len(changes)

    assert health() == ("Healthy", 0)
    await plugin.set(d0="Unhealthy")
    assert health() == ("Unhealthy", 1)
    await plugin.set(d0=None)
    assert health() == ("Healthy", 1), "a missing one counts as healthy, and nobody is told"


async def test_devices_of_a_pod(rig: Rig) -> None:
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
