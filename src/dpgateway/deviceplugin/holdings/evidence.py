"""The evidence of which ids of one resource containers hold: five sources, none sufficient alone, and what follows.

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

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from dpgateway.deviceplugin.holdings.struck import Struck
from dpgateway.node.holders import Holder, Note
from dpgateway.resource.front import NO_KUBELET, Held, HolderStatus, InUse, Unreleased

LONG_AGO = float("-inf")

LINGER = 35.0
"""Seconds from the first List without an id until the id counts as free without other proof, unless its pod is said to
run: the default terminationGracePeriodSeconds (30 s), and time to kill the container."""


@dataclass(frozen=True)
class Evidence(InUse):
    """What the sources told last; immutable."""

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
    listed: Mapping[str, Holder] = field(default_factory=dict)
    """`listed` contains the holder of each id that the kubelet lists, keyed by id."""
    last_listed: Mapping[str, Holder] = field(default_factory=dict)
    """The last listed holder of each ``taken`` id, kept when List drops the id."""
    unlisted: Mapping[str, float] = field(default_factory=dict)
    """When each id that this kubelet has stopped listing was first missed."""
    asked: float = LONG_AGO
    """When the last answered List began."""
    doubted: float = LONG_AGO
    """When a List began that left an id in doubt, at least DOUBT apart, or the note was found damaged."""
    struck: Struck = field(default_factory=Struck)
    """What this kubelet, or one before it, has struck from its notes while the pods may run."""

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
            if id_ in in_use:
                continue
            # a pod may run from which the kubelet has struck the id
            struck, before = self.struck, self.struck.of(id_) - self.gone
            if before - struck.unknown if struck.asks else before & struck.runs - self.having:
                continue
            absent = current and id_ not in note and (entry.kubelet == self.kubelet or self._outlived(entry))
            # an id that is only owed was never given: if it is noted, its earlier pod has ended
            if absent or entry.kubelet == NO_KUBELET or self._ended(id_, entry.pods):
                found.append(id_)
        return frozenset(found)

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
        had, fresh = set[str](), self.fresh
        for id_ in ids:
            if id_ not in fresh:
                had |= self.struck.pods.get(id_, frozenset())
                had |= self.note[id_].pods if id_ in self.note else frozenset()
        return frozenset(had - self.gone)

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
        return self.having.union(*unreleased, self.struck.all)

    @cached_property
    def having(self) -> frozenset[str]:
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

    def container(self, id_: str) -> Holder | None:
        return self.listed.get(id_)

    @property
    def shown(self) -> tuple[object, ...]:
        return (*super().shown, self.listed, self.note, self.gone)

    def last_holder(self, id_: str) -> str:
        if (last := self.last_listed.get(id_)) is not None:
            return str(last)
        entry = self.unreleased.get(id_)
        pods = sorted(entry.pods) if entry is not None else []
        return f"pod {pods[0]}" if len(pods) == 1 else "a container"
