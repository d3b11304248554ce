"""What containers still hold of resources that aren't configured any more, as long as they hold it.

The containers run on, and their hardware may be another resource's by now. Earlier gateways told their journals which
resources these are; a resource that goes while this gateway runs is added to them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

from dpgateway.errors import GatewayError
from dpgateway.node.holdings import Holdings
from dpgateway.node.journal import Claims, claims_of_others
from dpgateway.node.node import Node
from dpgateway.process.log import bind
from dpgateway.process.observable import Bell, Observable
from dpgateway.process.threads import Threads

PATIENCE = 2.0
"""Seconds that the disk has to answer."""

_log = bind(__name__)


class Left:
    """Used from the event loop."""

    def __init__(self, node: Node, state_dir: Path, threads: Threads) -> None:
        self.known = asyncio.Event()
        """Set once the journals have been looked at."""
        self.holdings: dict[str, Observable[Holdings]] = {}
        """By resource; each of them is held."""
        self._node, self._state_dir, self._threads = node, state_dir, threads
        self._bell = Bell()
        self._complaints: list[str] = []

    async def run(self, changed: Callable[[], None]) -> None:
        """Calls ``changed`` whenever something else may be held; never returns."""
        with self._bell.heard() as heard:
            await self.look()
            self.known.set()
            while True:
                self._forget()
                changed()
                await heard.wait()
                heard.clear()

    async def look(self) -> bool:
        """Reads the journals, once more if another gateway may have written one since: whether all could be read."""
        recalled, whole = await self._recalled()
        for resource, claims in recalled.items():
            if resource in self.configured:
                continue  # since just now
            self._node.add(resource)
            holdings = self._node.holdings[resource]
            holdings.publish(holdings.value.remembered(claims))
            if resource not in self.holdings:
                self.add(resource)
        return whole

    @property
    def configured(self) -> frozenset[str]:
        """The resources that are."""
        return frozenset(self._node.holdings.keys() - self.holdings.keys())

    async def _recalled(self) -> tuple[dict[str, Claims], bool]:
        """What the journals say of resources that aren't configured, and whether that is all."""
        find = partial(claims_of_others, self._state_dir, self._node.directory, self.configured)
        try:
            async with asyncio.timeout(PATIENCE):
                found, complaints = await self._threads.call("journals", find)
        except (GatewayError, OSError) as error:  # also without a thread
            found, complaints = {}, [str(error) or f"the disk hasn't answered for {PATIENCE:g} s"]
        for complaint in complaints:
            if complaint not in self._complaints:
                text = "what containers hold of resources that aren't configured any more isn't known: %s"
                _log.warning(text, complaint)
        self._complaints = complaints
        return found, not complaints

    def add(self, resource: str) -> None:
        """The resource isn't configured any more."""
        holdings = self._node.holdings[resource]
        self.holdings[resource] = holdings
        holdings.tell(self._bell.ring)
        self._bell.ring()

    def drop(self, resource: str) -> None:
        """The resource is configured again."""
        self.holdings.pop(resource, None)

    def _forget(self) -> None:
        over = [resource for resource, holdings in self.holdings.items() if not holdings.value.last_known]
        for resource in over:
            del self.holdings[resource]
            self._node.drop(resource)
