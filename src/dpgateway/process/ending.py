"""The gateway is told to end: at once, or once another gateway has taken its resources over.

A pod that is deleted, or a node that moves to another DaemonSet, has no new gateway yet when the old one gets its
SIGTERM. With ``--linger`` the old one serves on meanwhile, as if nothing had happened. It can't ask the API server
whether a successor will come. So it lingers until each resource is another gateway's, or its time is over, or it is
told once more, or a file beside its sockets says that no successor will come: the chart's clean-up writes that.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from dpgateway.gateway import Gateway
from dpgateway.process.log import bind

_LOOK = 1.0
"""Seconds between two looks at the file, which nothing tells of."""

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


async def linger(gateway: Gateway, seconds: float, at_once: asyncio.Event) -> None:
    """Returns when nobody needs this gateway any more, or it can't wait any longer; after ``seconds`` at most."""
    if not seconds or not gateway.ours:
        return
    text = "told to end: serving on until another gateway has taken over %s, for %g s at most; a second signal ends it"
    _log.info(text, _named(gateway.ours), seconds)
    gateway.overview.linger(time.monotonic() + seconds)
    why = "the time is over"
    with suppress(TimeoutError), gateway.changed.heard() as rung:
        async with asyncio.timeout(seconds):
            while True:
                rung.clear()
                if (end := _end(gateway, at_once)) is not None:
                    why = end
                    break
                await _first(rung, at_once)
    if left := gateway.ours:
        _log.warning("ending, though no gateway has taken over %s: %s", _named(left), why)
    else:
        _log.info("ending: %s", why)


def _end(gateway: Gateway, at_once: asyncio.Event) -> str | None:
    """Why there is nothing to wait for; None while there is."""
    if not gateway.ours:
        return "other gateways have taken over every resource"
    if at_once.is_set():
        return "told to end once more"
    if gateway.last.exists():
        return f"{gateway.last} says that no gateway comes after this one"
    return None


async def _first(*events: asyncio.Event) -> None:
    """Until one of them is set, or it is time for another look."""
    waiting = [asyncio.create_task(event.wait(), name="linger") for event in events]
    try:
        await asyncio.wait(waiting, timeout=_LOOK, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()


def _named(resources: tuple[str, ...], most: int = 3) -> str:
    more = len(resources) - most
    return ", ".join(resources[:most]) + (f" and {more} more" if more > 0 else "")
