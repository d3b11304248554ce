"""Which pods are gone: a kubelet has a directory for each of its pods, named by the pod's uid.

It makes the directory when it starts the pod, which is just after the Allocates for it, and removes it once nothing of
the pod runs any more (cleanupOrphanedPodDirs in pkg/kubelet/kubelet_volumes.go, every release; it looks every 2 s). The
directory of a pod that ended stays until the pod is deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path

from asyncinotify import Mask

from dpgateway.kit.inotify import Watch

STARTED = 60.0
"""Seconds from an Allocate until the pod has its directory for sure, if its kubelet runs."""
POLL = 30.0
"""Seconds between two attempts to watch."""

GATEWAYS = Path("volumes/kubernetes.io~empty-dir/dpgateway-run")
"""In the directory of a pod: the volume that the chart's gateways have, and no other pod."""
ENDING = "dpgateway-ending"
"""In that volume, of a gateway that is told to end."""

_SELF = Mask.DELETE_SELF | Mask.MOVE_SELF
_EVENTS = Mask.CREATE | Mask.DELETE | _SELF | Mask.ONLYDIR
_LOST = Mask.IGNORED | Mask.UNMOUNT | _SELF


def other_of_us(directory: Path, own: str) -> bool | None:
    """Whether another pod of this node has the volume GATEWAYS; None if not even the pod ``own`` is seen to have it.

    A kubelet makes a pod's volumes before it pulls the images of its containers (syncPod in pkg/kubelet/kubelet.go), so
    this is seen of a gateway that is slow to start, or that has a wrong image. One that is told to end, too, says so in
    that volume: two that waited for each other would wait for all of their time. ``directory``: of all pods. Blocks.
    """
    if not own or not (directory / own / GATEWAYS).is_dir():
        return None
    others = (pod / GATEWAYS for pod in directory.iterdir() if pod.name != own)
    return any(volume.is_dir() and not (volume / ENDING).exists() for volume in others)


def say_ending(directory: Path, own: str, mounted: Path = Path("/run")) -> None:
    """Others are not to wait for the gateway in the pod ``own``. ``mounted``: where the chart has its volume, because
    the directory of all pods may be read-only. Raises OSError.
    """
    volume = directory / own / GATEWAYS
    if own and volume.is_dir():
        same = mounted.is_dir() and volume.samefile(mounted)
        ((mounted if same else volume) / ENDING).touch()


class PodDirectories:
    """Those below one directory, ``/var/lib/kubelet/pods``. Used from the event loop."""

    def __init__(self, directory: Path, changed: Callable[[], None], poll: float = POLL) -> None:
        """``changed`` is called when a pod came or went."""
        self._directory, self._changed, self._poll = directory, changed, poll
        self.seen = False
        """Whether the directory could be looked into, the last time."""
        self.watched = False
        """Whether ``changed`` is called. The directory may have come after the last attempt to watch it."""
        self.starting: frozenset[str] = frozenset()
        """The pods of the last look that have no directory, and may get one yet."""
        self.started: frozenset[str] | None = None
        """All pods that were admitted before the last look; None if one of them may get its directory yet."""
        self._known: frozenset[str] = frozenset()

    async def run(self) -> None:
        """Watches until it is cancelled. A directory that can't be watched, or isn't there, is tried again."""
        with Watch() as watch:
            while True:
                self.watched = watch.add(self._directory, _EVENTS) is not None
                if self.watched:
                    self._changed()
                while self.watched:
                    event = await watch.next()
                    self.watched = event is not None and not event.mask & _LOST
                    self._changed()
                await asyncio.sleep(self._poll)

    def gone(self, uids: Iterable[str], *, started: bool, sure: bool = False) -> frozenset[str]:
        """Those of ``uids`` whose pods are gone.

        ``started``: all of them were admitted more than STARTED seconds ago. Otherwise a directory that isn't there may
        not be there yet, unless it was seen before. ``sure``: the kubelet uses this directory. Otherwise an empty one
        proves nothing of pods that were never seen in it.
        """
        wanted = frozenset(uids)
        try:
            there = frozenset(path.name for path in self._directory.iterdir())
        except OSError:
            self.seen, self.starting, self.started = False, frozenset(), None
            return frozenset()
        self.seen = True
        missing = wanted - there
        self.started = there if started and (there or sure) else None
        gone = missing & self._known if self.started is None else missing
        self.starting = missing - gone
        self._known = wanted & (self._known | there)
        return gone
