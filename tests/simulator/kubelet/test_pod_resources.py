"""Which container has which devices, as PodResources List and the pods' directories tell it."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest

from dpgateway_simulator import Kubelet, ManualClock
from dpgateway_simulator.wire import v1
from tests.simulator.rig import Rig, X, refusal
from tests.support.waiting import until

List = Callable[..., Any]
ONE = {"c": {X: 1}}


@pytest.fixture
async def listed() -> AsyncIterator[List]:
    """Asks a kubelet, on one connection to each."""
    async with AsyncExitStack() as stack:
        channels: dict[Kubelet, grpc.aio.Channel] = {}

        async def ask(kubelet: Kubelet, api: str = "v1") -> Any:
            if kubelet not in channels:
                socket = kubelet.directory.parent / "pod-resources/kubelet.sock"
                channels[kubelet] = await stack.enter_async_context(_channel(socket))
            raw = await channels[kubelet].unary_unary(f"/{api}.PodResourcesLister/List")(b"", timeout=20)
            return v1.ListPodResourcesResponse().parse(raw).to_dict().get("podResources", [])

        yield ask


def _channel(socket: Path) -> grpc.aio.Channel:
    """With a connection of its own, though another kubelet had the same path before."""
    return grpc.aio.insecure_channel(f"unix:{socket}", options=[("grpc.use_local_subchannel_pool", 1)])


def named(pods: Any) -> dict[str, list[Any]]:
    return {f"{pod['namespace']}/{pod['name']}": [one["name"] for one in pod["containers"]] for pod in pods}


@pytest.mark.parametrize(
    ("version", "entries"),
    [
        ("1.19", [(["d0", "d1", "d2"], False)]),
        ("1.20", [(["d0", "d2"], True), (["d1"], True)]),
        ("1.37", [(["d0"], True), (["d2"], True), (["d1"], True)]),
    ],
)
async def test_entries_by_release(rig: Rig, listed: List, version: str, entries: Any) -> None:
    kubelet = await rig.kubelet(version, numa=2)
    plugin = rig.plugin(kubelet, d0="Healthy", d1="Healthy", d2="Healthy")
    plugin.nodes = {"d0": [0], "d1": [1], "d2": [0]}
    await plugin.start()
    assert (await kubelet.admit("a", {"c": {X: 3}}))["ok"]
    (pod,) = await listed(kubelet, "v1alpha1" if version == "1.19" else "v1")
    ((container,), name) = pod["containers"], pod["name"]
    assert name == "a"
    found = [(one["deviceIds"], "topology" in one) for one in container["devices"]]
    assert sorted(found) == sorted(entries)


async def test_init_containers_are_left_out(rig: Rig, listed: List) -> None:
    kubelet = await rig.kubelet("1.37")
    await rig.plugin(kubelet).start()
    sidecar = {"name": "s", "resources": {X: 1}, "restartPolicy": "Always"}
    assert (await kubelet.admit("a", ONE, [{"name": "i", "resources": {X: 1}}, sidecar]))["ok"]
    assert named(await listed(kubelet)) == {"default/a": ["s", "c"]}


async def test_releases_before_it_do_not_serve_it(rig: Rig, listed: List) -> None:
    for version, api in (("1.14", None), ("1.15", "v1alpha1"), ("1.19", "v1alpha1"), ("1.20", "v1")):
        kubelet = await rig.kubelet(version)
        socket = kubelet.directory.parent / "pod-resources/kubelet.sock"
        assert socket.exists() == (api is not None)
        if api == "v1alpha1":
            code, _ = await refusal(listed(kubelet, "v1"))
            assert code is grpc.StatusCode.UNIMPLEMENTED
        if api is not None:
            assert await listed(kubelet, api) == []
        await kubelet.kill()


async def test_refuses_calls_above_limit(rig: Rig, listed: List) -> None:
    clock = ManualClock()
    kubelet = await rig.kubelet("1.27", clock=clock)
    for _ in range(10):
        await listed(kubelet)
    assert await refusal(listed(kubelet)) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
    clock.advance(0.01)
    await listed(kubelet)


@pytest.mark.parametrize(("version", "api", "left"), [("1.15", "v1alpha1", ["a/c (deleted)"]), ("1.37", "v1", [])])
async def test_deleted_pod_is_not_listed(rig: Rig, listed: List, version: str, api: str, left: Any) -> None:
    kubelet = await rig.kubelet(version)
    await rig.plugin(kubelet, d0="Healthy").start()
    assert (await kubelet.admit("a", ONE))["ok"]
    kubelet.remove("a")
    assert kubelet.resources()[X]["devices"][0]["holders"] == ["a/c (deleted)"]
    assert await listed(kubelet, api) == []
    assert kubelet.resources()[X]["devices"][0]["holders"] == left


@pytest.mark.parametrize(("version", "left"), [("1.33", {"default/a": ["c"]}), ("1.34", {})])
async def test_finished_pod_before_1_34(rig: Rig, listed: List, version: str, left: Any) -> None:
    clock = ManualClock()
    kubelet = await rig.kubelet(version, clock=clock)
    await rig.plugin(kubelet, d0="Healthy").start()
    assert (await kubelet.admit("a", ONE))["ok"]
    assert kubelet.finish("a")["ok"]
    found = await listed(kubelet)
    assert named(found) == left
    assert [one.get("devices", []) for pod in found for one in pod["containers"]] == [[]] * len(left)
    assert kubelet.resources()[X]["devices"][0]["holders"] == []
    pods = kubelet.directory.parent / "pods"
    assert [path.name for path in pods.iterdir()] == ["a"]
    assert not kubelet.finish("a")["ok"]
    kubelet.remove("a")
    assert await listed(kubelet) == []
    clock.advance(2)
    await until(lambda: not list(pods.iterdir()))


async def test_pod_directory_until_cleanup(rig: Rig) -> None:
    clock = ManualClock()
    kubelet = await rig.kubelet("1.37", clock=clock)
    pods = kubelet.directory.parent / "pods"
    for name in "ab":
        assert (await kubelet.admit(name, {"c": {}}))["ok"]
    kubelet.remove("a")
    assert {path.name for path in pods.iterdir()} == {"a", "b"}
    (pods / "other").mkdir()
    clock.advance(2)
    await until(lambda: {path.name for path in pods.iterdir()} == {"b", "other"})


async def test_other_directory_is_no_root(tmp_path: Path) -> None:
    async with Kubelet("1.37", tmp_path / "plugins") as kubelet:
        assert (await kubelet.admit("a", {"c": {}}))["ok"]
    assert os.listdir(tmp_path) == ["plugins"]  # noqa: PTH208
