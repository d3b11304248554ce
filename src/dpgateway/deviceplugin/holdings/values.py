"""Which ids of one resource containers hold: pure arithmetic over values, without a clock or a file.

Five sources, none sufficient alone:

    note       the last checkpoint read. The kubelet writes it when it allocates, so an id stays in it long after its
               pod ended
    granted    ids of answered Allocates, while the note may be older than the answer
    in flight  ids of unanswered Allocates. The kubelet has chosen them already
    gone       pods whose directories the kubelet has removed: none of their containers runs
    listed     the kubelet's answer to PodResources List. It omits init containers, and a static pod that is
               terminating while its containers still run (both seen on 1.37)

Theory of operation. An id goes through three states, which overlap:

    held        the kubelet may name it again, so it must stay on the list: noted, granted or in flight
    in use      a container may use its device: held, without noted ids whose pods are gone or long unlisted
    unreleased  from its first use until its release to the driver

An unreleased id that isn't in use is *freed* once there is proof: its pods have ended; or this kubelet's note lacks it,
and either this kubelet knew it (another one may have forgotten a running container) or the node has booted since. It is
*unclear* if an earlier kubelet gave it to an unknown pod; then it counts as used until each pod of that time has ended.

A kubelet that refuses a pod takes its devices back, at the latest on the next List, but doesn't write its checkpoint
before it has another reason to (seen on 1.37). So an unlisted id of a pod without a directory is *in doubt*: sending
the kubelet a device list makes it write the checkpoint.

Ids are the kubelet's. Times are seconds of one monotonic clock, because the clock that stamps files may be set.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

from dpgateway.deviceplugin.holdings.struck import Struck
from dpgateway.node.holders import Holder, Note
from dpgateway.resource.front import NO_KUBELET, NOTED_WITHIN, Behind, Held, HolderStatus, InUse, Unreleased

T = TypeVar("T")

CLOCK_STEP = 0.02
"""Seconds by which a file's time may lag behind the clock, because the kernel stamps files with its last tick."""

WRITES = 1.0
"""Seconds from an Allocate within which a kubelet has written its checkpoint, if the disk is as usual."""

DOUBT = 1.0
"""The least seconds between two forced writes of the checkpoint while an id is in doubt."""

LONG_AGO = float("-inf")

LINGER = 35.0
"""Seconds from the first List without an id until the id counts as free without other proof, unless its pod is said to
run: the default terminationGracePeriodSeconds (30 s), and time to kill the container."""


@dataclass(frozen=True)
class Holdings(InUse):
    """Immutable; each event returns a new value."""

    note: Note | None = None
    """The last checkpoint read; None before the first read, and while it can't be read."""
    written: float = LONG_AGO
    """When the kubelet wrote ``note``."""
    kubelet_since: float = LONG_AGO
    """When this kubelet appeared. An older note doesn't prove that a container gave up an id."""
    gone: frozenset[str] = frozenset()
    """The uids of ``pods`` that have ended."""
    starting: frozenset[str] = frozenset()
    """The uids of ``pods`` without a directory yet."""
    last_listed: Mapping[str, Holder] = field(default_factory=dict)
    """The last listed holder of each ``taken`` id, kept when List drops the id."""
    unlisted: Mapping[str, float] = field(default_factory=dict)
    """When each id that this kubelet has stopped listing was first missed."""
    asked: float = LONG_AGO
    """When the last answered List began."""
    doubted: float = LONG_AGO
    """When a List began that left an id in doubt; at least DOUBT apart."""
    struck: Struck = field(default_factory=Struck)
    """What this kubelet has struck from its notes while the pods may run."""

    # state

    @cached_property
    def held(self) -> Held:
        return None if self.note is None else frozenset(self.note).union(self.granted, *self.in_flight)

    @cached_property
    def in_use(self) -> Held:
        """The ids that a container may use; None if the checkpoint is unknown."""
        if self.note is None:
            return None
        return frozenset(self.living).union(self.granted, *self.in_flight)

    @cached_property
    def living(self) -> tuple[str, ...]:
        """The noted ids without proof that their pods ended."""
        if not self.gone and not self.unlisted:
            return tuple(self.note or ())
        return tuple(id_ for id_, noted in (self.note or {}).items() if not self._ended(id_, noted.pods))

    def _ended(self, id_: str, pods: frozenset[str]) -> bool:
        """Whether ``pods``, which had the id, provably ended, whatever the note says."""
        if pods and pods <= self.gone:
            return True
        lingered = id_ in self.unlisted and self.asked - self.unlisted[id_] >= LINGER
        return lingered and pods.isdisjoint(self.struck.runs)

    @property
    def in_doubt(self) -> bool:
        """Whether only another note can tell if the kubelet took an id back from a refused pod."""
        # Grants before the last List should be on it by now; so should noted ids of pods whose directory is missing,
        # unless the note is newer than that List and so has the refusal already.
        note, expected = self.note or {}, [id_ for id_, at in self.granted.items() if self.asked > at]
        if self.asked > self.written:
            expected += [id_ for id_ in self.living if note[id_].pods and note[id_].pods <= self.starting]
        return not set(expected).difference(self.listed).issubset(set().union(*self.in_flight))

    @cached_property
    def freed(self) -> frozenset[str]:
        if (in_use := self.in_use) is None:
            return frozenset()
        note, current = self.note or {}, self.kubelet_since <= self.written
        found = []
        for id_, entry in self.unreleased.items():
            if id_ in in_use or self._may_run(id_):
                continue
            absent = current and id_ not in note and (entry.kubelet == self.kubelet or self._outlived(entry))
            # an id that is only owed was never given: if it is noted, its earlier pod has ended
            if absent or entry.kubelet == NO_KUBELET or self._ended(id_, entry.pods):
                found.append(id_)
        return frozenset(found)

    def _may_run(self, id_: str) -> bool:
        """Whether a pod may run from which the kubelet has struck the id."""
        before, struck = self.struck.of(id_) - self.gone, self.struck
        return bool(before - struck.unknown if struck.asks else before & struck.runs - self._having)

    def _outlived(self, entry: Unreleased) -> bool:
        """Whether the node has booted since. Then no container of that time runs: a restarted one has the id in the
        note, or another Allocate. Its pod may still exist: a failed pod stays until it is deleted.
        """
        return bool(self.boot and entry.boot) and entry.boot != self.boot

    def numa_nodes(self, id_: str) -> tuple[int, ...]:
        """The NUMA nodes that the kubelet noted for the id; a strict topology manager compares them on readmission."""
        noted = (self.note or {}).get(id_)
        return noted.numa_nodes if noted is not None else ()

    def one_has(self, ids: Collection[str]) -> bool:
        note, fresh = self.note, self.fresh
        # Unknown holdings may all be one container's, and so may ids whose container the note doesn't have yet.
        if note is None or not self.remembers:
            return True
        if not self.last_known.issuperset(ids):
            return False
        having = [note[id_].containers for id_ in ids if id_ in note and id_ not in fresh]
        return not all(having) or not having or bool(frozenset.intersection(*having))

    def given_up(self, ids: Collection[str]) -> frozenset[str]:
        """The ids of the pods that must have ended if a kubelet allocates these ids anew: it frees all devices of a
        pod at once (pkg/kubelet/cm/devicemanager, UpdateAllocatedDevices; from 1.9 on).
        """
        fresh = self.fresh
        noted = {id_: noted.pods for id_, noted in (self.note or {}).items() if noted.pods and id_ not in fresh}
        ended = frozenset().union(*(noted[id_] for id_ in ids if id_ in noted))
        return frozenset(id_ for id_, pods in noted.items() if pods <= ended)

    @property
    def stale(self) -> bool:
        """Whether this kubelet has written no note yet, as far as known."""
        return self.written < self.kubelet_since

    def earlier(self, ids: Collection[str]) -> frozenset[str]:
        """The uids of the pods that had these ids, as this kubelet has noted it, and aren't known to have ended."""
        if self.note is None or self.stale:
            return frozenset()
        known = [id_ for id_ in ids if id_ not in self.fresh]
        noted = (self.note[id_].pods for id_ in known if id_ in self.note)
        return frozenset().union(*noted, *map(self.struck.of, known)) - self.gone

    @property
    def named(self) -> Mapping[str, tuple[str, ...]]:
        """The holders of each id: namespace, pod and container if PodResources lists it, else pod uid and container."""
        found: dict[str, tuple[str, ...]] = {id_: (str(holder),) for id_, holder in self.listed.items()}
        for id_, noted in (self.note or {}).items():
            living = [one for one in sorted(noted.containers) if one.pod_uid not in self.gone]
            if id_ not in found and living:
                found[id_] = tuple(f"pod {one.pod_uid} ({one.name})" for one in living)
        return {id_: who for id_, who in found.items() if id_ in self.last_known}

    @cached_property
    def pods(self) -> frozenset[str]:
        """The uids of all pods in the note, in ``unreleased`` and in ``struck``."""
        unreleased = (entry.pods for entry in self.unreleased.values())
        return self._having.union(*unreleased, self.struck.all)

    @cached_property
    def _having(self) -> frozenset[str]:
        """The uids of all pods in the note."""
        return frozenset().union(*(noted.pods for noted in (self.note or {}).values()))

    @cached_property
    def ending(self) -> frozenset[str]:
        """The uids of the pods that this kubelet has stopped listing. Their containers may still run."""
        note = self.note or {}
        return frozenset().union(*(note[id_].pods for id_ in self.unlisted if id_ in note)) - self.listing

    @cached_property
    def listing(self) -> frozenset[str]:
        """The uids of the pods that this kubelet lists."""
        note = self.note or {}
        return frozenset().union(*(note[id_].pods for id_ in self.listed if id_ in note))

    def holder(self, id_: str) -> str:
        if (listed := self.listed.get(id_)) is not None:
            return f"{listed.namespace}/{listed.pod}"
        if id_ in self.fresh:
            return ""  # the note may name its predecessor
        entry, noted = self.unreleased.get(id_), (self.note or {}).get(id_)
        pods = noted.pods if noted is not None else entry.pods if entry is not None else frozenset()
        alive = sorted(pods - self.gone)
        return f"pod {alive[0]}" if alive and (noted is not None or len(alive) == 1) else ""

    def holders(self, id_: str) -> tuple[HolderStatus, ...]:
        noted = (self.note or {}).get(id_)
        containers = sorted(noted.containers) if noted is not None else ()
        containers = [one for one in containers if one.pod_uid not in self.gone]
        # PodResources has the pods' names; the checkpoint only their uids.
        if (listed := self.listed.get(id_)) is not None:
            uids = {one.pod_uid for one in containers if one.name == listed.container}
            uid = uids.pop() if len(uids) == 1 else None
            return (HolderStatus(listed.namespace, listed.pod, uid, listed.container),)
        if noted is None and id_ in self.unreleased:  # only the journal has it: the holder is one of these pods
            pods = sorted(self.unreleased[id_].pods - self.gone)
            return (HolderStatus(pod_uid=pods[0]),) if len(pods) == 1 else ()
        return tuple([HolderStatus(pod_uid=one.pod_uid, container=one.name) for one in containers])

    @property
    def shown(self) -> tuple[object, ...]:
        return (*super().shown, self.note, self.gone)

    def last_holder(self, id_: str) -> str:
        if (last := self.last_listed.get(id_)) is not None:
            return str(last)
        entry = self.unreleased.get(id_)
        pods = sorted(entry.pods) if entry is not None else []
        return f"pod {pods[0]}" if len(pods) == 1 else "a container"

    def only_gave_since(self, before: Holdings) -> bool:
        """Whether only Allocates succeeded since ``before``, which free nothing."""
        same = all(map(operator.is_, _FREEING(self), _FREEING(before)))
        return same and self.unreleased.keys() >= before.unreleased.keys()

    def is_news_after(self, before: Holdings) -> bool:
        """Whether watchers have something to do: not if only times differ (the kubelet wrote the same again), nor when
        an Allocate begins. Freed ids stay news until their release, because the driver may not have been ready.
        """
        return bool(len(self.in_flight) < len(before.in_flight) or self.freed or _TOLD(self) != _TOLD(before))

    # events

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
        # LINGER begins anew for another pod, which another gateway may have given the id.
        unlisted = {i: at for i, at in self.unlisted.items() if not self._has_other_pods(i, note)}
        new = replace(self, note=note, looked=True, written=written, granted=granted, unlisted=unlisted)

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

    def _has_other_pods(self, id_: str, note: Note | None) -> bool:
        """Whether this note has other pods for the id than the last one."""
        if note is None or self.note is None or id_ not in note or id_ not in self.note:
            return False
        return note[id_].pods != self.note[id_].pods

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
        know isn't necessarily free.
        """
        struck = replace(self.struck, pods={}, unknown=frozenset())
        new = replace(self, kubelet_since=since, kubelet=kubelet, listed={}, unlisted={}, struck=struck)
        return new.recalling(self.unreleased)

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
        struck = self.struck.told(running, asked, self._having if running else frozenset())
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

            # Without the note, or with two containers in it, the old hardware may still be in use.
            noted = (self.note or {}).get(id_)
            alone = noted is not None and len(noted.containers) == 1
            behind = names if alone else entry.hardware | names
            if behind != entry.hardware:
                new[id_] = entry._replace(hardware=behind)
        return replace(self, unreleased={**self.unreleased, **new}) if new else self

    def began(self, ids: tuple[str, ...], hardware: Behind | None = None) -> Holdings:
        new = super().began(ids, hardware)
        # Listed holders of these ids are predecessors: the kubelet allocates only what it has taken back.
        if all(known.isdisjoint(ids) for known in (self.listed.keys(), self.unlisted.keys(), self.last_listed.keys())):
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
        new = replace(self, unreleased={**unreleased, **ours}, granted={**unnoted, **self.granted}, remembers=True)
        new = new.recalling(
            {i: entry for i, entry in unreleased.items() if i not in self.unreleased or not self.remembers}
        )
        return self if new == self else new  # other gateways' journals are read repeatedly


_FREEING = operator.attrgetter("note", "gone", "unlisted", "asked", "remembers", "struck")
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
