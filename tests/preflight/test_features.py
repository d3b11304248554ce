"""What containers use, and what of it comes or goes."""

import pytest

from dpgateway.node.versions import ANY, Span, kubelet_version
from dpgateway.preflight import Facts, Held, OfferedResource, features

R = "example.com/thing"
ALL_OF_IT = OfferedResource(R, "fake", numa=True, prepares=True, prefers=True, annotates=True)


def findings(present, to, *served, held=Held()):  # noqa: B008  it is frozen
    span = Span(kubelet_version(present), kubelet_version(present)) if present else ANY
    facts = Facts(span, kubelet_version(to), held, served or (ALL_OF_IT,))
    return {one.code: one for one in features.findings(facts)}


@pytest.mark.parametrize(
    ("present", "to", "expected"),
    [
        ("1.9", "1.10", {"prepare-comes", "annotations-comes"}),
        ("1.10", "1.9", {"prepare-lost", "annotations-lost"}),
        ("1.15", "1.16", {"topology-comes"}),
        ("1.16", "1.15", {"topology-lost"}),
        ("1.18", "1.19", {"preference-comes"}),
        ("1.19", "1.18", {"preference-lost"}),
        ("1.19", "1.37", set()),
        ("1.8", "1.9", set()),
        ("1.8", "1.37", {"prepare-comes", "annotations-comes", "topology-comes", "preference-comes"}),
    ],
)
def test_what_comes_and_what_goes(present, to, expected):
    assert set(findings(present, to)) == expected


def test_what_nobody_uses_is_no_matter():
    assert findings("1.37", "1.8", OfferedResource(R, "fake")) == {}


@pytest.mark.parametrize(("to", "lost"), [("1.28", {"cdi-lost"}), ("1.29", set())])
def test_containers_that_got_devices_by_name(to, lost):
    found = findings("1.37", to, OfferedResource(R, "fake"), held=Held(named=frozenset({R})))
    assert set(found) == lost


def test_containers_that_got_annotations():
    found = findings("1.10", "1.9", OfferedResource(R, "fake"), held=Held(annotated=frozenset({R})))
    assert (found["annotations-lost"].level, found["annotations-lost"].resource) == ("loss", R)


def test_kubelet_that_may_have_it():
    found = findings(None, "1.37", OfferedResource(R, "fake", prefers=True))
    assert found["preference-comes"].level == "change"
    assert found["preference-comes"].text.endswith(", if the kubelet is older than 1.19 now")
    assert findings(None, "1.18", OfferedResource(R, "fake", prefers=True))["preference-lost"].level == "loss"
