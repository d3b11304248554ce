"""A cluster that gets DRA by the chart: nodes that can do it move, under pods, and come back with an older kubelet."""

from contextlib import suppress
from functools import partial

import pytest

from tests.cluster.dra.node import CLAIMS, DRIVER, pod, published
from tests.cluster.installed import simulated
from tests.cluster.machine.box import ClusterError, until
from tests.cluster.machine.cluster import PODS

THING = "example.com/thing"
COUNT = 4
LONG = 180.0
"""Seconds for a change of front: it takes half a minute, and a busy machine takes its time."""
MOVES = "new"
"""The one node that can do DRA: of the others one has an older containerd, too."""
BEFORE = {
    "updateStrategy": {"rollingUpdate": {"maxSurge": "100%"}},  # all nodes at once
    "config": {"resources": [simulated(THING, COUNT)]},
}
VALUES = BEFORE | {"dra": {"enabled": True, "driver": DRIVER}}


def wanting(cluster, name, node):
    cluster.create(pod(name, node, {THING: 1}))


def devices(cluster, *names):
    """What the environment of each of these pods says."""
    return {device for name in names for device in cluster.given(name, "THING")}


def containers(cluster):
    """The ids of all containers that run."""
    statuses = [one["status"].get("containerStatuses", ()) for one in cluster.control.api("GET", PODS)["items"]]
    return {one["containerID"] for each in statuses for one in each if one["ready"]}


def state(chart, node):
    with suppress(OSError, KeyError, TypeError, ValueError):  # its gateway isn't there just now, or knows nothing yet
        (one,) = chart.status(node)["dra"]["switches"]
        return one["state"]
    return None


def is_on(chart, node, front):
    return state(chart, node) == front


@pytest.fixture
def kubelet(cluster):
    """Exchanges the kubelet of the node that moves."""
    node = cluster.nodes[MOVES]
    own = node.release

    def exchange(release):
        if node.release != release:
            node.stop_kubelet()
            node.start_kubelet(release)
            until(f"kubelet {release}", lambda: f"v{release}." in node.object()["status"]["nodeInfo"]["kubeletVersion"])

    yield exchange
    cluster.until_gone(cluster.delete())
    exchange(own)


def test_a_node_moves_once_dra_is_enabled_and_back_with_its_kubelet(cluster, chart, kubelet):
    chart.install(BEFORE)
    for node in cluster.nodes:
        chart.until_offered(node, THING, COUNT)
        wanting(cluster, f"before-{node}", node)
    for node in cluster.nodes:
        assert len(devices(cluster, f"before-{node}")) == 1
    chart.test()

    gateways, held = chart.restarts(), containers(cluster)
    said = chart.install(VALUES)
    assert {line.rpartition(": ")[2] for line in said.splitlines() if line.startswith("  kubelet v1.37")} == {"DRA"}
    until("move", lambda: state(chart, MOVES) == "dra" and published(cluster).total() == COUNT - 1, LONG)
    for node in cluster.nodes:
        front = "dra" if node == MOVES else "plugin"
        until(f"front of {node}", partial(is_on, chart, node, front))
        assert chart.restarts()[node] != gateways[node]
        wanting(cluster, f"after-{node}", node)
    assert containers(cluster) >= held
    for node in cluster.nodes:
        assert len(devices(cluster, f"before-{node}", f"after-{node}")) == 2
    (claim,) = cluster.control.api("GET", CLAIMS)["items"]
    chart.test()

    # Without gateways the pod of that claim couldn't end.
    for end in ({"cleanUp": True}, BEFORE | {"dra": {}}):
        with pytest.raises(ClusterError, match=f"default/{claim['metadata']['name']}; expected none"):
            chart.install(VALUES | end)
    with pytest.raises(ClusterError):
        chart.run(MOVES, "dpgateway", "preflight", "--to=1.34")

    kubelet("1.34")
    until("way back", lambda: state(chart, MOVES) == "plugin", LONG)
    assert not published(cluster)
    chart.until_offered(MOVES, THING, COUNT)
    wanting(cluster, "back", MOVES)
    assert len(devices(cluster, f"before-{MOVES}", "back")) == 2
    # Its node has had a device plugin, so the older kubelet refuses the pod by DRA: it doesn't run without a device.
    # The kubelet looks for its claim once a minute, and says so after that.
    refused = partial(cluster.pod, f"after-{MOVES}")
    until("end of the pod by DRA", lambda: refused()["status"]["phase"] == "Failed", LONG)
    assert refused()["status"]["reason"] == f"OutOf{THING}"
    cluster.until_gone(cluster.delete(f"after-{MOVES}"))
    until("end of the claim", lambda: not cluster.control.api("GET", CLAIMS)["items"])
    chart.install(BEFORE)
    assert len(devices(cluster, f"before-{MOVES}", "back")) == 2
