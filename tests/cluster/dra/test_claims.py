"""What pods and people may ask of the front for DRA, on real nodes of 1.36 and 1.37, and what they are told."""

import itertools

import pytest

from tests.cluster.dra.node import (
    AES,
    CHOSEN,
    CLAIMED,
    CLAIMS,
    DRIVER,
    FFT,
    IDS,
    MANY,
    QUOTAS,
    RULES,
    SHARED,
    TEMPLATES,
    ZERO,
    claim,
    claiming,
    class_of,
    container,
    has_id,
    pod,
    request,
    with_function,
)
from tests.cluster.dra.second import SecondDriver
from tests.cluster.machine.box import ClusterError, until
from tests.cluster.machine.cluster import PODS

ADMIN = {"resource.kubernetes.io/admin-access": "true"}

# extended resources


def test_each_container_has_devices_of_its_own_but_an_init_container_shares(cluster, dra):
    two = [container("one", {CLAIMED: 1}), container("two", {CLAIMED: 2, ZERO: 1})]
    init = [container("init", {CLAIMED: 1}, ["sh", "-c", "env | grep ^CLAIMED_ >/tmp/x && cat /tmp/x"])]
    cluster.create(pod("both", dra.name, containers=two, initContainers=init))
    one, other = dra.given("both", "one"), dra.given("both", "two")
    assert (len(one), len(other), one | other) == (1, 2, set(IDS))
    said = cluster.kubectl("logs", "both", "--container=init")
    assert {line.partition("=")[0].removeprefix("CLAIMED_") for line in said.split()} <= one | other
    assert "/dev/dpgzero" in cluster.kubectl("exec", "both", "--container=two", "--", "sh", "-c", "echo /dev/dpgzero*")


def test_a_pod_can_have_32_devices_and_no_more(cluster, dra):
    cluster.create(pod("most", dra.name, {MANY: 32}))
    assert len(dra.given("most", prefix="MANY")) == 32
    cluster.create(pod("more", dra.name, {MANY: 33}))
    dra.until_told("more", "exceeds the claim limit of 32")


def test_a_class_can_be_asked_for_by_its_implicit_name(cluster, dra):
    cluster.create(pod("one", dra.name, {f"deviceclass.resource.kubernetes.io/{class_of(CLAIMED)}": 1}))
    assert len(dra.given("one")) == 1
    status = cluster.pod("one")["status"]["extendedResourceClaimStatus"]
    assert [one["containerName"] for one in status["requestMappings"]] == ["c"]


def test_shares_are_given_to_as_many_pods(cluster, dra):
    """One after the other: the scheduler adds a claim's capacity twice while it knows the claim and has it in flight
    (GatherAllocatedState in dra_manager.go, 1.37.1), so a pod may wait for a free share until anything else changes.
    """
    for number in range(3):
        cluster.create(pod(f"p{number}", dra.name, {SHARED: 1}))
        dra.until_run(f"p{number}", count=1)
    assert running(cluster) == {"p0", "p1", "p2"}
    assert [dra.given(one, prefix="SHARED") for one in running(cluster)] == [{"s"}] * 3
    cluster.create(pod("p3", dra.name, {SHARED: 1}))
    dra.until_told("p3", "cannot allocate all claims")


def test_one_board_isn_t_given_under_two_names(cluster, dra):
    cluster.create(pod("aes", dra.name, {AES: 1}))
    cluster.wait_for_pod("aes")
    for name, resource in ("fft", FFT), ("later", AES):
        cluster.create(pod(name, dra.name, {resource: 1}))
        dra.until_told(name, "cannot allocate all claims")
    # They take turns. Of a pod that is deleted by force the board would be given away before its claim has ended.
    cluster.control.api("DELETE", f"{PODS}/aes?gracePeriodSeconds=1")
    dra.until_run("fft", "later", count=1)
    (second,) = running(cluster) & {"fft", "later"}  # the scheduler's choice
    (third,) = {"fft", "later"} - {second}
    cluster.control.api("DELETE", f"{PODS}/{second}?gracePeriodSeconds=1")
    cluster.wait_for_pod(third)


@pytest.mark.parametrize("dra", ["new"], indirect=True)
def test_a_quota_counts_pods_by_dra(cluster, dra):
    spec = {"hard": {f"requests.{CLAIMED}": "2"}}
    path = f"{QUOTAS}/devices"
    cluster.control.api("POST", QUOTAS, {"metadata": {"name": "devices"}, "spec": spec})

    def used():
        return cluster.control.api("GET", path).get("status", {}).get("used", {}).get(f"requests.{CLAIMED}")

    def counts():
        """Whether the API server's own admission, too, knows the quota by now."""
        try:
            cluster.control.api("POST", f"{PODS}?dryRun=All", pod("all", dra.name, {CLAIMED: 3}))
        except ClusterError as error:
            return "exceeded quota" in str(error)
        return False

    until("quota", counts)
    cluster.create(pod("both", dra.name, {CLAIMED: 2}))
    with pytest.raises(ClusterError, match=r"exceeded quota: devices, requested: requests.example.com/claimed=1"):
        cluster.create(pod("more", dra.name, {CLAIMED: 1}))
    assert len(dra.given("both")) == 2
    cluster.delete("both")
    until("quota", lambda: used() == "0")


# claims by hand


def test_pods_share_a_claim(cluster, dra):
    name = f"shared-on-{dra.name}"
    cluster.control.api("POST", CLAIMS, claim(name, request(CLAIMED)))
    for one in "one", "two":
        cluster.create(claiming(one, dra.name, claim=name))
    assert dra.given("one") == dra.given("two")
    cluster.until_gone(cluster.delete("one"))
    cluster.create(claiming("three", dra.name, claim=name))
    assert dra.given("three") == dra.given("two")


def test_a_device_is_chosen_by_what_it_is(cluster, dra):
    cluster.control.api("POST", TEMPLATES, template("b", request(CLAIMED, has_id("b"))))
    cluster.create(claiming("one", dra.name, template="b"))
    assert dra.given("one") == {"b"}


def test_the_second_alternative_is_given_when_there_is_nothing_of_the_first(cluster, dra):
    alternatives = [request(CLAIMED, has_id("none"), name="best"), request(CLAIMED, has_id("c"), name="other")]
    subrequests = [{"name": one["name"], **one["exactly"]} for one in alternatives]
    cluster.control.api("POST", TEMPLATES, template("two", {"name": "r", "firstAvailable": subrequests}))
    cluster.create(claiming("one", dra.name, template="two"))
    assert dra.given("one") == {"c"}


def test_all_devices_of_a_class(cluster, dra):
    cluster.control.api("POST", TEMPLATES, template("all", request(CLAIMED, allocationMode="All")))
    cluster.create(claiming("one", dra.name, template="all"))
    assert dra.given("one") == set(IDS)


def test_a_claim_chooses_a_board_s_function(cluster, dra):
    for name, function in ("right", CHOSEN), ("wrong", "unknown"):
        made = with_function(claim(f"{name}-on-{dra.name}", request(AES)), function)
        cluster.control.api("POST", CLAIMS, made)
    cluster.create(claiming("right", dra.name, claim=f"right-on-{dra.name}"))
    assert cluster.environment("right")["FPGA_BITSTREAM"] == CHOSEN
    cluster.until_gone(cluster.delete("right"))
    cluster.create(claiming("wrong", dra.name, claim=f"wrong-on-{dra.name}"))
    dra.until_told("wrong", "unknown")


def test_a_claim_for_monitoring_sees_devices_that_others_have(cluster, dra):
    cluster.create(pod("holder", dra.name, {CLAIMED: 3}))
    assert dra.given("holder") == set(IDS)
    asked = request(CLAIMED, allocationMode="All", adminAccess=True)
    with pytest.raises(ClusterError, match=r"admin access to devices requires the .* label"):
        cluster.control.api("POST", CLAIMS, claim("watching", asked))
    space = f"monitoring-{dra.name}"
    cluster.control.api("POST", "/api/v1/namespaces", {"metadata": {"name": space, "labels": ADMIN}})
    path = f"/api/v1/namespaces/{space}/pods"
    cluster.control.api("POST", TEMPLATES.replace("default", space), template("watching", asked))
    watching = claiming("watching", dra.name, template="watching")
    until("service account", lambda: cluster.control.api("GET", path.replace("pods", "serviceaccounts/default")))
    cluster.control.api("POST", path, watching)
    cluster.wait_for_pod("watching", space)
    said = cluster.kubectl("exec", "--namespace", space, "watching", "--", "sh", "-c", "echo /dev/claimed-*")
    assert said.split() == ["/dev/claimed-0", "/dev/claimed-1", "/dev/claimed-2"]
    assert dra.given("holder") == set(IDS)
    cluster.control.api("DELETE", f"/api/v1/namespaces/{space}")


@pytest.mark.parametrize("dra", ["new"], indirect=True)
def test_a_claim_of_two_drivers_is_prepared_once_both_succeed(cluster, dra):
    before = dra.log.count("released ")
    with SecondDriver(cluster, dra.node) as second:
        cluster.control.api("POST", TEMPLATES, template("two", request(CLAIMED), second.request))
        dra.fault({"call": "allocate", "error": "the board is hot"})
        cluster.create(claiming("both", dra.name, template="two"))
        dra.until_told("both", "the board is hot")
        second.error = "the other one is hot"
        dra.fault()
        dra.touch("both")
        dra.until_told("both", second.error)
        second.error = ""
        dra.touch("both")
        assert len(dra.given("both")) == 1
        assert len(second.prepared) == 1
        cluster.control.api("DELETE", f"{PODS}/both?gracePeriodSeconds=1")
        until("end of the claim", lambda: not second.prepared and not cluster.pod("both"))
        until("release", lambda: dra.log.count("released ") > before)


# health


def test_an_unhealthy_device_isn_t_given_and_its_pod_hears_of_it(cluster, dra):
    cluster.create(claiming_one(cluster, dra, "holder", has_id("a")))
    assert dra.given("holder") == {"a"}
    until("health", lambda: dra.health("holder") == [("Healthy", None)])
    dra.fault({"devices": ["a", "b"], "unhealthy": "it is hot"})
    until("taints", lambda: dra.healthy(CLAIMED) == {"c"})
    until("health", lambda: dra.health("holder") == [("Unhealthy", "it is hot")])
    dra.until_told("holder", "it is hot")
    until_given(cluster, dra, {"c"})
    assert dra.given("holder") == {"a"}


def test_a_rule_by_hand_keeps_a_device_from_pods(cluster, dra):
    selector = {"driver": DRIVER, "pool": pool_of(dra), "device": "a"}
    spec = {"deviceSelector": selector, "taint": {"key": "example.com/service", "effect": "NoSchedule"}}
    cluster.control.api("POST", RULES, {"metadata": {"name": "service"}, "spec": spec})
    until_given(cluster, dra, {"b", "c"})


@pytest.mark.parametrize("dra", ["new"], indirect=True)
def test_a_rule_by_hand_evicts_pods_with_claims(cluster, dra):
    cluster.create(claiming_one(cluster, dra, "claiming", has_id("a")))
    assert dra.given("claiming") == {"a"}
    cluster.create(pod("extended", dra.name, {CLAIMED: 1}))
    had = dra.given("extended")
    spec = {"deviceSelector": {"driver": DRIVER}, "taint": {"key": "example.com/service", "effect": "NoExecute"}}
    cluster.control.api("POST", RULES, {"metadata": {"name": "service"}, "spec": spec})
    until("eviction", lambda: not cluster.pod("claiming"))
    assert dra.given("extended") == had, "Kubernetes evicts no pod whose claim it made for an extended resource"


def until_given(cluster, dra, ids):
    """Until a pod that wants so many devices gets these. Nothing tells when the scheduler has seen that others are
    tainted; before, it gives the first ones.
    """
    names = map("pod-{}".format, itertools.count())

    def given():
        cluster.create(pod(name := next(names), dra.name, {CLAIMED: len(ids)}))
        if (found := dra.given(name)) != ids:
            cluster.until_gone(cluster.delete(name))
        return found == ids

    until(f"pod with {' and '.join(sorted(ids))}", given)


def template(name, *requests):
    return {"metadata": {"name": name}, "spec": {"spec": claim(name, *requests)["spec"]}}


def claiming_one(cluster, dra, name, *expressions):
    cluster.control.api("POST", TEMPLATES, template(name, request(CLAIMED, *expressions)))
    return claiming(name, dra.name, template=name)


def running(cluster):
    """The names of the pods that run."""
    return {
        one["metadata"]["name"]
        for one in cluster.control.api("GET", PODS)["items"]
        if one["status"]["phase"] == "Running"
    }


def pool_of(dra):
    (pool,) = {one["spec"]["pool"]["name"] for one in dra.slices if "claimed" in one["spec"]["pool"]["name"]}
    return pool
