"""The front for DRA on real nodes of 1.36 and 1.37: what happens to pods, and to the node under them."""

import json
import signal
import time
from functools import partial

import pytest

from tests.cluster.dra.churn import LONG, Churn, wanting
from tests.cluster.dra.node import AES, CLAIMED, EARLY, IDS, MANY, ZERO, pod
from tests.cluster.machine.box import until
from tests.cluster.machine.cluster import PODS

AGAIN = 85.0
"""Most seconds until a kubelet prepares a claim again."""


def test_pods_get_the_devices_of_each_driver_and_keep_them_when_a_container_restarts(cluster, dra):
    wanted = {"simulated": CLAIMED, "chardev": ZERO, "fpga": AES}
    for name, resource in wanted.items():
        cluster.create(pod(name, dra.name, {resource: 1}))
    before = dra.given("simulated")
    cluster.wait_for_pod("chardev")
    cluster.wait_for_pod("fpga")
    assert len(before) == 1
    cluster.kubectl("exec", "simulated", "--", "sh", "-c", f"ls /dev/claimed-{IDS.index(*before)}")
    cluster.kubectl("exec", "chardev", "--", "sh", "-c", "dd if=$(echo /dev/dpgzero*) of=/dev/null count=1")
    cluster.kubectl("exec", "fpga", "--", "dd", "if=/dev/board", "of=/dev/null", "count=1")
    assert json.loads((dra.folder / "boards" / "b0.json").read_text())["state"] == "loaded"

    cluster.end("simulated")
    until("restart", lambda: cluster.pod("simulated")["status"]["containerStatuses"][0]["restartCount"] == 1)
    assert dra.given("simulated") == before


def test_a_device_is_given_again_once_the_pod_that_had_it_has_ended(cluster, dra):
    for id_ in IDS:
        cluster.create(pod(id_, dra.name, {CLAIMED: 1}))
    given = {id_: dra.given(id_) for id_ in IDS}
    assert set.union(*given.values()) == set(IDS)
    cluster.create(pod("later", dra.name, {CLAIMED: 1}))
    cluster.control.api("DELETE", f"{PODS}/a?gracePeriodSeconds=1")
    assert dra.given("later") == given["a"]


def test_a_claim_ends_once_nothing_of_its_pod_runs(cluster, both):
    """Devices of pods that were deleted by force are given away before a kubelet asks for the end of their claims, as
    it does once a minute.
    """
    had = {}
    for dra in both:
        cluster.create(pod(one := f"one-{dra.name}", dra.name, {CLAIMED: 1}))
        had[dra] = dra.given(one)
        assert f"its pod still runs ({one})" in dra.unprepare(one)
        for id_ in IDS[1:]:
            cluster.create(pod(other := f"other-{id_}-{dra.name}", dra.name, {CLAIMED: 1}))
            assert dra.given(other).isdisjoint(had[dra])
        cluster.create(pod(f"later-{dra.name}", dra.name, {CLAIMED: 1}))
        cluster.delete(one)
    for dra in both:
        assert dra.given(f"later-{dra.name}") == had[dra]


def test_a_killed_gateway_s_successor_goes_on(cluster, dra):
    cluster.create(pod("one", dra.name, {CLAIMED: 1}))
    before, written = dra.given("one"), dra.written
    dra.kill()
    cluster.create(pod("two", dra.name, {CLAIMED: 1}))
    until("node of the pod", lambda: "nodeName" in cluster.pod("two")["spec"])  # or it may get the device of the other
    uids = cluster.delete("one")
    dra.until_told("two", "not registered", "rpc error", EARLY)
    dra.start()
    cluster.until_gone(uids)
    dra.touch("two")  # or the kubelet looks at it again only a minute later
    assert dra.given("two").isdisjoint(before)
    assert dra.written == written


def test_pods_get_devices_while_a_newer_gateway_takes_over(cluster, dra):
    cluster.create(pod("before", dra.name, {CLAIMED: 1}))
    had, written, handed = dra.given("before"), dra.written, dra.log.count("to another gateway")
    dra.start("next")
    make = partial(wanting, node=dra.name, resource=MANY)
    with Churn(cluster.control, make, per_second=20, lives=0.0, most=24) as churn:
        until("takeover", lambda: dra.log.count("to another gateway") > handed)
        dra.stop()
        cluster.create(pod("after", dra.name, {CLAIMED: 1}))
        assert dra.given("after").isdisjoint(had)
        until("all pods", lambda: len(churn.pods) == 24)
        churn.finish()
    assert (churn.refused, churn.unended) == ({}, {})
    # The API server may not know yet that the node has the pod, and so refuses the claim to its kubelet, which asks
    # again later.
    failures = churn.told("FailedPrepareDynamicResources", "FailedCreatePodSandBox")
    early = {name for name, text in failures if EARLY in text}
    assert [text for _, text in failures if EARLY not in text] == []
    assert {name: waited for name, waited in churn.slow.items() if name not in early or waited > LONG + AGAIN} == {}
    assert dra.written == written


def test_a_kubelet_that_was_killed_has_the_slices_back_and_starts_what_was_made_meanwhile(cluster, dra):
    cluster.create(pod("before", dra.name, {CLAIMED: 1}))
    had = dra.given("before")
    dra.node.stop_kubelet(signal.SIGKILL)
    cluster.create(pod("meanwhile", dra.name, {CLAIMED: 1}))
    until("node of the pod", lambda: "nodeName" in cluster.pod("meanwhile")["spec"])
    versions = dra.written.keys()
    dra.node.start_kubelet(dra.node.release)
    assert dra.given("meanwhile").isdisjoint(had)
    until("new slices: a kubelet deletes those of its node when it starts", lambda: versions.isdisjoint(dra.written))
    dra.until_published()
    assert dra.given("before") == had


def test_the_claim_of_a_pod_that_was_deleted_while_its_kubelet_was_away_ends(cluster, both):
    """The kubelet asks for its end 60 s after its start; the gateway, which says so, is sooner."""
    for dra in both:
        cluster.create(pod(old := f"old-{dra.name}", dra.name, {CLAIMED: 3}))
        assert dra.given(old) == set(IDS)
        dra.node.stop_kubelet(signal.SIGKILL)
        cluster.delete(old)
        cluster.create(pod(f"next-{dra.name}", dra.name, {CLAIMED: 3}))
    until("nodes of the pods", lambda: all("nodeName" in cluster.pod(f"next-{dra.name}")["spec"] for dra in both))
    ended = {dra: dra.log.count("because nobody else does") for dra in both}
    for dra in both:
        dra.node.start_kubelet(dra.node.release)
    until("ends", lambda: all(dra.log.count("because nobody else does") > ended[dra] for dra in both))
    for dra in both:
        dra.touch(f"next-{dra.name}")  # the kubelet may have asked for it before it knew the driver
        assert dra.given(f"next-{dra.name}") == set(IDS)


def test_a_node_that_lost_its_power_starts_the_same_pods_with_the_same_devices(cluster, dra):
    cluster.create(pod("one", dra.name, {CLAIMED: 2}))
    had = dra.given("one")
    uid = cluster.pod("one")["metadata"]["uid"]
    boot = dra.node.object()["status"]["nodeInfo"]["bootID"]
    dra.node.power_off()
    dra.node.up()
    dra.prepare()
    dra.start()
    until("boot", lambda: dra.node.object()["status"]["nodeInfo"]["bootID"] != boot and dra.node.ready())
    dra.until_published()
    until("another start", lambda: cluster.pod("one")["status"]["containerStatuses"][0]["restartCount"] > 0)
    assert dra.given("one") == had
    assert cluster.pod("one")["metadata"]["uid"] == uid


def test_a_claim_that_the_driver_refuses_is_prepared_later(cluster, dra):
    dra.fault({"call": "allocate", "error": "the board is hot"})
    cluster.create(pod("refused", dra.name, {CLAIMED: 1}))
    dra.until_told("refused", "the board is hot")
    dra.fault()
    dra.touch("refused")
    assert len(dra.given("refused")) == 1


@pytest.mark.parametrize("dra", ["new"], indirect=True)
def test_slices_outlive_a_gateway_that_is_back_soon_but_not_one_that_is_gone(cluster, dra):
    written, registered = dra.written, dra.log.count("the kubelet registered")
    dra.stop()
    dra.start()
    until("registration", lambda: dra.log.count("the kubelet registered") > registered)
    assert dra.written == written
    dra.kill()
    began = time.monotonic()
    until("end of the slices", lambda: not dra.slices)
    assert time.monotonic() - began > 25  # the kubelet waits 30 s (pkg/kubelet/cm/dra/plugin)
    dra.start()
    dra.until_published()
