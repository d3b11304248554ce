"""What a change of the front waits for, and what it changes."""

from dataclasses import replace

import pytest

from dpgateway.node.holders import Container, Noted
from dpgateway.node.versions import Span, kubelet_version
from dpgateway.preflight import DevicesOfClaim, Facts, Held, OfferedResource, RuntimeFacts, Site, judge
from dpgateway.preflight.front import FrontFacts, findings, rollback, verdicts

R = "example.com/thing"
NEW, OLD = kubelet_version("1.36"), kubelet_version("1.35")
CDI = RuntimeFacts("containerd", "2.0", cdi=True)
FACTS = Facts(Span(NEW, NEW), NEW, served=(OfferedResource(R, "fake"),), runtime=CDI, site=Site())
GOOD = FrontFacts("dra", "dra.example.com", "v1.36.2", {R: ""}, served=True)


def found(facts=FACTS, front=GOOD):
    return {one.code: (one.level, one.resource) for one in findings(facts, front)}


def test_a_resource_that_is_ready():
    assert found() == {}
    assert verdicts(FACTS, GOOD) == {R: "ready"}
    assert found(replace(FACTS, runtime=None), replace(GOOD, runtime="containerd://2.0.1")) == {}


@pytest.mark.parametrize(
    ("facts", "front", "code", "verdict"),
    [
        ({}, {"driver": None}, "dra-no-driver", "waits"),
        ({"present": Span(OLD, OLD)}, {}, "dra-kubelet", "waits"),
        ({"present": Span(OLD, NEW)}, {}, "dra-kubelet-unknown", "unknown"),
        ({"site": None, "to": OLD}, {}, "dra-kubelet", "waits"),
        ({"runtime": replace(CDI, cdi=False)}, {}, "dra-runtime", "waits"),
        ({"runtime": None}, {}, "dra-runtime-unknown", "unknown"),
        ({"runtime": None}, {"runtime": "containerd://1.6.9"}, "dra-runtime", "waits"),
        ({"runtime": None}, {"runtime": "containerd://1.7.9"}, "dra-runtime-unknown", "unknown"),
        ({}, {"served": False}, "dra-api", "waits"),
        ({}, {"denied": ("create resourceslices",)}, "dra-rights", "waits"),
        ({}, {"unasked": ("no answer",), "classes": None}, "dra-unasked", "unknown"),
        ({}, {"classes": {}}, "dra-class", "waits"),
        ({}, {"classes": {R: "it selects others"}}, "dra-class-unsure", "unknown"),
        ({"served": (OfferedResource(R, "fake", prepares=True),)}, {}, "dra-prepare", "changes"),
        ({"served": (OfferedResource(R, "fake", prefers=True),)}, {}, "dra-preference", "changes"),
        ({"served": (OfferedResource(R, "fake", numa=True),)}, {}, "dra-topology", "changes"),
        ({"served": (OfferedResource(R, "fake", annotates=True),)}, {}, "dra-annotations", "changes"),
        ({"served": (OfferedResource(R, "fake", joint=("char 240:1",)),)}, {}, "dra-joint", "changes"),
    ],
)
def test_each_finding_and_the_verdict(facts, front, code, verdict):
    facts, front = replace(FACTS, **facts), replace(GOOD, **front)
    assert list(found(facts, front)) == [code]
    assert verdicts(facts, front) == {R: verdict}


def held(count):
    has = Noted(containers=frozenset({Container("uid", "c")}))
    return replace(FACTS, held=Held({R: {f"d{number}": has for number in range(count)}}))


def test_devices_that_containers_hold():
    assert found(held(32)) == {"dra-held": ("change", R)}
    assert found(held(33)) == {"dra-many": ("loss", R), "dra-held": ("change", R)}
    assert verdicts(held(33), GOOD) == {R: "loss"}


def test_the_worst_counts():
    facts = replace(FACTS, served=(OfferedResource(R, "fake", numa=True),))
    assert verdicts(facts, replace(GOOD, driver=None)) == {R: "waits"}


CLAIM = DevicesOfClaim("claim d/c", R, ("a",), (("uid-1", "web"),))
BACK = FrontFacts("deviceplugin")


def test_claims_of_a_resource_that_goes_back():
    facts = replace(FACTS, claimed=(CLAIM, DevicesOfClaim("claim d/watches", R)))
    (one,) = findings(facts, BACK)
    assert (one.level, one.code, one.resource, one.ids, one.pods) == ("change", "claims-held", R, ("a",), ("uid-1",))
    assert "claim d/c (pod web) has devices" in one.text
    assert verdicts(facts, BACK) == {R: "changes"}


def test_claims_under_a_kubelet_that_knows_none():
    ended = replace(CLAIM, claim="claim d/ended", ending=True)
    facts = replace(FACTS, to=OLD, site=None, claimed=(CLAIM, ended, replace(CLAIM, claim="claim d/2", ids=())))
    (one,) = rollback(facts)
    assert (one.level, one.code, one.resource, one.ids, one.pods) == ("loss", "claims-lost", R, ("a",), ("uid-1",))
    assert one.text.endswith(": claim d/c (pod web), claim d/2 (pod web)")
    assert one.advice.startswith("drain")
    for front in (GOOD, BACK):
        assert verdicts(facts, front) == {R: "loss"}
    assert one in judge(facts)
    assert not [*rollback(replace(facts, to=NEW))]


def test_claims_that_are_not_known():
    facts = replace(FACTS, to=OLD, site=None, unread_claims="uid-1.json: no record")
    assert [(one.level, one.code, one.resource) for one in rollback(facts)] == [("unknown", "claims-unread", "")]
    assert not [*rollback(replace(facts, to=NEW))]
