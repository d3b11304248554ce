"""What happens to nodes under the gateway: kubelets are upgraded, power goes, and the gateway is taken away."""

from functools import partial

import pytest

from tests.cluster.installed import NAMESPACE, pod, simulated
from tests.cluster.machine.box import until

THING = "example.com/thing"
VALUES = {"checkConfig": False, "config": {"resources": [simulated(THING, 2)]}}  # test_install checks it


@pytest.fixture
def used(cluster, chart):
    """On each node a pod has one of two devices."""
    chart.ensure(VALUES)
    for node in cluster.nodes:
        chart.until_offered(node, THING, 2)
        cluster.create(pod(f"user-{node}", node, {THING: 1}))
    return {node: container(cluster.wait_for_pod(f"user-{node}")) for node in cluster.nodes}


def container(one):
    return one["status"]["containerStatuses"][0]["containerID"]


@pytest.fixture
def own_kubelets(cluster):
    """Afterwards each node has the kubelet that it had before."""
    before = {name: node.release for name, node in cluster.nodes.items()}
    yield before
    cluster.on_each(partial(exchange, before))


def exchange(releases, node):
    if node.release != releases.get(node.name, node.release):
        if node.runs("kubelet"):  # a test that failed may have stopped it
            node.stop_kubelet()
        node.start_kubelet(releases[node.name])


def test_a_kubelet_is_upgraded_in_place_under_running_pods_and_back(cluster, chart, used, own_kubelets):
    newer = {"middle": "1.37", "old": "1.34"}
    for releases in newer, {name: own_kubelets[name] for name in newer}:
        cluster.on_each(partial(exchange, releases))
        for name, release in releases.items():
            until_version(cluster.nodes[name], release)
            chart.until_served(name)
            chart.until_offered(name, THING, 2)
            cluster.create(pod(f"{name}-under-{release}", name, {THING: 1}))
        for name, release in releases.items():
            cluster.wait_for_pod(f"{name}-under-{release}")
        cluster.until_gone(cluster.delete(*(f"{name}-under-{release}" for name, release in releases.items())))
    assert {name: container(cluster.pod(f"user-{name}")) for name in newer} == {name: used[name] for name in newer}


def test_a_node_that_lost_its_power_comes_back_with_its_devices(cluster, chart, used):
    node = cluster.nodes["new"]
    try:
        cluster.kubectl("drain", "new", "--ignore-daemonsets", "--force", "--delete-emptydir-data")
        assert cluster.pod("user-new") is None
        boot = node.object()["status"]["nodeInfo"]["bootID"]
        node.power_off()
        node.up()
        until("boot", lambda: node.object()["status"]["nodeInfo"]["bootID"] != boot and node.ready())
    finally:
        cluster.kubectl("uncordon", "new")
    chart.until_served("new")
    cluster.create(pod("both", "new", {THING: 2}))
    cluster.wait_for_pod("both")
    assert container(cluster.pod("user-old")) == used["old"]


def test_nothing_stays_on_the_nodes_but_the_pods(cluster, chart, used):
    chart.install({**VALUES, "cleanUp": True})
    for name, node in cluster.nodes.items():
        assert sorted(path.name for path in node.device_plugins_dir.iterdir()) == [
            "kubelet.sock",
            "kubelet_internal_checkpoint",
        ]
        places = ("/var/lib", "/run", "/dev", "/etc")
        ours = node.run("find", *places, "-xdev", "-name", "*dpgateway*", "-not", "-path", "*/containerd/*")
        assert ours == ""
        assert container(cluster.pod(f"user-{name}")) == used[name]
    chart.uninstall()
    kinds = "apis/apps/v1/{}/daemonsets", "api/v1/{}/configmaps", "api/v1/{}/serviceaccounts"
    paths = [f"/{kind.format(f'namespaces/{NAMESPACE}')}" for kind in kinds]
    names = [one["metadata"]["name"] for path in paths for one in cluster.control.api("GET", path)["items"]]
    assert names == ["kube-root-ca.crt", "default"]


def until_version(node, release):
    said = f"v{release}."
    until(said, lambda: node.object()["status"]["nodeInfo"]["kubeletVersion"].startswith(said))
