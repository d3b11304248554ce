"""What containers hold: by example, and against a kubelet that allocates, frees, writes late, and is replaced."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dpgateway.node.holdings import CLOCK_STEP, NOTED_WITHIN, Holdings

NOW = 1_700_000_000.0


def note(*ids):
    return dict.fromkeys(ids, ())


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


def test_a_note_that_cannot_be_read_leaves_nothing_known_but_what_was_held_before():
    holdings = given(noted("a"), "b").noted(None, NOW, NOW).began(("c",))
    assert holdings.held is None
    assert holdings.freed == frozenset()
    assert holdings.last_known == {"a", "b", "c"}


@pytest.mark.parametrize("first", [None, note("a")], ids=["unreadable", "readable"])
def test_a_note_that_is_missing_later_changes_nothing(first):
    holdings = Holdings().noted(first, NOW, NOW)
    assert holdings.missing(NOW) == holdings


def test_a_note_that_was_never_there_says_that_nothing_is_held():
    assert Holdings().missing(NOW).held == frozenset()


def test_a_note_older_than_the_allocate_says_nothing_of_it():
    holdings = given(noted(), "a", now=NOW + 5)
    assert holdings.noted(note(), NOW + 4, NOW + 1000).held == {"a"}


def test_a_newer_note_without_the_id_is_believed_only_after_a_while():
    holdings = given(noted(), "a")
    assert holdings.noted(note(), NOW + 1, NOW + NOTED_WITHIN).held == {"a"}
    assert holdings.noted(note(), NOW + 1, NOW + NOTED_WITHIN + 0.1).held == frozenset()


def test_a_note_stamped_with_the_last_tick_knows_what_happened_in_that_tick():
    holdings = given(noted(), "a").noted(note("a"), NOW - CLOCK_STEP / 2, NOW + 1)
    assert holdings.granted == {}
    assert given(noted(), "a").noted(note("a"), NOW - 2 * CLOCK_STEP, NOW + 1).granted == {"a": NOW}


def test_an_allocate_that_failed_holds_nothing_and_frees_nothing():
    holdings = noted("b").began(("a", "b")).noted(note("b"), NOW, NOW).failed(("a", "b"))
    assert holdings.held == {"b"}
    assert holdings.freed == frozenset()
    assert holdings.noted(note(), NOW + 1, NOW + 1).freed == {"b"}


def test_an_allocate_that_fails_does_not_hide_that_the_container_before_it_ended():
    holdings = noted("a").began(("a",)).noted(note(), NOW + 1, NOW + 1)
    assert holdings.freed == frozenset()
    assert holdings.failed(("a",)).freed == {"a"}


@pytest.mark.parametrize("held", [noted("a"), given(noted(), "a")], ids=["noted", "granted"])
def test_what_a_container_holds_is_known_last_also_while_a_new_kubelet_has_written_nothing(held):
    assert held.new_kubelet(NOW + 1).last_known == {"a"}


def test_the_same_ids_may_be_in_flight_twice():
    holdings = noted().began(("a",)).began(("a",)).failed(("a",))
    assert holdings.held == {"a"}
    assert holdings.failed(("a",)).held == frozenset()


def test_what_is_freed_is_told_once():
    holdings = noted("a", "b").noted(note("b"), NOW + 1, NOW + 1)
    assert holdings.freed == {"a"}
    assert holdings.told().freed == frozenset()
    assert holdings.told().noted(note(), NOW + 2, NOW + 2).freed == {"b"}


def test_what_another_kubelet_forgot_was_not_freed():
    holdings = noted("a").new_kubelet(NOW + 1).noted(note("a"), NOW, NOW + 1)  # the older kubelet's file
    holdings = holdings.noted(note(), NOW + 2, NOW + 2)
    assert holdings.freed == frozenset()
    assert holdings.held == frozenset()
    assert holdings.noted(note("a"), NOW + 3, NOW + 3).noted(note(), NOW + 4, NOW + 4).freed == {"a"}


def test_when_to_look_again():
    holdings = given(noted("b"), "a")
    assert holdings.look_again(["a"]) == NOTED_WITHIN
    assert holdings.look_again(["b", "c"]) is None
    assert holdings.noted(None, NOW, NOW).look_again(["a"]) is None


IDS = st.sets(st.sampled_from("abcd"), min_size=1).map(lambda ids: tuple(sorted(ids)))


class Events(RuleBasedStateMachine):
    """A kubelet that notes within NOTED_WITHIN seconds what it allocated, and at once what it freed."""

    def __init__(self):
        super().__init__()
        self.now = NOW
        self.holdings = Holdings()
        self.holds, self.unnoted = {}, {}  # since when containers have ids, and which of those the file may lack
        self.in_flight, self.told, self.had = [], [], set()

    @initialize()
    def begin(self):
        self.write(complete=True)

    @rule(seconds=st.sampled_from([0.1, 1.0, 6.0, 30.0]))
    def time_passes(self, seconds):
        self.now += seconds

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
        if works:
            self.holdings = self.holdings.gave(ids, self.now)
            self.holds |= dict.fromkeys(ids, self.now)
            self.unnoted |= dict.fromkeys(ids, self.now)
            self.had.update(ids)
        else:
            self.holdings = self.holdings.failed(ids)

    @rule(complete=st.booleans())
    def write(self, complete):
        """``complete``: nothing lags behind; a lag is shorter than NOTED_WITHIN."""
        late = set() if complete else {i for i, at in self.unnoted.items() if self.now - at < NOTED_WITHIN}
        self.unnoted = {i: at for i, at in self.unnoted.items() if i in late}
        self.holdings = self.holdings.noted(note(*(self.holds.keys() - late)), self.now, self.now)
        self.hear()

    @rule(how=st.sampled_from(["unreadable", "missing"]))
    def the_file_breaks(self, how):
        if how == "missing":
            self.holdings = self.holdings.missing(self.now)
        else:
            self.holdings = self.holdings.noted(None, self.now, self.now)
        self.hear()

    @precondition(lambda self: self.holds)
    @rule(data=st.data(), complete=st.booleans())
    def a_pod_ends(self, data, complete):
        gone = data.draw(st.sampled_from(sorted(self.holds)))
        del self.holds[gone]
        self.unnoted.pop(gone, None)
        self.write(complete)

    @rule()
    def another_kubelet_comes(self):
        self.holdings = self.holdings.new_kubelet(self.now)
        self.had = set(self.holds)
        self.now += 0.1
        self.write(complete=True)

    def hear(self):
        freed = self.holdings.freed
        assert not freed & self.holds.keys(), "freed, and a container holds it"
        assert not any(freed.intersection(ids) for ids in self.in_flight), "freed, and being given away"
        self.told += freed
        self.holdings = self.holdings.told()
        assert not self.holdings.freed

    @invariant()
    def whatever_a_container_holds_or_may_be_getting_is_held(self):
        held = self.holdings.held
        if held is not None:
            assert self.holds.keys() <= held
            assert all(held.issuperset(ids) for ids in self.in_flight)
        assert all(self.holdings.last_known.issuperset(ids) for ids in self.in_flight)

    @rule()
    def in_the_end_only_what_is_held_is_held_and_each_end_was_told(self):
        if self.in_flight:
            return
        self.now += NOTED_WITHIN + 1
        self.write(complete=True)
        assert self.holdings.held == self.holds.keys()
        assert self.had - self.holds.keys() <= set(self.told)
        self.had, self.told = set(self.holds), []


TestEvents = Events.TestCase
TestEvents.settings = settings(deadline=None, max_examples=150, stateful_step_count=30)
