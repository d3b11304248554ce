"""What a rehearsal showed, as findings."""

from dpgateway.preflight import Rehearsal
from dpgateway.preflight.rehearsed import Again, Id, findings

R = "example.com/thing"
KEPT = Again("p1", admitted=True, reason="", allocated=0)


def found(*pods, ids=(), crashed=""):
    return {one.code: one for one in findings(Rehearsal("1.37.1", pods, ids, crashed))}


def test_all_is_as_before():
    assert found(KEPT, ids=(Id(R, "a", ("p1/c",), ("p1/c",)), Id(R, "b", (), ()))) == {}


def test_a_pod_that_is_refused():
    one = found(KEPT, Again("p2", admitted=False, reason="too few", allocated=0))["rehearsal-refused"]
    assert (one.level, one.text, one.pods) == (
        "loss",
        "in the rehearsal kubelet 1.37.1 refused pod p2: too few",
        ("p2",),
    )


def test_forgotten_pod():
    """Though it gave the pod the same devices, as it happened."""
    again = Again("p1", admitted=True, reason="", allocated=2)
    assert set(found(again, ids=(Id(R, "a", ("p1/c",), ("p1/c",)),))) == {"rehearsal-allocated"}


def test_ids_that_others_hold():
    ids = Id(R, "a", ("p1/c", "p1/init"), ()), Id(R, "b", (), ("p2/c",)), Id(R, "c", ("p3/c",), ("p3/c",))
    one = found(KEPT, ids=ids)["rehearsal-holders"]
    assert one.text.endswith("a: p1/c and p1/init before, nobody after; b: nobody before, p2/c after")
    assert (one.resource, one.ids, one.pods) == (R, ("a", "b"), ("p1",))


def test_a_crash():
    assert "nil pointer" in found(crashed="nil pointer")["rehearsal-crashed"].text
