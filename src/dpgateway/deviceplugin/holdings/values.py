"""What the containers of a node hold of one resource: arithmetic over values. No clock is read here, and no file.

Five sources, none of which is enough:

    note       the kubelet's checkpoint, read some time after it was written. The kubelet writes it when it allocates,
               so an id stays in it long after its pod ended
    granted    ids of Allocates that were answered, as long as the note may be older than that
    in flight  ids of Allocates that haven't been answered. The kubelet has chosen them already
    gone       pods whose directories the kubelet has removed: nothing of them runs
    listed     the kubelet's answer to PodResources List. It omits containers that only initialise a pod, and a static
               pod that is being ended while its containers still run (both seen on 1.37)

Theory of operation. An id goes through three states, which overlap:

    held        the kubelet may name it again, so it must stay on the list: noted, granted or in flight
    in use      a container may use its device: the same, without noted ids whose pods are gone or long unlisted
    unreleased  from its first use until its driver was told that it is free

An unreleased id that isn't in use is *freed* if its absence can be believed: the note is this kubelet's (an earlier one
may have forgotten a running container), or the node has booted since, or its pods have ended. It is *unclear* if an
earlier kubelet gave it to an unknown pod; then it counts as used until each pod that was there has ended.

A kubelet that refuses a pod takes its devices back, at the latest when List is asked, but doesn't write that down
before it has another reason to write (seen on 1.37). So an id that isn't listed, although it was given to a pod without
a directory, is *in doubt*: a list that is sent to the kubelet has it write the note.

Everything is in ids as the kubelet knows them. Times are seconds of one monotonic clock, because the clock that stamps
files may be set.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

from dpgateway.node.holders import Holder, Note
from dpgateway.resource.front import NO_KUBELET, NOTED_WITHIN, Behind, Held, Unreleased

T = TypeVar("T")

CLOCK_STEP = 0.02
"""Seconds by which a file's time may lag behind the clock, because the kernel stamps files with its last tick."""

DOUBT = 1.0
"""Seconds between two times that a kubelet is made to write the note while something is in doubt."""

LONG_AGO = float("-inf")

LINGER = 35.0
"""Seconds from the first List without an id until the id counts as free, if nothing else proves it: a container that is
being ended has 30 s, unless its pod says otherwise, and a little more to be killed."""


@dataclass(frozen=True)
class Holdings:
    """A value that never changes; each event makes a new one."""

    note: Note | None = None
    """None: the note wasn't read yet, or it can't be read."""
    looked: bool = False
    """Whether somebody tried to read the note."""
    written: float = LONG_AGO
    """When the kubelet wrote the note."""
    granted: Mapping[str, float] = field(default_factory=dict)
    """The ids that the note may not have yet, and when each was given."""
    in_flight: tuple[Behind, ...] = ()
    """The ids of each Allocate that is under way, and what was behind them when it began, if that is known."""
    kubelet_since: float = LONG_AGO
    """When this kubelet appeared. An older note doesn't prove that a container gave up an id."""
    kubelet: str = ""
    """Which incarnation it is."""
    boot: str = ""
    """During which boot of the node that is; empty if it isn't known."""
    driver: str | None = None
    """The driver that is to be told what is free; empty if it has no ``release``, None while there is none."""
    unreleased: Mapping[str, Unreleased] = field(default_factory=dict)
    remembers: bool = False
    """Whether ``unreleased`` has what earlier gateways wrote down."""
    gone: frozenset[str] = frozenset()
    """The uids of pods that are named, and gone."""
    starting: frozenset[str] = frozenset()
    """The uids of pods that are named and have no directory, although it may come yet."""
    listed: Mapping[str, Holder] = field(default_factory=dict)
    """The last answer to List, without what was allocated since."""
    last_listed: Mapping[str, Holder] = field(default_factory=dict)
    """Who had the ``taken`` ids when List last told, also if it doesn't any more."""
    unlisted: Mapping[str, float] = field(default_factory=dict)
    """The ids that this kubelet listed and doesn't list any more, and when that was first seen."""
    asked: float = LONG_AGO
    """When the last List that was answered began."""
    doubted: float = LONG_AGO
    """When a List began that left something in doubt; at least DOUBT apart."""

    # what is held

    @cached_property
    def held(self) -> Held:
        return None if self.note is None else frozenset(self.note).union(self.granted, *self.in_flight)

    @property
    def known(self) -> bool:
        """Whether it is known what containers hold."""
        return self.note is not None

    @cached_property
    def in_use(self) -> Held:
        """The ids that a container may use; None when that can't be known."""
        if self.note is None:
            return None
        return frozenset(self.living).union(self.granted, *self.in_flight)

    @cached_property
    def living(self) -> tuple[str, ...]:
        """The noted ids of which nothing tells that their pods ended."""
        if not self.gone and not self.unlisted:
            return tuple(self.note or ())
        return tuple(id_ for id_, noted in (self.note or {}).items() if not self._ended(id_, noted.pods))

    def _ended(self, id_: str, pods: frozenset[str]) -> bool:
        """Whether something else than a note tells that the pods which had the id don't use it any more."""
        if pods and pods <= self.gone:
            return True
        return id_ in self.unlisted and self.asked - self.unlisted[id_] >= LINGER

    @property
    def in_doubt(self) -> bool:
        """Whether only another note can tell if the kubelet has taken an id back, from a pod that it refused."""
        note, expected = self.note or {}, [id_ for id_, at in self.granted.items() if self.asked > at]
        if self.asked > self.written:
            expected += [id_ for id_ in self.living if note[id_].pods and note[id_].pods <= self.starting]
        return not set(expected).difference(self.listed).issubset(set().union(*self.in_flight))

    @cached_property
    def freed(self) -> frozenset[str]:
        """The ids that no container uses any more, and that wait for their release."""
        if (in_use := self.in_use) is None:
            return frozenset()
        note, current = self.note or {}, self.kubelet_since <= self.written
        found = []
        for id_, entry in self.unreleased.items():
            if id_ in in_use:
                continue
            absent = current and id_ not in note and (entry.kubelet == self.kubelet or self._outlived(entry))
            # what the note has of an id that was only owed is of an earlier pod, which has ended
            if absent or entry.kubelet == NO_KUBELET or self._ended(id_, entry.pods):
                found.append(id_)
        return frozenset(found)

    @cached_property
    def unsettled(self) -> bool:
        """Whether an id waits for its release, or for somebody to say what is behind it."""
        return bool(self.freed) or not all(entry.hardware for entry in self.unreleased.values())

    def _outlived(self, entry: Unreleased) -> bool:
        """Whether the node has booted since. Then no container of that time runs: one that starts again has the id in
        the note, or another Allocate. The pod may be there still, because somebody has to delete one that failed.
        """
        return bool(self.boot and entry.boot) and entry.boot != self.boot

    @property
    def started(self) -> frozenset[str]:
        """The ids that containers have by answers: those may ask again, without taking anybody's share."""
        return frozenset(self.living).union(self.granted)

    @property
    def fresh(self) -> frozenset[str]:
        """The ids given, or in flight, that the note may not have yet."""
        return frozenset(self.granted).union(*self.in_flight)

    def numa_nodes(self, id_: str) -> tuple[int, ...]:
        """The NUMA nodes that the kubelet knew the id to be near; a stricter topology manager wants to find them."""
        noted = (self.note or {}).get(id_)
        return noted.numa_nodes if noted is not None else ()

    def one_has(self, ids: Collection[str]) -> bool:
        """Whether one container may have all of these ids."""
        note, fresh = self.note, self.fresh
        if note is None or not self.remembers:
            return True
        if not self.last_known.issuperset(ids):
            return False
        having = [note[id_].containers for id_ in ids if id_ in note and id_ not in fresh]
        return not all(having) or not having or bool(frozenset.intersection(*having))

    def given_up(self, ids: Collection[str]) -> frozenset[str]:
        """What pods had that have ended, if a kubelet gives these ids away: it takes everything from a pod at once
        (pkg/kubelet/cm/devicemanager, UpdateAllocatedDevices; from 1.9 on).
        """
        fresh = self.fresh
        noted = {id_: noted.pods for id_, noted in (self.note or {}).items() if noted.pods and id_ not in fresh}
        ended = frozenset().union(*(noted[id_] for id_ in ids if id_ in noted))
        return frozenset(id_ for id_, pods in noted.items() if pods <= ended)

    @property
    def unclear(self) -> frozenset[str]:
        """The ids that an earlier kubelet gave to an unknown pod, and that this kubelet doesn't know: the pod may have
        ended, or this kubelet may have forgotten it.
        """
        if not self.kubelet or (in_use := self.in_use) is None:
            return frozenset()
        ours = self.kubelet, NO_KUBELET
        entries = ((id_, entry) for id_, entry in self.unreleased.items() if id_ not in in_use)
        return frozenset(i for i, e in entries if not e.pods and e.kubelet not in ours and not self._outlived(e))

    @property
    def last_known(self) -> frozenset[str]:
        """The ids that a container may use. While the note can't be read, these are the ids that were used before."""
        return self.taken - self.freed

    @property
    def named(self) -> Mapping[str, tuple[str, ...]]:
        """Who may use each id: namespace, pod and container if PodResources lists it, else the pod's uid."""
        found: dict[str, tuple[str, ...]] = {id_: (str(holder),) for id_, holder in self.listed.items()}
        for id_, noted in (self.note or {}).items():
            living = [one for one in sorted(noted.containers) if one.pod_uid not in self.gone]
            if id_ not in found and living:
                found[id_] = tuple(f"pod {one.pod_uid} ({one.name})" for one in living)
        return {id_: who for id_, who in found.items() if id_ in self.last_known}

    @property
    def taken(self) -> frozenset[str]:
        """The ids in use, and those that are free and not released to the driver yet."""
        return frozenset(self.unreleased).union(self.living, self.granted, *self.in_flight)

    @cached_property
    def pods(self) -> frozenset[str]:
        """The uids of all pods that are named."""
        noted = (noted.pods for noted in (self.note or {}).values())
        return frozenset().union(*noted, *(entry.pods for entry in self.unreleased.values()))

    @cached_property
    def ending(self) -> frozenset[str]:
        """The uids of the pods that this kubelet listed, and doesn't list any more. Something of them may still run."""
        note = self.note or {}
        ended, listed = (
            frozenset().union(*(note[id_].pods for id_ in ids if id_ in note)) for ids in (self.unlisted, self.listed)
        )
        return ended - listed

    def holder(self, id_: str) -> str:
        """The pod that has the id; empty if that isn't known, or if it may be one of several."""
        if (listed := self.listed.get(id_)) is not None:
            return f"{listed.namespace}/{listed.pod}"
        if id_ in self.granted or self._flies(id_):
            return ""  # what was noted of it may be of an earlier container
        entry, noted = self.unreleased.get(id_), (self.note or {}).get(id_)
        pods = noted.pods if noted is not None else entry.pods if entry is not None else frozenset()
        alive = sorted(pods - self.gone)
        return f"pod {alive[0]}" if alive and (noted is not None or len(alive) == 1) else ""

    def last_holder(self, id_: str) -> str:
        """Who had the id last, as far as anybody said."""
        if (last := self.last_listed.get(id_)) is not None:
            return str(last)
        entry = self.unreleased.get(id_)
        pods = sorted(entry.pods) if entry is not None else []
        return f"pod {pods[0]}" if len(pods) == 1 else "a container"

    def only_gave_since(self, before: Holdings) -> bool:
        """Whether nothing has happened but Allocates that succeeded, which free nothing."""
        ours = self.note, self.gone, self.unlisted, self.asked, self.remembers
        theirs = before.note, before.gone, before.unlisted, before.asked, before.remembers
        return all(map(operator.is_, ours, theirs)) and self.unreleased.keys() >= before.unreleased.keys()

    def is_news_after(self, before: Holdings) -> bool:
        """Whether watchers have something to do: not if only times differ, such as when the kubelet wrote, nor when an
        Allocate begins. Freed ids are news until they are told of, because perhaps nobody could be told yet.
        """
        return bool(len(self.in_flight) < len(before.in_flight) or self.freed or _TOLD(self) != _TOLD(before))

    def look_again(self, lost: Iterable[str]) -> float | None:
        """Seconds after which one of the ``lost`` ids may be free although the note doesn't change; None: never."""
        waits = self.note is not None and not self.granted.keys().isdisjoint(lost)
        return NOTED_WITHIN if waits else None

    # what happens

    def noted(self, note: Note | None, written: float, now: float) -> Holdings:
        """The checkpoint was read; ``note`` is None if that failed."""
        granted = self.granted
        if note is not None:
            granted = {id_: at for id_, at in granted.items() if not _is_in(note, id_, at, written, now)}
        new = replace(self, note=note, looked=True, written=written, granted=granted)
        if not note or written < self.kubelet_since:
            return new
        unreleased = dict(self.unreleased)
        boot = self.boot if written >= 0 else ""  # the clock begins with the boot (clock_gettime(2))
        for id_ in new.living:
            entry = unreleased.get(id_) or Unreleased(self.kubelet)
            unreleased[id_] = entry._replace(kubelet=self.kubelet, pods=note[id_].pods, boot=boot or entry.boot)
        return replace(new, unreleased=unreleased)

    def missing(self, now: float) -> Holdings:
        """There is no checkpoint.

        Nothing was ever allocated, or the file was deleted. If the file was deleted, what it said last stays true; if
        it couldn't be read before, what containers hold stays unknown until a kubelet writes the file again.
        """
        if not self.looked:
            return self.noted({}, LONG_AGO, now)
        return replace(self, note=None if self.note is None else dict(self.note))  # another look, though of no file

    def new_kubelet(self, since: float, kubelet: str) -> Holdings:
        """Another kubelet appeared at ``since``. It may have forgotten what containers hold, so an id that it doesn't
        know need not be free.
        """
        return replace(self, kubelet_since=since, kubelet=kubelet, listed={}, unlisted={})

    def ended(self, pods: frozenset[str], starting: frozenset[str] = frozenset()) -> Holdings:
        """Those of the named pods that are gone now, and those that have no directory and may get one yet."""
        return self if (pods, starting) == (self.gone, self.starting) else replace(self, gone=pods, starting=starting)

    def among(self, pods: frozenset[str]) -> Holdings:
        """``pods``: all pods of the node that may have started. One of them has each unclear id: a kubelet makes the
        pod's directory before it starts a container, and this kubelet would have to ask for the devices again.
        """
        unclear = {id_: self.unreleased[id_] for id_ in self.unclear}
        if not unclear:
            return self
        found = {i: c._replace(pods=pods) if pods else c._replace(kubelet=NO_KUBELET) for i, c in unclear.items()}
        return replace(self, unreleased={**self.unreleased, **found})

    def heard(self, listed: Mapping[str, Holder], asked: float) -> Holdings:
        """List was asked at ``asked``, and this is its answer."""
        told = {i: h for i, h in listed.items() if self.granted.get(i, LONG_AGO) < asked and not self._flies(i)}
        missing = [i for i in (*self.listed, *self.unlisted) if i not in listed]
        unlisted = {i: self.unlisted.get(i, asked) for i in missing}
        last = {**{i: holder for i, holder in self.last_listed.items() if i in self.unreleased}, **told}
        new = replace(self, listed=told, unlisted=unlisted, asked=asked, last_listed=last)
        return replace(new, doubted=asked) if new.in_doubt and asked - self.doubted >= DOUBT else new

    def _flies(self, id_: str) -> bool:
        return any(id_ in ids for ids in self.in_flight)

    def known_behind(self, hardware: Behind, devices: Mapping[str, str] | None = None) -> Holdings:
        """What is behind these ids, for those that don't say it yet; an earlier gateway may have said it."""
        if not self.remembers:
            return self
        names = devices or {}
        new = {
            id_: entry._replace(hardware=hardware[id_], device=entry.device or names.get(id_, ""))
            for id_, entry in self.unreleased.items()
            if not entry.hardware and id_ in hardware
        }
        return replace(self, unreleased={**self.unreleased, **new}) if new else self

    def given_by(self, driver: str) -> Holdings:
        """What is given away from now on is this driver's, which is to be told when it is free; empty: nobody is."""
        return self if driver == self.driver else replace(self, driver=driver)

    def differs(self, hardware: Behind) -> bool:
        """Whether a container that starts with this hardware behind its ids had other hardware before."""
        return self.prepared(hardware) is not self

    def prepared(self, hardware: Behind) -> Holdings:
        """A container starts again, with what is behind its ids now. What it had before is nobody's: it doesn't run.
        But if another container has the id, too, that one may have it still.
        """
        new = {}
        for id_, names in hardware.items():
            entry = self.unreleased.get(id_)
            if entry is None or not entry.hardware or not names:
                continue
            noted = (self.note or {}).get(id_)
            alone = noted is not None and len(noted.containers) == 1
            behind = names if alone else entry.hardware | names
            if behind != entry.hardware:
                new[id_] = entry._replace(hardware=behind)
        return replace(self, unreleased={**self.unreleased, **new}) if new else self

    def began(self, ids: tuple[str, ...], hardware: Behind | None = None) -> Holdings:
        """An Allocate of ``ids`` is under way."""
        flight = {id_: (hardware or {}).get(id_, frozenset()) for id_ in ids}
        new = replace(self, in_flight=(*self.in_flight, flight))
        if all(known.isdisjoint(ids) for known in (self.listed.keys(), self.unlisted.keys(), self.last_listed.keys())):
            return new
        listed, last = _without(self.listed, ids), _without(self.last_listed, ids)
        return replace(new, listed=listed, unlisted=_without(self.unlisted, ids), last_listed=last)

    def owed(self, ids: tuple[str, ...], hardware: Behind, devices: Mapping[str, str] | None = None) -> Holdings:
        """The driver gave the devices of an Allocate. Unless that succeeds, it has to be told that they are free."""
        names = devices or {}
        new = {
            id_: self._new(NO_KUBELET, hardware.get(id_, frozenset()), names.get(id_, ""))
            for id_ in ids
            if id_ not in self.unreleased
        }
        return replace(self, unreleased={**self.unreleased, **new})

    def gave(
        self,
        ids: tuple[str, ...],
        now: float,
        hardware: Behind | None = None,
        since: int | None = None,
        devices: Mapping[str, str] | None = None,
    ) -> Holdings:
        """The Allocate of ``ids`` succeeded: a container has them until a newer note says otherwise. ``since``: now, in
        seconds since 1970; ``devices``: the driver's ids of what was given.
        """
        granted = {**self.granted, **dict.fromkeys(ids, now)}
        behind, names = hardware or {}, devices or {}
        unreleased = {
            id_: self._new(self.kubelet, behind.get(id_, frozenset()), names.get(id_, ""))._replace(since=since)
            for id_ in ids
        }
        return replace(self.failed(ids), granted=granted, unreleased={**self.unreleased, **unreleased})

    def _new(self, kubelet: str, hardware: frozenset[str], device: str) -> Unreleased:
        return Unreleased(kubelet, hardware=hardware, device=device, driver=self.driver, boot=self.boot)

    def failed(self, ids: tuple[str, ...]) -> Holdings:
        """The Allocate of ``ids`` failed: the ids are as they were before."""
        flights = list(self.in_flight)
        del flights[[tuple(flight) for flight in flights].index(ids)]
        return replace(self, in_flight=tuple(flights))

    def released(self, ids: Collection[str]) -> Holdings:
        """Marks freed ids as released to the driver."""
        return replace(self, unreleased=_without(self.unreleased, self.freed.intersection(ids)))

    def remembered(self, unreleased: Mapping[str, Unreleased], granted: Mapping[str, float] | None = None) -> Holdings:
        """What an earlier gateway wrote down. It knew what was behind the ids when they were given away, and when.

        ``granted``: when it gave those that the note may not have yet.
        """
        ours = {i: _joined(entry, unreleased[i]) if i in unreleased else entry for i, entry in self.unreleased.items()}
        note, written = self.note or {}, self.written
        unnoted = {i: at for i, at in (granted or {}).items() if not (i in note and written >= at - CLOCK_STEP)}
        return replace(self, unreleased={**unreleased, **ours}, granted={**unnoted, **self.granted}, remembers=True)


_TOLD = operator.attrgetter(
    *("note", "looked", "remembers", "gone", "listed", "doubted", "granted", "unreleased", "living", "freed")
)


def _joined(ours: Unreleased, earlier: Unreleased) -> Unreleased:
    """What is known of an id now, with what an earlier gateway knew. Of other pods it doesn't know when they got it."""
    since = earlier.since if ours.pods & earlier.pods else None
    known = earlier if earlier.hardware else ours
    driver = earlier.driver if ours.driver is None else ours.driver
    return ours._replace(hardware=known.hardware, since=ours.since or since, device=known.device, driver=driver)


def _is_in(note: Note, id_: str, granted: float, written: float, now: float) -> bool:
    """Whether the note tells what became of an id that was granted."""
    return written >= granted - CLOCK_STEP and (id_ in note or now - granted > NOTED_WITHIN)


def _without(values: Mapping[str, T], ids: Collection[str]) -> Mapping[str, T]:
    return {id_: value for id_, value in values.items() if id_ not in ids}
