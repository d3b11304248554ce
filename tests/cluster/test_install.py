"""The chart on a cluster of mixed versions: resources come, pods get their devices, changes reach the gateways."""

import json
from contextlib import ExitStack
from functools import partial

import pytest

from tests.cluster.dra.churn import Oracle, wanting
from tests.cluster.installed import FOLDER, pod, simulated
from tests.cluster.machine.box import ClusterError, until
from tests.cluster.machine.cluster import WAITS

THING, ZERO = "example.com/thing", "example.com/zero"
BOTH = [simulated(THING, 2), {"name": ZERO, "driver": "chardev", "options": {"paths": ["/dev/zero"]}}]
BROKEN = {"name": THING, "driver": "simulated", "options": {"count": "two"}}


def test_each_node_offers_its_devices_and_pods_get_them(cluster, chart):
    chart.install({"config": {"resources": BOTH}})
    for node in cluster.nodes:
        chart.until_offered(node, THING, 2)
        chart.until_offered(node, ZERO, 1)
        cluster.create(pod(f"user-{node}", node, {THING: 1, ZERO: 1}))
    for node in cluster.nodes:
        assert cluster.given(f"user-{node}", "THING") != set()
        cluster.kubectl("exec", f"user-{node}", "--", "dd", "if=/dev/zero", "of=/dev/null", "count=1")
        until(f"holder on {node}", partial(says_holder, chart, node, f"user-{node}"))
    assert "is valid" in chart.test()


def test_a_changed_configuration_is_taken_over_without_a_restart_and_a_wrong_one_is_not(cluster, chart):
    chart.install({"config": {"resources": [simulated(THING, 1)]}})
    for node in cluster.nodes:
        chart.until_offered(node, THING, 1)
    before = chart.restarts()
    chart.install({"config": {"resources": [simulated(THING, 3)]}})
    for node in cluster.nodes:
        chart.until_offered(node, THING, 3)
    with pytest.raises(ClusterError, match=r"gateway\.yaml:\d+: resources\[0\]\.options\.count[^$]*pre-upgrade"):
        chart.install({"config": {"resources": [BROKEN | {"nodes": ["somewhere-else"]}]}})
    chart.install({"config": {"resources": [BROKEN]}, "checkConfig": False})
    with pytest.raises(ClusterError, match=r"gateway\.yaml:\d+: resources\[0\]\.options\.count"):
        chart.test()
    for node in cluster.nodes:
        until_refused(chart, node, "options.count")
        assert cluster.nodes[node].allocatable(THING) == 3
    assert chart.restarts() == before


def says_holder(chart, node, pod):
    """Whether the gateway names the pod as a holder of both resources: it hears of a pod after the kubelet has it."""
    found = json.loads(chart.run(node, "dpgateway", "status", "--output", "json"))["resources"]
    return [pod in str(one["devices"]) for one in found] == [True, True]


def until_refused(chart, node, key):
    until(f"refusal on {node}", lambda: key in str(chart.status(node)["reloads"]["refusal"]))


def test_a_node_moves_to_a_profile_and_to_another_one_and_the_others_keep_their_devices(cluster, chart):
    # Nobody takes over what the node's new gateway hasn't: the old one serves it on for as long as it lingers.
    values = {"lingerSeconds": 5, "config": {"resources": [simulated(THING, 1)]}}
    chart.install(values)
    few, many = ({"config": {"resources": [simulated(name, 1)]}} for name in ("example.com/few", "example.com/many"))
    profiles = {
        "few": few | {"nodeSelector": {"example.com/kind": "few"}},
        "many": many | {"nodeSelector": {"example.com/kind": "many"}},
    }
    cluster.label({"example.com/kind": "few"}, "new")
    chart.install(values | {"profiles": profiles})
    chart.until_offered("new", "example.com/few", 1)
    chart.until_offered("new", THING, 0)
    for node in ("middle", "old"):
        chart.until_offered(node, THING, 1)
        assert not cluster.nodes[node].allocatable("example.com/few")  # 0 for five minutes after an earlier test
    cluster.label({"example.com/kind": "few"}, "middle", "old")
    for node in ("middle", "old"):
        chart.until_offered(node, "example.com/few", 1)
    cluster.label({"example.com/kind": "many"}, "new")
    chart.until_offered("new", "example.com/many", 1)
    chart.until_offered("middle", "example.com/few", 1)
    # Nothing orders the end of one DaemonSet's pod and the start of another's: both may be there for a moment.
    until("profiles of the nodes", lambda: components(chart) == {"new": "many", "middle": "few", "old": "few"})


def components(chart):
    return {node: one["metadata"]["labels"]["app.kubernetes.io/component"] for node, one in chart.pods().items()}


def test_helm_says_why_the_gateways_pods_would_be_refused(cluster, chart):
    chart.clear()
    cluster.kubectl("create", "namespace", "narrow")
    try:
        cluster.kubectl("label", "namespace", "narrow", "pod-security.kubernetes.io/enforce=baseline")
        with pytest.raises(ClusterError, match=r'violates PodSecurity "baseline:latest": hostPath volumes'):
            cluster.helm("install", "narrow", FOLDER, "--namespace=narrow", "--timeout=30s")
        assert cluster.kubectl("get", "daemonsets", "--namespace=narrow", "--output=name") == ""
    finally:
        cluster.kubectl("delete", "namespace", "narrow")


def test_a_device_of_a_pod_that_was_deleted_by_force_waits_for_its_end(cluster, chart):
    """The kubelet takes it back at once, and the pod has 2 s to end. The gateway sees no runtime."""
    values = {"checkConfig": False, "config": {"resources": [simulated(THING, 1)]}}
    chart.ensure(values)
    with ExitStack() as looking:
        oracles = [looking.enter_context(Oracle(node, "THING", files=False)) for node in cluster.nodes.values()]
        for node in cluster.nodes:
            chart.until_offered(node, THING, 1)
            cluster.create(wanting(f"first-{node}", node=node, resource=THING, command=WAITS))
        for node in cluster.nodes:
            cluster.wait_for_pod(f"first-{node}")
            cluster.create(wanting(f"next-{node}", node=node, resource=THING, command=WAITS))
            cluster.delete(f"first-{node}")
        for node in cluster.nodes:
            cluster.wait_for_pod(f"next-{node}")
    assert [oracle.faults for oracle in oracles] == [[], [], []]


def test_in_the_hosts_network_another_image_takes_over_while_pods_keep_their_devices(cluster, chart):
    """The old gateway has the port."""
    web = {"listen": "127.0.0.1:9480"}
    values = {"hostNetwork": True, "config": {"web": web, "resources": [simulated(THING, 2)]}}
    chart.install(values)
    for node in cluster.nodes:
        chart.until_offered(node, THING, 2)
        cluster.create(pod(f"user-{node}", node, {THING: 1}))
    held = {node: cluster.wait_for_pod(f"user-{node}")["status"]["containerStatuses"] for node in cluster.nodes}
    before = chart.uids()
    chart.install(values | {"checkConfig": False, "podAnnotations": {"example.com/rolled": "out"}})
    after = chart.uids()
    assert not before & after
    for node in cluster.nodes:
        cluster.create(pod(f"later-{node}", node, {THING: 1}))
        cluster.wait_for_pod(f"later-{node}")
        assert cluster.pod(f"user-{node}")["status"]["containerStatuses"] == held[node]
    cluster.until_gone(cluster.delete())
    broken = {"checkConfig": False, "env": [{"name": "DPGATEWAY_CONFIG", "value": "/nowhere"}]}
    with pytest.raises(ClusterError, match=r"not ready|deadline"):
        chart.install(values | broken, "--timeout=15s")
    assert after < chart.uids()
    for name, node in cluster.nodes.items():
        until("pages", partial(says_ready, node))
        cluster.create(pod(f"user-{name}", name, {THING: 1}))
        cluster.wait_for_pod(f"user-{name}")


def says_ready(node):
    try:
        return '"ready": true' in node.run("busybox", "wget", "-q", "-O-", "http://127.0.0.1:9480/readyz")
    except ClusterError:  # the new gateway hasn't got the port yet
        return False
