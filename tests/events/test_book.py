"""What is said next, by a clock of the test's."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from dpgateway.events.book import LARGEST, SETTLED, EventBook, Pace
from dpgateway.events.conditions import Condition, Reason, Subject

A, B = (Subject("default", "p", "u", "example.com/thing", device) for device in "ab")
BAD, WORSE = Condition("DeviceUnhealthy", "no link"), Condition("DeviceGone", "unplugged")
GOOD = Condition("DeviceHealthy", "again")


class Clock:
    """A book and its time; what is due is written at once."""

    def __init__(self, pace: Pace | None = None) -> None:
        self.now, self.book = 1000.0, EventBook(pace)
        self.written: list[str] = []
        self.seen: dict[Subject, Condition] = {}

    def see(self, **conditions: Condition) -> None:
        self.seen = {A._replace(device=name): one for name, one in conditions.items()}
        self.book.see(self.seen, self.now)

    def after(self, seconds: float) -> list[str]:
        """What is written in the next seconds, at the times that the book names."""
        end, before = self.now + seconds, len(self.written)
        while True:
            while (todo := self.book.due(self.now)) is not None:
                self.book.wrote(*todo, self.now)
                self.written.append(f"{todo[0].device} {todo[1].reason}")
            if (then := self.book.next()) > end:
                self.now = end
                return self.written[before:]
            assert then > self.now, "the book names a time that is over"
            self.now = then
            self.book.see(self.seen, self.now)


@pytest.fixture
def clock() -> Clock:
    return Clock()


Step = tuple[dict[str, Condition], float, list[str]]
"""What is seen, for how many seconds, and what is said meanwhile."""
STEPS: dict[str, list[Step]] = {
    "nothing of what is fine": [({"a": GOOD, "b": GOOD}, 1e6, [])],
    "what is bad, once, until it is taken back": [
        ({"a": BAD}, 0.9, []),
        ({"a": BAD}, 1e6, ["a DeviceUnhealthy"]),
        ({"a": GOOD}, 1e6, ["a DeviceHealthy"]),
    ],
    "nothing of what passes at once": [({"a": BAD}, 0.5, []), ({"a": GOOD}, 1e6, [])],
    "another reason, too": [({"a": BAD}, 5, ["a DeviceUnhealthy"]), ({"a": WORSE}, 5, ["a DeviceGone"])],
    "what is bad, first": [
        ({"a": BAD, "b": BAD}, 5, ["a DeviceUnhealthy", "b DeviceUnhealthy"]),
        ({"a": GOOD, "b": WORSE}, 5, ["b DeviceGone", "a DeviceHealthy"]),
    ],
    "nothing of a subject that was gone for long": [
        ({"a": BAD}, 5, ["a DeviceUnhealthy"]),
        ({}, 1e4, []),
        ({"a": GOOD}, 1e4, []),
    ],
    "of a subject that was unknown for a while": [
        ({"a": BAD}, 5, ["a DeviceUnhealthy"]),
        ({}, 100, []),
        ({"a": GOOD}, 5, ["a DeviceHealthy"]),
    ],
}


@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS)
def test_what_is_said(clock: Clock, steps: list[Step]) -> None:
    for seen, seconds, said in steps:
        clock.see(**seen)
        assert clock.after(seconds) == said


def test_a_restarting_kubelets_resources_arent_said() -> None:
    clock = Clock()
    clock.see(a=Condition("ResourceUnregistered", "no"))
    assert clock.after(SETTLED["ResourceUnregistered"] - 1) == []
    assert clock.after(2) == ["a ResourceUnregistered"]


@pytest.mark.parametrize("reason", ["DeviceUnhealthy", "ResourceFailed", "ResourceUnregistered"])
def test_a_note_that_always_changes_holds_up_nothing(clock: Clock, reason: Reason) -> None:
    """Once it began anew with each note."""
    step = 0.4 * SETTLED[reason]
    for number in range(3):
        clock.see(a=Condition(reason, f"attempt {number}"))
        assert clock.after(step) == ([f"a {reason}"] if number == 2 else [])
    for number in range(100):
        clock.see(a=Condition(reason, f"{number} degrees"))
        clock.after(step)
    assert len(clock.written) <= 6 + 100 * step / 300


def test_a_flapping_subject_is_slowed_down_and_ends_right(clock: Clock) -> None:
    for _ in range(100):
        clock.see(a=BAD)
        clock.after(2)
        clock.see(a=GOOD)
        clock.after(2)
    assert 5 <= len(clock.written) <= 7
    clock.see(a=BAD)
    clock.after(700)
    assert clock.written[-1] == "a DeviceUnhealthy"
    assert len(clock.written) <= 8


def test_a_flapping_subject_doesnt_slow_others(clock: Clock) -> None:
    for _ in range(20):
        clock.see(a=BAD)
        clock.after(2)
        clock.see(a=GOOD)
        clock.after(2)
    clock.see(a=GOOD, b=BAD)
    assert "b DeviceUnhealthy" in clock.after(2)


def test_a_refused_event_comes_later_each_time(clock: Clock) -> None:
    clock.see(a=BAD)
    times: list[float] = []
    while len(times) < 5:
        clock.now = max(clock.now, clock.book.next())
        todo = clock.book.due(clock.now)
        assert todo is not None
        times.append(clock.now)
        clock.book.refused(todo[0], clock.now)
    assert [round(later - before) for before, later in pairwise(times)] == [10, 20, 40, 80]


def test_a_successor_says_only_what_is_new(clock: Clock) -> None:
    clock.see(a=BAD, b=BAD)
    clock.after(5)
    other = Clock()
    other.book.recall(clock.book.to_json(), other.now)
    assert other.after(60) == []  # its drivers haven't listed yet
    other.see(a=BAD, b=GOOD, c=WORSE)
    assert sorted(other.after(5)) == ["b DeviceHealthy", "c DeviceGone"]


def test_the_file_is_never_too_long_to_be_read(clock: Clock) -> None:
    """Rather are some said again."""
    long = Condition("DeviceUnhealthy", "ü" * 1_000_000)
    clock.see(**{str(number): long for number in range(4)})
    clock.after(5)
    text, other = clock.book.to_json(), Clock()
    assert len(text) <= LARGEST
    other.book.recall(text, other.now)
    other.see(**{str(number): long for number in range(4)})
    assert len(other.after(5)) == 2


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"said": 1}', '{"said": [1]}', '{"said": [["a"]]}'])
def test_a_damaged_file_recalls_nothing(clock: Clock, text: str) -> None:
    with pytest.raises((ValueError, TypeError)):
        clock.book.recall(text, clock.now)
    assert clock.book.next() == float("inf")


def test_a_later_versions_reason_is_ignored(clock: Clock) -> None:
    rows = [[*A, "DeviceMelted", "x"], [*B, *BAD]]
    clock.book.recall(json.dumps({"version": 2, "said": rows, "more": 1}), clock.now)
    clock.see(a=GOOD, b=GOOD)
    assert clock.after(5) == ["b DeviceHealthy"]


@pytest.mark.parametrize("condition", [BAD, GOOD])
def test_a_successor_repeats_what_may_not_have_been_written(clock: Clock, condition: Condition) -> None:
    clock.see(a=BAD)
    clock.after(0.5)
    clock.book.begin(A)
    other = Clock()
    other.book.recall(clock.book.to_json(), other.now)
    other.see(a=condition)
    assert other.after(5) == [f"a {condition.reason}"]


def test_what_was_certainly_not_written_isnt_taken_back(clock: Clock) -> None:
    clock.see(a=BAD)
    clock.after(0.5)
    clock.book.begin(A)
    clock.book.undo(A)
    clock.see(a=GOOD)
    assert clock.after(1e6) == []
