"""Whether the API server keeps the fields that the slices of a pool need, tried before there are any.

A dry run has the fields that follow from the configuration. Fields that only its devices need, such as hardware that
several of them share, are known from the publisher once they are in slices. Its refusals are remembered after the pool
has left DRA, or it would go back at once. A new list of slices ends both results: it may be another server. A dry run
that lacks fields is made again after TRY_AGAIN, too, with what the publisher was refused.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Mapping

from dpgateway.cluster.errors import FORBIDDEN, INVALID, ClusterError
from dpgateway.cluster.watching import WatchedObjects
from dpgateway.config import ResourceConfig
from dpgateway.dra.publishing import TRY_AGAIN, Publisher
from dpgateway.dra.slices.layout import Content, contents
from dpgateway.dra.slices.names import key
from dpgateway.dra.slices.offered import Offered, pool
from dpgateway.kit.observable import Observable, Signal
from dpgateway.kit.tasks import backoff
from dpgateway.model import Device

REFUSED = frozenset({FORBIDDEN, INVALID})
"""The answers of RBAC and of an admission policy."""
LONGEST_PAUSE = 60.0
"""Seconds between two tries that fail."""
NAMES = "specimen-a", "specimen-b"


class TriedFields:
    """Used from the event loop."""

    def __init__(self, driver: str, publisher: Publisher, seen: WatchedObjects) -> None:
        """``seen``: the slices. Nothing is tried before they are listed: until then another gateway has the driver."""
        self._driver, self._publisher, self._seen = driver, publisher, seen
        self._pools: Mapping[str, tuple[ResourceConfig, ...]] = {}
        self._untried = Signal()
        """Notified when pools may have to be tried."""
        self._lists = 0
        """The number of lists of slices at the last look."""
        self._dropped: dict[str, str] = {}
        """`_dropped` contains the fields that the server drops, keyed by the pools that were tried."""
        self._refused: dict[str, str] = {}
        """`_refused` contains why the publisher couldn't publish a pool, keyed by its name."""
        self._contents: dict[str, tuple[Content, ...]] = {}
        """`_contents` contains what the slices of these pools should have been."""
        self.trial: Observable[ClusterError | int] = Observable(0)
        """Why the last try failed; else the number of tries."""

    def need(self, pools: Mapping[str, tuple[ResourceConfig, ...]]) -> None:
        """``pools``: the resources of each pool, by its name in slices."""
        self._pools, self._dropped = pools, {}

    def look(self) -> None:
        """Updates the results after a change of the slices or of the publisher."""
        anew, self._lists = self._seen.listed.version > self._lists, self._seen.listed.version
        before = self._refused.keys()
        published = {name for name, some in (self._publisher.wanted.value or {}).items() if some}
        if anew:
            self._dropped = {}
            self._refused = {name: text for name, text in self._refused.items() if name in published}
        if (state := self._publisher.state.value).right:
            self._refused = {name: text for name, text in self._refused.items() if name not in published}
        self._refused = {**self._refused, **(state.refused or {})}
        for name in state.refused or ():
            if some := (self._publisher.wanted.value or {}).get(name):
                self._contents[name] = some
        if self._to_try() or self._refused.keys() - before:
            self._untried.notify()

    def result(self, name: str) -> tuple[bool | None, str]:
        """Whether the server keeps what the slices of this pool need, None if that is unknown, and why not."""
        error = self.trial.value
        if text := self._refused.get(name):
            return False, text
        if name in self._dropped:
            lost = self._dropped[name]
            text = f"the API server drops {lost}, which the slices of {name} need: switch its feature gates on"
            return not lost, text if lost else ""
        if isinstance(error, ClusterError) and error.status in REFUSED:
            return False, f"{error}: expected the right to create slices of this node"
        text = str(error) if isinstance(error, ClusterError) else "it wasn't tried yet"
        return None, f"whether the API server keeps what the slices of {name} need: {text}"

    async def run(self) -> None:
        """Never returns."""
        failures = tries = 0
        while True:
            version = self._untried.version
            try:
                while names := self._to_try():
                    name, known = names[0], self._dropped  # another one for other pools, and for another server
                    tried = specimens(self._pools[name], self._driver)
                    refused = self._contents.get(name, ()) if name in self._refused else ()
                    known[name] = lost = await self._publisher.dropped(name, (*tried, *refused))
                    if refused and not lost and known is self._dropped:
                        self._refused.pop(name, None)
                    tries += 1
                failures = 0
                self.trial.set(tries)
            except ClusterError as error:
                failures += 1
                self.trial.set(error)
                pause = backoff(failures, LONGEST_PAUSE) * random.uniform(0.5, 1.5)  # noqa: S311
                await asyncio.sleep(max(pause, error.after))
                continue
            again = TRY_AGAIN * random.uniform(0.5, 1.5)  # noqa: S311
            try:
                async with asyncio.timeout(again if self._refused or any(self._dropped.values()) else None):
                    await self._untried.wait(version)
            except TimeoutError:
                self._publisher.forget_dropped()
                self._dropped = {}

    def _to_try(self) -> list[str]:
        up_to_date = self._seen.objects.value is not None and not self._seen.failure.value
        return [name for name in self._pools if name not in self._dropped] if up_to_date else []


def specimens(configs: Iterable[ResourceConfig], driver: str) -> tuple[Content, ...]:
    """The contents of slices with every field that devices of these resources may have, as far as the configuration
    says: taints, of Unhealthy ones; shares; and in a pool counters, of hardware that two devices have.
    """
    offered = [
        Offered(
            Device(name),
            config.name,
            key(config.name, config.pool, name),
            frozenset({NAMES[0] if config.pool else name}),
            "specimen",
            config.shares.count,
        )
        for config in configs
        for name in NAMES
    ]
    return contents(pool(offered, driver, {}))
