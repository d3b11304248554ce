"""What containers still hold of resources that aren't configured any more, as long as they hold it.

The containers run on, and their hardware may be another resource's by now. Earlier gateways told their journals which
resources these are; a resource that goes while this gateway runs is added to them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path

from dpgateway.errors import GatewayError
from dpgateway.kit.complaint import Complaint
from dpgateway.kit.log import bind
from dpgateway.kit.observable import Observable, Signal
from dpgateway.kit.tasks import LONGEST_PAUSE, backoff
from dpgateway.kit.threads import Threads
from dpgateway.node.holdings import Holdings
from dpgateway.node.node import Node
from dpgateway.resource.journal import Entries, entries_of_others

WRITTEN = 0.1
"""Seconds until a journal has what was given away."""
PATIENCE = 2.0
"""Seconds that the disk has to answer."""

UNKNOWN = "what containers hold of resources that aren't configured any more isn't known: %s"

_log = bind(__name__)


def leak(log: logging.LoggerAdapter[logging.Logger], resource: str, holdings: Holdings, id_: str, reason: str) -> None:
    """Tells of a device that is free although the driver that gave it away isn't told. ``id_``: as it was offered."""
    entry = holdings.unreleased[id_]
    device, holder = entry.device or id_, holdings.last_holder(id_)
    log.warning(
        "device %s of %s is free again, but %s isn't told, so what release() undoes stays: %s; last held by %s",
        device,
        resource,
        f"driver {entry.driver}" if entry.driver else "its driver",
        reason,
        holder,
        extra={"devices": [device], "ids": None if device == id_ else [id_], "reason": reason},
    )


class Left:
    """Used from the event loop."""

    def __init__(self, node: Node, state_dir: Path, threads: Threads) -> None:
        self.known = asyncio.Event()
        """Set once the journals have been looked at."""
        self.holdings: dict[str, Observable[Holdings]] = {}
        """By resource; each of them is held."""
        self._node, self._state_dir, self._threads = node, state_dir, threads
        self._changed = Signal()
        self._complaint = Complaint(_log, UNKNOWN)
        self._leaked: set[tuple[str, str, int | None]] = set()
        """What the log has told of: resource, id, and since when that was held."""

    async def run(self, changed: Callable[[], None]) -> None:
        """Calls ``changed`` whenever something else may be held; never returns.

        Another gateway may still serve a resource that went, and write down what it gives away; the kubelet's
        checkpoint may have that sooner. So while an id has no hardware, the journals are read again.
        """
        await self.look()
        self.known.set()
        lacked: frozenset[tuple[str, str]] = frozenset()
        looks, due = 0, 0.0
        while True:
            seen = self._changed.version
            self._tell_of_leaks()
            self._forget()
            changed()
            lacking = self._lacking()
            if not lacking <= lacked:
                looks, due = 1, asyncio.get_running_loop().time() + WRITTEN
            lacked = lacking
            try:
                async with asyncio.timeout_at(due if lacking else None):
                    await self._changed.wait(seen)
            except TimeoutError:
                await self.look()
                looks += 1
                due = asyncio.get_running_loop().time() + backoff(looks, LONGEST_PAUSE, WRITTEN)

    def _lacking(self) -> frozenset[tuple[str, str]]:
        """The ids that are held, and of which it isn't known what is behind them."""
        held = ((resource, one.value) for resource, one in self.holdings.items())
        return frozenset(
            (resource, id_)
            for resource, holdings in held
            for id_ in holdings.last_known
            if (entry := holdings.unreleased.get(id_)) is None or not entry.hardware
        )

    async def look(self) -> bool:
        """Reads the journals, once more if another gateway may have written one since: whether all could be read."""
        recalled, whole = await self._recalled()
        for resource, unreleased in recalled.items():
            if resource in self.configured:
                continue  # since just now
            self._node.add(resource)
            holdings = self._node.holdings[resource]
            self._publish(holdings, holdings.value.remembered(unreleased))
            if resource not in self.holdings:
                self.add(resource)
        return whole

    @staticmethod
    def _publish(holdings: Observable[Holdings], found: Holdings) -> None:
        """Most looks find what the one before found."""
        if found != holdings.value:
            holdings.set(found)

    @property
    def directory(self) -> Path:
        """The kubelet's device-plugins directory."""
        return self._node.directory

    @property
    def written(self) -> int:
        """How often the kubelet may have written its checkpoint."""
        return self._node.written.version

    @property
    def configured(self) -> frozenset[str]:
        """The resources that are."""
        return frozenset(self._node.holdings.keys() - self.holdings.keys())

    async def _recalled(self) -> tuple[dict[str, Entries], bool]:
        """What the journals say of resources that aren't configured, and whether that is all."""
        find = partial(entries_of_others, self._state_dir, self._node.directory, self.configured)
        try:
            found, complaints = await self._threads.call_within("journals", find, PATIENCE)
        except (GatewayError, OSError) as error:  # also without a thread
            found, complaints = {}, [str(error)]
        self._complaint.say(*complaints)
        return found, not complaints

    def add(self, resource: str) -> None:
        """The resource isn't configured any more."""
        holdings = self._node.holdings[resource]
        self.holdings[resource] = holdings
        holdings.subscribe(self._changed.notify)
        self._changed.notify()

    def drop(self, resource: str) -> None:
        """The resource is configured again."""
        self.holdings.pop(resource, None)

    def _tell_of_leaks(self) -> None:
        """No driver is told what is free. Those that have no ``release`` don't mind."""
        for resource, holdings in self.holdings.items():
            unreleased = holdings.value.unreleased
            for id_ in sorted(holdings.value.freed):
                known = resource, id_, unreleased[id_].since  # a journal that is read again has it again
                if unreleased[id_].driver != "" and known not in self._leaked:
                    self._leaked.add(known)
                    leak(_log, resource, holdings.value, id_, "the resource isn't configured any more")

    def _forget(self) -> None:
        over = [resource for resource, holdings in self.holdings.items() if not holdings.value.last_known]
        for resource in over:
            del self.holdings[resource]
            self._node.drop(resource)
