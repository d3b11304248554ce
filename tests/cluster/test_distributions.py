"""The chart on nodes whose paths are those of k0s and k3s, with the preset and the values of how-to/distributions.md.

Only the paths are theirs: the kubelet and containerd are built from the sources of Kubernetes and of containerd.
"""

from functools import partial

import pytest

from tests.cluster.dra.node import CLAIMS, DRIVER, claim, claiming, request
from tests.cluster.dra.node import pod as scheduled
from tests.cluster.installed import FOLDER, NAMESPACE, Chart, pod
from tests.cluster.machine.box import ClusterError, until
from tests.cluster.machine.cluster import Cluster
from tests.cluster.machine.node import Paths

pytestmark = pytest.mark.xdist_group("a cluster with other paths")

NODES = {"k0s": ("1.37", True), "k3s": ("1.37", True)}
PATHS = {
    "k0s": Paths("/var/lib/k0s/kubelet", "/run/k0s/containerd.sock", "/run/k0s/containerd"),
    "k3s": Paths(socket="/run/k3s/containerd/containerd.sock", state="/run/k3s/containerd"),
}
PRESET = FOLDER / "presets" / "k0s.yaml"
PLAIN, THING = "example.com/plain", "example.com/thing"
COUNT = 2
SOON = 30.0
"""Seconds. A gateway that sees neither the pods' directories nor the runtime takes 35 s to free a device."""


def resource(name, front):
    options = {"count": COUNT, "env_prefix": name.rpartition("/")[2].upper()}
    return {"name": name, "driver": "simulated", "front": front, "options": options}


VALUES = {
    "runtimeSocket": PATHS["k0s"].socket,
    "dra": {"enabled": True, "driver": DRIVER},
    "config": {"resources": [resource(PLAIN, "deviceplugin"), resource(THING, "dra")]},
    "profiles": {
        "k3s": {
            "nodeSelector": {"kubernetes.io/hostname": "k3s"},
            "kubeletDir": PATHS["k3s"].root_dir,
            "runtimeSocket": PATHS["k3s"].socket,
        }
    },
    "lingerSeconds": 1,  # so that it is soon uninstalled
}
WRONG = {
    "nodeSelector": {"kubernetes.io/hostname": "k0s"},
    "runtimeSocket": "/run/crio/crio.sock",
    "config": {"resources": [resource(PLAIN, "deviceplugin")]},
    "checkConfig": False,
}
"""For a node as kubeadm makes it, with another runtime."""


@pytest.fixture(scope="module")
def cluster(image):
    made = Cluster(NODES, PATHS)
    made.up()
    made.load(image)
    yield made
    made.down()


@pytest.fixture(scope="module")
def release(cluster):
    return Chart(cluster)


def holders(chart, node):
    """The names of the pods that have a device by the device plugin; None for one that the kubelet doesn't name."""
    (found,) = [one for one in chart.status(node)["resources"] if one["name"] == PLAIN]
    held = [one["holders"] or [{"pod": None}] for one in found["devices"] if one["held"]]
    return {holder["pod"] for some in held for holder in some}


def has_holders(chart, node, *names):
    return holders(chart, node) == set(names)


def test_pods_get_their_devices_by_both_fronts_and_nothing_stays(cluster, chart):
    chart.install(VALUES, f"--values={PRESET}")
    for node in cluster.nodes:
        chart.until_offered(node, PLAIN, COUNT)
        cluster.control.api("POST", CLAIMS, claim(f"claim-{node}", request(THING)))
        for one in (
            pod(f"plain-{node}", node, {PLAIN: 1}),
            scheduled(f"thing-{node}", node, {THING: 1}),
            claiming(f"claiming-{node}", node, claim=f"claim-{node}"),
        ):
            cluster.create(one)
    for node in cluster.nodes:
        assert len(cluster.given(f"plain-{node}", "PLAIN")) == 1
        by_dra = [cluster.given(f"{name}-{node}", "THING") for name in ("thing", "claiming")]
        assert len(set.union(*by_dra)) == COUNT
        until("holder", partial(has_holders, chart, node, f"plain-{node}"))

    # It sees the pods' directories, PodResources and the runtime where these nodes have them.
    said = chart.test()
    assert said.count("nothing is in the gateway's way on this node") == len(cluster.nodes)
    assert said.count("container runtime: containerd ") == len(cluster.nodes)

    uids = cluster.delete()
    for node in cluster.nodes:
        until(f"free devices on {node}", partial(has_holders, chart, node), SOON)
        cluster.control.api("DELETE", f"{CLAIMS}/claim-{node}")
    cluster.until_gone(uids)
    until("end of the claims", lambda: not cluster.control.api("GET", CLAIMS)["items"])

    chart.install(VALUES | {"cleanUp": True}, f"--values={PRESET}")
    for name, node in cluster.nodes.items():
        folders = [f"{PATHS[name].root_dir}/{one}" for one in ("plugins", "plugins_registry")]
        assert node.run("find", *folders, "-mindepth", "1") == ""


def test_values_of_another_node_are_named(cluster, chart):
    with pytest.raises(ClusterError, match=r"not ready|deadline"):
        chart.install(WRONG, "--timeout=10s")
    for directory in ("/var/lib/kubelet/pods", "/run/crio"):
        text = f"{directory} is not a directory"
        until(text, partial(is_told, cluster, "hostPath type check failed", text))

    # These may be left of another kubelet and runtime, so that the pods start.
    cluster.nodes["k0s"].run("mkdir", "-p", "/var/lib/kubelet/pods", "/run/crio")
    with pytest.raises(ClusterError) as said:
        chart.test()
    for text in (
        "the kubelet's --root-dir is another one: /var/lib/kubelet/pods hasn't the pod",
        "no container runtime answers at /run/crio/crio.sock",
    ):
        assert text in str(said.value)


def is_told(cluster, *texts):
    """Whether an event of the gateways' pods has all of these."""
    events = cluster.control.api("GET", f"/api/v1/namespaces/{NAMESPACE}/events")["items"]
    return any(all(text in one["message"] for text in texts) for one in events)
