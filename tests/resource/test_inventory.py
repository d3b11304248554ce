"""One resource's list over any sequence of events, in a time that the test tells."""

import logging
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dpgateway.config import Shares
from dpgateway.deviceplugin.api import APIS, LARGEST
from dpgateway.deviceplugin.server.streams import ListEncoder
from dpgateway.deviceplugin.wire import v1beta1_pb2
from dpgateway.model import HEALTHY, Device, Health
from dpgateway.resource.front import NOTED_WITHIN, Unreleased
from dpgateway.resource.ledger import LEAVING, Refusal
from dpgateway.resource.offered import PUBLISH_DELAY
from dpgateway.resource.shares import Offer, share_ids
from tests.resource.listing import NOBODY, WET, A, B, Node
from tests.support.time import VirtualLoop

# when it is offered


def test_nothing_is_offered_until_the_driver_answers(node):
    assert node.listed is None
    node.fail("no answer yet")
    assert node.listed is None
    node.take(A, B)
    assert node.listed == {"a": True, "b": True}


def test_an_overdue_driver(make):
    node = make(on_file=frozenset({"a"}))
    node.fail("no answer", overdue=True)
    assert node.listed == {"a": False}
    assert node.offers["a"].health.reason == "a container holds it, but its device is gone"
    node.take(A, B)
    assert node.listed == {"a": True, "b": True}


def test_a_truly_empty_list_is_offered(node):
    node.take()
    assert node.listed == {}


def test_a_driver_that_fails_later(node):
    node.take(A, B)
    node.fail("no answer")
    assert {i: offer.health.reason for i, offer in node.offers.items()} == dict.fromkeys("ab", "no answer")


# when an id leaves


def test_a_lost_id_leaves_on_time_by_itself(node):
    node.take(A, B)
    node.take(B)
    node.sleep(9.9)
    assert node.listed == {"a": False, "b": True}
    node.sleep(0.2)
    assert node.listed == {"b": True}


def test_the_checkpoint_is_read_before_a_drop(node):
    node.take(A)
    node.take()
    node.on_file, node.written = frozenset({"a"}), node.clock.monotonic()  # and nobody noticed the file's change
    node.sleep(60)
    assert node.listed == {"a": False}
    node.write(NOBODY)
    assert node.listed == {}


@pytest.mark.parametrize("unknown", ["damaged", "missing"])
def test_nothing_leaves_without_a_checkpoint(make, unknown):
    node = make(on_file=frozenset({"a"}))
    node.take(A)
    node.take()
    node.on_file = unknown
    node.run(node.read)
    node.sleep(3600)
    assert node.listed == {"a": False}


def test_a_damaged_checkpoint_that_is_deleted(make):
    # the usual remedy, while the kubelet that holds the device still lives
    node = make(on_file=frozenset({"a"}))
    node.take(A)
    node.take()
    for state in ("damaged", "missing"):
        node.on_file = state
        node.run(node.read)
        node.sleep(60)
    assert node.listed == {"a": False}
    node.write(NOBODY)
    assert node.listed == {}


def test_no_checkpoint_from_the_start(make):
    node = make(on_file="missing")
    node.take(A)
    node.take()
    node.sleep(10.1)
    assert node.listed == {}


# Allocate


def test_an_id_whose_allocate_is_in_flight_stays_listed(node):
    node.take(A)
    end = node.begin("a")
    node.take()
    node.sleep(60)
    node.write(NOBODY)
    assert node.listed == {"a": False}
    end()


def test_held_until_a_newer_checkpoint(node):
    node.take(A)
    node.write(NOBODY)
    node.sleep(1)
    node.allocate("a")
    node.take()
    node.sleep(3600)
    assert node.listed == {"a": False}, "the file is older than the allocation"
    node.write(frozenset({"a"}))
    node.sleep(60)
    assert node.listed == {"a": False}
    node.write(NOBODY)
    assert node.listed == {}


def test_a_checkpoint_just_after_an_allocate(make):
    node = make(keep_lost=3)
    node.take(A)
    node.allocate("a")
    node.take()
    node.sleep(4)
    node.write(NOBODY)
    assert node.listed == {"a": False}
    node.sleep(NOTED_WITHIN + 1)
    assert node.listed == {}


def test_a_checkpoint_of_the_same_tick(make):
    node = make(keep_lost=3)
    node.take(A)
    node.allocate("a")
    node.on_file, node.written = frozenset({"a"}), node.clock.monotonic() - 0.01
    node.run(node.read)
    node.take()
    node.sleep(4)
    node.write(NOBODY)
    assert node.listed == {}


def test_an_allocate_that_failed_holds_nothing(node):
    node.take(A)
    end = node.begin("a")
    node.take()
    node.sleep(60)
    end(works=False)
    node.sleep(0.1)
    assert node.listed == {}


def test_the_same_id_may_be_in_flight_twice(node):
    node.take(A)
    end, end_other = node.begin("a"), node.begin("a")
    end_other(works=False)
    node.take()
    node.sleep(60)
    assert node.listed == {"a": False}
    end(works=False)


# what no container holds any more


def test_a_device_is_released_when_its_last_share_is(make):
    node = make(shares=2)
    node.take(A, B)
    node.write(frozenset({"a", "a::1", "b"}))
    node.write(frozenset({"a::1", "b"}))
    assert node.freed == []
    node.write(frozenset({"b"}))
    assert node.freed == ["a"]


def test_a_device_that_no_checkpoint_named(node):
    # the pod failed in admission: the kubelet allocated another of its resources in vain
    node.take(A)
    node.allocate("a")
    node.sleep(NOTED_WITHIN + 1)
    node.write(NOBODY)
    assert node.freed == ["a"]


@pytest.mark.parametrize("unknown", ["damaged", "missing"])
def test_nothing_is_released_without_a_checkpoint(node, unknown):
    node.take(A)
    node.write(frozenset({"a"}))
    node.on_file = unknown
    node.run(node.read)
    assert node.freed == []


def test_what_another_kubelet_forgot_is_not_released(node):
    node.take(A)
    node.write(frozenset({"a"}))
    node.sleep(1)
    node.new_kubelet()
    node.run(node.read)  # before it wrote anything
    node.write(NOBODY)
    assert node.freed == []
    node.write(frozenset({"a"}))
    node.write(NOBODY)
    assert node.freed == ["a"]


def test_an_allocate_in_flight_that_fails(node):
    node.take(A, B)
    end, end_other = node.begin("a"), node.begin("b")
    node.write(frozenset({"b"}))
    end(False)
    assert node.releases.still_free([A, B]) == [A]
    end_other(False)
    assert node.releases.still_free([A, B]) == [A]
    node.write(NOBODY)
    assert node.freed == ["b"]  # and not a, which nobody had


def test_a_leak_is_said_once(node, caplog):
    node.run(node.holdings.set, node.holdings.value.given_by("fpga"))
    node.take(A, B)
    node.allocate("a")
    node.sleep(NOTED_WITHIN + 1)
    node.write({"a"})
    node.take(B)
    node.write(NOBODY)
    text = "device a of example.com/thing is free again, but driver fpga isn't told, so what release() undoes stays: "
    (said,) = [one for one in caplog.messages if one.startswith(text)]
    assert said.endswith("it doesn't list it any more, or not within the next 10 s; last held by a container")
    node.take(A, B)
    node.run(node.releases.release_due)
    assert node.freed == ["a"], "it was back in time"
    assert sum(one.startswith(text) for one in caplog.messages) == 1


@pytest.mark.parametrize("back", [True, False])
def test_after_a_restart_a_device_has_time_to_come_back_for_its_release(make, caplog, back):
    node = make()
    node.run(node.holdings.set, node.holdings.value.given_by("fpga"))
    node.take(B)
    node.run(node.resource.remember, {"a": Unreleased("", hardware=frozenset({"a"}), device="a", driver="fpga")})
    node.write(NOBODY)
    assert node.holdings.value.freed == {"a"}
    node.sleep(9)
    assert node.holdings.value.freed == {"a"}
    if back:
        node.take(A, B)
        node.run(node.releases.release_due)
        node.sleep(9)
        assert node.freed == ["a"]
    else:
        node.amend(1, keep_lost=9)
        assert node.holdings.value.taken == NOBODY
        assert caplog.messages[-1].endswith("or not within the next 10 s; last held by a container")


@pytest.mark.parametrize("gave", ["", None])
def test_what_a_driver_without_release_gave_is_no_leak(node, caplog, gave):
    node.take(A)
    if gave is not None:
        node.run(node.holdings.set, node.holdings.value.given_by(gave))
    node.allocate("a")
    node.take()
    node.sleep(NOTED_WITHIN + 1)
    node.write(NOBODY)
    assert not [one for one in caplog.messages if "isn't told" in one]


@pytest.mark.parametrize("works", [True, False])
def test_freed_while_another_share_is_in_flight(make, works):
    node = make(shares=2)
    node.take(A)
    node.allocate("a")
    node.sleep(NOTED_WITHIN + 1)
    node.write({"a"})
    end = node.begin("a::1")
    node.write(NOBODY)
    assert node.freed == []
    end(works=works)
    assert node.freed == ([] if works else ["a"])
    node.sleep(NOTED_WITHIN + 1)
    node.write(NOBODY)
    assert node.freed == ["a"]


def test_a_share_that_the_kubelet_never_noted_is_free_without_another_checkpoint(make):
    node = make(shares=2)
    node.take(A)
    node.allocate("a::1")
    node.write(NOBODY)
    node.amend(1, 1)
    node.take(A)
    assert node.listed == {"a": False, "a::1": False}
    node.sleep(NOTED_WITHIN + 1)
    assert node.listed["a"]


def test_still_free_without_a_checkpoint(make):
    node = make(shares=2)
    node.take(A, B)
    node.write(frozenset({"a"}))
    node.write(NOBODY)
    node.write("damaged")
    assert node.releases.still_free([A, B]) == [A, B]
    end = node.begin("a::1")
    assert node.releases.still_free([A, B]) == [B]
    end()
    assert node.releases.still_free([A, B]) == [B]


def test_a_device_that_changes_beside_others(make):
    node = make(shares=2)
    node.take(A, B)
    before = node.offers
    node.take(A, replace(B, health=WET))
    assert node.listed == {"a": True, "a::1": True, "b": False, "b::1": False}
    assert node.offers["a"] is before["a"]
    assert isinstance(node.resolve("b"), Refusal)
    node.take(A, Device("b", numa_nodes=(2,)))
    assert [offer.numa_nodes for offer in node.offers.values()] == [(), (), (2,), (2,)]
    node.take(Device("c"), Device("b", numa_nodes=(2,)))
    assert node.listed == {"a": False, "a::1": False, "b": True, "b::1": True, "c": True, "c::1": True}


def test_devices_that_begin_to_share_hardware(node):
    one, other = (replace(device, hardware=("char 1:1",)) for device in (A, B))
    node.take(A, B)
    node.take(one, B)
    node.take(one, other)
    node.allocate("a")
    node.sleep(PUBLISH_DELAY)
    assert node.listed == {"a": True, "b": False}


def test_numa_nodes_that_make_a_list_too_long(node):
    long = [Device(str(number).zfill(83)) for number in range(33_000)]
    node.take(*long)
    assert not node.inventory.rejected.value
    node.take(*[Device(device.id, numa_nodes=tuple(range(20))) for device in long])
    assert node.inventory.rejected.value


# another configuration


def test_more_and_fewer_shares(node):
    devices = (A, B)
    node.take(*devices)
    node.amend(2, 10)
    node.take(*devices)
    assert node.listed == {"a": True, "b": True, "a::1": True, "b::1": True}
    node.write({"a::1"})
    node.amend(1, 10)
    node.take(*devices)
    assert node.listed == {"a": False, "b": True, "a::1": False, "b::1": False}, "a::1 is held, and a has one share"
    assert node.offers["a::1"].health.reason == "its share isn't offered any more"
    assert node.resolve("a::1") == {"a::1": A}
    node.sleep(10.1)
    assert node.listed == {"a": False, "b": True, "a::1": False}
    node.write(NOBODY)
    assert node.listed == {"a": True, "b": True}


def test_another_time_for_lost_ids(node):
    node.take(A)
    node.take()
    node.sleep(5)
    node.amend(1, 60)
    node.sleep(50)
    assert node.listed == {"a": False}
    node.amend(1, 3)
    node.sleep(0.1)
    assert node.listed == {}


def test_fewer_shares_make_a_list_fit(make):
    node, devices = make(shares=2), tuple(many(3000))
    node.take(*devices)
    assert not node.listed
    node.amend(1, 10)
    node.take(*devices)
    assert len(node.listed) == 3000
    node.amend(2, 10)
    node.take(*devices)
    assert len(node.listed) == 3000, "what fitted stays"
    assert node.inventory.rejected.value


# a list that is too long for the kubelet


def many(count, *, health=HEALTHY, first=0):
    """A thousand of these are about a megabyte."""
    return [Device(f"{i:05}".ljust(1024, "x"), health) for i in range(first, first + count)]


def sent(node):
    return len(ListEncoder(APIS[0]).encode(node.offers))


def test_a_first_list_that_is_too_long_is_not_offered(node, caplog):
    for _ in range(2):
        node.take(*many(4100))
    assert node.listed is None
    assert node.inventory.rejected.value.startswith("the list of 4100 ids takes 42")
    assert "the kubelet accepts 4194304; offer fewer devices, fewer shares" in node.inventory.rejected.value
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    node.take(A)
    assert node.listed == {"a": True}
    assert not node.inventory.rejected.value


def test_whoever_follows_the_list_is_told_why_there_is_none(node):
    told = []
    node.inventory.rejected.subscribe(lambda: told.append(node.inventory.rejected.value[:8]))
    node.take(*many(4100))
    node.take(A)
    assert told[0] == "the list"
    assert not told[-1]


@pytest.mark.parametrize("length", [105, 106, 107])
def test_the_longest_first_list_fits_unhealthy(make, length):
    """Lengths around 106, at which the word that is longer makes the number of bytes longer, too."""

    def listed(count):
        return [Device(f"{number:06}".ljust(length, "x")) for number in range(count)]

    broken = APIS[0].to_offer(Offer(listed(1)[0].id, WET))
    most = LARGEST // len(broken)
    node = make()
    node.take(*listed(most + 1))
    assert node.offers is None
    assert f"the list of {most + 1} ids takes {(most + 1) * len(broken)} bytes" in node.inventory.rejected.value
    node.take(*listed(most))
    assert len(node.listed) == most


class Unshared(str):
    """An id from which no share's id may be made."""

    __slots__ = ()

    def __format__(self, _):
        raise AssertionError("the list is made")

    __add__ = __format__


def test_a_much_too_long_list_is_not_made(make):
    node = make(shares=1_000)
    unshared = [Device(Unshared(f"{number:06}")) for number in range(5_000)]
    node.take(*unshared)
    node.take(A)
    node.take(A, *unshared)
    assert node.inventory.rejected.value.startswith("the list of 5001000 ids takes 1050")
    assert len(node.listed) == 1000


def test_a_list_that_grows_too_long(node):
    node.take(*many(3000))
    node.take(*many(2000), *many(2500, first=2500, health=WET))
    listed = list(node.listed.values())
    assert (len(listed), sum(listed)) == (3000, 2000)
    assert sent(node) <= LARGEST
    assert node.inventory.rejected.value
    reasons = Counter(offer.health.reason for offer in node.offers.values())
    assert reasons == {None: 2000, "its device is gone": 500, "wet": 500}
    assert isinstance(node.resolve(many(1, first=4400)[0].id), Refusal)


def test_only_another_held_device_is_told(node):
    node.take(A, B)
    node.write({"a"})
    assert not node.inventory.take((A, replace(B, health=WET)))
    assert node.inventory.take((replace(A, health=WET), replace(B, health=WET)))
    assert node.inventory.take((replace(B, health=WET),))


def test_a_list_that_was_too_long_recovers_whole(node, caplog):
    caplog.set_level(logging.INFO)
    node.take(*many(3000))
    node.take(*many(4500))
    node.take(*many(3500))
    assert list(node.listed.values()) == [True] * 3500
    assert not node.inventory.rejected.value
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]


def test_ids_that_are_lost_count_until_they_leave(node):
    node.take(*many(2500))
    node.take(*many(2500, first=2500))
    assert sum(node.listed.values()) == 0, "all are lost, and the new ones don't fit beside them"
    assert sent(node) <= LARGEST
    node.sleep(10.1)
    node.take(*many(2500, first=2500))
    assert list(node.listed.values()) == [True] * 2500


def test_ids_of_another_form_count_until_they_leave(node: Node) -> None:
    node.take(*many(2500))
    node.run(node.config.set, replace(node.config.value, shares=Shares(1, ids="new-{id}")))
    node.take(*many(2500))
    assert sum(node.listed.values()) == 0, "all are lost, and the new ones don't fit beside them"
    assert sent(node) <= LARGEST
    assert node.inventory.rejected.value
    node.sleep(10.1)
    node.take(*many(2500))
    assert list(node.listed.values()) == [True] * 2500


def test_all_shares_count_until_they_leave(node: Node) -> None:
    """The driver has failed while the configuration changed, and lists other devices then."""
    devices = many(2400)
    node.run(node.config.set, replace(node.config.value, shares=Shares(4)))
    node.take(*devices[:900])
    node.run(node.config.set, replace(node.config.value, shares=Shares(1)))
    node.take(*devices[900:])
    assert sent(node) <= LARGEST
    assert node.inventory.rejected.value


def test_a_list_fits_when_all_turn_unhealthy(node):
    (device,) = many(1)
    healthy, unhealthy = (len(APIS[0].to_offer(Offer(device.id, health))) for health in (HEALTHY, WET))
    node.take(*many(LARGEST // healthy))
    assert node.inventory.rejected.value
    node.take(*many(LARGEST // unhealthy - 10))
    assert not node.inventory.rejected.value
    node.fail("no answer")
    assert LARGEST - 20 * unhealthy < sent(node) <= LARGEST


def test_held_ids_are_listed_before_others(node, caplog):
    held = [device.id for device in many(2000, first=2500)]
    node.take(*many(2500))
    node.write({*held, many(1)[0].id})
    assert node.listed == {many(1)[0].id: True} | dict.fromkeys(held, False)
    assert sent(node) <= LARGEST
    assert node.inventory.rejected.value.startswith("the list of 4500 ids takes 46")
    node.take(*many(2500, health=WET))
    assert len(node.listed) == 2001
    node.write(NOBODY)
    node.sleep(10.1)
    node.take(*many(2500))
    assert list(node.listed.values()) == [True] * 2500
    assert [record.levelname for record in caplog.records if record.levelno > logging.INFO] == ["ERROR"]


def test_held_ids_beside_a_too_long_first_list(node, caplog):
    node.take(*many(4100))
    node.write({"z"})
    assert node.listed is None
    assert node.inventory.rejected.value
    assert [record.levelname for record in caplog.records] == ["ERROR"]


@pytest.mark.parametrize("id_", ["", "\0", "a\0b", "\x7f\u2028"])
def test_an_id_that_no_driver_may_have(node, id_):
    node.take(A)
    node.write({id_})
    assert node.listed == {"a": True, id_: False}
    for api in APIS:
        raw = ListEncoder(api).encode(node.offers)
        assert [device.ID for device in v1beta1_pb2.ListAndWatchResponse.FromString(raw).devices] == ["a", id_]
    assert node.resolve(id_).reason.startswith("lost: ")
    node.write(NOBODY)
    node.sleep(10.1)
    assert node.listed == {"a": True}


# any sequence of events

NAMES = ("a", "b", "c")
IDS = [f"{name}{suffix}" for name in NAMES for suffix in ("", "::1", "::2")]
DEVICES = st.dictionaries(st.sampled_from(NAMES), st.sampled_from([Health.healthy(), WET]))


def means(offered):
    return offered[0]


class Events(RuleBasedStateMachine):
    """A kubelet that allocates, frees and writes; a driver; a gateway that restarts. And what each of them knows."""

    def __init__(self):
        super().__init__()
        self.loop = VirtualLoop()
        self.node: Any = None

    def teardown(self):
        if self.node:
            self.end_flights()
            self.node.end()
        self.loop.close()

    @initialize(shares=st.integers(1, 3), keep=st.sampled_from([0, 3, 15]))
    def start(self, shares, keep):
        self.holds = set()  # in the kubelet's memory
        self.in_flight = []
        self.devices = {}
        self.restart(shares, keep, "missing", 0.0)

    def restart(self, shares, keep, on_file, written):
        if self.node:
            self.node.end()
        self.keep, self.shares = max(keep, LEAVING), shares
        self.node = Node(shares, keep, loop=self.loop, on_file=on_file, written=written)
        self.failing = False
        self.seen, self.unhealthy_since = set(), {}
        self.known = on_file != "damaged"

    @rule(shares=st.integers(1, 3), keep=st.sampled_from([0, 3, 15]))
    def gateway_restarts(self, shares, keep):
        self.end_flights()
        if self.node.on_file in ("damaged", "missing"):
            return  # then nobody can know what was held
        self.holds &= self.node.on_file
        self.restart(shares, keep, self.node.on_file, self.node.written)
        self.node.take(*[Device(name, health) for name, health in self.devices.items()])

    @rule(shares=st.integers(1, 3), keep=st.sampled_from([0, 3, 15]))
    def configuration_changes(self, shares, keep):
        self.keep, self.shares = max(keep, LEAVING), shares
        self.node.amend(shares, keep)
        if not self.failing:
            self.node.take(*[Device(name, health) for name, health in self.devices.items()])

    @rule(devices=DEVICES)
    def driver_lists(self, devices):
        self.devices, self.failing = devices, False
        self.node.take(*[Device(name, health) for name, health in devices.items()])

    @rule(overdue=st.booleans())
    def driver_fails(self, overdue):
        self.failing = True
        self.node.fail("no answer", overdue=overdue)

    @rule(seconds=st.sampled_from([0.5, 1.0, 4.0, 20.0]))
    def time_passes(self, seconds):
        self.node.sleep(seconds)

    def allocatable(self):
        return sorted(i for i, healthy in (self.node.listed or {}).items() if healthy)

    @precondition(lambda self: self.allocatable())
    @rule(data=st.data())
    def allocate_begins(self, data):
        offered = data.draw(st.sampled_from(self.allocatable()))
        answer = self.node.resolve(offered)
        assert not isinstance(answer, Refusal)
        self.in_flight.append((offered, self.node.begin(offered)))

    @precondition(lambda self: self.in_flight)
    @rule(works=st.booleans())
    def allocate_ends(self, works):
        offered, end = self.in_flight.pop(0)
        end(works)
        if works:
            self.holds.add(offered)
            self.write()

    def end_flights(self):
        for _, end in self.in_flight:
            end(works=False)
        self.in_flight = []

    def write(self):
        self.node.write(frozenset(self.holds))
        self.known = True

    @precondition(lambda self: self.holds)
    @rule(data=st.data())
    def pod_is_deleted(self, data):
        self.holds.remove(data.draw(st.sampled_from(sorted(self.holds))))
        self.write()

    @rule(how=st.sampled_from(["damaged", "missing"]))
    def checkpoint_breaks(self, how):
        self.node.on_file = how
        self.node.run(self.node.read)
        self.known = self.known and how == "missing"

    @rule()
    def checkpoint_is_written(self):
        self.write()

    # what always holds

    @invariant()
    def nothing_that_is_held_left(self):
        if self.node is None or self.node.listed is None:
            return
        held = self.holds | {offered for offered, _ in self.in_flight}
        assert held <= self.node.listed.keys()

    @invariant()
    def healthy_is_what_the_driver_says_is_healthy(self):
        if self.node is None or self.node.listed is None:
            return
        for offered, healthy in self.node.listed.items():
            device = self.devices.get(means(offered))
            assert not healthy or (device is not None and device.ok and not self.failing)
        held = self.holds | {offered for offered, _ in self.in_flight}
        for name, health in self.devices.items():
            able = [i for i, healthy in self.node.listed.items() if healthy and means(i) == name]
            besides = [i for i in held if means(i) == name and i not in share_ids(name, self.shares)]
            ids = share_ids(name, self.shares)
            having = [i for i in ids if i in held]
            room = max(0, self.shares - len(having) - len(besides))  # each takes a share
            expected = len(having) + min(len(ids) - len(having), room)
            assert len(able) == (expected if health.ok and not self.failing else 0)

    @invariant()
    def what_leaves_was_unhealthy_for_long_enough_and_known_not_to_be_held(self):
        if self.node is None or self.node.listed is None:
            return
        for gone in self.seen - self.node.listed.keys():
            assert self.known
            assert self.node.clock.now - self.unhealthy_since[gone] >= self.keep - 1e-6
        self.seen = set(self.node.listed)
        bad = {i for i, healthy in self.node.listed.items() if not healthy}
        self.unhealthy_since = {i: self.unhealthy_since.get(i, self.node.clock.now) for i in bad}

    @invariant()
    def an_id_means_its_device_or_is_refused(self):
        if self.node is None:
            return
        for offered in IDS:
            answer = self.node.resolve(offered)
            if not isinstance(answer, Refusal):
                assert answer == {offered: Device(means(offered))}
                assert self.devices[means(offered)].ok
                assert not self.failing

    @rule()
    def in_the_end_only_what_is_there_or_held_is_listed(self):
        if self.node.listed is None or self.in_flight:
            return
        self.node.sleep(NOTED_WITHIN + 1)
        self.write()
        self.node.sleep(self.keep + 1)
        listed, held = self.node.listed, self.holds
        assert {i for i in listed if means(i) not in self.devices} <= held


TestEvents = Events.TestCase
TestEvents.settings = settings(deadline=None, max_examples=50, stateful_step_count=30)
