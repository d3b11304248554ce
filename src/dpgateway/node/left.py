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

    async def run(self, changed: Callable[[], None]) -> None:
        """Calls ``changed`` whenever something else may be held; never returns."""
        with self._bell.heard() as heard:
            for resource, claims in (await self._recalled()).items():
                if resource not in self._node.holdings:
                    self._node.add(resource)
                    holdings = self._node.holdings[resource]
                    holdings.publish(holdings.value.remembered(claims))
                    self.add(resource)
            self.known.set()
            while True:
                self._forget()
                changed()
                await heard.wait()
                heard.clear()

    async def _recalled(self) -> dict[str, Claims]:
        """What the journals say of resources that aren't configured."""
        find = partial(claims_of_others, self._state_dir, self._node.directory, frozenset(self._node.holdings))
        try:
            async with asyncio.timeout(PATIENCE):
                found, complaints = await self._threads.call("journals", find)
        except (GatewayError, OSError) as error:  # also without a thread
            found, complaints = {}, [str(error) or f"the disk hasn't answered for {PATIENCE:g} s"]
        for complaint in complaints:
            text = "what containers hold of resources that aren't configured any more isn't known: %s"
            _log.warning(text, complaint)
        return found

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
