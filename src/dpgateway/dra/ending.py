"""Ends claims, in these steps, each of which may be repeated by another gateway::

    ending     the record says so: from here on the end goes on by itself, also after a kill
    specs      removed, so no container of the claim starts any more
    released   each driver was told that the devices are free
    forgotten  the record is removed: the devices may be given to another claim

The pod isn't terminal before Unprepare is answered, and the scheduler gives the device away 20 ms later (seen on 1.37).
So a call waits until the driver has released the devices, or for PATIENCE, with the devices withheld: a driver that
hangs must not keep pods from ending. Nor must it keep a newer gateway from the driver: a handover waits for a step of
an end for as long, and then that gateway repeats the step.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from dpgateway.cdi.own import OwnSpecs
from dpgateway.dra.claims.choosing import Offering
from dpgateway.dra.claims.records import ClaimRecord, Damaged, Given, Phase
from dpgateway.dra.claims.store import ClaimStore
from dpgateway.errors import GatewayError
from dpgateway.kit.complaint import Complaint
from dpgateway.kit.tasks import retry
from dpgateway.resource.front import Usage

UNDONE = "released what drivers gave for"
"""How the log puts the end of a preparation that failed."""
LOOK = 1.0
"""Seconds between two looks whether a driver runs on another front."""


class ClaimEnds:
    """The ends of claims. Used from the event loop."""

    def __init__(
        self, store: ClaimStore, specs: OwnSpecs, boot: str, patience: float, log: logging.LoggerAdapter[logging.Logger]
    ) -> None:
        self._store, self._specs, self._boot, self._patience, self._log = store, specs, boot, patience, log
        self._endings: dict[str, asyncio.Task[None]] = {}
        """`_endings` contains the ends under way, keyed by the claim's uid."""
        self._calls: set[asyncio.Task[None]] = set()
        """Calls of allocate() that may go on without their claims."""
        self._steps: set[asyncio.Future[None]] = set()
        """The steps under way for which a handover waits."""

    async def end(self, record: ClaimRecord) -> None:
        """Returns once the claim has ended, or after the patience: the rest doesn't depend on the caller, because the
        kubelet asks no more once it has its answer. Raises RequestError if the end can't be recorded.
        """
        # An end that goes on already may just remove the record, which mustn't be written again after that.
        if record.phase is not Phase.ENDING:
            await self._store.write(replace(record, phase=Phase.ENDING, boot=self._boot))
        ending = self._goes_on(record)
        if not (await asyncio.wait({ending}, timeout=self._patience))[0]:
            text = "%s ends, but the driver hasn't released its devices for %.0f s: they stay withheld until it has"
            self._log.warning(text, record, self._patience, extra=record.fields)

    async def end_damaged(self, one: Damaged) -> None:
        """Ends a claim whose record can't be read: none of its containers runs any more. What only the journals know is
        free then, unless there are further such records. Raises RequestError.
        """
        await self._store.doubts.set_aside(one)
        if not self._store.doubts.why.value:
            released = [it.usage.wait_for(lambda in_use: not in_use.freed) for it in self._store.offerings.values()]
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._patience):
                    await asyncio.gather(*released)

    @property
    def running(self) -> frozenset[asyncio.Future[None]]:
        """The steps at which disk or driver may be at work, done when they are over, or have taken as long as the
        patience. An end that waits for a resource to be served isn't among them: any gateway can go on with it.
        """
        return frozenset(self._steps)

    @contextlib.contextmanager
    def _step(self) -> Iterator[None]:
        """Counts the block among those that are `running`, for at most the patience."""
        loop = asyncio.get_running_loop()
        over = loop.create_future()
        self._steps.add(over)
        over.add_done_callback(self._steps.discard)
        late = loop.call_later(self._patience, over.set_result, None)
        try:
            yield
        finally:
            late.cancel()
            if not over.done():
                over.set_result(None)

    def outlast(self, record: ClaimRecord) -> None:
        """A preparation failed, and the driver's allocate() may go on without it. A handover waits for that, too: what
        it gives would be released by nobody.
        """
        for one in record.given:
            offering = self._store.offerings.get(one.resource)
            if offering is not None and offering.usage.value.abandoned:
                returning = self._returned(record, one, offering.usage)
                call = asyncio.create_task(returning, name=f"allocate() for {record}")
                self._calls.add(call)
                call.add_done_callback(self._calls.discard)

    async def _returned(self, record: ClaimRecord, one: Given, usage: Usage) -> None:
        """What it gives after all is released wherever the resource is by then; another claim's end does that, too."""
        ids = frozenset(one.ids)
        with self._step():
            await usage.wait_for(lambda in_use: all(ids.isdisjoint(flight) for flight in in_use.abandoned))
        if record.uid not in self._store.records and ids.isdisjoint(usage.value.living):
            await self.undo(replace(record, given=(one,)))

    async def undo(self, record: ClaimRecord) -> None:
        """A preparation failed: what drivers gave for it is released, as at a claim's end, which goes on by itself. So
        it isn't lost with this gateway, nor if the resource leaves DRA before.
        """
        owed = tuple([one for one in record.given if self._store.owes(one)])
        if not owed:
            await self._store.forget(record)
            return
        ending = replace(record, phase=Phase.ENDING, given=owed)
        try:
            await self._store.write(ending)
        except GatewayError as error:  # the next comparison writes it
            self._log.error("%s", error)
        self._goes_on(ending, UNDONE)

    def rest(self) -> None:
        """Another gateway goes on with what is under way here: the records are its own, and it reads the journals."""
        for ending in (*self._endings.values(), *self._calls):
            ending.cancel()

    def resume(self) -> None:
        """Goes on with the ends that an earlier gateway has begun: perhaps nobody asks for them any more. The
        resources that are going to be served are known to the store.
        """
        for record in self._store.records.values():
            if record.phase is Phase.ENDING:
                was_prepared = any(one.cdi for one in record.given)  # else it failed before that
                self._goes_on(record, "unprepared" if was_prepared else UNDONE)

    def goes_on(self, uid: str) -> bool:
        """Whether the claim's end is under way."""
        return uid in self._endings

    def _goes_on(self, record: ClaimRecord, done: str = "unprepared") -> asyncio.Task[None]:
        """The claim's end, begun if it isn't under way. ``done``: how the log puts it."""
        if (known := self._endings.get(record.uid)) is not None:
            return known
        bug = Complaint(self._log, f"a bug: the end of {record} failed, and is tried again: %s", level=logging.ERROR)
        end = retry(partial(self._end, record, done), lambda error: bug.say(repr(error), error=error))
        ending = asyncio.create_task(end, name=f"end of {record}")
        self._endings[record.uid] = ending
        ending.add_done_callback(lambda _: self._endings.pop(record.uid))
        return ending

    async def _end(self, record: ClaimRecord, done: str) -> None:
        """Forgets the claim once its devices are released."""
        names = [name for one in record.given for name in one.cdi]
        with self._step():
            try:
                await self._store.disk.change(record.uid, partial(self._specs.withdraw, names))
            except (GatewayError, OSError) as error:  # the keeper of specs removes them later, and those without a name
                self._log.warning("%s: its CDI specs can't be removed: %s", record, error)
        await asyncio.gather(*[self._released(record, one) for one in record.given])
        with self._step():
            await self._store.forget(record)
        self._log.info("%s %s", done, record, extra=record.fields)

    async def _released(self, record: ClaimRecord, one: Given) -> None:
        """Returns once the driver was told that these devices are free, or its driver on another front owes that. A
        resource that isn't configured any more has no driver to tell.
        """
        store = self._store
        while not one.admin:
            version, untold = store.served.version, None
            if (offering := store.offerings.get(one.resource)) is not None:
                if await self._released_by(offering, one):
                    return
                continue  # it begins again here, or has another front by now, or none
            if one.resource not in store.expected:
                untold = store.untold(record, one.resource)
            if untold is not None:
                if ids := sorted(untold.intersection(one.ids)):
                    text = "resource %s isn't offered by DRA any more, so its driver isn't told that these are free: %s"
                    extra = {"resource": one.resource, "devices": ids}
                    self._log.warning(text, one.resource, ", ".join(ids), extra=extra)
                return
            with contextlib.suppress(TimeoutError):  # nobody tells when a driver of another front begins
                async with asyncio.timeout(LOOK):
                    await store.served.wait(version)

    async def _released_by(self, offering: Offering, one: Given) -> bool:
        """Returns whether its driver was told; False once it isn't offered here any more."""
        offerings, usage = self._store.offerings, offering.usage
        with self._step():
            await usage.wait_for(
                lambda in_use: in_use.freed.isdisjoint(one.ids) or offerings.get(one.resource) is not offering
            )
        return usage.value.freed.isdisjoint(one.ids)
