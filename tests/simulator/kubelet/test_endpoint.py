"""Dialling a plugin, and following its lists."""

import asyncio

import pytest

from dpgateway_simulator import ManualClock
from dpgateway_simulator.wire.sockets import bound
from tests.simulator.rig import UNKNOWN, Rig, X, refusal


async def test_a_plugin_that_is_not_served(rig: Rig, era: str) -> None:
    """From 1.25 on Register waits 10 seconds for it; before, it is accepted and nothing comes of it."""
    clock = ManualClock()
    kubelet = await rig.kubelet(era, clock=clock)
    registering = asyncio.create_task(rig.plugin(kubelet).register())
    if kubelet.behaviour.blocking_dial:
        await kubelet.wait_for_event("dialling")
        clock.advance(10)
    if kubelet.behaviour.synchronous:
        text = "failed to dial device plugin: context deadline exceeded"
        assert await refusal(registering) == (UNKNOWN, text)
    else:
        await registering
    await kubelet.wait_for(lambda: any(one.kind in {"stream ended", "registration failed"} for one in kubelet.events))
    assert await kubelet.wait_for(lambda: kubelet.counts(X) == ((0, 0) if era == "1.9" else (None, None)))


async def test_late_plugin_is_dialled(rig: Rig) -> None:
    clock = ManualClock()
    kubelet = await rig.kubelet("1.37", clock=clock)
    plugin = rig.plugin(kubelet)
    registering = asyncio.create_task(plugin.register())
    await kubelet.wait_for_event("dialling")
    await plugin.serve()
    clock.advance(1)
    await registering
    await kubelet.wait_for(lambda: kubelet.counts(X) == (2, 2))


async def test_silent_plugin_is_not_connected(rig: Rig) -> None:
    clock = ManualClock()
    kubelet = await rig.kubelet("1.37", clock=clock)
    with bound(kubelet.directory / "x.sock") as silent:
        silent.listen()
        registering = asyncio.create_task(rig.plugin(kubelet).register())
        await kubelet.wait_for_event("dialling")
        clock.advance(10)
        assert (await refusal(registering))[1] == "failed to dial device plugin: context deadline exceeded"


async def test_too_long_name_is_not_dialled(rig: Rig) -> None:
    clock = ManualClock()
    kubelet = await rig.kubelet("1.8", clock=clock)
    plugin = rig.plugin(kubelet, "x" * 76)
    await plugin.register()
    ended = await kubelet.wait_for_event("stream ended")
    assert ended.fields["reason"].endswith('connect: invalid argument"')


@pytest.mark.parametrize(("version", "fits"), [("1.9", True), ("1.10", False), ("1.37", False)])
async def test_large_list_ends_the_stream(rig: Rig, version: str, fits: bool) -> None:
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
