"""The chart with DRA on a cluster of mixed versions: one set of pods, whatever front a node has."""

import json
import threading
from typing import Any

import pytest

from tests.cluster.dra.node import CLAIMS, DRIVER, EARLY, pod, published
from tests.cluster.installed import NAMESPACE, simulated
from tests.cluster.machine.box import ClusterError, until

THING = "example.com/thing"
NODE = "new"
"""It gets devices by DRA, the others by the device plugin."""
COUNT = 4
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
FAILURES = {"FailedPrepareDynamicResources", "UnexpectedAdmissionError", "FailedCreatePodSandBox"}


def profile(front):
    resource = simulated(THING, COUNT) | {"front": front}
    return {"nodeSelector": {"example.com/kind": front}, "config": {"resources": [resource]}}


VALUES: dict[str, Any] = {
    "checkConfig": False,  # once is enough: before the last change
    "dra": {"enabled": True, "driver": DRIVER},
    "events": {"enabled": True},
    "profiles": {front: profile(front) for front in ("dra", "deviceplugin")},
}


def device_of(cluster, name):
    (device,) = cluster.given(name, "THING")
    return device


def failures(cluster):
    """The pods that failed so far, also in earlier tests, and why, unless it is the API server's own doing."""
    found = [one for one in cluster.control.api("GET", EVENTS)["items"] if one["reason"] in FAILURES]
    return {(one["regarding"]["name"], one["note"]) for one in found if EARLY not in one["note"]}


@pytest.fixture
def installed(cluster, chart):
    for node in cluster.nodes:
        front = "dra" if node == NODE else "deviceplugin"
        cluster.label({"example.com/kind": front}, node)
    chart.install(VALUES)
    until("slices", lambda: len(published(cluster)) == COUNT)
    for node in set(cluster.nodes) - {NODE}:
        chart.until_offered(node, THING, COUNT)
    yield chart
    cluster.until_gone(cluster.delete())


def test_the_same_pods_get_their_devices_by_either_front(cluster, installed):
    names = {node: [f"{node}-{number}" for number in range(COUNT)] for node in cluster.nodes}
    for node, some in names.items():
        for name in some:
            cluster.create(pod(name, node, {THING: 1}))
    for some in names.values():
        assert len({device_of(cluster, name) for name in some}) == COUNT
    # Those of an earlier test's pods may be there for a moment yet.
    until("a claim for each pod by DRA", lambda: len(cluster.control.api("GET", CLAIMS)["items"]) == COUNT)

    # The account may write the slices of its own node alone: the policy refuses another one's.
    account = f"system:serviceaccount:{NAMESPACE}:dpgateway"
    made = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "stolen"},
        "spec": {"driver": DRIVER, "nodeName": NODE, "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}},
    }
    with pytest.raises(ClusterError, match="ValidatingAdmissionPolicy"):
        cluster.kubectl("create", f"--as={account}", "--filename=-", input=json.dumps(made))


def test_another_image_takes_over_while_pods_come_and_go(cluster, installed):
    earlier = failures(cluster)
    cluster.create(pod("stays", NODE, {THING: 1}))
    held = device_of(cluster, "stays")
    over, refused = threading.Event(), []

    def churn(who):
        number = 0
        while not over.is_set():
            name = f"churn-{who}-{(number := number + 1)}"
            cluster.create(pod(name, NODE, {THING: 1}))
            try:
                cluster.wait_for_pod(name)
            except ClusterError as error:
                refused.append(f"{error}\n{cluster.kubectl('describe', 'pod', name)}")
            cluster.delete(name)

    churning = [threading.Thread(target=churn, args=(who,)) for who in "ab"]
    for one in churning:
        one.start()
    try:
        before = installed.uids()
        installed.install(VALUES | {"podAnnotations": {"example.com/rolled": "out"}})
        until("end of the old gateways", lambda: not before & installed.uids())
    finally:
        over.set()
        for one in churning:
            one.join()
    assert refused == []
    assert failures(cluster) <= earlier
    assert device_of(cluster, "stays") == held
    assert len(published(cluster)) == COUNT


def test_nothing_is_offered_before_it_is_uninstalled(cluster, installed):
    cluster.create(pod("stays", NODE, {THING: 1}))
    device_of(cluster, "stays")
    installed.install(VALUES | {"checkConfig": True, "dra": VALUES["dra"] | {"withdraw": True}})
    until("no device in slices", lambda: not published(cluster))
    cluster.until_gone(cluster.delete("stays"))
    installed.uninstall()
