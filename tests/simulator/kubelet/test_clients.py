"""Registration from 1.25 on: clients, options and deadlines."""

import asyncio

import grpc
import pytest

from tests.simulator.rig import UNKNOWN, Rig, X, refusal


async def test_options_that_fail(rig: Rig) -> None:
    kubelet = await rig.kubelet("1.25")
    plugin = await rig.plugin(kubelet).serve()

    async def fail(ids: tuple[str, ...]) -> None:
        raise RuntimeError("boom")

    plugin.hooks["GetDevicePluginOptions"] = fail
    code, text = await refusal(plugin.register())
    assert code is UNKNOWN
    assert text is not None
    assert text.startswith("failed to get device plugin options: rpc error: code = Unknown desc = ")


@pytest.mark.parametrize(("version", "pre_starts"), [("1.24", 0), ("1.25", 1)])
async def test_register_options_up_to_1_24(rig: Rig, version: str, pre_starts: int) -> None:
    kubelet = await rig.kubelet(version)
    plugin = rig.plugin(kubelet)
    plugin.options["pre_start_required"] = False
    await plugin.serve()
    since = len(kubelet.events)

    async def change(ids: tuple[str, ...]) -> None:
        plugin.options["pre_start_required"] = True

    plugin.hooks["GetDevicePluginOptions"] = change
    await plugin.register()
    await kubelet.wait_for_event("list received", since)
    await kubelet.admit("p1", {"c": {X: 1}})
    assert plugin.count("PreStartContainer") == pre_starts


@pytest.mark.parametrize(("version", "goes_on"), [("1.34", True), ("1.35", False)])
async def test_caller_gives_up_from_1_35(rig: Rig, version: str, goes_on: bool) -> None:
    kubelet = await rig.kubelet(version)
    plugin = await rig.plugin(kubelet).serve()
    asked, answer = asyncio.Event(), asyncio.Event()

    async def wait(ids: tuple[str, ...]) -> None:
        asked.set()
        await answer.wait()

    plugin.hooks["GetDevicePluginOptions"] = wait
    registering = asyncio.create_task(plugin.register())
    await asked.wait()
    registering.cancel()
    await asyncio.wait({registering})
    if not goes_on:
        await kubelet.wait_for_event("register given up", resource=X)
    answer.set()
    if goes_on:
        await kubelet.wait_for(lambda: kubelet.counts(X) == (2, 2))
    assert kubelet.counts(X) == ((2, 2) if goes_on else (None, None))


@pytest.mark.parametrize(("version", "hands_on"), [("1.34", False), ("1.35", True), ("1.37", True)])
async def test_callers_deadline_from_1_35(rig: Rig, version: str, hands_on: bool) -> None:
    plugin = await rig.plugin(await rig.kubelet(version)).start()
    assert (plugin.seconds is not None) == hands_on
    assert plugin.seconds is None or plugin.seconds <= 20.5


async def test_refuses_same_path_in_1_37(rig: Rig) -> None:
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


async def test_survivor_is_called_in_1_37(rig: Rig) -> None:
    kubelet, old = await rig.both("1.37")
    new = await rig.plugin(kubelet, "new.sock").start()
    await new.stop()
    await kubelet.wait_for_event("stream ended", endpoint="new.sock")
    assert (await kubelet.admit("p1", {"c": {X: 1}}))["ok"]
    assert old.count("Allocate") == 1
    await old.stop()
    await kubelet.wait_for(lambda: kubelet.counts(X) == (2, 0))
