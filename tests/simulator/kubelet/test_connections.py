"""Two plugins of one resource, one plugin twice, and streams that end: the four generations."""

import pytest

from tests.simulator.rig import Rig, X


async def test_ends_old_stream_up_to_1_11(rig: Rig, era: str) -> None:
    kubelet, old = await rig.both(era)
    await rig.plugin(kubelet, "new.sock", e0="Healthy").start()
    replaced = kubelet.behaviour.minor <= 11
    assert kubelet.counts(X) == ((3, 3) if era == "1.8" else (1, 1))
    if replaced:
        await kubelet.wait_for_event("stream ended", endpoint="x.sock")
    assert any(one.kind == "stream ended" for one in kubelet.events) == replaced
    assert old.count("ListAndWatch") == 1


@pytest.mark.parametrize("version", ["1.12", "1.24", "1.25", "1.36", "1.37"])
async def test_last_list_counts_from_1_12(rig: Rig, version: str) -> None:
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
async def test_old_stream_kills_new_client(rig: Rig, version: str, counts: tuple[int, int], ends: int) -> None:
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


async def test_restarted_plugin_is_back(rig: Rig, era: str) -> None:
    kubelet, plugin = await rig.both(era)
    await plugin.stop()
    await kubelet.wait_for_event("stream ended")
    await rig.plugin(kubelet).start()
    assert kubelet.counts(X) == (2, 2)


@pytest.mark.parametrize(("version", "after"), [("1.9.7", 0), ("1.9.8", 2), ("1.10.2", 0), ("1.10.3", 2), ("1.10", 2)])
async def test_early_patches_keep_devices_unhealthy(rig: Rig, version: str, after: int) -> None:
    """kubernetes #62773; an all-unhealthy list first is the way out."""
    kubelet, plugin = await rig.both(version)
    await plugin.stop()
    await kubelet.wait_for(lambda: kubelet.counts(X)[1] == 0)
    again = await rig.plugin(kubelet).start()
    assert kubelet.counts(X)[1] == after
    await again.set(d0="Unhealthy", d1="Unhealthy")
    await again.set(d0="Healthy", d1="Healthy")
    assert kubelet.counts(X) == (2, 2)


async def test_1_8_keeps_replaced_devices(rig: Rig) -> None:
    kubelet = await rig.kubelet("1.8")
    await rig.plugin(kubelet, a0="Healthy").start()
    new = await rig.plugin(kubelet, "new.sock", b0="Healthy").start()
    await kubelet.admit("p1", {"c": {X: 2}})
    assert new.asked() == [("a0", "b0")]


async def test_dropped_stream_ends(rig: Rig, era: str) -> None:
    kubelet, plugin = await rig.both(era)
    assert kubelet.drop_streams(X) == 1
    await kubelet.wait_for(lambda: not kubelet.counts(X)[1])
    await rig.plugin(kubelet, "y.sock").start()
    assert kubelet.counts(X) == (2, 2)
    assert plugin.count("ListAndWatch") == 1


async def test_the_end_of_the_stream(rig: Rig, era: str) -> None:
    kubelet, plugin = await rig.both(era)
    await plugin.stop()
    await kubelet.wait_for_event("stream ended", resource=X)
    after = {8: (None, None), 9: (0, 0)}.get(kubelet.behaviour.minor, (2, 0))
    assert await kubelet.wait_for(lambda: kubelet.counts(X) == after)
    await rig.plugin(kubelet, "second.sock").start()
    assert kubelet.counts(X) == (2, 2)
