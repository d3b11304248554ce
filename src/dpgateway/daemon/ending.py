"""The gateway is told to end: at once, or once another gateway has taken its resources over.

A pod that is deleted, or a node that moves to another DaemonSet, may have no new gateway yet when the old one gets its
SIGTERM. With ``--linger`` the old one serves on meanwhile, as if nothing had happened, until each resource is another
gateway's, or its time is over, or it is told once more.

It can't ask the API server whether another gateway will come. But it sees the directories of the node's pods: if none
of them is another gateway's for UNSEEN seconds, none will come before this one has ended. So an uninstall takes no
minutes. A file beside its sockets says the same at once; the chart's clean-up writes it.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from dpgateway.gateway import Gateway
from dpgateway.kit.log import bind
from dpgateway.kit.tasks import first

UNSEEN = 15.0
"""Seconds in which the pod of the next gateway comes to the node, if one does: a controller, the scheduler and the
kubelet have each to see it first."""
UNASKED = 60.0
"""Seconds in which a gateway that has taken over some resources takes the others, if it has them: its drivers may load
slowly. A resource that it doesn't have, because it has another name there, isn't given by either meanwhile."""
_LOOK = 1.0
"""Seconds between two looks at what nothing tells of."""

_log = bind(__name__)


class Ending:
    """What SIGTERM and SIGINT ask for. Used from the event loop."""

    def __init__(self) -> None:
        self.told = asyncio.Event()
        """The gateway is to end."""
        self.at_once = asyncio.Event()
        """It was told so twice, and waits for nothing any more."""

    def tell(self) -> None:
        (self.at_once if self.told.is_set() else self.told).set()


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a gateway lingers."""

    seconds: float = 0.0
    """At most; none if it doesn't linger."""
    pod: str = ""
    """The uid of its own pod; empty if it doesn't know that, or is in none."""


async def linger(gateway: Gateway, patience: Patience, at_once: asyncio.Event) -> None:
    """Returns when nobody needs this gateway any more, or it can't wait any longer."""
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
