"""The interface between a resource and its front: the holdings, read as a value, and the events of a grant.

Each front has its own sources of holdings: the device-plugin front the kubelet's checkpoint, PodResources and the calls
in flight. A resource knows none of these. For each decision it reads a value (:class:`InUse`), and it reports each
event to the front (:class:`Usage`), which publishes the next value.

The life of an id, in the events of a resource::

    began -> owed -> gave      an Allocate: it is in flight, the driver answered, the kubelet has the answer
    began -> [owed ->] failed  the same, refused: an owed id is free, and awaits its release
    prepared                   its container starts, perhaps again
    released                   the driver was told that it is free
    remembered                 the journal of an earlier gateway was read
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple, Protocol

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


class InUse(Protocol):
    """The holdings of one resource at one moment, in the kubelet's ids."""

    @property
    def looked(self) -> bool:
        """Whether the front has tried to read its own sources."""

    @property
    def remembers(self) -> bool:
        """Whether ``unreleased`` includes the journal of earlier gateways."""

    @property
    def known(self) -> bool:
        """Whether the front's sources tell the holdings."""

    @property
    def held(self) -> Held:
        """The ids that the kubelet may name again: they must stay on the list."""

    @property
    def last_known(self) -> frozenset[str]:
        """The ids that a container may use; while the sources can't be read, those used before."""

    @property
    def taken(self) -> frozenset[str]:
        """``last_known`` and ``freed``."""

    @property
    def freed(self) -> frozenset[str]:
        """The ids that no container uses any more and that await their release."""

    @property
    def unsettled(self) -> bool:
        """Whether an id awaits its release, or its hardware is still unknown."""

    @property
    def unreleased(self) -> Mapping[str, Unreleased]:
        """The record of each unreleased id, keyed by id."""

    @property
    def in_flight(self) -> tuple[Behind, ...]:
        """The hardware of each Allocate in flight, by id, as known when the call began."""

    @property
    def started(self) -> frozenset[str]:
        """The ids of answered Allocates."""

    @property
    def fresh(self) -> frozenset[str]:
        """The ids granted or in flight that the front's sources may lack."""

    @property
    def driver(self) -> str | None:
        """The driver to release to; empty if it has no ``release``, None while there is no driver."""

    @property
    def named(self) -> Mapping[str, tuple[str, ...]]:
        """The holders of each id, for people."""

    def holder(self, id_: str) -> str:
        """The pod that has the id; empty if unknown."""

    def last_holder(self, id_: str) -> str:
        """The id's last known holder; "a container" if none is known."""

    def numa_nodes(self, id_: str) -> tuple[int, ...]:
        """The NUMA nodes that the kubelet noted for the id."""

    def one_has(self, ids: Collection[str]) -> bool:
        """Whether a single container may have all of these ids."""

    def given_up(self, ids: Collection[str]) -> frozenset[str]:
        """The ids whose pods must have ended if the kubelet allocates these ids anew."""

    def differs(self, hardware: Behind) -> bool:
        """Whether a container that starts with this hardware had other hardware before."""

    def look_again(self, lost: Iterable[str]) -> float | None:
        """Seconds until one of the ``lost`` ids may be free without an event; None: never."""


class Usage(Protocol):
    """The observable holdings. The front owns it and publishes each value; the resource watches it, and reports events.

    Its methods from ``given_by`` on are those events.
    """

    @property
    def value(self) -> InUse: ...

    @property
    def version(self) -> int: ...

    async def wait(self, version: int) -> int: ...

    async def wait_for(self, holds: Callable[[InUse], object]) -> None: ...

    def subscribe(self, changed: Callable[[], object]) -> None: ...

    def notify(self) -> None: ...

    def reread(self) -> None:
        """Makes the front read its sources again and publish the result, even an unchanged one."""

    def given_by(self, driver: str) -> None:
        """From now on grants are released to this driver; empty: to none."""

    def began(self, ids: tuple[str, ...], hardware: Behind) -> None:
        """An Allocate of ``ids`` is under way."""

    def owed(self, ids: tuple[str, ...], hardware: Behind, devices: Mapping[str, str]) -> None:
        """The driver gave these ``devices``, by id: unless the Allocate succeeds, they have to be released."""

    def gave(self, ids: tuple[str, ...], now: float, hardware: Behind, since: int, devices: Mapping[str, str]) -> None:
        """The Allocate succeeded, at ``now`` on the monotonic clock and ``since`` in seconds since 1970."""

    def failed(self, ids: tuple[str, ...]) -> None:
        """The Allocate failed: the ids are as they were before."""

    def prepared(self, hardware: Behind) -> None:
        """A container starts with this hardware behind its ids; its earlier hardware is free."""

    def released(self, ids: Collection[str]) -> None:
        """These freed ids were released to the driver."""

    def known_behind(self, hardware: Behind, devices: Mapping[str, str]) -> None:
        """The hardware and the devices of unreleased ids that lacked them."""

    def remembered(self, unreleased: Mapping[str, Unreleased], granted: Mapping[str, float] | None = None) -> None:
        """The journal of an earlier gateway; ``granted``: the times of its grants that the sources may lack."""


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
