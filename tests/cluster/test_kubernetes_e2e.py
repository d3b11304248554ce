"""What Kubernetes' own tests of device plugins (test/e2e_node) do with a sample plugin, done with the gateway on nodes
of three releases. docs/design/kubernetes-e2e.md says which case is which test.
"""

import json
import signal
from functools import partial

import pytest

from tests.cluster.installed import NAMESPACE, pod, simulated
from tests.cluster.machine.box import ClusterError, until
from tests.cluster.machine.cluster import WAIT
from tests.cluster.machine.node import Node

THING = "example.com/thing"
HEALTH = "example.com/health"
"""No other test uses it: what the kubelet's checkpoint still names stays listed, and would be counted."""
VALUES = {"checkConfig": False, "config": {"resources": [simulated(THING, 2)]}}  # test_install checks it
SAY = "tr '\\0' '\\n' </proc/1/environ | grep ^THING_; echo said"
"""A shell drops variables with a `-` in their names, so they aren't in its own environment."""
UNTIL_TOLD = f"{SAY}; {WAIT}"
"""A container writes its devices into its log, and ends once it is told its exit code."""
FAULTS = "/var/lib/dpgateway/faults.json"


@pytest.fixture
def offered(cluster, chart):
    """On each node there are two devices."""
    offer(cluster, chart, VALUES)


@pytest.fixture
def used(cluster, offered):
    """On each node a pod has one of them: the devices, and the container's id."""
    return start(cluster, "user")


def offer(cluster, chart, values):
    chart.ensure(values)
    for node in cluster.nodes:
        chart.until_offered(node, THING, 2)


def start(cluster, name, command=UNTIL_TOLD, *, resource=THING, count=1, phase="Running", **more):
    """One such pod on each node."""
    for node in cluster.nodes:
        one = pod(f"{name}-{node}", node, {resource: count})
        one["spec"]["containers"][0]["command"] = ["sh", "-c", command]
        one["spec"] |= more
        cluster.create(one)
    return {node: had(cluster, f"{name}-{node}", phase) for node in cluster.nodes}


def had(cluster, name, phase="Running"):
    (status,) = cluster.wait_for_pod(name, phase=phase)["status"]["containerStatuses"]
    found = devices(cluster, name)
    assert found
    return found, status["containerID"]


def devices(cluster, name, container="c"):
    """What the container that runs now, or ran last, has written of its devices."""
    path = f"/api/v1/namespaces/default/pods/{name}/log?container={container}"

    def said():
        lines = str(cluster.control.api("GET", path)).splitlines()
        return lines if "said" in lines else None

    return {line.partition("=")[0] for line in until(f"words of {name}", said) if line.startswith("THING_")}


def started_again(cluster, name, times):
    (status,) = cluster.pod(name)["status"]["containerStatuses"]
    return status["restartCount"] == times and status["ready"]


def restart_kubelets(cluster, chart=None, between=lambda: None, number=signal.SIGTERM):
    cluster.on_each(lambda node: node.stop_kubelet(number))
    between()
    cluster.on_each(lambda node: node.start_kubelet(node.release))
    for name in cluster.nodes if chart else ():
        chart.until_served(name)


def remove_gateways(cluster, chart):
    """As when they crash; returns when there are others."""
    old = chart.uids()
    cluster.kubectl("delete", "pods", "--namespace", NAMESPACE, "--all", "--force", "--grace-period=0")
    until("new gateways", lambda: len(chart.pods()) == len(old) and not old & chart.uids())
    for node in cluster.nodes:
        chart.until_served(node)


def holds(chart, node, name):
    return name in str(chart.status(node)["resources"])


def test_a_container_that_starts_again_has_its_device(cluster, chart, used):
    for times in (1, 2):
        for node in cluster.nodes:
            cluster.end(f"user-{node}")
        for node, (had_before, _) in used.items():
            until("another start", partial(started_again, cluster, f"user-{node}", times))
            assert devices(cluster, f"user-{node}") == had_before
        if times == 1:
            before = {node: had(cluster, f"user-{node}") for node in cluster.nodes}
            restart_kubelets(cluster, chart, number=signal.SIGKILL)
            start(cluster, "later")
            assert {node: had(cluster, f"user-{node}") for node in cluster.nodes} == before
    for node in cluster.nodes:
        until("holder", partial(holds, chart, node, f"user-{node}"))


def test_pods_keep_their_devices_when_the_gateway_and_the_kubelet_are_restarted(cluster, chart, used):
    remove_gateways(cluster, chart)
    second = start(cluster, "second")
    restart_kubelets(cluster)
    remove_gateways(cluster, chart)
    for node in cluster.nodes:
        assert had(cluster, f"user-{node}") == used[node]
        assert had(cluster, f"second-{node}") == second[node]
        assert not used[node][0] & second[node][0]


def test_the_device_of_a_pod_that_is_deleted_while_the_kubelet_is_down_is_free(cluster, chart, used):
    deleted = set()
    restart_kubelets(cluster, chart, lambda: deleted.update(cluster.delete()))
    assert [cluster.pod(f"user-{node}") for node in cluster.nodes] == [None] * len(cluster.nodes)
    cluster.until_gone(deleted)
    both = start(cluster, "both", count=2)
    assert [len(found) for found, _ in both.values()] == [2] * len(cluster.nodes)


def test_a_restartable_init_container_has_the_device_of_the_init_container(cluster, chart, offered):
    for node in cluster.nodes:
        one = pod(f"user-{node}", node, {THING: 1})
        container = one["spec"]["containers"][0] | {"command": ["sh", "-c", UNTIL_TOLD]}
        first = container | {"name": "first", "command": ["sh", "-c", SAY]}
        one["spec"]["initContainers"] = [first, container | {"name": "beside", "restartPolicy": "Always"}]
        one["spec"]["containers"] = [container]
        cluster.create(one)
    for node in cluster.nodes:
        cluster.wait_for_pod(f"user-{node}")
        first, beside, app = (devices(cluster, f"user-{node}", name) for name in ("first", "beside", "c"))
        assert (len(first), len(app)) == (1, 1)
        assert first == beside != app


def test_a_gateway_that_never_gets_ready_takes_nothing_over_and_is_rolled_back(cluster, chart, used):
    before = chart.uids()
    broken = {"env": [{"name": "DPGATEWAY_CONFIG", "value": "/nowhere/config.yaml"}]}
    with pytest.raises(ClusterError, match=r"not ready|deadline"):
        chart.install(VALUES | broken, "--timeout=15s")
    start(cluster, "meanwhile")
    cluster.until_gone(cluster.delete(*(f"meanwhile-{node}" for node in cluster.nodes)))
    chart.roll_back()
    until("the gateways of before", lambda: chart.uids() == before)
    start(cluster, "after")
    for node in cluster.nodes:
        assert had(cluster, f"user-{node}") == used[node]


def test_a_pod_that_has_succeeded_frees_its_device_and_stays_so_without_a_gateway(cluster, chart, offered):
    start(cluster, "done", SAY, phase="Succeeded", restartPolicy="Never")
    both = start(cluster, "both", count=2, restartPolicy="Never")
    assert [len(found) for found, _ in both.values()] == [2] * len(cluster.nodes)
    for node in cluster.nodes:
        until("other holder", partial(holds, chart, node, f"both-{node}"))
        assert not holds(chart, node, f"done-{node}")
    chart.clear()
    for node in cluster.nodes:
        chart.until_offered(node, THING, 0)
    restart_kubelets(cluster)
    for node in cluster.nodes:
        cluster.create(pod(f"later-{node}", node))
        cluster.wait_for_pod(f"later-{node}")  # so the kubelet has looked at the pods that there were
        assert cluster.pod(f"done-{node}")["status"]["phase"] == "Succeeded"
        assert had(cluster, f"both-{node}") == both[node]


def test_after_a_boot_a_pod_that_comes_before_the_gateway_fails_and_the_next_one_has_a_device(cluster, chart):
    """The node has its pods from the API server, but not yet a gateway: it is for nodes with a label."""
    cluster.label({"example.com/gateway": "yes"})
    offer(cluster, chart, VALUES | {"nodeSelector": {"example.com/gateway": "yes"}})
    start(cluster, "user")
    cluster.on_each(Node.power_off)
    cluster.label({"example.com/gateway": "no"})
    until("end of the gateways", lambda: not chart.pods())
    cluster.on_each(Node.up)
    for node in cluster.nodes:
        failed = cluster.wait_for_pod(f"user-{node}", phase="Failed")["status"]
        assert failed["reason"] == "UnexpectedAdmissionError"
    cluster.label({"example.com/gateway": "yes"})
    until("gateways", lambda: len(chart.pods()) == len(cluster.nodes))
    for node in cluster.nodes:
        chart.until_served(node)
    both = start(cluster, "both", count=2)
    assert [len(found) for found, _ in both.values()] == [2] * len(cluster.nodes)


def test_a_pods_status_says_how_its_device_is(cluster, chart):
    """The newest kubelet says so (ResourceHealthStatus, beta in 1.36); each node counts what is Healthy."""
    resource = simulated(HEALTH, 1)
    resource["options"]["control_file"] = FAULTS
    chart.install({"checkConfig": False, "config": {"resources": [resource]}})
    for node in cluster.nodes:
        chart.until_offered(node, HEALTH, 1)
    start(cluster, "user", resource=HEALTH, restartPolicy="Never")
    until_said(cluster, "Healthy")
    fault(cluster, {"faults": [{"unhealthy": "overheated"}]})
    until_said(cluster, "Unhealthy")
    for node, one in cluster.nodes.items():
        chart.until_offered(node, HEALTH, 0)
        assert int(one.object()["status"]["capacity"][HEALTH]) == 1
    fault(cluster, {})
    until_said(cluster, "Healthy")
    for node in cluster.nodes:
        chart.until_offered(node, HEALTH, 1)
    fault(cluster, {"faults": [{"unhealthy": "overheated"}]})
    until_said(cluster, "Unhealthy")
    cluster.end("user-new", code=1)
    cluster.wait_for_pod("user-new", phase="Failed")
    until_said(cluster, "Unhealthy")


def fault(cluster, content):
    for node in cluster.nodes.values():
        node.run("sh", "-c", f"cat >{FAULTS}.new && mv {FAULTS}.new {FAULTS}", input=json.dumps(content))


def until_said(cluster, health):
    def said():
        (status,) = cluster.pod("user-new")["status"]["containerStatuses"]
        found = [one["health"] for kind in status.get("allocatedResourcesStatus", ()) for one in kind["resources"]]
        return found == [health]

    until(f"a status that says {health}", said)
