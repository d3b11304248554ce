"""Lingering: a gateway that got SIGTERM serves on until a successor has taken over its resources.

When a pod is deleted, or a node moves to another DaemonSet, the old gateway may get SIGTERM before there is a new one.
With ``--linger`` it serves on as if nothing had happened, until other gateways own all of its resources, its time is
over, or a second signal comes.

It can't ask the API server whether a successor will come, but it sees the directories of the node's pods. If none of
them is another gateway's for UNSEEN seconds, no successor will come before this gateway has ended; so an uninstall
takes seconds, not minutes. A file beside its sockets, which the chart's clean-up writes, says the same at once.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from dpgateway.gateway import Gateway
from dpgateway.kit.log import bind
from dpgateway.kit.tasks import first

UNSEEN = 15.0
"""Seconds in which a successor's pod appears on the node: a controller, the scheduler and the kubelet have to see it
first."""
UNASKED = 60.0
"""Seconds in which a successor that has some resources takes over the others, if it has them: its drivers may load
slowly. A resource that it doesn't have, because it has another name there, is given by neither meanwhile."""
_LOOK = 1.0
"""Seconds between two looks at the files, which send no events."""

_log = bind(__name__)


class Ending:
    """Whether SIGTERM or SIGINT came, and how often. Used from the event loop."""

    def __init__(self) -> None:
        self.told = asyncio.Event()
        """The gateway is to end."""
        self.at_once = asyncio.Event()
        """It was told so twice: it doesn't linger."""

    def tell(self) -> None:
        (self.at_once if self.told.is_set() else self.told).set()


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a gateway lingers."""

    seconds: float = 0.0
    """At most; 0: it doesn't linger."""
    pod: str = ""
    """The uid of its own pod; empty if it is in none, or doesn't know it."""


async def linger(gateway: Gateway, patience: Patience, at_once: asyncio.Event) -> None:
    """Returns when there is nothing to wait for, or no time left."""
    seconds, now = patience.seconds, asyncio.get_running_loop().time
    if not seconds or not gateway.ours:
        return
    text = "told to end: serving on until another gateway has taken over %s, for %g s at most; a second signal ends it"
    _log.info(text, _named(gateway.ours), seconds)
    over = now() + seconds
    gateway.overview.linger(time.monotonic() + seconds)
    gateway.say_ending(patience.pod)
    seen, taken, ours = now(), now(), gateway.ours
    while True:
        version = gateway.changed.version
        if gateway.followed(patience.pod) is not False:
            seen = now()
        if gateway.ours != ours:
            ours, taken = gateway.ours, now()
        waits = Waits(over - now(), alone=now() - seen, unasked=now() - taken if gateway.given else 0.0)
        if why := _why_end(gateway, at_once, waits):
            break
        await first(gateway.changed.wait(version), at_once.wait(), within=min(_LOOK, over - now()))
    if left := gateway.ours:
        _log.warning("ending, though no gateway has taken over %s: %s", _named(left), why)
    else:
        _log.info("ending: %s", why)


@dataclass(frozen=True, slots=True)
class Waits:
    """Seconds."""

    left: float
    """For which it may linger still."""
    alone: float
    """For which no other gateway's pod has been on the node."""
    unasked: float
    """For which a gateway that has taken over some resources has taken no other one."""


def _why_end(gateway: Gateway, at_once: asyncio.Event, waits: Waits) -> str:
    """Why there is nothing to wait for; empty while there is."""
    if not gateway.ours:
        return "other gateways have taken over every resource"
    if at_once.is_set():
        return "told to end once more"
    if gateway.last.exists():
        return f"{gateway.last} says that no gateway comes after this one"
    if waits.alone >= UNSEEN:
        return f"no pod of another gateway has been on this node for {UNSEEN:g} s"
    if waits.unasked >= UNASKED:
        return f"another gateway has taken over the others, and hasn't asked for this within {UNASKED:g} s"
    return "the time is over" if waits.left <= 0 else ""


def _named(resources: tuple[str, ...], most: int = 3) -> str:
    more = len(resources) - most
    return ", ".join(resources[:most]) + (f" and {more} more" if more > 0 else "")
