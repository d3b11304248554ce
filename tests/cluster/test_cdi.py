"""`cdi: always` on real containers: containerd 2 injects what the specs say; for 1.6 they are expanded."""

import base64
import json
from functools import partial

import pytest

from tests.cluster.conftest import NODES
from tests.cluster.installed import pod
from tests.cluster.machine.box import until

R, DEVICE, KIND = "example.com/zero", "/dev/dpgcdi", b"dpgateway.example.com/zero=d"
KNOWS = {name: own_containerd for name, (_, own_containerd) in NODES.items()}
RESOURCE = {
    "name": R,
    "driver": "chardev",
    "options": {"paths": [DEVICE]},
    "cdi": "always",
    "env": {"GIVEN": "by the gateway"},
    "mounts": [{"host_path": "/etc", "container_path": "/node-etc"}],
}
VALUES = {
    "cdiSpecs": True,
    "runtimeSocket": "/run/containerd/containerd.sock",
    "config": {"resources": [RESOURCE]},
}


@pytest.fixture
def zeros(cluster):
    """On each node a device of its own that gives zeros."""
    for node in cluster.nodes.values():
        node.run("mknod", "-m", "666", DEVICE, "c", "1", "5")
    yield
    for node in cluster.nodes.values():
        node.run("rm", DEVICE)


def test_containers_get_the_same_from_a_runtime_that_knows_cdi_and_from_one_that_does_not(cluster, zeros, chart):
    chart.install(VALUES)
    for name in cluster.nodes:
        chart.until_offered(name, R, 1)
        cluster.create(pod(f"user-{name}", name, {R: 1}))
    for name, node in cluster.nodes.items():
        cluster.wait_for_pod(f"user-{name}")
        inside = ("exec", f"user-{name}", "--")
        cluster.kubectl(*inside, "dd", f"if={DEVICE}", "of=/dev/null", "count=1")
        assert cluster.environment(f"user-{name}")["GIVEN"] == "by the gateway"
        assert cluster.kubectl(*inside, "cat", "/node-etc/machine-id") == node.run("cat", "/etc/machine-id")
        mounts = [line.split() for line in cluster.kubectl(*inside, "cat", "/proc/mounts").splitlines()]
        assert [options.split(",")[0] for _, at, _, options, *_ in mounts if at == "/node-etc"] == ["ro"]
        assert len(specs(node)) == KNOWS[name]
        assert [KIND in told(node), b"GIVEN" in told(node)] == [KNOWS[name], not KNOWS[name]]
    cluster.until_gone(cluster.delete())
    for name, node in cluster.nodes.items():
        until(f"end of the specs on {name}", partial(gone, node))


def specs(node):
    return [file for file in node.run("ls", "-A", "/run/cdi").split() if file.endswith(".json")]


def gone(node):
    return not specs(node)


def told(node):
    """What the kubelet was answered for its containers, and remembers."""
    checkpoint = json.loads((node.device_plugins_dir / "kubelet_internal_checkpoint").read_text())
    entries = checkpoint["Data"]["PodDeviceEntries"] or []
    return b"".join(base64.b64decode(one["AllocResp"]) for one in entries if one["ResourceName"] == R)
