"""Two plugins of one resource, one plugin twice, and streams that end: the four generations."""

import grpc
import pytest

X = "example.com/x"


async def test_the_kubelet_ends_the_old_stream_up_to_1_11(rig, era):
    kubelet, old = await rig.both(era)
    await rig.plugin(kubelet, "new.sock", e0="Healthy").start()
    replaced = kubelet.behaviour.minor <= 11
    assert kubelet.counts(X) == ((3, 3) if era == "1.8" else (1, 1))
    if replaced:
        await kubelet.wait_for_event("stream ended", endpoint="x.sock")
    assert any(one.kind == "stream ended" for one in kubelet.events) == replaced
    assert old.count("ListAndWatch") == 1


@pytest.mark.parametrize("version", ["1.12", "1.24", "1.25", "1.36", "1.37"])
async def test_from_1_12_on_the_last_list_of_either_counts(rig, version):
    kubelet, old = await rig.both(version)
    new = await rig.plugin(kubelet, "new.sock", e0="Healthy").start()
    await old.set(d2="Healthy")
    assert kubelet.counts(X) == (3, 3)
    await new.set(e0="Healthy")
    assert kubelet.counts(X) == (1, 1)


@pytest.mark.parametrize(
    ("version", "counts", "ends"),
    [("1.12", (1, 1), 0), ("1.24", (1, 1), 0), ("1.25", (1, 0), 1), ("1.36", (1, 0), 1), ("1.37", (1, 1), 0)],
)
async def test_the_end_of_an_old_stream_kills_the_new_client_from_1_25_to_1_36(rig, version, counts, ends):
    kubelet, old = await rig.both(version)
    new = await rig.plugin(kubelet, "new.sock", e0="Healthy").start()
    await old.stop()
    await kubelet.wait_for_event("stream ended", endpoint="x.sock")
    await kubelet.wait_for(lambda: kubelet.counts(X) == counts)
    if ends:
        await kubelet.wait_for_event("stream ended", endpoint="new.sock")
    pods = await kubelet.admit("p1", {"c": {X: 1}})
    assert pods["ok"] == (not ends)
    assert new.count("Allocate") == (0 if ends else 1)


async def test_the_same_path_twice_is_refused_by_1_37_and_orphans_the_client(rig):
    kubelet, plugin = await rig.both("1.37")
    path = kubelet.directory / "x.sock"
    with pytest.raises(grpc.aio.AioRpcError, match=f"device plugin already connected: {path}"):
        await plugin.register()
    await plugin.stop()
    await kubelet.wait_for_event("stream ended")
    assert kubelet.counts(X) == (2, 2)
    path.unlink(missing_ok=True)
    reply = await kubelet.admit("p1", {"c": {X: 1}})
    assert f'transport: Error while dialing: dial unix {path}: connect: no such file or directory"' in reply["error"]
    other = await rig.plugin(kubelet, "y.sock").start()
    assert (await kubelet.admit("p2", {"c": {X: 1}}))["ok"]
    await other.stop()
    await kubelet.wait_for_event("stream ended", endpoint="y.sock")
    assert kubelet.counts(X) == (2, 2)


async def test_a_survivor_is_called_after_the_newest_has_gone_in_1_37(rig):
    kubelet, old = await rig.both("1.37")
    new = await rig.plugin(kubelet, "new.sock").start()
    await new.stop()
    await kubelet.wait_for_event("stream ended", endpoint="new.sock")
    assert (await kubelet.admit("p1", {"c": {X: 1}}))["ok"]
    assert old.count("Allocate") == 1
    await old.stop()
    await kubelet.wait_for(lambda: kubelet.counts(X) == (2, 0))


async def test_a_plugin_restarted_at_once_on_the_same_path_is_back(rig, era):
    kubelet, plugin = await rig.both(era)
    await plugin.stop()
    await kubelet.wait_for_event("stream ended")
    await rig.plugin(kubelet).start()
    assert kubelet.counts(X) == (2, 2)


@pytest.mark.parametrize(("version", "after"), [("1.9.7", 0), ("1.9.8", 2), ("1.10.2", 0), ("1.10.3", 2), ("1.10", 2)])
async def test_devices_stay_unhealthy_after_a_plugins_restart_in_early_patches(rig, version, after):
    """kubernetes #62773; an all-unhealthy list first is the way out."""
    kubelet, plugin = await rig.both(version)
    await plugin.stop()
    await kubelet.wait_for(lambda: kubelet.counts(X)[1] == 0)
    again = await rig.plugin(kubelet).start()
    assert kubelet.counts(X)[1] == after
    await again.set(d0="Unhealthy", d1="Unhealthy")
    await again.set(d0="Healthy", d1="Healthy")
    assert kubelet.counts(X) == (2, 2)


async def test_1_8_keeps_the_devices_of_a_replaced_plugin_and_asks_the_new_one_for_them(rig):
    kubelet = await rig.kubelet("1.8")
    await rig.plugin(kubelet, a0="Healthy").start()
    new = await rig.plugin(kubelet, "new.sock", b0="Healthy").start()
    await kubelet.admit("p1", {"c": {X: 2}})
    assert new.asked() == [("a0", "b0")]


async def test_a_dropped_stream_is_the_end_of_it(rig, era):
    kubelet, plugin = await rig.both(era)
    assert kubelet.drop_streams(X) == 1
    await kubelet.wait_for(lambda: not kubelet.counts(X)[1])
    await rig.plugin(kubelet, "y.sock").start()
    assert kubelet.counts(X) == (2, 2)
    assert plugin.count("ListAndWatch") == 1


@pytest.mark.parametrize(("version", "fits"), [("1.9", True), ("1.10", False), ("1.37", False)])
async def test_a_list_above_4_mib_ends_the_stream_from_1_10_on(rig, version, fits):
    kubelet = await rig.kubelet(version)
    plugin = rig.plugin(kubelet, **{"x" * 4_300_000: "Healthy"})
    await plugin.serve()
    await plugin.register()
    if fits:
        await kubelet.wait_for(lambda: kubelet.counts(X) == (1, 1))
        return
    ended = await kubelet.wait_for_event("stream ended")
    assert "code = ResourceExhausted desc = grpc: received message larger than max (43000" in ended.fields["reason"]
    assert await kubelet.wait_for(lambda: kubelet.counts(X) == (0, None))


async def test_a_sub_directory_and_its_sockets_survive(rig, era):
    kubelet = await rig.kubelet(era)
    (kubelet.directory / "sub").mkdir()
    plugin = await rig.plugin(kubelet, "sub/x.sock").start()
    await kubelet.restart()
    assert (kubelet.directory / "sub/x.sock").is_socket()
    await plugin.register()
    await kubelet.wait_for(lambda: kubelet.counts(X) == (2, 2))
