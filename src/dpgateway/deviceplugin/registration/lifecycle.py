"""Where one resource stands with the kubelet.

States
    AWAY        there is no kubelet.sock
    OFFERING    a Register is in flight
    EXPECTING   the kubelet said yes, which before 1.25 proves nothing; it opens ListAndWatch within 15 s, or it didn't
    SERVING     a stream of this kubelet is open, and a live stream outweighs everything
    WAITING     something failed; the next attempt is after a delay
    STOPPED     for good

Rules
    - A new kubelet is offered the resource from every state, at once. Streams of the one before are disowned, not
      closed: they die with their kubelet (and on 1.25 to 1.36 the end of an old stream kills the new registration).
    - A deleted kubelet.sock changes nothing while a stream is open, or may be: only when waiting does it mean AWAY.
    - Never two Registers of one resource in flight: OFFERING is left before another one begins, its RPC cancelled.
    - Results belong to an attempt; those of an older attempt, and timers that were replaced, are dropped before the
      table.

The table decides every pair; ``dpgateway`` has no other place that decides whether to register. It is pure: the caller
does what it says, and tells it what came of that.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

from dpgateway.process.pauses import doubling


class State(enum.Enum):
    """Where it stands."""

    AWAY = "away"
    OFFERING = "offering"
    EXPECTING = "expecting"
    SERVING = "serving"
    WAITING = "waiting"
    STOPPED = "stopped"


class Event(enum.Enum):
    """What happened."""

    KUBELET_NEW = "a new incarnation of the kubelet"
    KUBELET_GONE = "kubelet.sock is gone"
    KUBELET_BACK = "kubelet.sock of the same incarnation is back"
    ACCEPTED = "Register succeeded"
    API_REFUSED = "the kubelet doesn't speak that API"
    FAILED = "Register failed otherwise"
    STREAM_OPEN = "the kubelet opened ListAndWatch"
    LAST_STREAM_END = "the last stream of this kubelet ended"
    TIMER = "the time is over"
    REDO = "what was registered is no longer what is wanted"
    STOP = "the gateway stops"


class Action(enum.Enum):
    """What to do."""

    NOTHING = "nothing"
    OFFER = "cancel what is in flight; send Register, a new attempt"
    NEXT_API = "send Register in the next API, the same attempt"
    EXPECT = "start the timer for the stream"
    WAIT = "start the timer for the next attempt"
    DRAIN = "end the streams, then wait"
    FORGET = "stop the timer"
    HALT = "stop everything"


_STAY = Action.NOTHING
_OFFER = (State.OFFERING, Action.OFFER)
_WAIT = (State.WAITING, Action.WAIT)
_SERVE = (State.SERVING, Action.FORGET)
_STOP = (State.STOPPED, Action.HALT)

# fmt: off
TABLE: dict[State, dict[Event, tuple[State, Action]]] = {
    State.AWAY: {
        Event.KUBELET_NEW: _OFFER,
        Event.KUBELET_GONE: (State.AWAY, _STAY),
        Event.KUBELET_BACK: _OFFER,  # another resource's stream shows that it lives
        Event.ACCEPTED: (State.AWAY, _STAY),
        Event.API_REFUSED: (State.AWAY, _STAY),
        Event.FAILED: (State.AWAY, _STAY),
        Event.STREAM_OPEN: _SERVE,
        Event.LAST_STREAM_END: (State.AWAY, _STAY),
        Event.TIMER: (State.AWAY, _STAY),
        Event.REDO: (State.AWAY, _STAY),
        Event.STOP: _STOP,
    },
    State.OFFERING: {
        Event.KUBELET_NEW: _OFFER,
        Event.KUBELET_GONE: (State.OFFERING, _STAY),  # the RPC will tell
        Event.KUBELET_BACK: (State.OFFERING, _STAY),
        Event.ACCEPTED: (State.EXPECTING, Action.EXPECT),
        Event.API_REFUSED: (State.OFFERING, Action.NEXT_API),
        Event.FAILED: _WAIT,
        Event.STREAM_OPEN: _SERVE,  # before Register returned: usual on every release
        Event.LAST_STREAM_END: (State.OFFERING, _STAY),
        Event.TIMER: (State.OFFERING, _STAY),
        Event.REDO: (State.OFFERING, _STAY),  # checked again once it is served
        Event.STOP: _STOP,
    },
    State.EXPECTING: {
        Event.KUBELET_NEW: _OFFER,
        Event.KUBELET_GONE: (State.EXPECTING, _STAY),
        Event.KUBELET_BACK: (State.EXPECTING, _STAY),
        Event.ACCEPTED: (State.EXPECTING, _STAY),
        Event.API_REFUSED: (State.EXPECTING, _STAY),
        Event.FAILED: (State.EXPECTING, _STAY),
        Event.STREAM_OPEN: _SERVE,
        Event.LAST_STREAM_END: (State.EXPECTING, _STAY),
        Event.TIMER: _WAIT,
        Event.REDO: (State.EXPECTING, _STAY),
        Event.STOP: _STOP,
    },
    State.SERVING: {
        Event.KUBELET_NEW: _OFFER,
        Event.KUBELET_GONE: (State.SERVING, _STAY),
        Event.KUBELET_BACK: (State.SERVING, _STAY),
        Event.ACCEPTED: (State.SERVING, _STAY),
        Event.API_REFUSED: (State.SERVING, _STAY),
        Event.FAILED: (State.SERVING, _STAY),
        Event.STREAM_OPEN: (State.SERVING, _STAY),
        Event.LAST_STREAM_END: _WAIT,
        Event.TIMER: (State.SERVING, _STAY),
        Event.REDO: (State.WAITING, Action.DRAIN),
        Event.STOP: _STOP,
    },
    State.WAITING: {
        Event.KUBELET_NEW: _OFFER,
        Event.KUBELET_GONE: (State.AWAY, Action.FORGET),
        Event.KUBELET_BACK: (State.WAITING, _STAY),
        Event.ACCEPTED: (State.WAITING, _STAY),
        Event.API_REFUSED: (State.WAITING, _STAY),
        Event.FAILED: (State.WAITING, _STAY),
        Event.STREAM_OPEN: _SERVE,  # of a Register that we gave up: 1.25 to 1.34 go on with it
        Event.LAST_STREAM_END: (State.WAITING, _STAY),
        Event.TIMER: _OFFER,
        Event.REDO: (State.WAITING, _STAY),
        Event.STOP: _STOP,
    },
    State.STOPPED: dict.fromkeys(Event, (State.STOPPED, _STAY)),
}
# fmt: on

RESULTS = frozenset({Event.ACCEPTED, Event.API_REFUSED, Event.FAILED, Event.TIMER})
"""The events that belong to an attempt."""


class Lifecycle:
    """One resource's walk through the table."""

    def __init__(self, apis: int) -> None:
        """``apis``: how many versions there are to try."""
        self.state = State.AWAY
        self.attempt = 0
        """Counts Registers, and the timers that follow from them."""
        self._apis = apis
        self._refused = 0
        self.kubelet = False
        """Whether kubelet.sock is there."""

    def feed(self, event: Event, attempt: int | None = None) -> Action:
        """What to do now that ``event`` happened. Results carry the attempt that they belong to."""
        if event in RESULTS and attempt != self.attempt:
            return Action.NOTHING
        self.kubelet = _SEEN.get(event, self.kubelet)
        self.state, action = TABLE[self.state][self._settled(event)]
        if action in _NEW_ATTEMPT:
            self.attempt += 1
            self._refused = 0
        elif action is Action.NEXT_API:
            self._refused += 1
        return action

    def _settled(self, event: Event) -> Event:
        """The two events whose meaning depends on more than the state."""
        if event is Event.API_REFUSED and self._refused + 1 >= self._apis:
            return Event.FAILED  # no API is left to try
        if event is Event.TIMER and self.state is State.WAITING and not self.kubelet:
            return Event.KUBELET_GONE  # it went while we waited for something else
        return event


_SEEN = {Event.KUBELET_NEW: True, Event.KUBELET_BACK: True, Event.KUBELET_GONE: False}
_NEW_ATTEMPT = frozenset({Action.OFFER, Action.WAIT, Action.DRAIN, Action.FORGET, Action.HALT})


@dataclass
class Backoff:
    """How long to wait before the next attempt.

    In the first second of an incarnation 10 ms, doubling: the kubelet's socket is a file before the kubelet listens on
    it. Otherwise 1 s, doubling up to 60 s, and anew after a stream that lived for 60 s; up to a quarter is added at
    random, lest 64 resources return in step.
    """

    random: Callable[[], float]
    """A number from 0 to 1."""
    appeared: float = float("-inf")
    """When this incarnation was first seen."""
    _failures: int = 0
    _early: int = 0

    def new_kubelet(self, now: float) -> None:
        self.appeared, self._failures, self._early = now, 0, 0

    def stream_ended(self, lived: float) -> None:
        """``lived``: seconds."""
        if lived >= 60:
            self._failures = 0

    def delay(self, now: float, *, listening: bool) -> float:
        """Seconds. ``listening``: something answered, so this isn't a kubelet that is just starting."""
        if not listening and now - self.appeared < 1:
            self._early += 1
            return float(0.01 * 2 ** (self._early - 1))
        self._failures += 1
        return doubling(self._failures, 60.0) * (1 + self.random() / 4)
