"""The holdings of one resource: how each event changes the evidence. Pure arithmetic over values, without a clock or a
file.

Theory of operation. Each event, such as another checkpoint or the answer to a List, returns the next value, whose
conclusions (``Evidence``) hold until the next event. The events of a grant are every front's (``InUse``).

A note may be older than an Allocate that was answered meanwhile. So it ends a grant only if it was written later, and
has the id or had NOTED_WITHIN to get it; and it proves that an id is free only if this kubelet wrote it. What the
kubelet strikes from its note while the pods may run is kept apart (``Struck``).
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from dpgateway.deviceplugin.holdings.evidence import LONG_AGO, Evidence
from dpgateway.node.holders import Holder, Note
from dpgateway.resource.front import NO_KUBELET, NOTED_WITHIN, Behind, Unreleased

T = TypeVar("T")

CLOCK_STEP = 0.02
"""Seconds by which a file's time may lag behind the clock, because the kernel stamps files with its last tick."""

WRITES = 1.0
"""Seconds from an Allocate within which a kubelet has written its checkpoint, if the disk is as usual."""

DOUBT = 1.0
"""The least seconds between two forced writes of the checkpoint while an id is in doubt."""


@dataclass(frozen=True)
class Holdings(Evidence):
    """Immutable; each event returns a new value."""

    def noted(self, note: Note | None, written: float, now: float) -> Holdings:
        """The checkpoint was read; ``note`` is None if that failed."""
        # An unreadable note proves nothing about grants.
        granted = self.granted
        if note is not None:
            # A note covers a grant if it has the id, or had NOTED_WITHIN to get it.
            late = {i for i, at in granted.items() if i in note or now - at > NOTED_WITHIN}
            # One of the grant's own tick may be from before it: then it says of the id's last pod what was known. And
            # no grant is of a pod that has ended.
            was, recent = self.note or {}, {i for i, at in granted.items() if written < at and now - at < WRITES}
            late -= {i for i in recent if note.get(i) == was.get(i)}
            late -= {i for i in late if i in note and now - granted[i] <= NOTED_WITHIN and self._ended(i, note[i].pods)}
            granted = {i: at for i, at in granted.items() if not (i in late and written >= at - CLOCK_STEP)}
        # LINGER begins anew for another pod, which another gateway may have given the id: the pod before was listed.
        other = set[str]()
        if note is not None and (last := self.note) is not None:
            known = [i for i in (*self.listed, *self.unlisted) if i in note]
            other.update(i for i in known if i not in last or note[i].pods != last[i].pods)
        listed, unlisted = _without(self.listed, other - self.granted.keys()), _without(self.unlisted, other)
        new = replace(self, note=note, looked=True, written=written, granted=granted, listed=listed, unlisted=unlisted)

        # Only a note that this kubelet wrote proves that it knows the ids.
        if note is None or written < self.kubelet_since:
            return new
        new = replace(new, struck=self.struck.noted(self.note or {}, note))
        new = new.recalling(self.unreleased) if self.note is None else new
        before = new.struck
        if not note and not before.pods:
            return new
        unreleased = dict(self.unreleased)
        boot = self.boot if written >= 0 else ""  # the clock begins with the boot (clock_gettime(2))
        for id_ in new.living:
            entry = unreleased.get(id_) or Unreleased(self.kubelet)
            # The next gateway asks about the pods before, too.
            pods = note[id_].pods | before.of(id_)
            unreleased[id_] = entry._replace(kubelet=self.kubelet, pods=pods, boot=boot or entry.boot)
        for id_ in before.pods.keys() & unreleased.keys() - note.keys() - granted.keys():
            unreleased[id_] = (entry := unreleased[id_])._replace(pods=entry.pods | before.of(id_))
        return replace(new, unreleased=unreleased)

    @property
    def pending(self) -> bool:
        """Whether the same note, read again later, may end a grant."""
        return self.note is not None and any(self.written >= at - CLOCK_STEP for at in self.granted.values())

    def missing(self, now: float) -> Holdings:
        """There is no checkpoint.

        Nothing was ever allocated, or the file was deleted. A deleted file's last content stays true; if that was
        unreadable, the holdings stay unknown until a kubelet writes the file again.
        """
        if not self.looked:
            return self.noted({}, LONG_AGO, now)
        return replace(self, note=None if self.note is None else dict(self.note))  # a new object: a look took place

    def new_kubelet(self, since: float, kubelet: str) -> Holdings:
        """Another kubelet appeared at ``since``. It may have forgotten running containers, so an id that it doesn't
        know isn't necessarily free. At first it starts containers without a PreStartContainer.
        """
        struck = replace(self.struck, unknown=frozenset())
        new = replace(self, kubelet_since=since, kubelet=kubelet, listed={}, unlisted={}, struck=struck)
        return new.unasked().recalling(self.unreleased)

    def recalling(self, entries: Mapping[str, Unreleased]) -> Holdings:
        """These are of an earlier note, perhaps of another gateway's time: this kubelet may have struck ids since."""
        if self.note is None or self.stale:
            return self
        known = {id_: entry for id_, entry in entries.items() if entry.kubelet == self.kubelet}
        struck = self.struck.recalling(known, self.note)
        return self if struck is self.struck else replace(self, struck=struck)

    def ended(self, pods: frozenset[str], starting: frozenset[str] = frozenset()) -> Holdings:
        """Sets ``gone`` to ``pods``, and ``starting``."""
        return self if (pods, starting) == (self.gone, self.starting) else replace(self, gone=pods, starting=starting)

    def told(self, running: frozenset[str] | None, asked: frozenset[str]) -> Holdings:
        """These pods were asked about: ``running`` may run; None if nobody knows."""
        struck = self.struck.told(running, asked, self.having if running else frozenset())
        return self if struck is self.struck else replace(self, struck=struck)

    def among(self, pods: frozenset[str]) -> Holdings:
        """``pods``: every pod of the node that may be running. Each unclear id belongs to one of them: the kubelet
        makes a pod's directory before it starts a container, and for a pod started later it would have to allocate.
        Without any pod an unclear id is free.
        """
        # This kubelet doesn't know an unclear id: either its pod has ended, or this kubelet has forgotten it.
        if not self.kubelet or (in_use := self.in_use) is None:
            return self
        ours, found = (self.kubelet, NO_KUBELET), {}
        for id_, entry in self.unreleased.items():
            if id_ not in in_use and not entry.pods and entry.kubelet not in ours and not self._outlived(entry):
                found[id_] = entry._replace(pods=pods) if pods else entry._replace(kubelet=NO_KUBELET)
        return replace(self, unreleased={**self.unreleased, **found}) if found else self

    def heard(self, listed: Mapping[str, Holder], asked: float) -> Holdings:
        """``listed`` is the answer to the List begun at ``asked``."""
        # An id that was allocated after the question, or is being allocated, may be listed with its predecessor.
        flying = frozenset().union(*self.in_flight)
        told = {i: h for i, h in listed.items() if self.granted.get(i, LONG_AGO) < asked and i not in flying}
        # The first miss counts for LINGER, however often the id is missed.
        missing = [i for i in (*self.listed, *self.unlisted) if i not in listed]
        unlisted = {i: self.unlisted.get(i, asked) for i in missing}
        last = {**{i: holder for i, holder in self.last_listed.items() if i in self.unreleased}, **told}
        new = replace(self, listed=told, unlisted=unlisted, asked=asked, last_listed=last)
        return replace(new, doubted=asked) if new.in_doubt and asked - self.doubted >= DOUBT else new

    def prepared(self, hardware: Behind) -> Holdings:
        """A container starts again, with the present ``hardware`` of its ids. Its predecessor has ended, so the old
        hardware is free, unless a second container has the id, too, and may still use it.
        """
        new = {}
        for id_, names in hardware.items():
            entry = self.unreleased.get(id_)
            if entry is None or not entry.hardware or not names:
                continue

            behind = names if self._alone(id_) else entry.hardware | names
            if behind != entry.hardware:
                new[id_] = entry._replace(hardware=behind)
        stopped = self.stopped - hardware.keys()
        if not new and stopped == self.stopped:
            return self
        return replace(self, unreleased={**self.unreleased, **new}, stopped=stopped)

    def stops(self, ids: Collection[str]) -> Holdings:
        stopped = self.stopped.union(filter(self._alone, ids))
        return self if stopped == self.stopped else replace(self, stopped=stopped)

    def _alone(self, id_: str) -> bool:
        """Whether one container has the id. Without the note, or with two containers in it, another one may run."""
        noted = (self.note or {}).get(id_)
        return noted is not None and len(noted.containers) == 1

    def began(self, ids: tuple[str, ...], hardware: Behind | None = None) -> Holdings:
        new = super().began(ids, hardware)
        # Listed holders of these ids are predecessors: the kubelet allocates only what it has taken back.
        known = self.listed.keys(), self.unlisted.keys(), self.last_listed.keys()
        if known[0].isdisjoint(ids) and known[1].isdisjoint(ids) and known[2].isdisjoint(ids):
            return new
        listed, last = _without(self.listed, ids), _without(self.last_listed, ids)
        return replace(new, listed=listed, unlisted=_without(self.unlisted, ids), last_listed=last)

    def remembered(self, unreleased: Mapping[str, Unreleased], granted: Mapping[str, float] | None = None) -> Holdings:
        """Takes over an earlier gateway's journal: hardware, device and time of each grant.

        ``granted``: the times of its grants that the note may lack.
        """
        # The note may cover a grant already; this gateway's own records are newer than the journal.
        ours = {i: _joined(entry, unreleased[i]) if i in unreleased else entry for i, entry in self.unreleased.items()}
        note, written, unnoted = self.note or {}, self.written, dict[str, float]()
        for i, at in (granted or {}).items():
            # A journal's times are whole seconds; while it has no pods, those of the note may be the ones before.
            latest = at + 1.0 if i in note and note[i].pods and not unreleased[i].pods else at
            if i not in note or written < latest - CLOCK_STEP:
                unnoted[i] = latest
        outlived = {i for i, entry in unreleased.items() if self._outlived(entry)}
        new = replace(
            self,
            unreleased={**unreleased, **ours},
            granted={**unnoted, **self.granted},
            remembers=True,
            before_boot=self.before_boot | outlived,
            stopped=frozenset(),  # the other gateway may have let them start
        )
        new = new.recalling(
            {i: entry for i, entry in unreleased.items() if i not in self.unreleased or not self.remembers}
        )
        return self if new == self else new  # other gateways' journals are read repeatedly

    # what watchers need

    def only_gave_since(self, before: Holdings) -> bool:
        """Whether only Allocates succeeded since ``before``, which free nothing. What another front gave is free."""
        same = all(map(operator.is_, _FREEING(self), _FREEING(before)))
        return same and self.unreleased.keys() >= before.unreleased.keys() and self.freed <= before.freed

    def is_news_after(self, before: Holdings) -> bool:
        """Whether watchers have something to do: not if only times differ (the kubelet wrote the same again), nor when
        an Allocate begins. Freed ids stay news until their release, because the driver may not have been ready.
        """
        return bool(self.fewer_calls_than(before) or self.freed or _TOLD(self) != _TOLD(before))


_FREEING = operator.attrgetter("note", "gone", "unlisted", "asked", "remembers", "struck", "abandoned")
_TOLD = operator.attrgetter(
    *("note", "looked", "remembers", "gone", "listed", "doubted", "granted", "unreleased", "living", "freed")
)


def _joined(ours: Unreleased, earlier: Unreleased) -> Unreleased:
    """Merges a record of this gateway with an earlier gateway's, whose time counts only for the same pods."""
    since = earlier.since if ours.pods & earlier.pods else None
    known = earlier if earlier.hardware else ours
    driver = earlier.driver if ours.driver is None else ours.driver
    return ours._replace(hardware=known.hardware, since=ours.since or since, device=known.device, driver=driver)


def _without(values: Mapping[str, T], ids: Collection[str]) -> Mapping[str, T]:
    return {id_: value for id_, value in values.items() if id_ not in ids}
