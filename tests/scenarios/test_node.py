"""The gateway on a whole node of the newest release: what containers really get, and what restarts do to them."""

import json
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.real_kubelet.node.node import Node
from tests.real_kubelet.node.waiting import until
from tests.scenarios.gateway import Gateway
from tests.scenarios.kubelet import RESOURCE

ONE = {"c": {RESOURCE: 1}}
# one node at a time: two that start at once wait for one another too long
pytestmark = pytest.mark.xdist_group("node")
LISTED = "Processed device updates for resource"  # in the kubelet's log
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
async def node() -> AsyncIterator[Node]:
    folder = Path(tempfile.mkdtemp(prefix="scenario-"))
    async with Node(folder / "node") as node:
        yield node
    shutil.rmtree(folder)


@pytest.fixture
async def gateway(node: Node, prefix: str, tmp_path: Path) -> AsyncIterator[Gateway]:
    """With both devices at the kubelet, one on each NUMA node."""
    gateway = Gateway(tmp_path, node.device_plugins_dir)
    gateway.options |= {"device_file_prefix": prefix, "annotation_prefix": "example.com/thing", "numa": [0, 1]}
    (tmp_path / "note").write_text("from the host")
    gateway.resource["mounts"] = [{"host_path": str(tmp_path), "container_path": "/mnt/host", "read_only": True}]
    await gateway.start()
    await listed(node)
    async with gateway:
        yield gateway
        assert await gateway.end() == 0
    print("\n".join(gateway.log))  # noqa: T201 - pytest shows it when the scenario failed


async def listed(node: Node, before: int = 0) -> None:
    async def there() -> bool:
        return node.kubelet_log().count(LISTED) > before

    await until("list of devices at the kubelet", there)


async def test_a_container_gets_what_the_gateway_answers(node: Node, gateway: Gateway, prefix: str) -> None:
    await node.run_pod("a", ONE)
    container = (await node.wait_for_pod("a")).container_id("c")
    shown = await node.exec(container, "sh", "-c", f"ls /dev/{prefix}-*; cat /mnt/host/note /proc/1/environ")
    index = shown.output.splitlines()[0][-1]
    assert f"THING_node-{index}=/dev/node-{index}" in shown.output
    assert "from the host" in shown.output
    annotations = (await node.spec(container))["annotations"]
    assert annotations[f"example.com/thing_node-{index}"] == f"/dev/node-{index}"


async def test_a_container_gets_its_cdi_device(node: Node, gateway: Gateway) -> None:
    edits = {"env": ["CDI=yes"], "deviceNodes": [{"path": "/dev/example-cdi", "hostPath": "/dev/null"}]}
    devices = [{"name": f"node-{index}", "containerEdits": edits} for index in range(2)]
    spec = {"cdiVersion": "0.5.0", "kind": "example.com/thing", "devices": devices}
    (node.cdi_dir / "example.json").write_text(json.dumps(spec))
    gateway.options["cdi_kind"] = "example.com/thing"
    before = node.kubelet_log().count(LISTED)
    await gateway.restart()
    await listed(node, before)
    await node.run_pod("a", ONE)
    container = (await node.wait_for_pod("a")).container_id("c")
    shown = await node.exec(container, "sh", "-c", "test -c /dev/example-cdi && cat /proc/1/environ")
    assert "CDI=yes" in shown.output


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_pods_live_through_restarts(node: Node, gateway: Gateway, number: signal.Signals) -> None:
    await node.run_pod("a", ONE)
    before = (await node.wait_for_pod("a")).container_id("c")
    for _ in range(3):
        await node.restart_kubelet(number)
        assert (await node.wait_for_pod("a")).container_id("c") == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a_pod_with_a_finished_init_container(node: Node, gateway: Gateway, number: signal.Signals) -> None:
    """It lives if the list is there when the kubelet admits it again."""
    await node.run_pod("a", ONE)
    await node.run_pod("b", ONE, init=[{"name": "i", "command": ["true"], "resources": {"limits": {RESOURCE: 1}}}])
    before = [(await node.wait_for_pod(name)).container_id("c") for name in "ab"]
    for _ in range(3):
        lists = node.kubelet_log().count(LISTED)
        await node.restart_kubelet(number, before_pods=listed(node, lists))
        for name, container in zip("ab", before, strict=True):
            assert (await node.wait_for_pod(name)).container_id("c") == container


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_pods_live_through_restarts_of_the_gateway(node: Node, gateway: Gateway, number: signal.Signals) -> None:
    await node.run_pod("a", ONE)
    before = (await node.wait_for_pod("a")).container_id("c")
    await gateway.end(number)
    seen = node.kubelet_log().count(LISTED)
    await gateway.start()
    await listed(node, seen)
    await node.run_pod("b", ONE)
    await node.wait_for_pod("b")
    assert (await node.wait_for_pod("a")).container_id("c") == before
