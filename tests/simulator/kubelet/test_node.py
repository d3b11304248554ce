"""What a kubelet can be told to do wrong or late."""

import asyncio

import grpc
import pytest

from dpgateway_simulator import ManualClock
from tests.simulator.rig import Rig, X, refusal


async def test_refusing_and_stalling_on_demand(rig: Rig) -> None:
    kubelet = await rig.kubelet("1.37")
    plugin = await rig.plugin(kubelet).serve()
    kubelet.misbehaviour.refuse_register("not today", "UNAVAILABLE", resource=X)
    assert await refusal(plugin.register()) == (grpc.StatusCode.UNAVAILABLE, "not today")
    kubelet.misbehaviour.behave()
    kubelet.misbehaviour.stall_register(X)
    since = len(kubelet.events)
    registering = asyncio.create_task(plugin.register())
    await kubelet.wait_for_event("register", since)
    await rig.plugin(kubelet, "y.sock", "example.com/y").start()
    assert kubelet.counts(X) == (None, None)
    kubelet.misbehaviour.behave()
    await registering
    await kubelet.wait_for(lambda: kubelet.counts(X) == (2, 2))


async def test_socket_before_listening(rig: Rig) -> None:
    clock = ManualClock()
    kubelet = await rig.kubelet("1.37", clock=clock)
    await kubelet.stop()
    kubelet.misbehaviour.late_listen = 2
    since = len(kubelet.events)
    starting = asyncio.create_task(kubelet.start())
    await kubelet.wait_for_event("socket created", since)
    assert (kubelet.directory / "kubelet.sock").is_socket()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_unix_connection(kubelet.directory / "kubelet.sock")
    clock.advance(2)
    await starting
    _, writer = await asyncio.open_unix_connection(kubelet.directory / "kubelet.sock")
    writer.close()


async def test_a_register_may_take_its_time(rig: Rig) -> None:
    clock = ManualClock()
    kubelet = await rig.kubelet("1.37", clock=clock)
    plugin = await rig.plugin(kubelet).serve()
    kubelet.misbehaviour.register_delay = 2
    since = len(kubelet.events)
    registering = asyncio.create_task(plugin.register())
    await kubelet.wait_for_event("register", since)
    clock.advance(1)
    assert kubelet.counts(X) == (None, None)
    clock.advance(1)
    await registering
    await kubelet.wait_for(lambda: kubelet.counts(X) == (2, 2))
