"""One kubelet driven by steps: its session, and the parsers of steps' words."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dpgateway_simulator.cluster.cluster import SimulatedCluster
from dpgateway_simulator.kubelet.kubelet import Kubelet


class StepError(Exception):
    """A valid step failed."""


class WordsError(Exception):
    """A step can't be parsed. The text names the finding and the expectation."""


@dataclass
class Session:
    """`write` prints a name and a value, `patience` is a step's longest wait in seconds, `seen` counts the events that
    earlier `see` steps have consumed. `cluster` is None without an API server.
    """

    kubelet: Kubelet
    write: Callable[[str, Any], None]
    patience: float = 30.0
    cluster: SimulatedCluster | None = None
    seen: int = 0


Act = Callable[[Session], Awaitable[object]]
"""A parsed step: runs on a session. Raises one of steps.FAILURES if it fails."""


def at_once(do: Callable[[Session], object]) -> Act:
    """Makes an act of a synchronous function."""

    async def act(session: Session) -> None:
        do(session)

    return act


def wordless(act: Act) -> Callable[[list[str]], Act]:
    """The parser of a step that is a verb alone. Raises WordsError for more."""

    def parse(words: list[str]) -> Act:
        exactly(words)
        return act

    return parse


@dataclass(frozen=True)
class Wanted:
    """RESOURCE=N or RESOURCE=N/M: allocatable, and optionally capacity."""

    resource: str
    allocatable: int
    capacity: int | None = None

    def holds(self, kubelet: Kubelet) -> bool:
        """Whether it is so now; an absent count is zero."""
        capacity, allocatable = kubelet.counts(self.resource)
        return (allocatable or 0) == self.allocatable and self.capacity in (None, capacity or 0)


def number(word: str, what: str) -> float:
    """Parses a finite number that isn't negative. Raises WordsError, which expects `what`."""
    try:
        value = float(word)
    except ValueError:
        value = -1
    if not 0 <= value < float("inf"):
        raise WordsError(f"found {word!r}, expected {what}")
    return value


def wanted(word: str) -> Wanted:
    """RESOURCE=N or RESOURCE=N/M."""
    left, equals, right = word.rpartition("=")
    counts = right.split("/")
    if not equals or "/" not in left or len(counts) > 2 or not all(count.isdecimal() for count in counts):
        raise WordsError(f"found {word!r}, expected RESOURCE=ALLOCATABLE or RESOURCE=ALLOCATABLE/CAPACITY")
    return Wanted(left, *map(int, counts))


def pod_containers(words: Iterable[str]) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    """Parses [init:|sidecar:][CONTAINER:]RESOURCE=N to (containers, init containers), by default one named `c`."""
    found: dict[tuple[str, str], dict[str, int]] = {}
    for word in words:
        # A resource name has no colon, so the parts before the last are kind and container.
        *place, last = word.split(":")
        kind = place.pop(0) if place and place[0] in {"init", "sidecar"} else ""
        name = place.pop(0) if place else (kind or "c")
        if place:
            raise WordsError(f"found {word!r}, expected [init:|sidecar:][CONTAINER:]RESOURCE=NUMBER")
        resource, equals, count = last.rpartition("=")
        if not equals or "/" not in resource or not count.isdecimal():
            raise WordsError(f"found {last!r}, expected RESOURCE=NUMBER such as example.com/x=2")
        found.setdefault((kind, name), {})[resource] = int(count)

    # A pod's manifest has sidecars among its init containers, with a restartPolicy of their own.
    app: list[Mapping[str, Any]] = []
    init: list[Mapping[str, Any]] = []
    for (kind, name), resources in found.items():
        always = {"restartPolicy": "Always"} if kind == "sidecar" else {}
        (init if kind else app).append({"name": name, "resources": resources, **always})
    return app or [{"name": "c", "resources": {}}], init


def exactly(words: list[str], *names: str) -> list[str]:
    """The words, one per name. Raises WordsError for another number."""
    if len(words) != len(names):
        expected = " ".join(names) or "nothing"
        raise WordsError(f"found {' '.join(words) or 'nothing'!r}, expected {expected}")
    return words
