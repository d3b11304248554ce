"""Orphans: holdings of resources that their front no longer offers, until their containers end.

The containers run on, and their hardware may belong to another resource by now. The journals of earlier gateways name
these resources; a resource removed while this gateway runs is added. A resource that moved to another front is an
orphan of this one from the start, even without a journal, until the front's sources have told that nothing is held.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Set
from functools import partial
from pathlib import Path

from dpgateway.errors import GatewayError, KubeletError
from dpgateway.kit.complaint import Complaint
from dpgateway.kit.log import bind
from dpgateway.kit.observable import Signal
from dpgateway.kit.tasks import LONGEST_PAUSE, backoff
from dpgateway.kit.threads import Threads
from dpgateway.resource.front import InUse, Unreleased, Usage, Usages
from dpgateway.resource.left_journals import LeftJournals
from dpgateway.resource.ownership import Ownership

WRITTEN = 0.1
"""Seconds from a grant until a journal has it."""

UNKNOWN = "what containers hold of resources that aren't configured any more isn't known: %s"

Owe = Callable[[str, str, Unreleased], bool | None]
"""Has the present driver of a resource release an id that another front gave. Returns whether it will; None while that
isn't known, because no driver runs here, or another gateway serves the resource."""

Record = Callable[[str], Awaitable[bool]]
"""Writes the journal of a resource's present front. Returns whether the disk has all of it."""

_log = bind(__name__)


async def recorded(_: str) -> bool:
    """The ``record`` where nothing is owed."""
    return True


def leak(log: logging.LoggerAdapter[logging.Logger], resource: str, holdings: InUse, id_: str, reason: str) -> None:
    """Logs a device that is free without a release to the driver that granted it. ``id_``: the offered id."""
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


class Orphans:
    """The resources that are held and not configured. Used from the event loop."""

    def __init__(
        self, usages: Usages, directory: Path, state_dir: Path, threads: Threads, front: str = "deviceplugin"
    ) -> None:
        """``usages``: of the front of this name; ``directory``: the kubelet's device-plugins directory."""
        self.front = front
        self.known = asyncio.Event()
        """Set once the journals have been read."""
        self.usages: dict[str, Usage] = {}
        """`usages` contains the usages of the orphans, keyed by resource."""
        self.late: dict[str, Ownership] = {}
        """The locks that this gateway has of resources that it doesn't serve, by hash, until writes that they guard are
        over."""
        self.directory, self.journals = directory, LeftJournals(state_dir, directory, threads)
        self._all = usages
        self._changed = Signal()
        self._complaint = Complaint(_log, UNKNOWN)
        self._moved: set[str] = set()
        """The resources that another front offers."""
        self._leaked: set[tuple[str, str, int | None]] = set()
        """The freed ids seen so far: resource, id, and time of the grant."""
        self._settled: dict[str, set[str]] = {}
        """`_settled` contains the ids that this front's journals have, although another front releases them, or nobody
        does, keyed by resource."""

    async def run(self, changed: Callable[[], None], owe: Owe = lambda *_: False, record: Record = recorded) -> None:
        """Calls ``changed`` whenever the holdings may have changed; never returns. ``owe``: of freed ids of a resource
        that another front offers; ``record`` puts on disk what that owes.

        Another gateway may still serve an orphan and write its journal, a moment after the kubelet's checkpoint. So
        while an id lacks its hardware, the journals are read again, with backoff. So they are for a resource that
        another gateway moved to another front.
        """
        await self.look()
        self.known.set()
        changed()
        lacked, told = set[tuple[str, str]](), tuple[str, ...]()
        looks, due = 0, 0.0
        while True:
            seen = self._changed.version
            undecided = frozenset[tuple[str, str]]()
            for resource in (orphans := tuple(self.usages)):
                if resource in self.usages:  # else it went while the disk was busy
                    undecided |= await self._review(resource, owe, record)
            if orphans or told:  # else the change is of a resource that is offered again
                changed()
            told = orphans

            # A new id of unknown hardware is a fresh grant of another gateway, whose journal follows within WRITTEN.
            # Without an id: a moved resource whose journal wasn't read.
            lacking = set(undecided)
            for resource, usage in self.usages.items():
                holdings = usage.value
                known = {id_ for id_, entry in holdings.unreleased.items() if entry.hardware}
                lacking.update((resource, id_) for id_ in holdings.last_known if id_ not in known)
                if resource in self._moved and not holdings.remembers:
                    lacking.add((resource, ""))
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

    async def look(self) -> bool:
        """Reads the journals. Returns whether all could be read."""
        try:
            found, complaints = await self.journals.find(self._offered)
        except (GatewayError, OSError) as error:
            found, complaints = {}, [str(error)]
        self._complaint.say(*complaints)

        for resource, unreleased in found.items():
            if resource in self._offered:
                continue  # configured during the read
            # The front follows the resource from now on, so that the end of its containers is seen.
            self._all.add(resource)
            usage = self._all.by_resource[resource]
            usage.set(usage.value.remembered(unreleased))
            if resource not in self.usages:
                self.add(resource)
        # No journal: nothing was granted, as far as earlier gateways know.
        if not complaints:
            for resource in (self._moved & self.usages.keys()) - found.keys():
                usage = self.usages[resource]
                usage.set(usage.value.remembered({}))
        return not complaints

    @property
    def written(self) -> int:
        """A counter of possible writes of the front's source."""
        return self._all.written

    @property
    def configured(self) -> frozenset[str]:
        """The configured resources, of all fronts."""
        return self._offered | self._moved

    @property
    def _offered(self) -> frozenset[str]:
        return frozenset(self._all.by_resource.keys() - self.usages.keys())

    def in_use(self, resource: str) -> InUse:
        """What counts as in use of an orphan."""
        value, leaked, moved = self.usages[resource].value, self._leaked, resource in self._moved
        freed = value.freed if moved else ()
        return value.without_told([i for i in freed if (resource, i, value.unreleased[i].since) not in leaked])

    def offered(self, resource: str) -> None:
        """The resource is configured for this front, perhaps again."""
        self._moved.discard(resource)
        self._settled.pop(resource, None)  # its journal has a writer again
        self._leaked = {one for one in self._leaked if one[0] != resource}  # what it gives now may have no time, either
        self._all.add(resource)
        if self.usages.pop(resource, None) is not None:
            self._changed.notify()  # what it gave counts in its own pool alone

    def moved(self, resource: str) -> None:
        """Another front offers the resource: what this one gave counts until its containers end."""
        self._moved.add(resource)
        self._all.add(resource)
        if resource in self.usages:  # it was removed, and counts in its own pool alone from now on
            self._changed.notify()
        self.add(resource)

    def removed(self, resource: str) -> None:
        """The resource is no longer configured."""
        self._moved.discard(resource)
        self._settled.pop(resource, None)  # nobody releases them
        if resource in self._all.by_resource:
            self.add(resource)

    def add(self, resource: str) -> None:
        """This front no longer offers the resource."""
        if resource not in self.usages:
            self.usages[resource] = usage = self._all.by_resource[resource]
            usage.set(usage.value.unasked())
            usage.subscribe(self._changed.notify)
            self._changed.notify()

    async def _review(self, resource: str, owe: Owe, record: Record) -> frozenset[tuple[str, str]]:
        """Logs the resource's freed ids of drivers with ``release``, unless it has a driver to release to; and forgets
        it once no container holds any of its ids, and no driver works on one. Returns those, with the resource, of
        which that isn't known yet, or isn't on disk yet.
        """
        holdings = self.usages[resource].value
        moved = resource in self._moved
        settled, undecided = self._settled.setdefault(resource, set()), set[tuple[str, str]]()
        new = {i for i in holdings.freed if (resource, i, holdings.unreleased[i].since) not in self._leaked}
        if new and not moved:
            undecided.update((resource, id_) for id_ in await self._give_up(resource, holdings, new))
        for id_ in sorted(new) if moved else ():
            entry = holdings.unreleased[id_]
            if entry.driver == "":
                continue
            # A kubelet notes an ended pod's ids until it allocates by a plugin again. A moved resource's plugin is
            # never asked, so each later gateway finds them there. What no journal has any more was released.
            if entry.driver is None and holdings.remembers:
                continue
            told = owe(resource, id_, entry)
            if told is None:
                undecided.add((resource, id_))
                continue
            self._leaked.add((resource, id_, entry.since))  # a reread journal has it again
            if not told:
                leak(_log, resource, holdings, id_, "another front offers the resource now")
            if entry.driver:  # else a journal that wasn't read yet may know better
                settled.add(id_)
        # Until one of the journals tells of a release, a gateway that is killed leaves it to nobody. A resource that
        # isn't served yet, as at a gateway's start, writes none.
        if settled and await record(resource):
            await self.journals.strike(resource, settled, partial(self._is_left, resource))
            settled.clear()
        if resource in self._moved:  # still
            undecided.update((resource, id_) for id_ in settled)
        # Of a moved resource there may be no journal, so its end is known from the front's sources alone.
        unknown = moved and not (holdings.known and holdings.remembers)
        usage = self.usages.get(resource)
        same = usage is not None and usage.value is holdings  # else they changed while the disk was busy
        over = not (holdings.last_known or holdings.abandoned)  # its driver's allocate() may go on without a container
        if same and over and not unknown and not undecided:
            del self.usages[resource]
            self._settled.pop(resource, None)
            self._all.drop(resource)
        return frozenset(undecided)

    async def _give_up(self, resource: str, holdings: InUse, ids: Set[str]) -> Set[str]:
        """Logs the freed ids of a resource that isn't configured, unless they were released, and removes them from its
        journal: else each start would tell of them again. Returns those of which that isn't known yet.
        """
        # Another gateway may still serve the resource and release to its driver; while it does, the journal is its own.
        lock = Ownership(self.directory, resource)
        lock.late, lock.writing = self.late, partial(self.journals.under_way, resource)
        try:
            if not lock.try_to_acquire():
                return ids
        except (KubeletError, OSError):  # without the folder nobody serves it; the journal stays
            lock.release()
            self._log_leaks(resource, holdings, ids)
            return frozenset()
        # If the resource is configured again meanwhile, it gets the lock from there.
        self.late[lock.hash] = lock
        try:
            entries = await self.journals.load(resource)
            usage = self.usages.get(resource)
            if usage is None or resource in self._moved or not lock.undivided:  # it is, or was, configured again
                return ids
            if released := ids - entries.keys():
                usage.set(usage.value.released(released))
            self._log_leaks(resource, holdings, ids & entries.keys())
            # Another grant of the same id isn't known to be over; the first gateways wrote no times.
            known = {(i, entry.since, entry.pods) for i, entry in holdings.unreleased.items()}
            if over := {i for i in ids & entries.keys() if (i, entries[i].since, entries[i].pods) in known}:
                await self.journals.strike(resource, over, partial(self._is_left, resource))
        except (GatewayError, OSError):  # look() tells of it
            return ids
        finally:
            lock.end()
        return frozenset()

    def _log_leaks(self, resource: str, holdings: InUse, ids: Collection[str]) -> None:
        """Logs the ids of drivers with ``release``."""
        for id_ in sorted(ids):
            entry = holdings.unreleased[id_]
            self._leaked.add((resource, id_, entry.since))  # a reread journal has it again
            if entry.driver != "":
                leak(_log, resource, holdings, id_, "the resource isn't configured any more")

    def _is_left(self, resource: str) -> bool:
        """Whether nobody writes the resource's journal: the gateway that serves it does that on another front, or none
        serves it.
        """
        return resource in self._moved or resource in self.usages
