"""The gateway on a whole node of the newest release: what containers really get, and what restarts do to them."""

import asyncio
import contextlib
import itertools
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from statistics import quantiles

import pytest

from dpgateway.deviceplugin.holdings.observed import ResourceHoldings
from dpgateway.deviceplugin.holdings.values import Holdings
from dpgateway.node.holders import Holder
from tests.real_kubelet.node.node import Node
from tests.real_kubelet.node.pods import FOREVER
from tests.real_kubelet.node.waiting import until
from tests.scenarios.gateway import Gateway
from tests.scenarios.kubelet import RESOURCE
from tests.support.holdings import node_holdings, run_both

ONE = {"c": {RESOURCE: 1}}
# one node at a time: two that start at once wait for one another too long
pytestmark = pytest.mark.xdist_group("node")
SIGNALS = signal.SIGTERM, signal.SIGKILL
NULL, WORLD = os.makedev(1, 3), 0o020666


@pytest.fixture
def prefix() -> Iterator[str]:
    """Of two character devices in /dev, where the simulated driver has its own."""
    name = f"dpgateway-scenario-{os.getpid()}"
    paths = [Path(f"/dev/{name}-{index}") for index in range(2)]
    for path in paths:
        os.mknod(path, WORLD, NULL)
    yield name
    for path in paths:
        path.unlink()


@pytest.fixture
async def gateway(node: Node, prefix: str, tmp_path: Path) -> AsyncIterator[Gateway]:
    """With both devices at the kubelet, one on each NUMA node."""
    gateway = Gateway(tmp_path, node.device_plugins_dir)
    gateway.runtime = {"socket": str(node.root / "containerd.sock")}
    gateway.options |= {"device_file_prefix": prefix, "annotation_prefix": "example.com/thing", "numa": [0, 1]}
    gateway.options["release"] = True
    (tmp_path / "note").write_text("from the host")
    gateway.resource["mounts"] = [{"host_path": str(tmp_path), "container_path": "/mnt/host", "read_only": True}]
    await gateway.start()
    await node.listed()
    async with gateway:
        yield gateway
        assert await gateway.end() == 0
    print("\n".join(gateway.log))  # noqa: T201 - pytest shows it when the scenario failed


async def test_a_container_gets_what_the_gateway_answers(node: Node, gateway: Gateway, prefix: str) -> None:
    await node.run_pod("a", ONE)
    container = (await node.wait_for_pod("a")).container_id("c")
    shown = await node.exec(container, "sh", "-c", f"ls /dev/{prefix}-*; cat /mnt/host/note /proc/1/environ")
    index = shown.output.splitlines()[0][-1]
    assert f"THING_node-{index}=/dev/node-{index}" in shown.output
    assert "from the host" in shown.output
    assert (await node.exec(container, "test", "-c", f"/dev/{prefix}-{index}")).status == 0
    refused = await node.exec(container, "sh", "-c", "mknod /tmp/kmsg c 1 11; head -c 1 /tmp/kmsg")
    assert "not permitted" in refused.errors
    annotations = (await node.spec(container))["annotations"]
    assert annotations[f"example.com/thing_node-{index}"] == f"/dev/node-{index}"

    # the Topology Manager saw its NUMA node
    assert 'topologyPolicyName="best-effort"' in node.kubelet_log()
    checkpoint = json.loads((node.device_plugins_dir / "kubelet_internal_checkpoint").read_text())
    [entry] = checkpoint["Data"]["PodDeviceEntries"]
    assert entry["DeviceIDs"] == {index: [f"node-{index}"]}


async def test_a_container_gets_its_cdi_device(node: Node, gateway: Gateway, tmp_path: Path) -> None:
    """By name, where it can't be had otherwise, or as what its spec has."""
    gateway.options["cdi_kind"] = "example.com/thing"
    gateway.runtime["cdi_dirs"] = [str(node.cdi_dir)]
    for pod, by_name in (("a", True), ("b", False)):
        options = ["rbind", "nosuid"] if by_name else []
        mount = {"hostPath": str(tmp_path), "containerPath": "/mnt/cdi", "options": options}
        node_of = {"path": "/dev/example-cdi", "hostPath": "/dev/null", "type": "c", "major": 1, "minor": 3}
        edits = {"env": ["CDI=yes"], "deviceNodes": [node_of], "mounts": [mount]}
        devices = [{"name": f"node-{index}", "containerEdits": edits} for index in range(2)]
        spec = {"cdiVersion": "0.5.0", "kind": "example.com/thing", "devices": devices}
        (node.cdi_dir / "example.json").write_text(json.dumps(spec))
        gateway.resource["cdi"] = "auto" if by_name else "never"
        before = node.lists
        await gateway.restart()
        await node.listed(before + 1)
        await node.run_pod(pod, ONE)
        container = (await node.wait_for_pod(pod)).container_id("c")
        shown = await node.exec(container, "sh", "-c", "test -c /dev/example-cdi && cat /mnt/cdi/note /proc/1/environ")
        assert "from the host" in shown.output
        assert "CDI=yes" in shown.output
        (mounted,) = [one for one in (await node.spec(container))["mounts"] if one["destination"] == "/mnt/cdi"]
        assert ("nosuid" in mounted["options"]) == by_name
    assert not any("it isn't known whether this container runtime" in line for line in gateway.log)


async def test_pods_live_through_restarts(node: Node, gateway: Gateway) -> None:
    """Of the kubelet, of the gateway, and of the kubelet while there is no gateway."""
    await node.run_pod("a", ONE)
    before = (await node.wait_for_pod("a")).container_id("c")
    for number in SIGNALS:
        for _ in range(3):
            await node.restart_kubelet(number)
            assert (await node.wait_for_pod("a")).container_id("c") == before
    for number, alone in itertools.product(SIGNALS, (True, False)):
        await gateway.end(number if alone else signal.SIGTERM)
        if not alone:
            await node.restart_kubelet(number)
        lists = node.lists
        await gateway.start()
        await node.listed(lists + 1)
        await node.run_pod("b", ONE)
        assert await index_of(node, "b") != await index_of(node, "a")
        assert (await node.wait_for_pod("a")).container_id("c") == before
        await node.delete_pod("b")


async def test_a_pod_with_a_finished_init_container(node: Node, gateway: Gateway) -> None:
    """It lives if the list is there when the kubelet admits it again."""
    await node.run_pod("a", ONE)
    await node.run_pod("b", ONE, init=[{"name": "i", "command": ["true"], "resources": {"limits": {RESOURCE: 1}}}])
    before = [(await node.wait_for_pod(name)).container_id("c") for name in "ab"]
    for number in SIGNALS * 3:
        await node.restart_kubelet(number, before_pods=node.listed(node.lists + 1))
        for name, container in zip("ab", before, strict=True):
            assert (await node.wait_for_pod(name)).container_id("c") == container


@pytest.fixture
async def holdings(node: Node) -> AsyncIterator[ResourceHoldings]:
    """What is known of the node beside the gateway."""
    known = node_holdings(node.device_plugins_dir, [RESOURCE])
    task = asyncio.create_task(run_both(known))
    yield known.by_resource[RESOURCE]
    task.cancel()
    await asyncio.wait([task])


async def known(holdings: ResourceHoldings, condition: Callable[[Holdings], object]) -> None:
    version = 0
    async with asyncio.timeout(30):
        while not condition(holdings.value):
            version = await holdings.wait(version)


async def test_a_pod_holds_its_device_until_it_is_deleted(
    node: Node, gateway: Gateway, holdings: ResourceHoldings
) -> None:
    await node.run_pod("a", ONE)
    await node.wait_for_pod("a")
    await known(holdings, lambda value: value.listed)
    ((device, holder),) = holdings.value.listed.items()
    assert holder == Holder("default", "a-node", "c")
    assert holdings.value.in_use == frozenset({device})
    await node.delete_pod("a")
    await known(holdings, lambda value: value.freed)
    assert holdings.value.freed == {device}
    assert holdings.value.held == frozenset({device}), "the kubelet writes that down when it next allocates"


async def test_devices_of_deleted_pods_are_soon_released(
    node: Node, gateway: Gateway, record: Callable[..., None]
) -> None:
    """Two pods at a time, ten times."""
    since_deleted: list[float] = []
    since_ended: list[float] = []
    for count in range(1, 11):
        names = [f"{letter}{count}" for letter in "ab"]
        marks = {name: f"{gateway.pid}-{name}" for name in names}
        for name, mark in marks.items():
            limits = {"limits": {RESOURCE: 1}}
            await node.run_pod(name, [{"name": "c", "resources": limits, "command": [*FOREVER, mark]}])
        indexes = {name: await index_of(node, name) for name in names}

        async def end(name: str, released: str, count: int = count, marks: dict[str, str] = marks) -> None:
            with process(await process_of(marks[name])) as ended:
                began = time.monotonic()
                deleting = asyncio.create_task(node.delete_pod(name))
                await gateway.said(released, count, 60)
                now = time.monotonic()
                since_deleted.append(now - began)
                since_ended.append(now - await ended)
                await deleting

        await asyncio.gather(*(end(name, f"released node-{index}") for name, index in indexes.items()))
    for what, seconds in {"deleted": since_deleted, "ended": since_ended}.items():
        hundredths = quantiles(seconds, n=100, method="inclusive")
        record(f"seconds from a pod {what} to its device released", "1.37", p50=hundredths[49], p99=hundredths[98])


async def test_no_release_while_containers_are_replaced(node: Node, gateway: Gateway) -> None:
    await node.run_pod("a", ONE, restartPolicy="Always")
    first = (await node.wait_for_pod("a")).container_id("c")
    await node.kill_container(first)
    second = await node.another_container("a", first)
    await node.kill_container((await node.spec(second))["annotations"]["io.kubernetes.cri.sandbox-id"])
    await node.another_container("a", second)
    assert sum(" allocated 1 device" in line for line in gateway.log) == 1
    assert released(gateway) == 0
    await node.delete_pod("a")
    await gateway.said(" released node-", seconds=60)


async def index_of(node: Node, pod: str) -> str:
    """Which of the simulated devices a pod that asks for one got."""
    container = (await node.wait_for_pod(pod)).container_id("c")
    annotations = (await node.spec(container))["annotations"]
    (name,) = [name for name in annotations if name.startswith("example.com/thing_node-")]
    return str(name[-1])


async def process_of(mark: str) -> int:
    """The process whose command line has this word; a container that has started may not have executed it yet."""

    async def there() -> int:
        marked = marked_by(mark)
        # a shell's child is a copy until it runs its command
        found = [one for one in marked if parent(one) not in {*marked, None}]
        return int(found[0]) if len(found) == 1 else 0

    return await until(f"process {mark}", there)


def marked_by(mark: str) -> set[str]:
    return {path.parent.name for path in Path("/proc").glob("[0-9]*/cmdline") if mark.encode() in words(path)}


@contextlib.contextmanager
def process(pid: int) -> Iterator[asyncio.Future[float]]:
    """When the process ends."""
    loop, descriptor = asyncio.get_running_loop(), os.pidfd_open(pid)
    ended: asyncio.Future[float] = loop.create_future()

    def note() -> None:
        loop.remove_reader(descriptor)
        ended.set_result(time.monotonic())

    loop.add_reader(descriptor, note)
    yield ended
    loop.remove_reader(descriptor)
    os.close(descriptor)


def words(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().split(b"\0")
    except OSError:  # it has ended
        return []


def parent(pid: str) -> str | None:
    """The process id of a process's parent; None if it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
    except OSError:
        return None


async def test_a_pod_that_is_deleted_while_the_gateway_is_down(node: Node, gateway: Gateway) -> None:
    await node.run_pod("a", ONE)
    index = await index_of(node, "a")
    await gateway.end()
    await node.delete_pod("a")
    assert not released(gateway)
    await gateway.start()
    # within STARTED (node/pods.py) the pod's directory might still come, and a look without a hint comes each 30 s
    await gateway.said(f"released node-{index}", seconds=120)


async def test_a_pod_that_is_deleted_while_the_kubelet_is_down(node: Node, gateway: Gateway) -> None:
    """It runs until the kubelet is back."""
    await node.run_pod("a", [{"name": "c", "resources": {"limits": {RESOURCE: 1}}, "command": [*FOREVER, "the-pod"]}])
    index = await index_of(node, "a")
    with process(await process_of("the-pod")) as ended:
        await node.stop_kubelet()
        (node.root / "manifests/a.json").unlink()
        await node.start_kubelet()
        await gateway.said(f"released node-{index}", seconds=60)
        assert ended.done(), "released while its container ran"


async def test_no_release_while_another_pod_has_a_share(node: Node, gateway: Gateway) -> None:
    gateway.options["count"], gateway.resource["shares"] = 1, 2
    before = node.lists
    await gateway.restart()
    await node.listed(before + 1)
    for name in "ab":
        await node.run_pod(name, ONE)
    for name in "ab":
        await node.wait_for_pod(name)
    await node.run_pod("c", ONE)
    assert (await node.wait_for_pod("c", "Failed")).reason == "UnexpectedAdmissionError"
    directory = node.root / "kubelet/pods" / (await node.wait_for_pod("a")).uid
    await node.delete_pod("a")
    await until("end of the pod's directory", lambda: asyncio.to_thread(lambda: not directory.exists()))
    await node.delete_pod("b")
    await gateway.said("released node-0", seconds=60)
    assert released(gateway) == 1
    await node.run_pod("d", ONE)
    await node.wait_for_pod("d")


def released(gateway: Gateway) -> int:
    return sum(" released node-" in line for line in gateway.log)
