"""What a resource asks of its front: what containers have of it, and a place to tell what happens to it.

Each front learns from sources of its own what containers have: the device-plugin API from the kubelet's checkpoint,
from PodResources and from the calls in flight. A resource knows none of these. It reads a value (:class:`InUse`)
whenever it decides something, and tells the front each event (:class:`Usage`), upon which there is another value.

The life of an id, as a resource tells it::

    began -> owed -> gave      an Allocate: it is in flight, the driver answered, the kubelet has the answer
    began -> [owed ->] failed  the same, refused: what is owed is free, and waits for its release
    prepared                   its container starts, perhaps again
    released                   the driver was told that it is free
    remembered                 an earlier gateway wrote down what it gave away
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple, Protocol

NOTED_WITHIN = 10.0
"""Seconds from an Allocate until each source of a front has it."""

NO_KUBELET = "none"
"""Stands for the kubelet of an id whose Allocate hasn't succeeded, so that no note can be too old to have it."""

Held = frozenset[str] | None
"""The ids that containers hold; None when that can't be known, and then nothing may leave a list."""

Behind = Mapping[str, frozenset[str]]
"""The hardware behind each id."""


class Unreleased(NamedTuple):
    """An id that was in use and hasn't been released to its driver yet. The journal keeps it over restarts."""

    kubelet: str
    """Which incarnation of the kubelet knew of it. Another one's note proves nothing, because that kubelet may have
    forgotten what its containers hold."""
    pods: frozenset[str] = frozenset()
    """The uids of the pods that had it, if a note told them; or of all pods of which one may have it."""
    hardware: frozenset[str] = frozenset()
    """What was behind the device when it was given away: later the device may be gone, or another one's name."""
    since: int | None = None
    """When it was given away, in seconds since 1970, because that outlives a gateway; None if no gateway saw it."""
    device: str = ""
    """The driver's id of the device when it was given away; empty if no gateway saw it. Another `shares.ids` gives an
    id another meaning, or none."""
    driver: str | None = None
    """Which driver is to be told that the device is free; empty if the one that gave it has no ``release``, None if no
    gateway saw who gave it."""
    boot: str = ""
    """During which boot of the node a kubelet had it last; empty if that isn't known."""


class InUse(Protocol):
    """What containers have of one resource at one moment, over ids as the kubelet knows them."""

    @property
    def looked(self) -> bool:
        """Whether the front has looked at its own sources, also if it couldn't read them."""

    @property
    def remembers(self) -> bool:
        """Whether ``unreleased`` has what earlier gateways wrote down."""

    @property
    def known(self) -> bool:
        """Whether the front's sources tell what containers hold."""

    @property
    def held(self) -> Held:
        """The ids that the kubelet may name again: they must stay on the list."""

    @property
    def last_known(self) -> frozenset[str]:
        """The ids that a container may use; while the sources can't be read, those that were used before."""

    @property
    def taken(self) -> frozenset[str]:
        """``last_known`` and ``freed``."""

    @property
    def freed(self) -> frozenset[str]:
        """The ids that no container uses any more, and that wait for their release."""

    @property
    def unsettled(self) -> bool:
        """Whether an id waits for its release, or for somebody to say what is behind it."""

    @property
    def unreleased(self) -> Mapping[str, Unreleased]:
        """What is remembered of the ids that were in use and haven't been released."""

    @property
    def in_flight(self) -> tuple[Behind, ...]:
        """The ids of each Allocate under way, with what was behind them when it began."""

    @property
    def started(self) -> frozenset[str]:
        """The ids that containers have by answers, so without those in flight alone."""

    @property
    def fresh(self) -> frozenset[str]:
        """The ids given, or in flight, that the front's sources may not have yet."""

    @property
    def driver(self) -> str | None:
        """The driver to tell what is free; empty if it has no ``release``, None while there is none."""

    @property
    def named(self) -> Mapping[str, tuple[str, ...]]:
        """Who may use each id, for people."""

    def holder(self, id_: str) -> str:
        """The pod that has the id; empty if that isn't known."""

    def last_holder(self, id_: str) -> str:
        """Who had the id last, as far as anybody said."""

    def numa_nodes(self, id_: str) -> tuple[int, ...]:
        """The NUMA nodes that the kubelet knew the id to be near."""

    def one_has(self, ids: Collection[str]) -> bool:
        """Whether one container may have all of these ids."""

    def given_up(self, ids: Collection[str]) -> frozenset[str]:
        """What containers have no more, if the kubelet gives these ids away."""

    def differs(self, hardware: Behind) -> bool:
        """Whether a container that starts with this hardware behind its ids had other hardware."""

    def look_again(self, lost: Iterable[str]) -> float | None:
        """Seconds after which one of the ``lost`` ids may be free without an event that tells so; None: never."""


class Usage(Protocol):
    """The same as it changes. The front owns it and publishes each value; a resource watches it, and tells events."""

    @property
    def value(self) -> InUse: ...

    @property
    def version(self) -> int: ...

    async def wait(self, version: int) -> int: ...

    async def wait_for(self, holds: Callable[[InUse], object]) -> None: ...

    def subscribe(self, changed: Callable[[], object]) -> None: ...

    def notify(self) -> None: ...

    def reread(self) -> None:
        """Has the front look at its sources once more, and publish what they say."""

    def given_by(self, driver: str) -> None:
        """What is given away from now on is to be released to this driver; empty: to none."""

    def began(self, ids: tuple[str, ...], hardware: Behind) -> None:
        """An Allocate of ``ids`` is under way."""

    def owed(self, ids: tuple[str, ...], hardware: Behind, devices: Mapping[str, str]) -> None:
        """The driver gave these ``devices``: unless the Allocate succeeds, they have to be released."""

    def gave(self, ids: tuple[str, ...], now: float, hardware: Behind, since: int, devices: Mapping[str, str]) -> None:
        """The Allocate succeeded. ``now`` is of the monotonic clock, ``since`` the same in seconds since 1970."""

    def failed(self, ids: tuple[str, ...]) -> None:
        """The Allocate failed: the ids are as they were before."""

    def prepared(self, hardware: Behind) -> None:
        """A container starts with this hardware behind its ids, and has nothing of what was behind them before."""

    def released(self, ids: Collection[str]) -> None:
        """The driver was told that these ids, which were freed, are free."""

    def known_behind(self, hardware: Behind, devices: Mapping[str, str]) -> None:
        """What is behind ids of which nobody said it yet, and their devices."""

    def remembered(self, unreleased: Mapping[str, Unreleased], granted: Mapping[str, float] | None = None) -> None:
        """What an earlier gateway wrote down; ``granted``: when it gave those that the sources may not have yet."""


class Usages(Protocol):
    """All resources of a front."""

    @property
    def by_resource(self) -> Mapping[str, Usage]: ...

    @property
    def written(self) -> int:
        """How often the front's source may have been written."""

    def add(self, resource: str) -> None:
        """From now on it is known what containers have of this resource, too. It may be there already."""

    def drop(self, resource: str) -> None: ...
