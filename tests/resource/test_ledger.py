"""Which ids are listed and what each of them means, by example; test_inventory has any sequence of events."""

from dataclasses import replace

import pytest

from dpgateway.config import Shares
from dpgateway.kit.observable import Observable
from dpgateway.model import Device, Health
from dpgateway.resource.ledger import Ledger, Refusal
from dpgateway.resource.shares import Offer
from tests.support.resources import configured

WET = Health.unhealthy("wet")
A, B = Device("a", numa_nodes=(1,)), Device("b")
NOBODY: frozenset[str] = frozenset()


def ledger(*devices, shares=1, keep_lost=10):
    made = Ledger(Observable(configured(shares=shares, keep_lost=keep_lost)))
    made.take(devices, 100)
    return made


def refused(answer):
    assert isinstance(answer, Refusal)
    return answer.id, answer.reason


def test_every_share_is_offered():
    assert ledger(A, Device("b", WET), shares=2).offers() == {
        "a": Offer("a", numa_nodes=(1,)),
        "a::1": Offer("a::1", numa_nodes=(1,)),
        "b": Offer("b", WET),
        "b::1": Offer("b::1", WET),
    }


def test_a_device_that_changes_is_offered_as_it_is_now():
    some = ledger(A, B)
    for changed in (
        Device("a", numa_nodes=(2,)),
        Device("a", WET, (2,)),
        Device("a", Health.unhealthy("dry"), (2,)),
        A,
    ):
        some.take([changed, B], 101)
        assert some.offers() == {"a": Offer("a", changed.health, changed.numa_nodes), "b": Offer("b")}


def test_a_vanished_device_stays_listed():
    some = ledger(A, B)
    some.take([B], 101)
    assert some.offers() == {"a": Offer("a", Health.unhealthy("its device is gone"), (1,)), "b": Offer("b")}


def test_since_when_an_id_can_not_be_given_away():
    some = ledger(A, Device("b", WET))
    assert [some.unhealthy_since(id_) for id_ in "ab"] == [None, 100]
    some.fail("no answer", 101)
    assert [some.unhealthy_since(id_) for id_ in "ab"] == [101, 100]
    some.take([A], 102)
    assert [some.unhealthy_since(id_) for id_ in "ab"] == [None, 102]


def test_losses_and_returns_are_counted():
    some = ledger(A, B, shares=2)
    some.take([B], 101)
    some.take([B], 102)
    assert (some.losses, some.returns) == (2, 0)
    some.take([A, B], 103)
    some.hold(frozenset({"c"}), 104)  # what a container holds of a device that isn't there is lost from the start
    assert (some.losses, some.returns) == (3, 2)


def test_a_lost_id_leaves_when_nobody_holds_it():
    some = ledger(A, B)
    some.take([B], 101)
    some.hold(NOBODY, 110.9)
    assert some.next_drop(NOBODY) == 111
    assert set(some.offers()) == {"a", "b"}
    some.hold(NOBODY, 111)
    assert set(some.offers()) == {"b"}
    assert some.next_drop(NOBODY) is None


def test_unhealthy_for_a_moment_without_keeping():
    some = ledger(A, keep_lost=0)
    some.take([], 101)
    some.hold(NOBODY, 101)
    assert not some.offers()["a"].health.ok
    assert some.next_drop(NOBODY) == 103


def test_a_held_id_stays():
    some = ledger(A)
    some.take([], 101)
    held = frozenset({"a"})
    some.hold(held, 10_000)
    assert some.next_drop(held) is None
    assert set(some.offers()) == {"a"}
    some.hold(NOBODY, 10_001)
    assert some.offers() == {}


def test_nothing_leaves_while_it_isnt_known_what_is_held():
    some = ledger(A)
    some.take([], 101)
    some.hold(None, 10_000)
    assert some.next_drop(None) is None
    assert set(some.offers()) == {"a"}


def test_a_device_that_returns():
    some = ledger(A)
    some.take([], 101)
    some.take([A], 105)
    assert some.offers() == {"a": Offer("a", numa_nodes=(1,))}
    assert some.next_drop(NOBODY) is None
    some.take([], 109)
    assert some.next_drop(NOBODY) == 119


def test_a_noted_node_0_counts_beside_devices_with_nodes():
    """Kubelets 1.20 to 1.22 note it for a device without any."""
    some = Ledger(Observable(configured()))
    some.hold(frozenset({"gone"}), 100, {"gone": (0,)}.__getitem__)
    assert some.offers()["gone"].numa_nodes == ()
    some.take([B], 101)
    assert some.offers()["gone"].numa_nodes == ()
    some.take([A, B], 102)
    assert some.offers()["gone"].numa_nodes == (0,)


def test_held_ids_after_a_restart():
    some = Ledger(Observable(configured(keep_lost=10)))
    held = frozenset({"a::2", "gone::1"})
    some.hold(held, 100, {"gone::1": (0, 1), "a::2": (7,)}.__getitem__)
    assert [offer.health.reason for offer in some.offers().values()] == [
        "a container holds it, but its device is gone"
    ] * 2
    some.take([A], 101)
    assert some.offers() == {
        "a": Offer("a", numa_nodes=(1,)),
        "a::2": Offer("a::2", Health.unhealthy("its share isn't offered any more"), (1,)),
        "gone::1": Offer("gone::1", Health.unhealthy("a container holds it, but its device is gone"), (0, 1)),
    }


def test_an_old_share_means_its_device():
    # a 1.8 kubelet allocates again at each start of a container
    some = ledger(A)
    some.hold(frozenset({"a::2"}), 101)
    assert some.resolve(["a::2"], 102) == {"a::2": A}
    some.hold(NOBODY, 200)
    assert refused(some.resolve(["a::2"], 201)) == ("a::2", "unknown: this resource doesn't offer it")


def test_while_the_driver_fails():
    some = ledger(A, Device("b", WET))
    some.fail("no answer", 101)
    some.fail("no answer for 5 s", 106)
    assert {i: offer.health.reason for i, offer in some.offers().items()} == {"a": "no answer for 5 s", "b": "wet"}
    assert refused(some.resolve(["a"], 108)) == ("a", "unhealthy for 7 s: no answer for 5 s")
    some.take([A], 110)
    assert some.resolve(["a"], 110) == {"a": A}


def test_why_an_id_cannot_be_given():
    some = ledger(A, B)
    some.take([Device("b", WET)], 110)
    assert refused(some.resolve(["a"], 115)) == ("a", "lost: its device is gone, for 5 s")
    assert refused(some.resolve(["b"], 117)) == ("b", "unhealthy for 7 s: wet")
    assert refused(some.resolve(["c"], 115)) == ("c", "unknown: this resource doesn't offer it")
    assert refused(some.resolve(["a::1"], 115)) == ("a::1", "unknown: this resource doesn't offer it")


def test_an_unhealthy_device_counts_from_when_it_became_so():
    some = ledger(A)
    for now, health in ((110, WET), (120, Health.unhealthy("soaked"))):
        some.take([Device("a", health)], now)
    assert refused(some.resolve(["a"], 125)) == ("a", "unhealthy for 15 s: soaked")
    some.take([A], 130)
    some.take([Device("a", WET)], 140)
    assert refused(some.resolve(["a"], 141)) == ("a", "unhealthy for 1 s: wet")


def test_the_first_id_that_cannot_be_given_is_named():
    some = ledger(A, Device("b", WET))
    assert some.resolve(["a"], 100) == {"a": A}
    assert refused(some.resolve(["a", "b", "c"], 100))[0] == "b"
    assert some.resolve([], 100) == {}


def test_a_too_long_list_follows_health():
    some = ledger(A, B)
    some.take([Device("a", WET), Device("c")], 101, only={"a", "b"})
    assert {i: offer.health.reason for i, offer in some.offers().items()} == {"a": "wet", "b": "its device is gone"}
    assert refused(some.resolve(["c"], 101))[0] == "c"


def test_what_a_list_would_be_is_known_before_it_is_taken():
    some = ledger(A, shares=2)
    assert set(some.after([B, Device("c")])) == {"a", "a::1", "b", "b::1", "c", "c::1"}
    assert some.offers() == {"a": Offer("a", numa_nodes=(1,)), "a::1": Offer("a::1", numa_nodes=(1,))}


def test_the_device_of_an_id_while_it_is_present():
    some = ledger(A, Device("b", WET), shares=2)
    assert [some.device(i) for i in ("a", "a::1", "b", "c", "")] == [A, A, Device("b", WET), None, None]
    assert dict(some.devices) == {"a": A, "b": Device("b", WET)}


@pytest.mark.parametrize("name", ["a::b", "::", "1"])
def test_an_id_is_never_split(name):
    some = ledger(Device(name), shares=2)
    assert some.resolve([f"{name}::1"], 100) == {f"{name}::1": Device(name)}


def test_other_ids_of_shares():
    config = Observable(configured(shares=2, keep_lost=10))
    some = Ledger(config)
    some.take([A], 100)
    config.set(configured(shares=Shares(2, ids="{id}-{share}"), keep_lost=10))
    some.take([A], 101)
    gone = Offer("a", Health.unhealthy("its share isn't offered any more"), (1,), "a-0")
    assert some.offers() == {
        "a-0": Offer("a-0", numa_nodes=(1,), first="a-0"),
        "a-1": Offer("a-1", numa_nodes=(1,), first="a-0"),
        "a": gone,
        "a::1": replace(gone, id="a::1"),
    }
    assert some.resolve(["a-1", "a"], 101) == {"a-1": A, "a": A}
    some.hold(frozenset({"a::1"}), 200)
    assert list(some.offers()) == ["a-0", "a-1", "a::1"]
    some.take([], 201)
    assert some.offers()["a-1"] == Offer("a-1", Health.unhealthy("its device is gone"), (1,), "a-0")


def test_ids_of_another_plugin():
    some = Ledger(Observable(configured(shares=Shares(8, ids="kvm{share}"), keep_lost=10)))
    some.hold(frozenset({"kvm5", "kvm9"}), 100)  # what the kubelet's checkpoint has, before the driver has answered
    assert not some.offers()["kvm5"].health.ok
    kvm = Device("kvm")
    some.take([kvm], 101)
    assert some.offers()["kvm5"] == Offer("kvm5", first="kvm0")
    assert some.resolve(["kvm5"], 101) == {"kvm5": kvm}
    assert not some.offers()["kvm9"].health.ok  # it stays listed, because a container holds it


def test_a_counted_id_is_healthy_and_not_given():
    some = ledger(A, B, shares=2)
    assert some.exclude({"a": "held by a claim"}, {}, {"a": 1})
    health = {id_: offer.health.reason for id_, offer in some.offers().items()}
    assert health == {"a": None, "a::1": "held by a claim", "b": None, "b::1": None}
    assert refused(some.resolve(["a"], 100)) == ("a", "withheld: held by a claim")
    assert refused(some.resolve(["a::1"], 100)) == ("a::1", "unhealthy: held by a claim")
    assert [some.withheld(id_) for id_ in ("a", "a::1", "b")] == ["held by a claim", "", ""]

    assert some.exclude({"a": "held by a claim"}), "it isn't counted any more"
    assert not some.offers()["a"].health.ok
    assert some.exclude({}, {}, {})
    assert some.offers()["a"].health.ok


def test_the_drivers_verdict_goes_before_a_claim():
    some = ledger(Device("a", WET))
    some.exclude({"a": "held by a claim"}, {}, {"a": 1})
    assert not some.offers()["a"].health.ok
    assert refused(some.resolve(["a"], 100)) == ("a", "unhealthy for 0 s: wet")
