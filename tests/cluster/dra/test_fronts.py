"""A resource goes from one front to the other, on real nodes of 1.36 and 1.37 and under pods."""

import time
from functools import partial

from tests.cluster.dra.churn import Oracle, wanting
from tests.cluster.dra.node import CLAIMED, IDS, pod
from tests.cluster.machine.box import until
from tests.cluster.machine.cluster import WAITS


def test_a_resource_goes_to_the_device_plugin_and_back_under_pods(cluster, dra):
    cluster.create(pod("first", dra.name, {CLAIMED: 1}))
    first = dra.given("first")
    dra.change_fronts(claimed="deviceplugin")
    until("devices of a plugin alone", lambda: dra.node.allocatable(CLAIMED) == len(IDS) and not dra.devices(CLAIMED))
    cluster.create(pod("plugin", dra.name, {CLAIMED: 1}, nodeSelector=now(cluster, dra)))
    second = dra.given("plugin")
    assert not second & first
    assert not claim_of(cluster, "plugin")
    restart(cluster, "first")
    assert dra.given("first") == first

    # The scheduler subtracts the pod by DRA from what the list has: one more pod runs, and none is sent in vain.
    cluster.create(pod("last", dra.name, {CLAIMED: 1}))
    assert dra.given("last") == set(IDS) - first - second
    cluster.create(pod("waits", dra.name, {CLAIMED: 1}))
    until("too few devices", lambda: f"Insufficient {CLAIMED}" in unscheduled(cluster, "waits"))
    cluster.delete("first")  # by force: the next pod comes before the claim ends
    assert dra.given("waits") == first
    cluster.until_gone(cluster.delete("last", "waits"))

    dra.change_fronts()
    until("devices by DRA", lambda: dra.healthy(CLAIMED) == set(IDS) - second)
    until("none of a plugin", lambda: not dra.node.allocatable(CLAIMED))
    cluster.create(pod("both", dra.name, {CLAIMED: 2}, nodeSelector=now(cluster, dra)))
    assert dra.given("both") == set(IDS) - second
    assert claim_of(cluster, "both")
    restart(cluster, "plugin")
    assert dra.given("plugin") == second
    cluster.delete("plugin")
    until("the device of the pod that has ended", lambda: dra.healthy(CLAIMED) == set(IDS))


def test_a_plugin_s_device_is_given_again_once_a_pod_that_was_deleted_by_force_has_ended(cluster, dra):
    """The kubelet takes it back at once, and the pod has 2 s to end."""
    dra.change_fronts(claimed="deviceplugin")
    until("devices of a plugin alone", lambda: dra.node.allocatable(CLAIMED) == len(IDS) and not dra.devices(CLAIMED))
    make = partial(wanting, node=dra.name, resource=CLAIMED, command=WAITS)
    with Oracle(dra.node, "CLAIMED", files=False) as oracle:
        for id_ in IDS:
            cluster.create(make(id_))
        given = {id_: dra.given(id_) for id_ in IDS}
        for id_ in IDS:
            cluster.create(make(f"after-{id_}"))
            cluster.delete(id_)
            assert dra.given(f"after-{id_}") == given[id_]
    assert oracle.faults == []


def now(cluster, dra):
    """A pod's selector of the node. The scheduler finds the node only once it has seen it as it is now: from an earlier
    state it would choose the front of before.
    """
    seen = {"example.com/seen": str(time.monotonic_ns())}
    cluster.label(seen, dra.name)
    return {"kubernetes.io/hostname": dra.name, **seen}


def claim_of(cluster, name):
    """The claim that the scheduler made for the pod, if any."""
    return cluster.pod(name)["status"].get("extendedResourceClaimStatus")


def unscheduled(cluster, name):
    """Why the scheduler has no node for the pod."""
    conditions = cluster.pod(name)["status"].get("conditions", ())
    return "".join(one.get("message", "") for one in conditions if one["type"] == "PodScheduled")


def restart(cluster, name):
    """Ends the pod's container; returns when another one runs."""
    cluster.end(name)

    def restarted():
        (one,) = cluster.pod(name)["status"]["containerStatuses"]
        return one["restartCount"] == 1 and one["ready"]

    until(f"restart of {name}", restarted)
