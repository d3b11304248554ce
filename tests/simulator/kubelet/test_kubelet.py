"""What a plugin's user sees of a kubelet of each era."""

import pytest

from dpgateway_simulator import ManualClock, NotRunningError, behaviour

X = "example.com/x"


async def test_a_plugin_registers_and_a_pod_gets_its_devices(rig, era):
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


async def test_pre_start_comes_at_every_start_and_1_8_allocates_again(rig, era):
    kubelet, plugin = await rig.both(era)
    await kubelet.admit("p1", {"c": {X: 1}})
    assert (await kubelet.start_container("p1", "c"))["ok"]
    assert plugin.count("PreStartContainer") == (2 if kubelet.behaviour.minor >= 10 else 0)
    assert plugin.count("Allocate") == (2 if kubelet.behaviour.minor == 8 else 1)
    assert len(set(plugin.asked())) == 1


async def test_health_moves_allocatable_and_a_missing_device_leaves_capacity(rig, era):
    kubelet, plugin = await rig.both(era)
    await plugin.set(d0="Unhealthy")
    assert kubelet.counts(X) == ((2, 1) if kubelet.behaviour.minor >= 10 else (1, 1))
    await plugin.set(d0="Healthy")
    assert kubelet.counts(X) == (2, 2)
    await plugin.set(d0=None)
    assert kubelet.counts(X) == (1, 1)


async def test_the_end_of_the_stream(rig, era):
    kubelet, plugin = await rig.both(era)
    await plugin.stop()
    await kubelet.wait_for_event("stream ended", resource=X)
    after = {8: (None, None), 9: (0, 0)}.get(kubelet.behaviour.minor, (2, 0))
    assert await kubelet.wait_for(lambda: kubelet.counts(X) == after)
    await rig.plugin(kubelet, "second.sock").start()
    assert kubelet.counts(X) == (2, 2)


async def test_a_resource_is_forgotten_after_five_minutes(rig, era):
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


async def test_a_killed_kubelet_cleans_the_directory_and_keeps_the_allocation(rig, era):
    kubelet, plugin = await rig.both(era)
    await kubelet.admit("p1", {"c": {X: 1}})
    stray, folder = kubelet.directory / "stray", kubelet.directory / "sub"
    stray.write_text("x")
    folder.mkdir()
    (folder / "kept").write_text("x")
    await kubelet.kill()
    assert (kubelet.directory / "kubelet.sock").exists()
    replies = await kubelet.restart()
    assert [(reply["pod"], reply["ok"]) for reply in replies] == [("p1", True)]
    assert not (kubelet.directory / "x.sock").exists()
    assert stray.exists() == (behaviour(era).minor >= 33)
    assert (folder / "kept").exists()
    assert kubelet.counts(X)[1] in {0, None}
    await plugin.stop()
    again = await rig.plugin(kubelet, "again.sock").start()
    assert (await kubelet.admit("p2", {"c": {X: 1}}))["ok"]
    assert {*plugin.asked(), *again.asked()} == {("d0",), ("d1",)}


async def test_stop_removes_the_socket_but_in_1_8(rig, era):
    kubelet = await rig.kubelet(era)
    await kubelet.stop()
    assert (kubelet.directory / "kubelet.sock").exists() == (era == "1.8")
    with pytest.raises(NotRunningError, match="isn't running"):
        kubelet.capacity()


async def test_an_app_container_reuses_the_devices_of_its_init_container(rig, era):
    kubelet, plugin = await rig.both(era)
    await kubelet.admit("p1", {"c": {X: 1}}, init={"i": {X: 1}})
    first, second = plugin.asked()
    assert (first == second) == (era != "1.8")


@pytest.mark.parametrize(("version", "same"), [("1.25", True), ("1.28", True), ("1.29", False), ("1.37", False)])
async def test_a_sidecar_keeps_its_devices(rig, version, same):
    kubelet, plugin = await rig.both(version)
    sidecar = {"name": "i", "restartPolicy": "Always", "resources": {X: 1}}
    assert (await kubelet.admit("p1", {"c": {X: 1}}, init=[sidecar]))["ok"]
    first, second = plugin.asked()
    assert (first == second) == same


@pytest.mark.parametrize(("version", "called"), [("1.16", False), ("1.19", True), ("1.25", True), ("1.37", True)])
async def test_preference_comes_before_allocate(rig, version, called):
    kubelet = await rig.kubelet(version)
    plugin = rig.plugin(kubelet, d0="Healthy", d1="Healthy", d2="Healthy")
    plugin.options["get_preferred_allocation_available"] = True
    await plugin.start()
    await kubelet.admit("p1", {"c": {X: 1}})
    wanted = (
        [("GetPreferredAllocation", ("d0", "d1", "d2")), ("Allocate", ("d2",))] if called else [("Allocate", ("d0",))]
    )
    assert [call for call in plugin.calls if call[0] in {"GetPreferredAllocation", "Allocate"}] == wanted


async def test_an_allocate_error_is_the_pods_and_frees_the_devices(rig, era):
    kubelet, plugin = await rig.both(era)

    async def refuse(ids):
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


async def test_a_pre_start_error_is_the_containers(rig):
    kubelet, plugin = await rig.both("1.37")

    async def refuse(ids):
        raise RuntimeError("no")

    plugin.hooks["PreStartContainer"] = refuse
    reply = await kubelet.admit("p1", {"c": {X: 1}})
    assert reply["stage"] == "start"
    assert "device plugin PreStartContainer rpc failed with err: rpc error: code = Unknown" in reply["error"]
    plugin.hooks.clear()
    assert (await kubelet.start_container("p1", "c"))["ok"]


async def test_unknown_pods_and_containers_are_named(rig):
    kubelet = await rig.kubelet("1.37")
    await kubelet.admit("p1", {"c": {}})
    assert (await kubelet.start_container("p2", "c"))["error"] == 'pod "p2" is not active'
    assert (await kubelet.start_container("p1", "d"))["error"] == 'pod "p1" has no container "d"'


async def test_raw_calls_reach_the_plugin(rig):
    kubelet, plugin = await rig.both("1.37")
    answer = await kubelet.allocate(X, ["d1"])
    assert answer is not None
    assert answer.envs == {"IDS": "d1"}
    assert await kubelet.prefer(X, ["d0", "d1"], [], 1) == {"d1"}
    await kubelet.pre_start(X, ["d0"])
    assert plugin.asked("PreStartContainer") == [("d0",)]
    with pytest.raises(NotRunningError, match="no plugin"):
        await kubelet.allocate("example.com/y", [])


async def test_waiting_tells_what_happened_last(rig):
    kubelet = await rig.kubelet("1.37")
    with pytest.raises(TimeoutError, match=r"last events: .*started"):
        await kubelet.wait_for(lambda: False, timeout=0)


async def test_kubelet_sock_can_be_touched_renamed_and_made_anew_while_streams_go_on(rig):
    kubelet, plugin = await rig.both("1.37")
    inode = (kubelet.directory / "kubelet.sock").stat().st_ino
    kubelet.touch_socket()
    kubelet.rename_socket()
    assert (kubelet.directory / "kubelet.sock").stat().st_ino == inode
    await kubelet.recreate_socket()
    await rig.plugin(kubelet, "y.sock", "example.com/y").start()
    await plugin.set(d0="Unhealthy")
    assert kubelet.counts(X) == (2, 1)
    assert plugin.streams["ended"] == 0
