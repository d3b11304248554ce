"""The gateway, as the changes of front see it: the served resources of a node, and one group at one moment."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from dpgateway.switching.choosing import Group


class SwitchedResource(Protocol):
    """A resource while the gateway serves it."""

    @property
    def present(self) -> str | None:
        """The front that offers it; None if another gateway has it, or it hasn't begun."""

    @property
    def streams(self) -> bool:
        """Whether a kubelet streams its list."""

    @property
    def elsewhere(self) -> str:
        """Which other gateway serves it, and when this one takes over; empty if none does."""

    def serves_on(self, front: str) -> bool:
        """Whether it is served on this front, and isn't about to be restarted."""


class SwitchingGateway(Protocol):
    """The gateway, as a change of front needs it."""

    @property
    def serving(self) -> Mapping[str, SwitchedResource]:
        """The served resources by name, live."""

    def offer(self) -> None:
        """Offers on the device plugin what :meth:`NodeSwitch.offers` says."""

    async def move(self, names: Iterable[str]) -> None:
        """Restarts the resources that aren't on the front that they should have."""


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group at one moment."""

    serves: bool
    """Whether this gateway serves all of its resources on the front of its state."""
    elsewhere: str
    """Which other gateway has some of them, and when this one takes them over; empty if none has."""
    closed: str
    """Why nothing of this gateway goes to DRA now, as what it waits for; empty if it may."""
    streams: bool
    """Whether a kubelet streams the device plugin's lists of all resources. None does while it is away."""
    age: float
    """Seconds since the kubelet's start."""
    in_flight: bool
    """Whether an Allocate is under way, also one that waits. Its end makes no event."""
    answers: bool
    """Whether the API server answers."""

    @property
    def kept(self) -> str:
        """What keeps the group on the device plugin besides the facts; empty for nothing. While a kubelet is away the
        facts are those of its last one: an older kubelet that comes next would find an empty list, and refuse the pods
        that it starts.
        """
        if self.closed:
            return self.closed
        return "" if self.streams else "a kubelet: none streams the list of devices"


class SwitchedResources(Protocol):
    """The gateway, as one group needs it."""

    def view(self, group: Group, front: str) -> GroupView:
        """``front``: that of the group's state."""

    async def known(self, names: Iterable[str]) -> bool:
        """Whether the kubelet may know a device plugin, or containers, of one of these resources."""

    async def move(self, names: Iterable[str]) -> None:
        """Restarts the resources that aren't on the front of their group's state."""

    def offer(self) -> None:
        """Offers what the states say, and nothing else."""

    def published(self, pool: str) -> int | None:
        """The number of devices in slices of this pool, as the API server has them; None while it is unknown."""

    async def pending(self, pool: str, since: float) -> Collection[str]:
        """The claims that are allocated to devices of this pool, and not prepared. A list that began before ``since``,
        in seconds of the monotonic clock, may lack some. Raises GatewayError.
        """

    jitter: float
    """A random number from 0 to 1, the same for all groups of a node."""
