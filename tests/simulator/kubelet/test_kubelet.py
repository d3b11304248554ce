"""What a plugin's user sees of a kubelet of each era."""

import asyncio

import pytest

from dpgateway_simulator import NotRunningError
from tests.simulator.rig import Rig, X


async def test_pod_gets_devices(rig: Rig, era: str) -> None:
    kubelet, plugin = await rig.both(era)
    does = kubelet.behaviour
    assert kubelet.counts(X) == (2, 2)
    reply = await kubelet.admit("p1", {"c": {X: 2}})
    assert reply["ok"], reply
    options = reply["containers"][0]["options"]
    assert [one["container_path"] for one in options["devices"]] == ["/dev/d0", "/dev/d1"]
    started = await kubelet.wait_for_event("container started", container="c")
    assert [one.split(":")[1] for one in started.fields["nodes"]] == ["/dev/d0", "/dev/d1"]
    assert options["annotations"].get("example.com/a") == ("yes" if does.minor >= 10 else None)
    assert bool(options["cdi_devices"]) == (does.minor >= 29)
    assert plugin.count("GetDevicePluginOptions") == (1 if does.minor >= 25 else 0)
    refused = await kubelet.admit("p2", {"c": {X: 1}})
    assert not refused["ok"]
    assert f"unavailable for {X}. Requested: 1, Available: 0" in refused["error"]
    kubelet.remove("p1")
    assert (await kubelet.admit("p2", {"c": {X: 1}}))["ok"]


async def test_unknown_pods_and_containers_are_named(rig: Rig) -> None:
    kubelet = await rig.kubelet("1.37")
    await kubelet.admit("p1", {"c": {}})
    assert (await kubelet.start_container("p2", "c"))["error"] == 'pod "p2" is not active'
    assert (await kubelet.start_container("p1", "d"))["error"] == 'pod "p1" has no container "d"'


async def test_raw_calls_reach_the_plugin(rig: Rig) -> None:
    kubelet, plugin = await rig.both("1.37")
    answer = await kubelet.allocate(X, ["d1"])
    assert answer is not None
    assert answer.envs == {"IDS": "d1"}
    assert await kubelet.prefer(X, ["d0", "d1"], [], 1) == {"d1"}
    await kubelet.pre_start(X, ["d0"])
    assert plugin.asked("PreStartContainer") == [("d0",)]
    with pytest.raises(NotRunningError, match="no plugin"):
        await kubelet.allocate("example.com/y", [])


async def test_waiting_tells_what_happened_last(rig: Rig) -> None:
    kubelet = await rig.kubelet("1.37")
    with pytest.raises(TimeoutError, match=r"last events: .*started"):
        await kubelet.wait_for(lambda: False, timeout=0)


async def test_socket_changes_keep_streams(rig: Rig) -> None:
    kubelet, plugin = await rig.both("1.37")
    inode = (kubelet.directory / "kubelet.sock").stat().st_ino
    changed = (kubelet.directory / "kubelet.sock").stat().st_ctime_ns
    while (kubelet.directory / "kubelet.sock").stat().st_ctime_ns == changed:  # the kernel's clock ticks
        kubelet.touch_socket()
        await asyncio.sleep(0)
    kubelet.rename_socket()
    assert (kubelet.directory / "kubelet.sock").stat().st_ino == inode
    await kubelet.recreate_socket()
    await rig.plugin(kubelet, "y.sock", "example.com/y").start()
    await plugin.set(d0="Unhealthy")
    assert kubelet.counts(X) == (2, 1)
    assert plugin.streams["ended"] == 0
