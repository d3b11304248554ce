from tests.simulator.rig import Rig, X

"""PreStartContainer, what a container runs with, and what 1.8 does when one starts."""


async def test_pre_start_at_every_start(rig: Rig, era: str) -> None:
    kubelet, plugin = await rig.both(era)
    await kubelet.admit("p1", {"c": {X: 1}})
    assert (await kubelet.start_container("p1", "c"))["ok"]
    assert plugin.count("PreStartContainer") == (2 if kubelet.behaviour.minor >= 10 else 0)
    assert plugin.count("Allocate") == (2 if kubelet.behaviour.minor == 8 else 1)
    assert len(set(plugin.asked())) == 1


async def test_a_pre_start_error_is_the_containers(rig: Rig) -> None:
    kubelet, plugin = await rig.both("1.37")

    async def refuse(ids: tuple[str, ...]) -> None:
        raise RuntimeError("no")

    plugin.hooks["PreStartContainer"] = refuse
    reply = await kubelet.admit("p1", {"c": {X: 1}})
    assert reply["stage"] == "start"
    assert "device plugin PreStartContainer rpc failed with err: rpc error: code = Unknown" in reply["error"]
    plugin.hooks.clear()
    assert (await kubelet.start_container("p1", "c"))["ok"]


async def test_earlier_pod_never_starts_again(rig: Rig) -> None:
    """It runs without a device, and PreStartContainer finds nothing of it."""
    kubelet = await rig.kubelet("1.37")
    assert (await kubelet.admit("p1", {"c": {X: 1}}))["ok"]
    await rig.plugin(kubelet).start()
    again = await kubelet.start_container("p1", "c")
    assert again["error"] == f"no devices found allocated in local cache for pod p1, container c, resource {X}"
    full = await kubelet.admit("p2", {"c": {X: 2}})
    assert full["reason"] == f"OutOf{X}"
    assert full["error"] == f"Node didn't have enough resource: {X}, requested: 2, used: 1, capacity: 2"
