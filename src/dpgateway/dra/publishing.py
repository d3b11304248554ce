"""Publishes the slices of this node's pools, and keeps them as they should be.

Theory of operation. Slices *wanted* come from the resources, slices *seen* from a watch; whatever differs is written.
Nothing is remembered of earlier writes, so a restart, a lost answer, or a change by anybody else need no case of their
own. What decides when:

- Nothing is published before the kubelet has registered the driver: a pod that is sent here a second too early waits
  for 45 to 85 s (seen on 1.37). A kubelet deletes all slices of its node when it starts, between 10 ms before and 10 ms
  after it registers the driver; then they are written again at once.
- What nobody offers any more is deleted at any time: the kubelet may be one without DRA by now, which registers no
  driver, and deletes no slices. Its refusal has the Node read, too.
- A change waits until PAUSE after the last write, so a device that flaps costs one write a second. What must not be
  given any more doesn't wait.
- After an attempt that failed pauses double, and the server may ask for longer ones. But the scheduler goes on giving
  away what is in slices, so what must not be given any more, and a Node with a kubelet that has just registered, is
  tried again after SOONEST once there is news: something else has changed, or slices can be seen again. So a server
  that is down, with a thousand nodes, is asked sooner only by those where something happens, and each asks at most
  once in SOONEST. A pool that it refuses while it takes others rests by itself, and any news will do (``refusals``).
- A gateway that starts leaves no device out of a pool as it finds it until KEPT_AT_START: at first it doesn't know
  whether the pods that the kubelet's checkpoint names have ended, and takes what they had for held. A claim of such a
  device is prepared once that is known. A taint doesn't wait, and neither does the end of a pool.
- Where kubelet or runtime are too old, or CDI is switched off (``obstacles``), nothing is published, and what was is
  deleted.
- A pool whose fields the server would drop isn't published (``dryruns``). One whose slices it alters otherwise
  would be written again and again, so that counts as a failure.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from dpgateway.cluster.errors import OF_ALL, ClusterError
from dpgateway.cluster.server import ApiServer, Object
from dpgateway.cluster.watching import WatchedObjects
from dpgateway.config import ResourceConfig
from dpgateway.dra.dryruns import DryRuns
from dpgateway.dra.owner import OwnerNode
from dpgateway.dra.refusals import LONGEST_PAUSE, SOONEST, RefusedPools
from dpgateway.dra.slices.changes import Identity, SliceChanges
from dpgateway.dra.slices.due import Wanted, pool_changes, too_early, urgent
from dpgateway.dra.slices.names import pool_name
from dpgateway.dra.writing import AlteredSlice, SliceWriter
from dpgateway.kit.complaint import Complaint
from dpgateway.kit.observable import Observable, Signal
from dpgateway.kit.tasks import backoff

PAUSE = 1.0
"""Seconds between two writes that can wait."""
GATHERING = 0.05
"""Seconds between two looks while a change waits, however many others come."""
TRY_AGAIN = 600.0
"""Seconds until a pool is tried again whose fields the server would drop, at random between half and one and a half of
it: of several servers one after the other may have got other feature gates, and watches go on meanwhile."""
KEPT_AT_START = 5.0
"""Seconds from the start until devices are left out of an earlier gateway's slices."""


class Us(NamedTuple):
    """The publisher of slices: one driver on one node."""

    driver: str
    node: str

    @property
    def fields(self) -> Mapping[str, str]:
        """The fields that all of its slices have, and no others."""
        return {"spec.driver": self.driver, "spec.nodeName": self.node}

    def pool_of(self, config: ResourceConfig) -> str:
        """The pool of a resource's slices: its own, or that of all resources that may offer the same hardware."""
        return pool_name(self.node, config.pool or config.name)


@dataclass(frozen=True, slots=True)
class Published:
    """The state of this node's slices, for status and metrics."""

    slices: int = 0
    devices: int = 0
    written: float | None = None
    """When slices were last written, on the monotonic clock."""
    right: bool = False
    """Whether the slices are as they should be."""
    failure: str = ""
    """Why they aren't, if known."""
    refused: Mapping[str, str] | None = None
    """Why a pool can't be published, by its name."""
    code: int = 0
    """The failure's status of HTTP, if the API server said one."""
    contested: bool = False
    """Whether somebody else keeps deleting the slices."""


class Publisher:
    """The slices of one driver on one node. Used from the event loop."""

    def __init__(
        self, server: ApiServer, us: Us, seen: WatchedObjects, allowed: Observable[bool], complaint: Complaint
    ) -> None:
        """``seen``: our slices; ``allowed``: whether the kubelet has registered the driver."""
        self.wanted: Observable[Wanted | None] = Observable(None)
        """None until the resources have said what they offer: then nothing is touched."""
        self.state = Observable(Published())
        self._seen, self._allowed, self._complaint = seen, allowed, complaint
        self._us = us
        self.writer = SliceWriter(server, seen)
        self._refusals = RefusedPools()
        self._settled = 0.0
        """When this gateway knows what is held, on the monotonic clock."""
        self._changed, self._news = Signal(), Signal()
        """``_changed``: what is wanted or seen, or the Node; ``_news``: that, or whether the slices can be seen."""
        self._changed.subscribe(self._news.notify)
        seen.failure.subscribe(self._news.notify)
        self.owner = OwnerNode(server, *us, self._changed.notify)
        self.leaving: Callable[[Iterable[str]], bool] = lambda _: False
        """Whether all of these pools leave DRA by themselves for an obstacle, and say so."""
        self._dry_runs = DryRuns(server, self.owner)
        self.dropped, self.forget_dropped = self._dry_runs.dropped, self._dry_runs.forget
        for value in (self.wanted, seen.objects, allowed):
            value.subscribe(self._changed.notify)
        seen.listed.subscribe(self._dry_runs.forget)  # the server may be another one

    async def run(self) -> None:
        """Never returns."""
        failures, self._settled = 0, time.monotonic() + KEPT_AT_START
        self.writer.pools.clear()
        self._refusals.keep()
        while True:
            version, news = self._changed.version, self._news.version
            try:
                await (self._look() if self._allowed.value else self._withdraw())
                failures = 0
            except ClusterError as error:
                failures += 1
                self._dry_runs.forget()  # the server may be another one when it is back
                self._say(str(error), code=error.status)
                self.writer.failed(error)
                # At random: a server that comes back may refuse a thousand nodes in one second.
                pause = backoff(failures, LONGEST_PAUSE) * random.uniform(0.5, 1.5)  # noqa: S311
                await self._rest(error, pause, news)
                continue
            if not self._refusals:
                again = TRY_AGAIN * random.uniform(0.5, 1.5)  # noqa: S311
                try:
                    async with asyncio.timeout(again if self.state.value.refused else None):
                        await self._changed.wait(version)
                except TimeoutError:
                    self._dry_runs.forget()
                continue
            soon = asyncio.get_running_loop().time() + GATHERING
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(max(soon, min(self._refusals.times(self._news.version).values()))):
                    await self._news.wait(news)

    def _refuse(self, refused: Mapping[str, ClusterError], news: int) -> None:
        """These pools rest. ``news``: the version that the attempt began with."""
        for name, error in refused.items():
            self.writer.failed(error)
            # What the server made of this attempt's own writes isn't news.
            self._refusals.add(name, error, self._news.version if isinstance(error, AlteredSlice) else news)
            self._dry_runs.forget()

    async def _rest(self, error: ClusterError, pause: float, version: int) -> None:
        """Waits after an attempt that failed. ``version``: of the news that it began with."""
        soonest = max(min(pause, SOONEST), error.after)
        await asyncio.sleep(soonest)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause - soonest):
                while True:
                    version = await self._news.wait(version)
                    of_one = error.status not in OF_ALL or isinstance(error, AlteredSlice)
                    if of_one or not self.owner.uid or self._is_urgent():
                        return
                    await asyncio.sleep(GATHERING)

    def _is_urgent(self) -> bool:
        """Whether slices have devices that mustn't be given any more."""
        if (wanted := self.wanted.value) is None or (seen := self._seen.objects.value) is None:
            return False
        todo, _ = self._due(self._allowed_of(wanted), seen, self.owner.identity)
        return urgent(todo.values(), seen)

    def _allowed_of(self, wanted: Wanted) -> Wanted:
        """What may be published of this at present. Without a registration slices stay as they are: a gateway that has
        just started hasn't one yet.
        """
        if self.owner.obstacle:
            return {}
        return wanted if self._allowed.value else dict.fromkeys(wanted)

    async def _look(self) -> None:
        """Writes what differs until nothing does. Raises ClusterError."""
        identified = False
        while self._allowed.value and self.wanted.value is not None and self._seen.objects.value is not None:
            version, news, wanted = self._changed.version, self._news.version, self.wanted.value
            resting = self._refusals.resting(news)
            some = await self._dry_runs.publishable({**wanted, **dict.fromkeys(resting)})
            if self.wanted.value is not wanted or not self._allowed.value:
                continue  # it may have devices that mustn't be given any more
            seen = self._seen.objects.value
            todo, early = self._due(some.pools, seen, some.identity)
            todo = {name: one for name, one in todo.items() if name not in resting}
            pause = self._pause(todo.values(), seen) if todo else early
            self._refuse(some.errors, news)
            self._refusals.keep({*resting, *some.errors, *todo})
            if not todo:
                errors = self._refusals.errors
                failures, code = (*some.failures, *map(str, errors)), errors[0].status if errors else 0
                self._say(*failures, refused=some.refused, right=not failures and not early, code=code)
                if not early:
                    return
            # What is missing was deleted, perhaps together with its Node; further slices may be new ones.
            missing = any(one.create for one in todo.values()) and self.state.value.slices
            if pause > 0:
                with contextlib.suppress(TimeoutError):  # the next change may be one that doesn't wait
                    async with asyncio.timeout(pause):
                        await self._changed.wait(version)
                        await asyncio.sleep(GATHERING)
                identified = False
            elif missing and not identified:
                self.writer.count_wipe(seen, PAUSE)
                await self.owner.read()
                identified = True
            else:
                self._refuse(await self._write(todo), news)
                identified = False

    async def _withdraw(self) -> None:
        """Deletes the slices that nobody offers, and all if there is an obstacle. Raises ClusterError."""
        if self.owner.answered:  # perhaps by a kubelet that is too old to register a driver
            await self.owner.known()
        if self.wanted.value is None or (seen := self._seen.objects.value) is None:
            self._refusals.keep()
            return
        left, news = self.state.value.slices, self._news.version
        todo = pool_changes(self._allowed_of(self.wanted.value), seen, self.owner.identity)
        resting = self._refusals.resting(news)
        self._refusals.keep(todo)
        if due := {name: one for name, one in todo.items() if name not in resting}:
            self._refuse(await self._write(due), news)
            left = len(self._seen.objects.value or ())  # they aren't missing: nobody offers them
        errors = self._refusals.errors
        failures, code = tuple(map(str, errors)), errors[0].status if errors else 0
        self._complaint.say(*failures)
        before, text = self.state.value, "; ".join(failures)
        right = before.right and not failures
        self.state.set(replace(before, slices=left, right=right, failure=text, code=code, contested=False))

    def _due(
        self, wanted: Wanted, seen: Mapping[str, Object], identity: Identity
    ) -> tuple[dict[str, SliceChanges], float]:
        """The changes but those that leave devices out too early; and the seconds until these are due, 0.0 if there
        are none.
        """
        todo = pool_changes(wanted, seen, identity)
        if (rest := self._settled - time.monotonic()) <= 0:
            return todo, 0.0
        early = too_early(todo, wanted, seen, self.writer.pools)
        return {name: one for name, one in todo.items() if name not in early}, rest if early else 0.0

    def _pause(self, todo: Iterable[SliceChanges], seen: Mapping[str, Object]) -> float:
        """Seconds until the changes may be written."""
        written = self.state.value.written
        if (pause := self.writer.contested) > 0:
            text = f"somebody else keeps deleting the slices of {self._us.driver}: is there another publisher?"
            self._say(text, contested=True)
            return pause
        if written is None or urgent(todo, seen) or self.writer.missing(seen):
            return 0.0
        return max(0.0, written + PAUSE - time.monotonic())

    async def _write(self, todo: Mapping[str, SliceChanges]) -> Mapping[str, ClusterError]:
        """As :meth:`SliceWriter.write`. What was written counts for the next pause, also beside a refused pool."""
        try:
            return await self.writer.write(todo)
        finally:
            self.state.set(replace(self.state.value, written=self.writer.written))

    def _say(
        self,
        *failures: str,
        refused: Mapping[str, str] | None = None,
        right: bool = False,
        code: int = 0,
        contested: bool = False,
    ) -> None:
        passing = failures == (self.owner.obstacle,) and self.leaving(self.wanted.value or ())
        self._complaint.say(*(() if passing else failures))
        self.writer.looked()
        found = [one["spec"] for one in (self._seen.objects.value or {}).values()]
        devices, written = sum(len(spec.get("devices") or ()) for spec in found), self.state.value.written
        text = "; ".join(failures)
        self.state.set(Published(len(found), devices, written, right, text, refused or {}, code, contested))
