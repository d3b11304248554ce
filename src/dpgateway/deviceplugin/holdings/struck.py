"""What the kubelet has struck from its checkpoint although the pods that had it may run still.

Theory of operation. A kubelet strikes the ids of a pod at once if the pod was deleted by force, or is a static pod
whose manifest is gone. The pod's containers have their grace period yet, and the next pod may have an id meanwhile. So
the pods before are kept, by id, until they have ended: their directories are gone, or runtime or cgroups say that none
of their containers runs (``node.sandboxes``). On a node where neither has ever answered, the kubelet is believed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from dpgateway.node.holders import Note
from dpgateway.resource.front import Unreleased


@dataclass(frozen=True)
class Struck:
    """Immutable; each event returns a new value. Pods are named by uid."""

    pods: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The pods before that may run, of each id, also of an earlier kubelet's time. Another pod may have the id since.
    """
    asks: bool = False
    """Whether runtime or cgroups have ever answered."""
    runs: frozenset[str] = frozenset()
    """The pods that were said to run when they last told, of those asked about: their silence is no end."""
    unknown: frozenset[str] = frozenset()
    """The ``pods`` that neither could tell about: the kubelet is believed."""

    # state

    def of(self, id_: str) -> frozenset[str]:
        """The pods before."""
        return self.pods.get(id_, frozenset())

    @cached_property
    def all(self) -> frozenset[str]:
        """The pods before, of all ids."""
        return frozenset().union(*self.pods.values())

    def awaits(self, gone: frozenset[str]) -> bool:
        """Whether the end of a pod is awaited; those of ``gone`` have ended."""
        return self.asks and not self.all <= gone | self.unknown

    # events

    def noted(self, was: Note, note: Note) -> Struck:
        """This kubelet has written ``note`` after ``was``. The next pod of an id may be struck while the one before it
        still runs.
        """
        # Most ids have the containers that they had, and there are thousands of them.
        struck = dict[str, frozenset[str]]()
        for id_, noted in was.items():
            if (now := note.get(id_)) is None or now.containers != noted.containers:
                struck[id_] = noted.pods
        before = {}
        for id_ in {**self.pods, **struck}:
            pods = self.of(id_) | struck.get(id_, frozenset())
            if (now := note.get(id_)) is not None:
                pods -= now.pods
                pods = pods - self.unknown if self.asks else pods & self.runs
            if pods:
                before[id_] = pods
        return replace(self, pods=before)

    def recalling(self, entries: Mapping[str, Unreleased], note: Note) -> Struck:
        """These entries are older than ``note``, perhaps of another gateway's time: pods of theirs that it doesn't name
        may run, until somebody has been asked.
        """
        struck = {}
        for id_, entry in entries.items():
            if pods := entry.pods - (note[id_].pods if id_ in note else frozenset()):
                struck[id_] = pods
        return replace(self, asks=True, pods={**struck, **self.pods}) if struck else self

    def told(self, running: frozenset[str] | None, asked: frozenset[str], having: frozenset[str]) -> Struck:
        """These pods were asked about: ``running`` may run; None if nobody knows. ``having`` are in the note."""
        if running is None:
            unknown = self.all & (self.unknown | asked - self.runs)
            return replace(self, unknown=unknown) if self.asks and unknown != self.unknown else self
        # A kubelet takes all devices of a pod back at once: one that has any was started again, as static pods are.
        left = {id_: pods & (running - having) | (pods - asked) for id_, pods in self.pods.items()}
        pods = {id_: pods for id_, pods in left.items() if pods}
        if self.asks and running == self.runs and pods == self.pods and not self.unknown & asked:
            return self
        return replace(self, asks=True, runs=running, unknown=self.unknown - asked, pods=pods)
