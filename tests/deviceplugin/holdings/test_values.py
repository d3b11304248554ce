"""What containers hold: by example, and against a kubelet that allocates, frees, writes late, and is replaced."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dpgateway.deviceplugin.holdings.evidence import LINGER
from dpgateway.deviceplugin.holdings.values import CLOCK_STEP, DOUBT, Holdings
from dpgateway.node.holders import Container, Holder, Noted
from dpgateway.resource.front import NOTED_WITHIN, Unreleased
from tests.support.notes import note_of, noted_of

NOW = 1_700_000_000.0


def note(*ids):
    return dict.fromkeys(ids, Noted())


def noted(*ids, written=NOW, now=NOW):
    return Holdings().noted(note(*ids), written, now)


def given(holdings, *ids, now=NOW):
    return holdings.began(ids).gave(ids, now)


def test_nothing_is_known_before_the_note_was_read():
    assert Holdings().held is None
    assert not Holdings().known
    assert Holdings().freed == frozenset()


def test_what_is_noted_granted_or_in_flight_is_held():
    holdings = given(noted("a"), "b").began(("c", "d"))
    assert holdings.held == {"a", "b", "c", "d"}


def test_holders_have_the_names_of_pods():
    gone = noted_of("gone")
    holdings = Holdings().noted({"a": noted_of("u1"), "b": noted_of("u2"), "c": gone}, NOW, NOW)
    holdings = replace(holdings, listed={"a": Holder("shop", "till-0", "app")}, gone=frozenset({"gone"}))
    assert holdings.named == {"a": ("shop/till-0 (app)",), "b": ("pod u2 (c)",)}
    assert Holdings().named == {}


def test_a_note_that_cannot_be_read():
    holdings = given(noted("a"), "b").noted(None, NOW, NOW).began(("c",))
    assert holdings.held is None
    assert holdings.freed == frozenset()
    assert holdings.last_known == {"a", "b", "c"}


@pytest.mark.parametrize("first", [None, note("a")], ids=["unreadable", "readable"])
def test_a_note_that_is_missing_later_changes_nothing(first):
    holdings = Holdings().noted(first, NOW, NOW)
    assert holdings.missing(NOW) == holdings


def test_a_note_that_was_never_there():
    assert Holdings().missing(NOW).held == frozenset()


def test_a_note_older_than_the_allocate_says_nothing_of_it():
    holdings = given(noted(), "a", now=NOW + 5)
    assert holdings.noted(note(), NOW + 4, NOW + 1000).held == {"a"}


def test_a_newer_note_is_believed_after_a_while():
    holdings = given(noted(), "a")
    assert holdings.noted(note(), NOW + 1, NOW + NOTED_WITHIN).held == {"a"}
    assert holdings.noted(note(), NOW + 1, NOW + NOTED_WITHIN + 0.1).held == frozenset()


def test_a_note_of_the_same_tick():
    holdings = given(noted(), "a").noted(note("a"), NOW - CLOCK_STEP / 2, NOW + 1)
    assert holdings.granted == {}
    assert given(noted(), "a").noted(note("a"), NOW - 2 * CLOCK_STEP, NOW + 1).granted == {"a": NOW}


@pytest.mark.parametrize("granted", ["here", "by an earlier gateway"])
def test_a_note_of_the_pod_before_doesn_t_have_the_grant(granted):
    """A kubelet writes what an ended pod had at each list, too, perhaps just before it gives that away."""
    old = {"a": noted_of("old")}
    holdings = Holdings().remembered({}).new_kubelet(NOW - 1, "k").noted(old, NOW, NOW)
    if granted == "here":
        holdings = given(holdings, "a", now=NOW + CLOCK_STEP / 2)
    else:  # its time has no fractions
        holdings = holdings.remembered({"a": Unreleased("k", since=17)}, {"a": NOW - 0.5})
    again = holdings.noted(old, NOW, NOW + 0.1).ended(frozenset({"old"}))
    assert again.freed == frozenset()
    assert again.in_use == frozenset("a")
    new = again.noted({"a": noted_of("new")}, NOW + 1, NOW + 1)
    assert new.granted == {}
    assert new.in_use == frozenset("a")
    same = holdings.noted(old, NOW + 1, NOW + 1)
    assert same.granted == {}, "a static pod that was started again"
    late = holdings.noted(old, NOW + CLOCK_STEP / 4, NOW + 2)
    assert (late.granted == {}) is (granted == "here")


def test_an_allocate_that_failed():
    holdings = noted("b").began(("a", "b")).noted(note("b"), NOW, NOW).failed(("a", "b"))
    assert holdings.held == {"b"}
    assert holdings.freed == frozenset()
    assert holdings.noted(note(), NOW + 1, NOW + 1).freed == {"b"}


def test_a_failed_allocate_hides_no_end():
    holdings = noted("a").began(("a",)).noted(note(), NOW + 1, NOW + 1)
    assert holdings.freed == frozenset()
    assert holdings.failed(("a",)).freed == {"a"}


@pytest.mark.parametrize("held", [noted("a"), given(noted(), "a")], ids=["noted", "granted"])
def test_holders_before_a_new_kubelet_writes(held):
    assert held.new_kubelet(NOW + 1, "new").last_known == {"a"}


def test_the_same_ids_may_be_in_flight_twice():
    holdings = noted().began(("a",)).began(("a",)).failed(("a",))
    assert holdings.held == {"a"}
    assert holdings.failed(("a",)).held == frozenset()


def test_what_is_freed_is_told_once():
    holdings = noted("a", "b").noted(note("b"), NOW + 1, NOW + 1)
    assert holdings.freed == {"a"}
    assert holdings.released(holdings.freed).freed == frozenset()
    assert holdings.released(holdings.freed).noted(note(), NOW + 2, NOW + 2).freed == {"b"}


def test_who_had_an_id_earlier():
    holdings = Holdings().new_kubelet(NOW - 1, "k").noted({"a": noted_of("p"), "b": noted_of("q")}, NOW, NOW)
    assert holdings.earlier(["a"]) == {"p"}
    struck = holdings.noted({"b": noted_of("q")}, NOW + 1, NOW + 1)
    assert struck.earlier(["a", "b"]) == {"p", "q"}
    assert struck.told(None, frozenset()).earlier(["a"]) == {"p"}, "it is asked when the id is given away"
    assert struck.noted({"a": noted_of("new")}, NOW + 2, NOW + 2).earlier(["a"]) == {"new"}
    assert struck.new_kubelet(NOW + 3, "another").earlier(["a", "b"]) == frozenset()


def test_what_another_kubelet_forgot_was_not_freed():
    holdings = noted("a").new_kubelet(NOW + 1, "new").noted(note("a"), NOW, NOW + 1)  # the older kubelet's file
    holdings = holdings.noted(note(), NOW + 2, NOW + 2)
    assert holdings.freed == frozenset()
    assert holdings.held == frozenset()
    assert holdings.noted(note("a"), NOW + 3, NOW + 3).noted(note(), NOW + 4, NOW + 4).freed == {"a"}


def test_an_id_whose_pods_are_gone_is_free_but_still_held():
    holdings = Holdings().noted(note_of(a="1", b="2"), NOW, NOW).ended(frozenset("1"))
    assert holdings.freed == {"a"}
    assert holdings.held == frozenset("ab"), "the kubelet may still name it"
    assert holdings.released(holdings.freed).noted(note_of(a="1", b="2"), NOW, NOW + 5).freed == frozenset(), (
        "told once"
    )


def test_an_id_is_in_use_until_each_of_its_pods_is_gone():
    both = {"a": Noted(containers=frozenset([Container("1", "c"), Container("2", "c")]))}
    holdings = Holdings().noted(both, NOW, NOW)
    assert holdings.ended(frozenset("1")).freed == frozenset()
    assert holdings.ended(frozenset("12")).freed == {"a"}


def test_an_id_whose_pod_is_gone_may_be_given_away_again():
    holdings = given(Holdings().noted(note_of(a="1"), NOW, NOW).ended(frozenset("1")), "a", now=NOW + 1)
    assert holdings.freed == frozenset()
    assert holdings.in_use == {"a"}
    assert holdings.noted(note_of(a="2"), NOW + 2, NOW + 2).freed == frozenset()


def test_a_noted_id_of_no_named_pod_is_in_use():
    assert noted("a").ended(frozenset("1")).in_use == {"a"}


HOLDER = Holder("team", "encoder-0", "c")


def test_an_allocate_that_succeeds_frees_nothing():
    before = noted("a").remembered({})
    hardware = {"b": frozenset({"board"})}
    assert before.began(("b",)).owed(("b",), hardware).gave(("b",), NOW).only_gave_since(before)
    assert not before.owed(("b",), hardware).only_gave_since(before), "another front gave it"


def test_an_id_lingers_before_it_is_free():
    holdings = noted("a").heard({"a": HOLDER}, NOW).heard({}, NOW + 1)
    assert holdings.heard({}, NOW + LINGER).freed == frozenset()
    assert holdings.heard({}, NOW + 1 + LINGER).freed == {"a"}
    assert holdings.heard({"a": HOLDER}, NOW + 5).heard({}, NOW + 1 + LINGER).freed == frozenset()


def test_an_id_lingers_while_its_pod_is_said_to_run():
    """A static pod that is ended isn't listed, whatever its grace period."""
    pod = frozenset({"p"})
    holdings = Holdings().noted({"a": noted_of("p")}, NOW, NOW).heard({"a": HOLDER}, NOW).heard({}, NOW + 1)
    lingers = holdings.told(pod, pod).heard({}, NOW + 2 * LINGER)
    assert lingers.freed == frozenset()
    assert lingers.in_use == frozenset("a")
    assert lingers.told(None, pod).freed == frozenset()
    assert lingers.told(frozenset(), pod).freed == {"a"}
    assert not lingers.told(frozenset(), pod).only_gave_since(lingers)
    assert lingers.ended(pod).freed == {"a"}


def test_an_id_that_was_never_listed():
    assert noted("a").heard({}, NOW).heard({}, NOW + 2 * LINGER).freed == frozenset()


def test_a_grant_since_the_list_was_asked():
    holdings = given(noted("a").heard({"a": HOLDER}, NOW), "a", now=NOW + 5)
    assert holdings.listed == {}
    assert holdings.heard({"a": HOLDER}, NOW + 4).listed == {}, "the pod before it"
    assert holdings.heard({"a": HOLDER}, NOW + 6).listed == {"a": HOLDER}
    assert noted().began(("a",)).heard({"a": HOLDER}, NOW).listed == {}


@pytest.mark.parametrize("between", [None, {}], ids=["at once", "after a note without it"])
def test_an_id_lingers_for_its_last_pod(between):
    """Another gateway serves, and gave it to another pod, whose init container isn't listed."""
    holdings = Holdings().noted({"a": noted_of("p")}, NOW, NOW).heard({"a": HOLDER}, NOW).heard({}, NOW + 1)
    same = holdings.noted({"a": noted_of("p")}, NOW + 2, NOW + 2).heard({}, NOW + 2 * LINGER)
    assert same.freed == {"a"}
    other = holdings.noted(between, NOW + 2, NOW + 2) if between is not None else holdings
    other = other.noted({"a": noted_of("q")}, NOW + 3, NOW + 3)
    assert other.in_use == frozenset("a")
    other = other.heard({}, NOW + 2 * LINGER)
    assert other.freed == frozenset()
    assert other.in_use == frozenset("a")
    assert other.ended(frozenset({"q"})).freed == {"a"}


@pytest.mark.parametrize("between", [None, {}], ids=["at once", "after a note without it"])
def test_an_id_that_was_listed_for_the_pod_before(between):
    """Another gateway gave it away before the next List, which has no init container of the next pod."""
    holdings = Holdings().noted({"a": noted_of("p")}, NOW, NOW).heard({"a": HOLDER}, NOW)
    holdings = holdings.noted(between, NOW + 1, NOW + 1) if between is not None else holdings
    other = holdings.noted({"a": noted_of("q")}, NOW + 2, NOW + 2)
    assert other.listed == {}
    other = other.heard({}, NOW + 3).heard({}, NOW + 3 + 2 * LINGER)
    assert other.freed == frozenset()
    assert other.in_use == frozenset("a")


def test_a_grant_that_was_listed_before_it_was_noted():
    holdings = given(noted(), "a", now=NOW).heard({"a": HOLDER}, NOW + 1)
    assert holdings.noted({"a": noted_of("p")}, NOW + 2, NOW + 2).listed == {"a": HOLDER}


def test_another_kubelets_list():
    holdings = noted("a").heard({"a": HOLDER}, NOW).new_kubelet(NOW + 1, "new").heard({}, NOW + 1)
    assert holdings.heard({}, NOW + 2 * LINGER).freed == frozenset()


def test_an_earlier_gateways_id_is_freed():
    unreleased = {"a": Unreleased("old", frozenset("1"))}
    holdings = Holdings(unreleased=unreleased).new_kubelet(NOW, "old").noted({}, NOW + 1, NOW + 1)
    assert holdings.told(None, frozenset("1")).freed == {"a"}
    other = Holdings(unreleased=unreleased).new_kubelet(NOW + 1, "new").noted({}, NOW + 2, NOW + 2)
    assert other.freed == frozenset(), "another kubelet may have forgotten it"
    assert other.last_known == {"a"}
    assert other.ended(frozenset("1")).freed == {"a"}


def test_free_once_all_pods_of_then_are_gone():
    """No note of an earlier kubelet told which pod had it."""
    holdings = Holdings(unreleased={"a": Unreleased("old")}).new_kubelet(NOW, "new").noted({}, NOW + 1, NOW + 1)
    assert holdings.ended(frozenset("12")).freed == frozenset()
    among = holdings.among(frozenset("12"))
    assert among.ended(frozenset("1")).freed == frozenset()
    assert among.ended(frozenset("12")).freed == {"a"}
    assert among.among(frozenset("3")) is among, "later pods can't have it"
    assert holdings.among(frozenset()).freed == {"a"}
    assert given(among, "a", now=NOW + 2).ended(frozenset("12")).freed == frozenset(), "another container has it"
    again = among.noted(note_of(a="4"), NOW + 2, NOW + 2)
    assert again.unreleased["a"].pods == {"4"}


def test_hardware_is_remembered_as_given():
    was, other = frozenset(["char 188:0"]), frozenset(["char 188:1"])
    holdings = noted().remembered({}).began(("a",)).gave(("a",), NOW, {"a": was}).noted(note("a"), NOW + 1, NOW + 1)
    assert holdings.known_behind({"a": other}).unreleased["a"].hardware == was
    assert noted("a").remembered({}).known_behind({"a": other, "b": was}).unreleased["a"].hardware == other
    assert noted("a").known_behind({"a": other}).unreleased["a"].hardware == frozenset(), (
        "an earlier gateway may have said it"
    )
    assert (
        noted("a").remembered({"a": Unreleased("", hardware=was)}).known_behind({"a": other}).unreleased["a"].hardware
        == was
    )
    assert given(holdings, "a", now=NOW + 2).unreleased["a"].hardware == frozenset(), "given away again"


def test_since_when_an_id_is_held():
    def since(holdings):
        return holdings.unreleased["a"].since

    holdings = noted().began(("a",)).gave(("a",), NOW, since=17)
    assert since(holdings) == 17
    first = {"a": noted_of("1")}
    assert since(holdings.noted(first, NOW + 1, NOW + 1)) == 17
    after_restart = Holdings().noted(first, NOW + 1, NOW + 2)
    assert since(after_restart) is None
    assert since(after_restart.remembered({"a": Unreleased("", frozenset("1"), since=17)})) == 17
    assert since(after_restart.remembered({"a": Unreleased("", frozenset("2"), since=17)})) is None


IDS = st.sets(st.sampled_from("abcd"), min_size=1).map(lambda ids: tuple(sorted(ids)))


def doubtful(written=NOW, **pods):
    """Noted, and no pod has a directory yet."""
    return Holdings().noted(note_of(**pods), written, written).ended(frozenset(), frozenset(pods.values()))


def test_an_unlisted_pod_without_a_directory():
    holdings = doubtful(a="1")
    assert not holdings.in_doubt
    assert not holdings.heard({}, NOW - 1).in_doubt
    assert not holdings.heard({"a": HOLDER}, NOW + 1).in_doubt
    assert holdings.heard({}, NOW + 1).in_doubt
    assert not holdings.heard({}, NOW + 1).ended(frozenset("1")).in_doubt
    assert not holdings.heard({}, NOW + 1).began(("a",)).in_doubt


def test_neither_noted_nor_listed_is_in_doubt():
    holdings = given(noted(), "a", now=NOW + 1)
    assert not holdings.heard({}, NOW).in_doubt
    assert holdings.heard({}, NOW + 2).in_doubt
    assert not holdings.heard({"a": HOLDER}, NOW + 2).in_doubt


def test_a_doubt_frees_nothing_and_is_told_of_once_a_while():
    holdings = doubtful(a="1").heard({}, NOW + 1)
    assert (holdings.freed, holdings.in_use) == (frozenset(), {"a"})
    assert holdings.doubted == NOW + 1
    assert holdings.heard({}, NOW + 1 + DOUBT / 2).doubted == NOW + 1
    assert holdings.heard({}, NOW + 1 + DOUBT).doubted == NOW + 1 + DOUBT
    assert holdings.noted({}, NOW + 2, NOW + 2).freed == {"a"}


def test_pods_that_are_ending():
    pods = {"a": "uid-1", "b": "uid-1", "c": "uid-2", "d": "uid-3"}
    holder = Holder("n", "p", "c")
    holdings = Holdings().noted({id_: noted_of(uid) for id_, uid in pods.items()}, NOW, NOW)
    assert holdings.heard({}, NOW).ending == frozenset(), "it never listed them"
    holdings = holdings.heard(dict.fromkeys("abc", holder), NOW)
    assert holdings.ending == frozenset()
    assert holdings.heard({"a": holder, "c": holder}, NOW + 1).ending == frozenset(), "uid-1 has a still"
    fewer = holdings.heard({"c": holder}, NOW + 1)
    assert fewer.ending == {"uid-1"}
    assert fewer.new_kubelet(NOW + 2, "another").ending == frozenset()


class Events(RuleBasedStateMachine):
    """A kubelet that notes within NOTED_WITHIN seconds what it allocated, and what it freed when it next allocates."""

    def __init__(self):
        super().__init__()
        self.now = NOW
        self.holdings = Holdings()
        self.uids = itertools.count()
        self.holds, self.unnoted = {}, {}  # the pod that has each id, and since when the file may lack an id
        self.file, self.written = {}, 0.0
        self.in_flight, self.told, self.had = [], [], set()

    @initialize()
    def begin(self):
        self.write(complete=True)

    @rule(seconds=st.sampled_from([0.1, 1.0, 6.0, 30.0]))
    def time_passes(self, seconds):
        self.now += seconds
        if any(self.now - at >= NOTED_WITHIN for at in self.unnoted.values()):
            self.write(complete=False)

    @rule(ids=IDS)
    def allocate_begins(self, ids):
        if any(id_ in self.holds for id_ in ids):
            return
        self.in_flight.append(ids)
        self.holdings = self.holdings.began(ids)

    @precondition(lambda self: self.in_flight)
    @rule(works=st.booleans())
    def allocate_ends(self, works):
        ids = self.in_flight.pop(0)
        if works and self.holds.keys().isdisjoint(ids):  # two Allocates of one id: its first kubelet ended meanwhile
            self.holdings = self.holdings.gave(ids, self.now)
            self.holds |= dict.fromkeys(ids, f"pod-{next(self.uids)}")
            self.unnoted |= dict.fromkeys(ids, self.now)
            self.had.update(ids)
        else:
            self.holdings = self.holdings.failed(ids)

    @rule(complete=st.booleans())
    def write(self, complete):
        """``complete``: nothing lags behind; a lag is shorter than NOTED_WITHIN."""
        late = set() if complete else {i for i, at in self.unnoted.items() if self.now - at < NOTED_WITHIN}
        self.unnoted = {i: at for i, at in self.unnoted.items() if i in late}
        self.file = {i: noted_of(uid) for i, uid in self.holds.items() if i not in late}
        self.written = self.now
        self.read()

    @rule()
    def read(self):
        self.holdings = self.holdings.noted(self.file, self.written, self.now)
        self.hear()

    @rule(how=st.sampled_from(["unreadable", "missing"]))
    def the_file_breaks(self, how):
        if how == "missing":
            self.holdings = self.holdings.missing(self.now)
        else:
            self.holdings = self.holdings.noted(None, self.now, self.now)
        self.hear()

    @precondition(lambda self: self.holds)
    @rule(data=st.data(), noted=st.booleans(), complete=st.booleans())
    def a_pod_ends(self, data, noted, complete):
        uid = data.draw(st.sampled_from(sorted(self.holds.values())))
        for id_ in [id_ for id_, pod in self.holds.items() if pod == uid]:
            del self.holds[id_]
            self.unnoted.pop(id_, None)
        if noted:
            self.write(complete)

    @rule()
    def the_pods_directory_is_looked_at(self):
        self.holdings = self.holdings.ended(self.holdings.pods - set(self.holds.values()))
        self.hear()

    @rule()
    def all_pods_are_known(self):
        self.holdings = self.holdings.among(frozenset(self.holds.values()))
        self.hear()

    @rule(hidden=st.sets(st.sampled_from("abcd")))
    def list_is_asked(self, hidden):
        """``hidden``: what an init container has isn't listed, until a container of the pod itself has it."""
        listed = {i: Holder("ns", uid, "c") for i, uid in self.holds.items() if i not in hidden or self.was_listed(i)}
        self.holdings = self.holdings.heard(listed, self.now)
        self.hear()

    def was_listed(self, id_):
        return id_ in self.holdings.listed

    @rule()
    def another_kubelet_comes(self):
        self.holdings = self.holdings.new_kubelet(self.now, f"at {self.now}")
        self.had = set(self.holds)
        self.now += 0.1
        self.write(complete=True)

    def hear(self):
        freed = self.holdings.freed
        assert not freed & self.holds.keys(), "freed, and a container holds it"
        assert not any(freed.intersection(ids) for ids in self.in_flight), "freed, and being given away"
        self.told += freed
        self.holdings = self.holdings.released(self.holdings.freed)
        assert not self.holdings.freed

    @invariant()
    def whatever_a_container_holds_or_may_be_getting_is_held_and_in_use(self):
        held, in_use = self.holdings.held, self.holdings.in_use
        assert (held is None) == (in_use is None)
        if held is not None and in_use is not None:
            assert in_use <= held
            assert self.holds.keys() <= in_use
            assert all(in_use.issuperset(ids) for ids in self.in_flight)
        assert self.holds.keys() <= self.holdings.last_known
        assert all(self.holdings.last_known.issuperset(ids) for ids in self.in_flight)

    @rule(written=st.booleans())
    def in_the_end_only_what_is_held_is_in_use_and_each_end_was_told(self, written):
        if self.in_flight:
            return
        if written:
            self.now += NOTED_WITHIN + 1
            self.write(complete=True)
            assert self.holdings.held == self.holds.keys()
        elif self.unnoted or self.holdings.note is None:
            return
        else:
            self.read()
            self.the_pods_directory_is_looked_at()
            assert self.holdings.in_use == frozenset(self.holds) | self.holdings.granted.keys()
        assert self.had - self.holds.keys() - self.holdings.granted.keys() <= set(self.told)
        self.had, self.told = set(self.holds) | (self.holdings.granted.keys() & self.had), []


TestEvents = Events.TestCase
TestEvents.settings = settings(deadline=None, max_examples=60, stateful_step_count=30)


def test_a_grant_of_an_earlier_boot():
    """A Failed pod has its directory until somebody deletes it, but nothing of it runs."""
    unreleased = {"a": Unreleased("old", frozenset("1"), boot="boot 1"), "b": Unreleased("old", boot="boot 1")}
    start = Holdings(boot="boot 2").remembered(unreleased)
    before = start.new_kubelet(NOW, "new").noted({}, NOW - 1, NOW)
    assert before.freed == frozenset(), "that kubelet hasn't written yet"
    assert before.noted({}, NOW + 1, NOW + 1).freed == {"a", "b"}
    assert before.noted(note_of(a="1"), NOW + 1, NOW + 1).freed == {"b"}
    known = before.noted({}, NOW + 1, NOW + 1)
    assert known.among(frozenset("2")) is known, "nothing is unclear"
    again = before.noted(note_of(a="1"), NOW + 1, NOW + 1).new_kubelet(NOW + 2, "newer").noted({}, NOW + 3, NOW + 3)
    assert "a" not in again.freed, "it was given in this boot, and this kubelet may have forgotten it"


@pytest.mark.parametrize(("then", "now"), [("", "boot 2"), ("boot 1", ""), ("boot 2", "boot 2")])
def test_an_unknown_boot_proves_nothing(then, now):
    start = Holdings(boot=now).remembered({"a": Unreleased("old", frozenset("1"), boot=then)})
    assert start.new_kubelet(NOW, "new").noted({}, NOW + 1, NOW + 1).freed == frozenset()


def test_a_note_of_an_earlier_boot():
    start = Holdings(boot="boot 2").remembered({"a": Unreleased("old", frozenset("1"), boot="boot 1")})
    stale = start.new_kubelet(-20.0, "old").noted(note_of(a="1"), -10.0, NOW)
    assert stale.unreleased["a"].boot == "boot 1"
    assert stale.new_kubelet(NOW, "new").noted({}, NOW + 1, NOW + 1).freed == {"a"}


def test_what_is_given_has_the_boot_and_its_driver():
    holdings = noted().given_by("fpga").began(("a",)).gave(("a",), NOW, {}, devices={"a": "card"})
    assert holdings.unreleased["a"][-3:] == ("card", "fpga", "")
    assert replace(holdings, boot="1").noted(note_of(a="1"), NOW, NOW).unreleased["a"].boot == "1"


def test_the_last_holder_is_known_after_it_has_ended():
    holdings = noted("a").heard({"a": HOLDER}, NOW).heard({}, NOW + 1)
    assert holdings.last_holder("a") == str(HOLDER)
    assert given(holdings, "a", now=NOW + 2).last_holder("a") == "a container"
    assert noted().remembered({"a": Unreleased("", frozenset("1"))}).last_holder("a") == "pod 1"


def test_a_pods_device_given_again():
    holdings = noted().noted({**note_of(a="1", b="1"), "c": noted_of("2")}, NOW, NOW)
    assert holdings.given_up(["a"]) == {"a", "b"}
    assert holdings.given_up(["c", "new"]) == {"c"}
    assert given(holdings, "b", now=NOW + 1).given_up(["a"]) == {"a"}, "b is another pod's by now"
    assert noted("a").given_up(["a"]) == frozenset(), "nobody knows whose it was"
