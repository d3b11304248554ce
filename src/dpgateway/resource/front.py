"""The interface between a resource and its front: the holdings, read as a value, and the events of a grant.

Each front has its own sources of holdings: the device-plugin front the kubelet's checkpoint, PodResources and the calls
in flight, the DRA front its records of claims. A resource knows none of these. It reads a value for each decision
(:class:`InUse`), and publishes the next value at each event of a grant (:class:`Usage`).

The life of an id, in the events of a resource::

    began -> owed -> gave      an Allocate: it is in flight, the driver answered, the kubelet has the answer
    began -> [owed ->] failed  the same, refused: an owed id is free, and awaits its release
    abandons -> failed         the same, while the driver's allocate() goes on
    returned [-> owed]         the end of that allocate(): what it gave is free, and awaits its release
    prepared                   its container starts, perhaps again
    stops                      the start is refused
    unasked                    who was refused may have been started since
    released                   the driver was told that it is free
    remembered                 the journal of an earlier gateway was read
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol, Self

from dpgateway.kit.observable import Observable
from dpgateway.node.holders import Holder

NOTED_WITHIN = 10.0
"""Seconds from an Allocate until every source of a front has it."""

NO_KUBELET = "none"
"""The kubelet of an id whose Allocate hasn't succeeded: no container has it, so it is free without a note's proof."""

Held = frozenset[str] | None
"""The held ids; None if they can't be known, and then no id may leave a list."""

Behind = Mapping[str, frozenset[str]]
"""The hardware names of each id."""


class Unreleased(NamedTuple):
    """An id that was in use and hasn't been released to its driver yet. The journal keeps it over restarts."""

    kubelet: str
    """The kubelet incarnation that last knew the id. Another incarnation's note proves nothing, because that kubelet
    may have forgotten running containers."""
    pods: frozenset[str] = frozenset()
    """The uids of its pods, if a note named them; or of every pod that may have it."""
    hardware: frozenset[str] = frozenset()
    """The hardware names at the grant: later the device may be gone, or its id mean another device."""
    since: int | None = None
    """When it was granted, in seconds since 1970, to outlive the gateway; None for an unrecorded grant."""
    device: str = ""
    """The driver's device id at the grant; empty for an unrecorded grant. Under another `shares.ids` the offered id has
    another meaning, or none."""
    driver: str | None = None
    """The driver to release to; empty if that driver has no ``release``, None for an unrecorded grant."""
    boot: str = ""
    """The node's boot id when a kubelet last had the id; empty if unknown."""


@dataclass(frozen=True, slots=True)
class HolderStatus:
    """A container that holds a device; fields that the kubelet didn't tell are None."""

    namespace: str | None = None
    pod: str | None = None
    pod_uid: str | None = None
    container: str | None = None
    claim: str | None = None
    """By DRA the claim that has the device: its pods' containers aren't known."""

    def __str__(self) -> str:
        name = f"{self.namespace}/{self.pod}" if self.pod else f"pod {self.pod_uid}" if self.pod_uid else ""
        if self.claim:
            return f"{name} (claim {self.claim})" if name else f"claim {self.namespace}/{self.claim}"
        return f"{name or 'a pod'} ({self.container})" if self.container else name or "a pod"


@dataclass(frozen=True)
class InUse(ABC):
    """The holdings of one resource at one moment, by offered id. Immutable: each event returns the next value.

    This class has the records of the grants; each front's own class adds what its sources tell. Its sets of ids:

        fresh       granted or in flight: the front's sources may lack it yet
        taken       in use, or to be released: unreleased, living or fresh
        last_known  a container may use it: taken, but not freed
        held        the kubelet may name it again: it must stay on the list
    """

    looked: bool = False
    """Whether the front has tried to read its own sources."""
    granted: Mapping[str, float] = field(default_factory=dict)
    """`granted` contains the time of each grant that the front's sources may lack, keyed by id."""
    in_flight: tuple[Behind, ...] = ()
    """The hardware of each Allocate in flight, by id: as known when the call began, empty if unknown."""
    abandoned: tuple[Behind, ...] = ()
    """The hardware of each Allocate that ended before the driver's allocate(), by id: it is in use for the other names
    of the hardware until that returns, and the id is as it was before."""
    unreleased: Mapping[str, Unreleased] = field(default_factory=dict)
    """`unreleased` contains the record of each unreleased id, as in the journal, keyed by id."""
    remembers: bool = False
    """Whether ``unreleased`` includes the journal of earlier gateways."""
    before_boot: frozenset[str] = frozenset()
    """The ids granted before the node's boot, while their present hardware isn't among that of ``unreleased``: the
    kubelet may have started their containers again, and asked nobody."""
    stopped: frozenset[str] = frozenset()
    """The ids whose only container was refused its start, and runs no more."""
    kubelet: str = ""
    """This kubelet's incarnation."""
    boot: str = ""
    """The node's current boot id; empty if unknown."""
    driver: str | None = None
    """The driver to release to; empty if it has no ``release``, None while there is no driver."""

    # what the front's sources tell

    @property
    @abstractmethod
    def held(self) -> Held:
        """The ids that the kubelet may name again: they must stay on the list."""

    @property
    @abstractmethod
    def living(self) -> tuple[str, ...]:
        """The ids in the front's sources without proof that their containers ended."""

    @property
    @abstractmethod
    def freed(self) -> frozenset[str]:
        """The ids that no container uses any more and that await their release."""

    @property
    @abstractmethod
    def named(self) -> Mapping[str, tuple[str, ...]]:
        """The holders of each id, for people."""

    @abstractmethod
    def holder(self, id_: str) -> str:
        """The pod that has the id; empty if unknown or ambiguous."""

    @abstractmethod
    def holders(self, id_: str) -> tuple[HolderStatus, ...]:
        """The holders of the id, as far as known, for the status."""

    def container(self, id_: str) -> Holder | None:
        """The container that has the id, with its pod; None if their names aren't known."""
        return None

    @property
    def shown(self) -> tuple[object, ...]:
        """The part that the status shows: as long as it is equal, the status of no id has changed."""
        return self.last_known, self.unreleased

    @abstractmethod
    def last_holder(self, id_: str) -> str:
        """The id's last known holder; "a container" if none is known."""

    @abstractmethod
    def numa_nodes(self, id_: str) -> tuple[int, ...]:
        """The NUMA nodes that the kubelet noted for the id."""

    @property
    def counted(self) -> Mapping[str, str]:
        """`counted` contains the extended resource by which the scheduler counts an id's pod, keyed by id: another
        front gave the id to a pod that asked for that resource. An id that is in doubt isn't in it.
        """
        return {}

    @abstractmethod
    def one_has(self, ids: Collection[str]) -> bool:
        """Whether a single container may have all of these ids."""

    @abstractmethod
    def given_up(self, ids: Collection[str]) -> frozenset[str]:
        """The ids whose pods must have ended if the kubelet allocates these ids anew."""

    # together with the grants

    @property
    def known(self) -> bool:
        """Whether the front's sources tell the holdings."""
        return self.held is not None

    @property
    def fresh(self) -> frozenset[str]:
        """The ids granted or in flight that the front's sources may lack."""
        return frozenset(self.granted).union(*self.in_flight)

    @property
    def taken(self) -> frozenset[str]:
        """The ids in use, and the freed ones that await their release."""
        return frozenset(self.unreleased).union(self.living, self.granted, *self.in_flight)

    @property
    def last_known(self) -> frozenset[str]:
        """The ids that a container may use; while the sources can't be read, those used before."""
        return self.taken - self.freed

    @cached_property
    def unsettled(self) -> bool:
        """Whether an id awaits its release, or its hardware is still unknown."""
        return bool(self.freed) or not all(entry.hardware for entry in self.unreleased.values())

    def fewer_calls_than(self, before: Self) -> bool:
        """Whether an Allocate has ended, or an abandoned allocate() has returned, as after no other event."""
        ended = len(self.in_flight) < len(before.in_flight)
        return ended or len(self.abandoned) < len(before.abandoned)

    # the events of a resource

    def given_by(self, driver: str) -> Self:
        """From now on grants are released to this driver; empty: to none."""
        return self if driver == self.driver else replace(self, driver=driver)

    def began(self, ids: tuple[str, ...], hardware: Behind | None = None) -> Self:
        """An Allocate of ``ids`` is under way."""
        flight = {id_: (hardware or {}).get(id_, frozenset()) for id_ in ids}
        return replace(self, in_flight=(*self.in_flight, flight))

    def failed(self, ids: tuple[str, ...]) -> Self:
        """The Allocate of ``ids`` failed: the ids are as they were before."""
        flights = list(self.in_flight)
        del flights[list(map(tuple, flights)).index(ids)]
        return replace(self, in_flight=tuple(flights))

    def abandons(self, flight: Behind) -> Self:
        """An Allocate is about to fail whose allocate() goes on."""
        return replace(self, abandoned=(*self.abandoned, flight))

    def returned(self, flight: Behind) -> Self:
        """The allocate() of the abandoned ``flight`` has returned. Others may be of equal ids."""
        return replace(self, abandoned=tuple([one for one in self.abandoned if one is not flight]))

    def owed(
        self,
        ids: tuple[str, ...],
        hardware: Behind,
        devices: Mapping[str, str] | None = None,
        driver: str | None = None,
    ) -> Self:
        """The driver gave these ``devices``, by id: unless the Allocate succeeds, they have to be released. ``driver``:
        the one to release to, by default the present one.
        """
        unreleased, driver = dict(self.unreleased), self.driver if driver is None else driver
        for id_ in ids:
            if id_ not in unreleased:
                unreleased[id_] = self._record(NO_KUBELET, id_, hardware, devices)._replace(driver=driver)
        return replace(self, unreleased=unreleased)

    def gave(
        self,
        ids: tuple[str, ...],
        now: float,
        hardware: Behind | None = None,
        since: int | None = None,
        devices: Mapping[str, str] | None = None,
    ) -> Self:
        """The Allocate of ``ids`` succeeded, at ``now`` on the monotonic clock and ``since`` in seconds since 1970: a
        container has them until a newer source says otherwise.
        """
        granted, unreleased = {**self.granted, **dict.fromkeys(ids, now)}, dict(self.unreleased)
        for id_ in ids:
            unreleased[id_] = self._record(self.kubelet, id_, hardware, devices)._replace(since=since)
        return replace(self.failed(ids), granted=granted, unreleased=unreleased, stopped=self.stopped.difference(ids))

    def _record(self, kubelet: str, id_: str, hardware: Behind | None, devices: Mapping[str, str] | None) -> Unreleased:
        names, device = (hardware or {}).get(id_, frozenset()), (devices or {}).get(id_, "")
        return Unreleased(kubelet, hardware=names, device=device, driver=self.driver, boot=self.boot)

    @abstractmethod
    def prepared(self, hardware: Behind) -> Self:
        """A container starts with this hardware behind its ids; its earlier hardware is free. The same value if it had
        no other.
        """

    def stops(self, ids: Collection[str]) -> Self:
        """The start of a container with these ids is refused. The same value if that was known, or if another container
        has them, too.
        """
        return self

    def unasked(self) -> Self:
        """From now on the kubelet may start containers without asking: also those whose start was refused."""
        return replace(self, stopped=frozenset()) if self.stopped else self

    def released(self, ids: Collection[str]) -> Self:
        """These freed ids were released to the driver."""
        told = self.freed.intersection(ids)
        return replace(self, unreleased={id_: one for id_, one in self.unreleased.items() if id_ not in told})

    def without_told(self, untold: Collection[str]) -> Self:
        """What counts for the pools, of a resource that this front doesn't offer. A freed id counts as long as it is
        ``untold`` whether the driver on the other front releases it; then that front has it in use, or it is free.
        """
        told = [id_ for id_ in self.freed if id_ not in untold or not self.unreleased[id_].driver]
        return self.released(told) if told else self

    def known_behind(self, hardware: Behind, devices: Mapping[str, str] | None = None) -> Self:
        """Adds the hardware and the devices of unreleased ids whose hardware is unknown, or from before the boot."""
        if not self.remembers:  # the journal may know better
            return self
        names = devices or {}
        new = {
            id_: entry._replace(hardware=entry.hardware | hardware[id_], device=entry.device or names.get(id_, ""))
            for id_, entry in self.unreleased.items()
            if id_ in hardware and (not entry.hardware or id_ in self.before_boot)
        }
        left = self.before_boot - new.keys()
        return replace(self, unreleased={**self.unreleased, **new}, before_boot=left) if new else self

    @abstractmethod
    def remembered(self, unreleased: Mapping[str, Unreleased], granted: Mapping[str, float] | None = None) -> Self:
        """Takes over an earlier gateway's journal: hardware, device and time of each grant. ``granted``: the times of
        its grants that the sources may lack. The same value if it says nothing new.
        """


class Usage(Observable[InUse]):
    """The observable holdings of one resource. The front publishes the news of its sources, the resource the events of
    its grants: both set the value that follows the present one, in one step of the event loop.
    """

    def __init__(
        self, value: InUse, reread: Callable[[], object] = lambda: None, news: Callable[[Any, Any], bool] = operator.ne
    ) -> None:
        super().__init__(value, news)
        self.reread = reread
        """Makes the front read its sources again and publish the result, even an unchanged one."""
        self.allocating = 0
        """The number of the kubelet's Allocates under way, some of which may wait before they are in flight."""

    @contextmanager
    def kubelet_allocates(self) -> Iterator[None]:
        """An Allocate of the kubelet is under way."""
        self.allocating += 1
        try:
            yield
        finally:
            self.allocating -= 1

    @property
    def grant_under_way(self) -> bool:
        """Whether an Allocate of the kubelet is under way, or a grant of another front."""
        return bool(self.allocating or self.value.in_flight)


class Usages(Protocol):
    """The usages of all resources of a front."""

    @property
    def by_resource(self) -> Mapping[str, Usage]: ...

    @property
    def written(self) -> int:
        """A counter of possible writes of the front's source."""

    def add(self, resource: str) -> None:
        """Starts to follow a resource; harmless for one that is followed already."""

    def drop(self, resource: str) -> None: ...
