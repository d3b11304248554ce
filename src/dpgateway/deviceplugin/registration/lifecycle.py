"""The state machine of one resource's registration.

States
    UNREADY      not served yet, or its list or the holdings aren't known; no kubelet.sock
    DUE          the same, with a kubelet.sock
    AWAY         ready; no kubelet.sock
    REGISTERING  a Register is in flight
    EXPECTING    Register succeeded, which proves nothing before 1.25; ListAndWatch is due within 15 s
    SERVING      a stream of this kubelet is open; a live stream outweighs all other evidence
    WAITING      an attempt failed; the next one follows after the backoff
    STOPPED      for good

Rules
    - Nothing is registered before it is ready.
    - A new kubelet gets a Register at once, from every ready state. Streams of the older kubelet are disowned, not
      closed: they die with that kubelet (and on 1.25 to 1.36 the end of an old stream kills the new registration,
      kubernetes #121994).
    - A deleted kubelet.sock changes nothing while a stream is open or may be, because the kubelet goes on allocating;
      of the ready states only WAITING leads to AWAY.
    - A kubelet never reconnects (kubernetes #92958), so the end of its last stream leads to a new attempt.
    - At most one Register of a resource is in flight: the RPC is cancelled before the next one begins.
    - A result belongs to an attempt. Results of older attempts, and replaced timers, are dropped before the table.

The table covers every pair of a state and a trigger; no other code decides whether to register. This module is pure:
the registrar executes the actions, and feeds their results back.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

from dpgateway.kit.tasks import backoff


class State(enum.StrEnum):
    """States of the registration: see the top of this file."""

    UNREADY = "unready"
    DUE = "due"
    AWAY = "away"
    REGISTERING = "registering"
    EXPECTING = "expecting"
    SERVING = "serving"
    WAITING = "waiting"
    STOPPED = "stopped"


class Trigger(enum.Enum):
    """Events that the table reacts to."""

    READY = "it can be registered"
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
    STOP = "the resource stops"


class Action(enum.Enum):
    """Actions for the registrar."""

    NOTHING = "nothing"
    REGISTER = "give up the last attempt; send Register, a new attempt"
    NEXT_API = "send Register in the next API, the same attempt"
    EXPECT = "start the timer for the stream"
    SERVE = "stop the timer; a Register in flight goes on"
    WAIT = "give up the attempt; start the timer for the next one"
    DRAIN = "end the streams; give up the attempt; start the timer for the next one"
    GIVE_UP = "give up the attempt: stop the timer, cancel the Register"


_STAY = Action.NOTHING
_REGISTER = (State.REGISTERING, Action.REGISTER)
_WAIT = (State.WAITING, Action.WAIT)
_SERVE = (State.SERVING, Action.SERVE)

_CHANGES: dict[State, dict[Trigger, tuple[State, Action]]] = {
    State.UNREADY: {
        Trigger.READY: (State.AWAY, _STAY),
        Trigger.KUBELET_NEW: (State.DUE, _STAY),
        Trigger.KUBELET_BACK: (State.DUE, _STAY),
    },
    State.DUE: {
        Trigger.READY: _REGISTER,
        Trigger.KUBELET_GONE: (State.UNREADY, _STAY),
    },
    State.AWAY: {
        Trigger.KUBELET_NEW: _REGISTER,
        Trigger.KUBELET_BACK: _REGISTER,  # another resource's stream shows that the kubelet lives
        Trigger.STREAM_OPEN: _SERVE,
    },
    State.REGISTERING: {  # if kubelet.sock goes, the RPC fails; REDO is checked again when a stream opens
        Trigger.KUBELET_NEW: _REGISTER,
        Trigger.ACCEPTED: (State.EXPECTING, Action.EXPECT),
        Trigger.API_REFUSED: (State.REGISTERING, Action.NEXT_API),
        Trigger.FAILED: _WAIT,
        Trigger.STREAM_OPEN: _SERVE,  # before Register returned: usual on every release
    },
    State.EXPECTING: {
        Trigger.KUBELET_NEW: _REGISTER,
        Trigger.STREAM_OPEN: _SERVE,
        Trigger.TIMER: _WAIT,
    },
    State.SERVING: {
        Trigger.KUBELET_NEW: _REGISTER,
        Trigger.LAST_STREAM_END: _WAIT,
        Trigger.REDO: (State.WAITING, Action.DRAIN),
    },
    State.WAITING: {
        Trigger.KUBELET_NEW: _REGISTER,
        Trigger.KUBELET_GONE: (State.AWAY, Action.GIVE_UP),
        Trigger.STREAM_OPEN: _SERVE,  # of a cancelled Register, which 1.25 to 1.34 complete all the same
        Trigger.TIMER: _REGISTER,
    },
    State.STOPPED: {},
}
_STOP = {Trigger.STOP: (State.STOPPED, Action.GIVE_UP)}

TABLE: dict[State, dict[Trigger, tuple[State, Action]]] = {
    state: dict.fromkeys(Trigger, (state, _STAY)) | (changes if state is State.STOPPED else changes | _STOP)
    for state, changes in _CHANGES.items()
}
"""The whole table; a pair that isn't named above changes nothing."""

RESULTS = frozenset({Trigger.ACCEPTED, Trigger.API_REFUSED, Trigger.FAILED, Trigger.TIMER})
"""The triggers that belong to an attempt."""


class Lifecycle:
    """The current state of one resource, and its transitions."""

    def __init__(self, apis: int) -> None:
        """``apis``: the number of versions to try."""
        self.state = State.UNREADY
        self.attempt = 0
        """The number of the current attempt: a Register, and the timer that follows from it."""
        self._apis = apis
        self._refused = 0
        self.kubelet = False
        """Whether kubelet.sock exists."""

    def feed(self, trigger: Trigger, attempt: int | None = None) -> Action:
        """Makes the transition, and returns its action. ``attempt``: the one that a result (RESULTS) belongs to."""
        if trigger in RESULTS and attempt != self.attempt:
            return Action.NOTHING
        self.kubelet = _SEEN.get(trigger, self.kubelet)
        # The meaning of two triggers depends on more than the state.
        if trigger is Trigger.API_REFUSED and self._refused + 1 >= self._apis:
            trigger = Trigger.FAILED  # no API is left to try
        elif trigger is Trigger.TIMER and self.state is State.WAITING and not self.kubelet:
            trigger = Trigger.KUBELET_GONE  # kubelet.sock went while we waited for something else
        self.state, action = TABLE[self.state][trigger]
        if action in _NEW_ATTEMPT:
            self.attempt += 1
            self._refused = 0
        elif action is Action.NEXT_API:
            self._refused += 1
        return action


_SEEN = {Trigger.KUBELET_NEW: True, Trigger.KUBELET_BACK: True, Trigger.KUBELET_GONE: False}
_NEW_ATTEMPT = frozenset({Action.REGISTER, Action.SERVE, Action.WAIT, Action.DRAIN, Action.GIVE_UP})


@dataclass
class Backoff:
    """The delay before the next attempt.

    It is 10 ms, doubling, in the first second of an incarnation, because the kubelet's socket is a file before the
    kubelet listens on it. Later it is 1 s, doubling up to 60 s, and 1 s again after a stream that lived for 60 s. Up to
    a quarter of jitter is added, so that 64 resources don't return in step.
    """

    random: Callable[[], float]
    """Returns a number from 0 to 1."""
    appeared: float = float("-inf")
    """The time at which this incarnation was first seen, in seconds."""
    _failures: int = 0
    _early: int = 0

    def new_kubelet(self, now: float) -> None:
        self.appeared, self._failures, self._early = now, 0, 0

    def stream_ended(self, lived: float) -> None:
        """``lived``: the stream's age in seconds."""
        if lived >= 60:
            self._failures = 0

    def delay(self, now: float, *, listening: bool) -> float:
        """The delay in seconds. ``listening``: the socket was served, so the kubelet isn't just starting."""
        if not listening and now - self.appeared < 1:
            self._early += 1
            return float(0.01 * 2 ** (self._early - 1))
        self._failures += 1
        return backoff(self._failures, 60.0) * (1 + self.random() / 4)
