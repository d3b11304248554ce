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
from dataclasses import dataclass, field

from dpgateway.gateway import Gateway
from dpgateway.kit.log import bind
from dpgateway.kit.tasks import first
from dpgateway.status.troubles import MOST_NAMED, some

UNSEEN = 15.0
"""Seconds in which a successor's pod appears on the node, through controller, scheduler and kubelet."""
UNASKED = 60.0
"""Seconds that a successor with some of the resources has for the next one, because its drivers may load slowly. A
resource that it lacks, renamed there for example, is given by neither gateway meanwhile."""
_LOOK = 1.0
"""Seconds between two looks at the files, which are polled."""

_log = bind(__name__)


@dataclass(frozen=True, slots=True)
class Ending:
    """Counts SIGTERM and SIGINT. Used from the event loop."""

    told: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by the first signal: the gateway is to end."""
    at_once: asyncio.Event = field(default_factory=asyncio.Event)
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
        seen = seen if others.followed(patience.pod) is False else now()
        if others.ours != ours:
            ours, taken = others.ours, now()
        if not others.ours:
            why = "other gateways have taken over every resource"
        elif at_once.is_set():
            why = "told to end once more"
        elif others.last.exists():
            why = f"{others.last} says that no gateway comes after this one"
        elif now() - seen >= UNSEEN:
            why = f"no pod of another gateway has been on this node for {UNSEEN:g} s"
        elif others.given and now() - taken >= UNASKED:
            why = f"another gateway has taken over the others, and hasn't asked for this within {UNASKED:g} s"
        elif now() >= over:
            why = "the time is over"
        else:
            await first(gateway.changed.wait(version), at_once.wait(), within=min(_LOOK, over - now()))
            continue
        break
    if left := others.ours:
        _log.warning("ending, though no gateway has taken over %s: %s", some(left, MOST_NAMED), why)
    else:
        _log.info("ending: %s", why)
