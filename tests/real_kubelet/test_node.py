"""The whole node works: what a plugin answers is what a container gets."""

import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.real_kubelet.node.node import Node
from tests.real_kubelet.node.waiting import until
from tests.real_kubelet.plugin import Plugin

RESOURCE = "example.com/thing"
# one node at a time: two that start at once wait for one another too long
pytestmark = pytest.mark.xdist_group("node")
LISTED = "Processed device updates for resource"  # in the kubelet's log
ONE = {"c": {RESOURCE: 1}}


@pytest.fixture
async def node(short_path: Path) -> AsyncIterator[Node]:
    async with Node(short_path / "node") as node:
        yield node


@pytest.fixture
async def plugin(node: Node, tmp_path: Path) -> AsyncIterator[Plugin]:
    """A plugin whose list the kubelet has."""
    plugin = Plugin("v1beta1", RESOURCE, node.device_plugins_dir)
    plugin.numa = {"d0": [0], "d1": [1]}
    plugin.mount = str(tmp_path)
    await plugin.serve()
    await register(node, plugin)
    yield plugin
    await plugin.stop()


async def register(node: Node, plugin: Plugin) -> None:
    known = len(plugin.of("ListAndWatch"))
    told = node.kubelet_log().count(LISTED)
    await plugin.register()
    await plugin.wait_for("ListAndWatch", known + 1)

    async def listed() -> bool:
        return node.kubelet_log().count(LISTED) > told

    await until("list of the plugin at the kubelet", listed)


async def test_a_container_gets_what_the_plugin_answers(node: Node, plugin: Plugin, tmp_path: Path) -> None:
    (tmp_path / "note").write_text("from the host")
    await node.run_pod("a", ONE)
    container = (await node.wait_for_pod("a")).container_id("c")
    [held] = plugin.of("Allocate")[0]
    assert [name for name, _ in plugin.calls] == [
        "GetDevicePluginOptions", "ListAndWatch", "Allocate", "PreStartContainer"
    ]  # fmt: skip
    shown = await node.exec(container, "sh", "-c", "cat /mnt/devices/note; tr '\\0' '\\n' < /proc/1/environ")
    assert "from the host" in shown.output
    assert f"DEVICES={held}" in shown.output
    assert (await node.exec(container, "test", "-c", f"/dev/example-{held}")).status == 0
    refused = await node.exec(container, "sh", "-c", "mknod /tmp/kmsg c 1 11; head -c 1 /tmp/kmsg")
    assert "not permitted" in refused.errors
    assert (await node.spec(container))["annotations"]["devices.example.com"] == held


async def test_topology_manager_sees_numa_nodes(node: Node, plugin: Plugin) -> None:
    await node.run_pod("a", ONE)
    await node.wait_for_pod("a")
    assert 'topologyPolicyName="best-effort"' in node.kubelet_log()
    checkpoint = json.loads((node.device_plugins_dir / "kubelet_internal_checkpoint").read_text())
    [entry] = checkpoint["Data"]["PodDeviceEntries"]
    [held] = plugin.of("Allocate")[0]
    assert entry["DeviceIDs"] == {str(plugin.numa[held][0]): [held]}


async def test_a_container_gets_its_cdi_device(node: Node, plugin: Plugin) -> None:
    edits = {"env": ["CDI=yes"], "deviceNodes": [{"path": "/dev/example-cdi", "hostPath": "/dev/null"}]}
    spec = {"cdiVersion": "0.5.0", "kind": "example.com/thing", "devices": [{"name": "it", "containerEdits": edits}]}
    (node.cdi_dir / "example.json").write_text(json.dumps(spec))
    plugin.cdi = dict.fromkeys(plugin.devices, "example.com/thing=it")
    await node.run_pod("a", ONE)
    container = (await node.wait_for_pod("a")).container_id("c")
    shown = await node.exec(container, "sh", "-c", "test -c /dev/example-cdi && cat /proc/1/environ")
    assert "CDI=yes" in shown.output


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_pods_live_through_a_restart_of_the_kubelet(node: Node, plugin: Plugin, number: signal.Signals) -> None:
    await node.run_pod("a", ONE)
    before = (await node.wait_for_pod("a")).container_id("c")
    await plugin.stop()
    await node.restart_kubelet(number)
    await plugin.serve()
    await register(node, plugin)
    assert (await node.wait_for_pod("a")).container_id("c") == before
    await node.run_pod("b", ONE)
    await node.wait_for_pod("b")
    first, second = plugin.of("Allocate")
    assert first != second


async def test_prepares_at_each_start_of_a_container(node: Node, plugin: Plugin) -> None:
    await node.run_pod("a", ONE, restartPolicy="Always")
    container = (await node.wait_for_pod("a")).container_id("c")
    await node.kill_container(container)
    await plugin.wait_for("PreStartContainer", 2, timeout=30)
    assert len(plugin.of("Allocate")) == 1


async def test_refuses_a_pod_without_a_free_device(node: Node, plugin: Plugin) -> None:
    await node.run_pod("a", {"c": {RESOURCE: 2}})
    await node.wait_for_pod("a")
    await node.run_pod("b", ONE)
    assert (await node.wait_for_pod("b", "Failed")).reason == "UnexpectedAdmissionError"
    await node.delete_pod("a")
    await node.run_pod("c", ONE)
    await node.wait_for_pod("c")
