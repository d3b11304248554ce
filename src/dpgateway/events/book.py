"""What was said of each object, and what is to be said next.

Theory of operation. For each subject the book has the last condition said and the present one; an event is due when
they differ. A subject of which nothing bad was ever said is taken to be fine, so nothing is said of it before something
is wrong. Nothing is queued: while the API server is away, or a subject has had too many events, only the present
condition counts, and one that is over again is never said. So, once it has come to rest, the last event of each subject
says how it is.

- A condition has to last for its time in SETTLED: what passes by itself is no news. Its note may change meanwhile:
  each attempt to register may fail with another socket's name, a temperature rises.
- A subject has BURST events at once, then one in each REFILL.
- A subject that isn't there is neither good nor bad: a resource has no list while it starts, a pod isn't named before
  PodResources has answered. After FORGOTTEN it is dropped, with what was said of it: the pod is gone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, get_args

from dpgateway.events.conditions import Condition, Reason, Subject

VERSION = 1
LARGEST = 16 << 20
"""Bytes of what a successor reads: ten thousand subjects, more than a node has, with a long note each."""

SETTLED: Mapping[Reason, float] = {
    "DeviceUnhealthy": 1.0,
    "DeviceGone": 1.0,
    "DeviceAtRisk": 1.0,
    "DeviceHealthy": 1.0,
    "ResourceFailed": 10.0,
    "ResourceUnregistered": 60.0,
    "ResourceServed": 1.0,
}
"""Seconds that a condition lasts before it is said. A kubelet that restarts has its resources again within some."""


UNCLEAR = Condition("DeviceUnhealthy", "")
"""In place of what was said: unlike any condition, for none is without a note."""


class Pace(NamedTuple):
    """How often is said what."""

    settled: Mapping[Reason, float] = SETTLED
    burst: int = 5
    """Events of a subject at once; client-go has 25 (tools/record/events_cache.go)."""
    refill: float = 300.0
    """Seconds until a subject may have another one (client-go)."""
    forgotten: float = 600.0
    """Seconds after which a subject that isn't there is dropped."""


@dataclass(slots=True)
class _Entry:
    """One subject. Times are seconds of one monotonic clock."""

    seen: Condition | None = None
    """The present condition; None if it isn't there."""
    since: float = 0.0
    """When the reason of ``seen`` began."""
    said: Condition | None = None
    """The last condition said, if it was bad: only that one can be taken back. UNCLEAR: perhaps something was said."""
    before: Condition | None = None
    """``said`` before the present attempt."""
    tokens: float = 0.0
    """The number of events that it may have, at the time of the last one or of ``filled``."""
    filled: float = 0.0
    held_until: float = field(default=float("-inf"))
    """When its next attempt is, after one that the server refused."""
    failures: int = 0


class EventBook:
    """Used from one thread; does no I/O."""

    def __init__(self, pace: Pace | None = None) -> None:
        self._pace = pace or Pace()
        self._entries: dict[Subject, _Entry] = {}

    # what there is

    def see(self, found: Mapping[Subject, Condition], now: float) -> None:
        """Takes the present conditions."""
        for subject, condition in found.items():
            entry = self._entries.get(subject)
            if entry is None:
                if condition.good:
                    continue
                entry = self._entries[subject] = _Entry(tokens=self._pace.burst, filled=now)
            if entry.seen is None or entry.seen.reason != condition.reason:
                entry.since = now
            entry.seen = condition
        for subject, entry in list(self._entries.items()):
            if subject not in found and entry.seen is not None:
                entry.seen, entry.since = None, now
            fine = entry.said is None and (entry.seen is None or entry.seen.good)
            # One that has had its events keeps its tokens for as long.
            rested = fine and self._tokens(entry, now) >= self._pace.burst
            if rested or (entry.seen is None and now >= entry.since + self._pace.forgotten):
                del self._entries[subject]

    # what is to be said

    def due(self, now: float) -> tuple[Subject, Condition] | None:
        """The next event to write; None if there is none yet. What is bad comes first, then what began first."""
        found = [
            (one.seen.good, one.since, key, one.seen) for key, one in self._entries.items() if one.seen is not None
        ]
        ready = [one for one in found if self._when(self._entries[one[2]]) <= now]
        return min(ready)[2:] if ready else None

    def next(self) -> float:
        """When the next event is due, or the next entry is dropped; infinity for never."""
        times = [self._when(one) for one in self._entries.values()]
        times += [one.since + self._pace.forgotten for one in self._entries.values() if one.seen is None]
        return min(times, default=float("inf"))

    def _when(self, one: _Entry) -> float:
        if one.seen is None or one.seen == one.said or (one.seen.good and one.said is None):
            return float("inf")
        short = 1.0 - one.tokens
        full = one.filled + short * self._pace.refill if short > 0 else float("-inf")
        return max(one.since + self._pace.settled[one.seen.reason], full, one.held_until)

    def _tokens(self, one: _Entry, now: float) -> float:
        return min(float(self._pace.burst), one.tokens + (now - one.filled) / self._pace.refill)

    # what was said

    def begin(self, subject: Subject) -> None:
        """The event is about to be written. Until its outcome is known it may be there, also for a successor."""
        if (one := self._entries.get(subject)) is not None:
            one.before, one.said = one.said, UNCLEAR

    def undo(self, subject: Subject) -> None:
        """The event certainly wasn't written."""
        if (one := self._entries.get(subject)) is not None:
            one.said = one.before

    def wrote(self, subject: Subject, condition: Condition, now: float) -> None:
        """The event is at the API server."""
        one = self._entries.get(subject)
        if one is not None:
            one.tokens, one.filled = self._tokens(one, now) - 1.0, now
            one.said, one.failures = None if condition.good else condition, 0

    def refused(self, subject: Subject, now: float) -> None:
        """The API server doesn't take this event, of a namespace that ends for example: it is tried again later."""
        one = self._entries.get(subject)
        if one is not None:
            one.failures += 1
            one.held_until = now + min(10.0 * 2.0 ** min(one.failures - 1, 10), 600.0)

    # over a restart

    def to_json(self) -> str:
        """What was said and not taken back yet, in ASCII. The rest of what exceeds LARGEST a successor says again."""
        rows, most = list[str](), LARGEST - 64
        for subject, entry in self._entries.items():
            if entry.said is not None:
                rows.append(json.dumps([*subject, *entry.said]))
                if (most := most - len(rows[-1]) - 2) < 0:
                    rows.pop()
                    break
        return f'{{"version": {VERSION}, "said": [{", ".join(rows)}]}}'

    def recall(self, text: str | bytes, now: float) -> None:
        """What an earlier gateway said. Raises ValueError, TypeError for what isn't that; then nothing is recalled."""
        found = json.loads(text)
        if not isinstance(found, dict) or not isinstance(said := found.get("said"), list):
            raise TypeError(f"expected a mapping with the list `said`, found {str(text)[:60]!r}")
        recalled = {}
        for row in said:
            if not isinstance(row, list) or len(row) != 7 or not all(isinstance(one, str) for one in row):
                raise TypeError(f"expected seven texts, found {row!r}")
            if row[5] in get_args(Reason):  # a later version may have others
                condition = Condition(row[5], row[6])
                entry = _Entry(None, now, said=condition, tokens=self._pace.burst, filled=now)
                recalled[Subject(*row[:5])] = entry
        self._entries |= recalled
