"""Every release's program does what that release is known to do, as far as the scenarios rely on it."""

import asyncio
import json

import grpc
import pytest

from tests.real_kubelet.conftest import RESOURCE, Plug
from tests.real_kubelet.device_manager import DeviceManager, Died
from tests.real_kubelet.node.waiting import until
from tests.real_kubelet.plugin import Plugin
from tests.real_kubelet.replies import Capacity

ONE = {"c": {RESOURCE: 1}}
TWO = {"c": {RESOURCE: 2}}
NONE_AVAILABLE = f"requested number of devices unavailable for {RESOURCE}. Requested: 1, Available: 0"


def counts(seen: Capacity) -> tuple[int | None, int | None]:
    return seen["capacity"].get(RESOURCE), seen["allocatable"].get(RESOURCE)


async def refusal(plugin: Plugin, **how: str) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await plugin.register(**how)
    return caught.value.code(), caught.value.details()


async def test_refuses_what_it_does_not_speak(kubelet: DeviceManager, plug: Plug) -> None:
    await kubelet.start()
    plugin = await plug(register=False)
    code, text = await refusal(plugin, version="v0")
    assert code is grpc.StatusCode.UNKNOWN
    if kubelet.minor == 8:
        assert text == "unsupported API version by the Kubelet registry"
    else:
        assert text.startswith('requested API version "v0" is not supported by kubelet')
    code, text = await refusal(plugin, resource="nodomain")
    assert (code, "is invalid" in text) == (grpc.StatusCode.UNKNOWN, True)
    other = Plugin("v1alpha2" if kubelet.minor >= 10 else "v1beta1", RESOURCE, kubelet.directory)
    code, text = await refusal(other)
    assert code is grpc.StatusCode.UNIMPLEMENTED
    assert text == f"unknown service {other.package}.Registration"


async def test_gives_devices_to_a_container(kubelet: DeviceManager, plug: Plug) -> None:
    await kubelet.start()
    plugin = await plug()
    plugin.cdi = {"d0": "example.com/thing=d0"}
    admitted = await kubelet.admit("p1", TWO)
    assert admitted["ok"], admitted
    options = admitted["containers"][0]["options"]
    assert options is not None
    assert [node["container_path"] for node in options["devices"]] == ["/dev/example-d1"]
    assert options["mounts"][0]["host_path"] == "/tmp"
    assert options["mounts"][0]["read_only"]
    assert options["envs"] == ({"DEVICES_d0": "d0", "DEVICES_d1": "d1"} if kubelet.minor == 8 else {"DEVICES": "d0,d1"})
    assert options["annotations"].get("devices.example.com") == ("d0,d1" if kubelet.minor >= 10 else None)
    assert options["cdi_devices"] == (["example.com/thing=d0"] if kubelet.minor >= 31 else [])
    assert plugin.user_agent.startswith("grpc-go/")


async def test_asks_again_at_each_start_of_a_container(kubelet: DeviceManager, plug: Plug) -> None:
    await kubelet.start()
    plugin = await plug()
    await kubelet.admit("p1", TWO)
    assert (await kubelet.start_container("p1", "c"))["ok"]
    assert len(plugin.of("PreStartContainer")) == (2 if kubelet.minor >= 10 else 0)
    assert len(plugin.of("Allocate")) == (2 if kubelet.minor == 8 else 1)
    assert len(plugin.of("GetDevicePluginOptions")) == (1 if kubelet.minor >= 25 else 0)


async def test_has_no_more_devices_than_are_free(kubelet: DeviceManager, plug: Plug) -> None:
    await kubelet.start()
    await plug()
    await kubelet.admit("p1", TWO)
    refused = await kubelet.admit("p2", ONE)
    assert not refused["ok"]
    assert NONE_AVAILABLE in refused["error"]
    await kubelet.remove("p1")
    assert (await kubelet.admit("p2", ONE))["ok"]


async def test_reuses_the_device_of_an_init_container(kubelet: DeviceManager, plug: Plug) -> None:
    await kubelet.start()
    plugin = await plug()
    assert (await kubelet.admit("p1", ONE, init={"i": {RESOURCE: 1}}))["ok"]
    first, second = plugin.of("Allocate")
    assert (first == second) == (kubelet.minor >= 9)


async def test_counts_what_is_listed(kubelet: DeviceManager, plug: Plug) -> None:
    await kubelet.start()
    plugin = await plug()
    await plugin.set(d0="Unhealthy")
    await kubelet.wait_for(lambda seen: counts(seen) == ((2, 1) if kubelet.minor >= 10 else (1, 1)))
    await plugin.set(d0="Healthy")
    await kubelet.wait_for(lambda seen: counts(seen) == (2, 2))
    await plugin.set(d0=None)
    await kubelet.wait_for(lambda seen: counts(seen) == (1, 1))


async def test_knows_no_devices_without_a_stream(kubelet: DeviceManager, plug: Plug) -> None:
    await kubelet.start()
    await (await plug()).stop()
    await kubelet.wait_for(lambda seen: counts(seen) == {8: (None, None), 9: (0, 0)}.get(kubelet.minor, (2, 0)))
    await plug("second.sock")
    assert (await kubelet.admit("p1", ONE))["ok"]


async def noted(kubelet: DeviceManager) -> None:
    """Until it has written its devices down: a kubelet does so beside its admissions, and may undo their note."""

    async def there() -> bool:
        try:
            written = kubelet.checkpoint() or {}
        except json.JSONDecodeError:  # 1.9 writes in place
            return False
        return kubelet.minor < 9 or RESOURCE in (written.get("Data", written).get("RegisteredDevices") or {})

    await until("devices in the checkpoint", there)


async def test_remembers_over_a_restart(kubelet: DeviceManager, plug: Plug) -> None:
    await kubelet.start()
    first = await plug()
    await noted(kubelet)
    assert (await kubelet.admit("p1", ONE))["ok"]
    await kubelet.kill()
    assert (kubelet.directory / "plugin.sock").exists()
    await kubelet.start(sources_ready=False, running=["p1/c"])
    assert counts(await kubelet.capacity()) in ([(0, 0)] if kubelet.minor >= 10 else [(0, 0), (None, None)])
    assert (await kubelet.admit("p1", ONE, start=False))["ok"]
    await first.stop()
    second = await plug("second.sock")
    await kubelet.sources_ready()
    assert (await kubelet.admit("p2", ONE))["ok"]
    assert sorted(first.of("Allocate") + second.of("Allocate")) == [["d0"], ["d1"]]
    assert (await kubelet.start_container("p1", "c"))["ok"]
    assert await kubelet.stop()


async def test_cleans_its_directory(kubelet: DeviceManager, plug: Plug) -> None:
    await kubelet.start()
    await plug()
    await noted(kubelet)
    await kubelet.admit("p1", ONE)
    stray, nested = kubelet.directory / "stray", kubelet.directory / "folder" / "nested"
    nested.parent.mkdir()
    for path in (stray, nested):
        path.write_text("x")
    await kubelet.kill()
    await kubelet.start()
    assert not (kubelet.directory / "plugin.sock").exists()
    assert nested.exists()
    assert kubelet.checkpoint()
    assert stray.exists() == (kubelet.minor >= 33)


async def test_fails_what_the_plugin_fails(kubelet: DeviceManager, plug: Plug) -> None:
    async def refuse(_ids: list[str]) -> None:
        raise ValueError("not today")

    await kubelet.start()
    plugin = await plug()
    plugin.hooks = {"Allocate": refuse}
    refused = await kubelet.admit("p1", ONE)
    assert refused["stage"] == ("start" if kubelet.minor == 8 else "admit")
    assert "not today" in refused["error"]
    plugin.hooks = {"PreStartContainer": refuse}
    admitted = await kubelet.admit("p2", ONE)
    assert admitted["ok"] == (kubelet.minor < 10)
    assert kubelet.minor < 10 or "PreStartContainer rpc failed" in admitted["error"]


async def test_counts_while_an_allocate_hangs(kubelet: DeviceManager, plug: Plug) -> None:
    go = asyncio.Event()

    async def hang(_ids: list[str]) -> None:
        await go.wait()

    await kubelet.start()
    plugin = await plug()
    plugin.hooks = {"Allocate": hang}
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        admission = group.create_task(kubelet.admit("p1", ONE), name="admission")
        await plugin.wait_for("Allocate")
        assert (await kubelet.capacity())["capacity"] == {RESOURCE: 2}
        go.set()
    assert admission.result()["ok"]


async def test_keeps_devices_on_one_numa_node(kubelet: DeviceManager, plug: Plug) -> None:
    await kubelet.start(policy="single-numa-node", numa=2)
    plugin = await plug(register=False)
    plugin.numa = {"d0": [0], "d1": [1]}
    await plugin.register()
    await kubelet.wait_for(lambda seen: counts(seen) == (2, 2))
    admitted = await kubelet.admit("p1", TWO)
    if kubelet.minor < 24:  # these programs have no Topology Manager
        assert admitted["ok"]
    else:
        assert admitted["reason"] == "TopologyAffinityError"
    assert (await kubelet.admit("p2", ONE))["ok"] == (kubelet.minor >= 24)


async def test_its_end_is_told(kubelet: DeviceManager, plug: Plug) -> None:
    """From 1.34 on a kubelet panics when an id leaves the list during its own Allocate."""
    await kubelet.start()
    plugin = await plug()

    async def vanish(ids: list[str]) -> None:
        await plugin.set(**dict.fromkeys(ids))
        await kubelet.wait_for(lambda seen: counts(seen) == (1, 1))

    plugin.hooks = {"Allocate": vanish}
    if kubelet.minor >= 34:
        with pytest.raises(Died, match="panic: runtime error: invalid memory address"):
            await kubelet.admit("p1", ONE)
        assert not kubelet.running
    else:
        assert (await kubelet.admit("p1", ONE))["ok"]
