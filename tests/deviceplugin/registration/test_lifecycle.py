"""The table's rules, the walk through it, and a model of a kubelet that disturbs the walk in every way."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dpgateway.deviceplugin.registration.lifecycle import RESULTS, TABLE, Action, Backoff, Lifecycle, State, Trigger

READY_STATES = [state for state in State if state not in (State.UNREADY, State.DUE, State.STOPPED)]
STOPPING = (State.STOPPED, Action.GIVE_UP)


def test_every_pair_is_decided():
    assert {(state, event) for state in TABLE for event in TABLE[state]} == set(itertools.product(State, Trigger))


def test_nothing_is_registered_before_it_is_ready():
    for state in (State.UNREADY, State.DUE):
        for event in set(Trigger) - {Trigger.READY, Trigger.STOP}:
            then, action = TABLE[state][event]
            assert (then in (State.UNREADY, State.DUE), action) == (True, Action.NOTHING), (state, event)


@pytest.mark.parametrize("state", READY_STATES)
def test_a_new_kubelet_from_every_ready_state(state):
    assert TABLE[state][Trigger.KUBELET_NEW] == (State.REGISTERING, Action.REGISTER)


@pytest.mark.parametrize("state", [State.REGISTERING, State.EXPECTING, State.SERVING])
def test_a_deleted_file_ends_no_stream(state):
    assert TABLE[state][Trigger.KUBELET_GONE] == (state, Action.NOTHING)


@pytest.mark.parametrize("state", [state for state in State if state is not State.STOPPED])
def test_every_state_can_be_stopped(state):
    assert TABLE[state][Trigger.STOP] == STOPPING


def test_a_register_is_in_flight_in_its_own_state_only():
    """Each way out of REGISTERING is a result of the RPC, or gives it up; or the stream is there already."""
    for event, (then, action) in TABLE[State.REGISTERING].items():
        if then is not State.REGISTERING:
            assert event in RESULTS or action in (Action.SERVE, Action.GIVE_UP), event


# the walk

NEW, ACCEPTED, REFUSED, FAILED = Trigger.KUBELET_NEW, Trigger.ACCEPTED, Trigger.API_REFUSED, Trigger.FAILED


def ready(apis=3):
    lifecycle = Lifecycle(apis)
    assert lifecycle.feed(Trigger.READY) is Action.NOTHING
    return lifecycle


def walk(*events, apis=3):
    """A ready lifecycle after ``events``, none of them stale."""
    lifecycle = ready(apis)
    for event in events:
        lifecycle.feed(event, lifecycle.attempt)
    return lifecycle


def test_ready_leads_from_unready_to_away():
    assert Lifecycle(3).state is State.UNREADY
    assert ready().state is State.AWAY
    assert ready().attempt == 0


@pytest.mark.parametrize("there", [Trigger.KUBELET_NEW, Trigger.KUBELET_BACK])
def test_a_kubelet_that_waits_gets_its_register(there):
    lifecycle = Lifecycle(3)
    assert lifecycle.feed(there) is Action.NOTHING
    assert lifecycle.feed(Trigger.READY) is Action.REGISTER


def test_a_kubelet_that_went_gets_none():
    lifecycle = Lifecycle(3)
    lifecycle.feed(NEW)
    lifecycle.feed(Trigger.KUBELET_GONE)
    assert lifecycle.feed(Trigger.READY) is Action.NOTHING
    assert lifecycle.state is State.AWAY


def test_the_usual_walk():
    lifecycle = ready()
    assert lifecycle.feed(NEW) is Action.REGISTER
    assert lifecycle.feed(ACCEPTED, lifecycle.attempt) is Action.EXPECT
    assert lifecycle.feed(Trigger.STREAM_OPEN) is Action.SERVE
    assert lifecycle.state is State.SERVING


@pytest.mark.parametrize("stale", [event for event in Trigger if event in RESULTS])
@pytest.mark.parametrize(
    "past",
    [(NEW,), (NEW, ACCEPTED), (NEW, FAILED), (NEW, REFUSED), (NEW, Trigger.STREAM_OPEN)],
    ids=lambda past: " ".join(event.name for event in past),
)
def test_results_of_an_older_attempt_are_dropped(stale, past):
    lifecycle = walk(*past)
    before, attempt = lifecycle.state, lifecycle.attempt
    assert lifecycle.feed(stale, attempt - 1) is Action.NOTHING
    assert lifecycle.feed(stale) is Action.NOTHING
    assert (lifecycle.state, lifecycle.attempt) == (before, attempt)


def test_a_register_that_was_given_up_is_another_attempt():
    lifecycle = walk(NEW)
    first = lifecycle.attempt
    assert lifecycle.feed(NEW) is Action.REGISTER
    assert lifecycle.feed(ACCEPTED, first) is Action.NOTHING
    assert lifecycle.state is State.REGISTERING
    assert lifecycle.feed(ACCEPTED, lifecycle.attempt) is Action.EXPECT


@pytest.mark.parametrize("apis", [1, 2, 3])
def test_when_every_api_was_refused_it_waits(apis):
    lifecycle = walk(NEW, apis=apis)
    attempt = lifecycle.attempt
    for _ in range(apis - 1):
        assert lifecycle.feed(REFUSED, attempt) is Action.NEXT_API
        assert (lifecycle.state, lifecycle.attempt) == (State.REGISTERING, attempt)
    assert lifecycle.feed(REFUSED, attempt) is Action.WAIT
    assert lifecycle.state is State.WAITING


def test_each_attempt_may_try_every_api():
    lifecycle = walk(NEW, REFUSED, REFUSED, REFUSED, Trigger.TIMER)
    assert lifecycle.state is State.REGISTERING
    for action in (Action.NEXT_API, Action.NEXT_API, Action.WAIT):
        assert lifecycle.feed(REFUSED, lifecycle.attempt) is action


@pytest.mark.parametrize("between", [Trigger.KUBELET_GONE, Trigger.KUBELET_BACK, Trigger.REDO, Trigger.LAST_STREAM_END])
def test_a_refusal_lasts_for_its_attempt(between):
    lifecycle = walk(NEW, REFUSED, between, REFUSED, between)
    assert lifecycle.feed(REFUSED, lifecycle.attempt) is Action.WAIT


def test_the_timer_finds_the_kubelet_gone():
    lifecycle = walk(NEW, Trigger.STREAM_OPEN, Trigger.KUBELET_GONE, Trigger.LAST_STREAM_END)
    assert lifecycle.state is State.WAITING
    assert (lifecycle.feed(Trigger.TIMER, lifecycle.attempt), lifecycle.state) == (Action.GIVE_UP, State.AWAY)


def test_the_timer_finds_the_kubelet_back():
    lifecycle = walk(NEW, Trigger.STREAM_OPEN, Trigger.KUBELET_GONE, Trigger.LAST_STREAM_END, Trigger.KUBELET_BACK)
    assert lifecycle.feed(Trigger.TIMER, lifecycle.attempt) is Action.REGISTER


def test_a_file_that_comes_back_ends_being_away():
    # another resource's stream told that it is the same kubelet
    lifecycle = walk(NEW, FAILED, Trigger.KUBELET_GONE)
    assert lifecycle.state is State.AWAY
    assert lifecycle.feed(Trigger.KUBELET_BACK) is Action.REGISTER


def test_waiting_ends_at_once_for_a_new_kubelet():
    lifecycle = walk(NEW, FAILED)
    waiting = lifecycle.attempt
    assert lifecycle.feed(NEW) is Action.REGISTER
    assert lifecycle.feed(Trigger.TIMER, waiting) is Action.NOTHING


class Walk(RuleBasedStateMachine):
    """A gateway that does what the table says, and a kubelet that may do anything."""

    def __init__(self):
        super().__init__()
        self.lifecycle = Lifecycle(3)
        self.in_flight = set()  # the attempts of Registers that the kubelet hasn't answered
        self.asked = 0  # Registers of the newest attempt
        self.timer = None  # the attempt of the timer that runs
        self.file = False
        self.streams = 0  # of this kubelet
        self.dead_results = []

    def do(self, event, attempt=None):
        stopped = self.lifecycle.state is State.STOPPED
        action = self.lifecycle.feed(event, attempt)
        if stopped:
            assert (action, self.lifecycle.state) == (Action.NOTHING, State.STOPPED)
        {
            Action.NOTHING: lambda: None,
            Action.REGISTER: self.register,
            Action.NEXT_API: self.next_api,
            Action.EXPECT: self.start_timer,
            Action.WAIT: self.wait,
            Action.DRAIN: self.drain,
            Action.SERVE: self.serve,
            Action.GIVE_UP: self.cancel,
        }[action]()

    def register(self):
        self.cancel()
        self.asked = 0
        self.next_api()

    def next_api(self):
        assert not self.in_flight, "two Registers in flight"
        self.in_flight.add(self.lifecycle.attempt)
        self.asked += 1
        assert self.asked <= 3, "an API is asked twice in one attempt"

    def start_timer(self):
        self.timer = self.lifecycle.attempt

    def wait(self):
        self.cancel()
        self.start_timer()

    def drain(self):
        self.streams = 0
        self.wait()

    def cancel(self):
        """Cancelled, but its result may be on its way."""
        self.dead_results += self.in_flight
        self.in_flight.clear()
        self.timer = None

    def serve(self):
        self.timer = None

    # what a kubelet and its file can do

    @precondition(lambda self: self.lifecycle.state in (State.UNREADY, State.DUE))
    @rule()
    def becomes_ready(self):
        self.do(Trigger.READY)

    @rule()
    def kubelet_starts(self):
        self.file, self.streams = True, 0
        self.do(Trigger.KUBELET_NEW)

    @precondition(lambda self: self.file)
    @rule()
    def file_goes(self):
        self.file = False
        self.do(Trigger.KUBELET_GONE)

    @precondition(lambda self: not self.file)
    @rule()
    def file_comes_back(self):
        self.file = True
        self.do(Trigger.KUBELET_BACK)

    @precondition(lambda self: self.in_flight)
    @rule(result=st.sampled_from([Trigger.ACCEPTED, Trigger.API_REFUSED, Trigger.FAILED]))
    def answer(self, result):
        self.do(result, self.in_flight.pop())

    @precondition(lambda self: self.dead_results)
    @rule(result=st.sampled_from([Trigger.ACCEPTED, Trigger.API_REFUSED, Trigger.FAILED]))
    def late_answer(self, result):
        before = self.lifecycle.state
        self.do(result, self.dead_results.pop())
        assert self.lifecycle.state is before

    @rule()
    def stream_opens(self):
        self.streams += 1
        self.do(Trigger.STREAM_OPEN)

    @precondition(lambda self: self.streams)
    @rule()
    def stream_ends(self):
        self.streams -= 1
        if not self.streams:
            self.do(Trigger.LAST_STREAM_END)

    @precondition(lambda self: self.timer is not None)
    @rule()
    def time_is_over(self):
        attempt, self.timer = self.timer, None
        self.do(Trigger.TIMER, attempt)

    @rule()
    def options_differ(self):
        self.do(Trigger.REDO)

    # what always holds

    @invariant()
    def something_is_awaited(self):
        """In each state there is what leads out of it, so that nothing waits for ever."""
        state = self.lifecycle.state
        if state is State.REGISTERING:
            assert self.in_flight
        if state in (State.EXPECTING, State.WAITING):
            assert self.timer is not None
        if state is State.SERVING:
            assert self.streams
        if state in (State.AWAY, State.UNREADY):
            assert not self.file
        if state is State.DUE:
            assert self.file

    @invariant()
    def a_quiet_kubelet_is_served_soon(self):
        """On a copy: from now on the kubelet is there and does what it should."""
        quiet = Walk()
        quiet.lifecycle.__dict__.update(self.lifecycle.__dict__)
        quiet.in_flight, quiet.asked, quiet.timer = set(self.in_flight), self.asked, self.timer
        quiet.file, quiet.streams = self.file, self.streams
        if quiet.lifecycle.state is State.STOPPED:
            return
        if quiet.lifecycle.state in (State.UNREADY, State.DUE):
            quiet.becomes_ready()
        if not quiet.file:
            quiet.file_comes_back()
        for _ in range(4):
            if quiet.lifecycle.state is State.SERVING:
                return
            if quiet.in_flight:
                quiet.answer(Trigger.ACCEPTED)
                quiet.stream_opens()
            else:
                quiet.time_is_over()
        raise AssertionError(f"not served, but {quiet.lifecycle.state}")


TestWalk = Walk.TestCase
TestWalk.settings = settings(deadline=None, max_examples=60, stateful_step_count=40)


@given(st.lists(st.sampled_from(Trigger), max_size=15), st.lists(st.sampled_from(Trigger), max_size=15))
@settings(deadline=None)
def test_stopped_is_for_good(before, after):
    lifecycle = walk(*before, Trigger.STOP)
    for event in after:
        assert lifecycle.feed(event, lifecycle.attempt) is Action.NOTHING
    assert lifecycle.state is State.STOPPED


# how long to wait


def delays(backoff, count, *, now=100.0, listening=True):
    return [backoff.delay(now, listening=listening) for _ in range(count)]


def test_it_doubles_from_a_second_to_a_minute():
    assert delays(Backoff(lambda: 0.0), 9) == [1, 2, 4, 8, 16, 32, 60, 60, 60]


@given(st.floats(0, 1), st.integers(1, 12))
@settings(deadline=None)
def test_at_most_a_quarter_is_added_at_random(random, count):
    plain, jittered = (delays(Backoff(itertools.repeat(number).__next__), count) for number in (0.0, random))
    for least, delay in zip(plain, jittered, strict=True):
        assert least <= delay <= least * 1.25


def test_it_never_gives_up_counting():
    # a stale kubelet.sock refuses for days, each minute
    assert delays(Backoff(lambda: 1.0), 5000)[-1] == 75


def test_a_new_kubelet_is_retried_in_milliseconds():
    backoff = Backoff(lambda: 1.0)
    backoff.new_kubelet(100.0)
    assert delays(backoff, 4, now=100.5, listening=False) == [0.01, 0.02, 0.04, 0.08]
    assert delays(backoff, 2, now=101.0, listening=False) == [1.25, 2.5]


def test_a_kubelet_that_answered_gets_a_second():
    backoff = Backoff(lambda: 0.0)
    backoff.new_kubelet(100.0)
    assert delays(backoff, 2, now=100.5, listening=True) == [1, 2]
    assert delays(backoff, 1, now=100.5, listening=False) == [0.01]


def test_before_any_kubelet_appeared_nothing_is_early():
    assert delays(Backoff(lambda: 0.0), 1, now=0.0, listening=False) == [1]


def test_a_new_kubelet_begins_anew():
    backoff = Backoff(lambda: 0.0)
    for now in (100.0, 200.0):
        backoff.new_kubelet(now)
        assert delays(backoff, 2, now=now, listening=False) == [0.01, 0.02]
        assert delays(backoff, 3, now=now) == [1, 2, 4]


@pytest.mark.parametrize(("lived", "then"), [(59.9, 8), (60.0, 1)])
def test_only_a_long_stream_begins_anew(lived, then):
    backoff = Backoff(lambda: 0.0)
    delays(backoff, 3)
    backoff.stream_ended(lived)
    assert delays(backoff, 1) == [then]
