"""Lingering: after SIGTERM a gateway serves on until a successor has taken over its resources.

When a pod is deleted, or a node moves to another DaemonSet, the old gateway may get SIGTERM before there is a new one.
With ``--linger`` it serves on as before, until other gateways own all of its resources, its time is over, or a second
signal comes.

It can't ask the API server for a successor, but it sees the directories of the node's pods. If none of them is another
gateway's for UNSEEN seconds, no successor will come before this gateway has ended; so an uninstall takes seconds, not
minutes. A file beside its sockets, written by the chart's clean-up, has the same effect at once.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from dpgateway.gateway import Gateway
from dpgateway.kit.log import bind
from dpgateway.kit.tasks import first
from dpgateway.other_gateways import OtherGateways
from dpgateway.status.troubles import MOST_NAMED, some

UNSEEN = 15.0
"""Seconds in which a successor's pod appears on the node, through controller, scheduler and kubelet."""
UNASKED = 60.0
"""Seconds that a successor with some of the resources has for the next one, because its drivers may load slowly. A
resource that it lacks, renamed there for example, is given by neither gateway meanwhile."""
_LOOK = 1.0
"""Seconds between two looks at the files, which are polled."""

_log = bind(__name__)


class Ending:
    """Counts SIGTERM and SIGINT. Used from the event loop."""

    def __init__(self) -> None:
        self.told = asyncio.Event()
        """Set by the first signal: the gateway is to end."""
        self.at_once = asyncio.Event()
        """Set by the second one: it is to end without lingering."""

    def tell(self) -> None:
        (self.at_once if self.told.is_set() else self.told).set()


@dataclass(frozen=True, slots=True)
class Patience:
    """The conditions of lingering."""

    seconds: float = 0.0
    """The longest time; 0: no lingering."""
    pod: str = ""
    """The uid of the gateway's own pod; empty without a pod, or if unknown."""


async def linger(gateway: Gateway, patience: Patience, at_once: asyncio.Event) -> None:
    """Returns when there is nothing left to wait for, or no time."""
    seconds, now, others = patience.seconds, asyncio.get_running_loop().time, gateway.others
    if not seconds or not others.ours:
        return
    text = "told to end: serving on until another gateway has taken over %s, for %g s at most; a second signal ends it"
    _log.info(text, some(others.ours, MOST_NAMED), seconds)
    over = now() + seconds
    gateway.overview.linger(time.monotonic() + seconds)
    others.say_ending(patience.pod)  # else two terminating gateways would wait for each other
    seen, taken, ours = now(), now(), others.ours
    while True:
        version = gateway.changed.version
        if others.followed(patience.pod) is not False:
            seen = now()
        if others.ours != ours:
            ours, taken = others.ours, now()
        waits = Waits(over - now(), alone=now() - seen, unasked=now() - taken if others.given else 0.0)
        if why := _why_end(others, at_once, waits):
            break
        await first(gateway.changed.wait(version), at_once.wait(), within=min(_LOOK, over - now()))
    if left := others.ours:
        _log.warning("ending, though no gateway has taken over %s: %s", some(left, MOST_NAMED), why)
    else:
        _log.info("ending: %s", why)


@dataclass(frozen=True, slots=True)
class Waits:
    """Times in seconds."""

    left: float
    """Until lingering ends anyway."""
    alone: float
    """Since another gateway's pod was last seen on the node."""
    unasked: float
    """Since a successor last took over a resource; 0 before the first."""


def _why_end(others: OtherGateways, at_once: asyncio.Event, waits: Waits) -> str:
    """The reason to end; empty while lingering makes sense."""
    if not others.ours:
        return "other gateways have taken over every resource"
    if at_once.is_set():
        return "told to end once more"
    if others.last.exists():
        return f"{others.last} says that no gateway comes after this one"
    if waits.alone >= UNSEEN:
        return f"no pod of another gateway has been on this node for {UNSEEN:g} s"
    if waits.unasked >= UNASKED:
        return f"another gateway has taken over the others, and hasn't asked for this within {UNASKED:g} s"
    return "the time is over" if waits.left <= 0 else ""
