"""One resource on a front, as the gateway runs it and the status sees it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from dpgateway.kit.call_stats import CallStats
from dpgateway.kit.observable import Observable, Signal
from dpgateway.node.incarnation import Change
from dpgateway.resource.resource import Resource
from dpgateway.resource.standing import Standing


class OnFront(Protocol):
    """Used from the event loop. :meth:`run` serves until it is cancelled; :meth:`drain` and :meth:`close` follow."""

    resource: Resource
    taken_back: bool
    """Whether the gateway that handed the resource over has taken it back."""

    standing: Observable[Standing]
    """Its registration with the kubelet."""
    rival: Observable[str]
    """The warning that another plugin has registered this resource; empty if none has."""
    outdated: Observable[Mapping[str, str]]
    """Why the container of an id can't restart, by offered id."""
    refused: Observable[tuple[str, float] | None]
    """Why calls are refused, and since when on the monotonic clock; None if they aren't."""
    rpcs: CallStats
    """Statistics of the answered calls."""

    @property
    def attempts(self) -> Mapping[tuple[str, str], int]:
        """Numbers of attempted registrations, by API and outcome."""

    @property
    def streaming(self) -> bool:
        """Whether a stream of the present kubelet is open."""

    @property
    def values(self) -> tuple[Signal, ...]:
        """Everything observable about it, for subscribers to all changes."""

    def kubelet(self, change: Change) -> None:
        """The kubelet's socket has changed."""

    async def run(self) -> bool:
        """Returns early: True if another gateway has taken the resource over, False if this one must start over."""

    async def drain(self, grace: float) -> None:
        """Refuses new calls, and waits up to ``grace`` seconds for those under way."""

    async def close(self) -> None:
        """Ends what it serves, and releases the ownership."""

    def abandon(self) -> None:
        """Removes its names at once, without waiting for tasks. May be called from any thread."""
