"""The kubelet's pod directories, each named by its pod's uid. A missing one shows that the pod is gone.

A kubelet creates the directory when it starts the pod, just after the pod's Allocates, and removes it once nothing of
the pod runs any more (cleanupOrphanedPodDirs in pkg/kubelet/kubelet_volumes.go, every version; polled every 2 s). The
directory of a completed pod stays until the pod is deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path

from asyncinotify import Mask

from dpgateway.kit.inotify import Watch

STARTED = 60.0
"""Seconds from an Allocate within which a running kubelet has certainly created the pod's directory."""
POLL = 30.0
"""Seconds between attempts to watch."""

GATEWAYS = Path("volumes/kubernetes.io~empty-dir/dpgateway-run")
"""A volume in a pod's directory, which only the chart's gateways have."""
ENDING = "dpgateway-ending"
"""A file in that volume, which a terminating gateway creates."""

_SELF = Mask.DELETE_SELF | Mask.MOVE_SELF
_EVENTS = Mask.CREATE | Mask.DELETE | _SELF | Mask.ONLYDIR
_LOST = Mask.IGNORED | Mask.UNMOUNT | _SELF


def other_of_us(directory: Path, own: str) -> bool | None:
    """Whether the node has another gateway's pod that isn't terminating; None if not even the pod ``own`` is found.

    A kubelet makes a pod's volumes before it pulls images (syncPod in pkg/kubelet/kubelet.go), so a gateway that starts
    slowly, or has a wrong image, is found, too. A terminating one doesn't count, because two of them would wait for
    each other. ``directory``: the parent of the pods' directories. Blocks.
    """
    if not own or not (directory / own / GATEWAYS).is_dir():
        return None
    others = (pod / GATEWAYS for pod in directory.iterdir() if pod.name != own)
    return any(volume.is_dir() and not (volume / ENDING).exists() for volume in others)


def say_ending(directory: Path, own: str, mounted: Path = Path("/run")) -> None:
    """Marks the gateway in the pod ``own`` as terminating. ``mounted``: the mount point of its volume, because
    ``directory`` may be read-only. Raises OSError.
    """
    volume = directory / own / GATEWAYS
    if own and volume.is_dir():
        same = mounted.is_dir() and volume.samefile(mounted)
        ((mounted if same else volume) / ENDING).touch()


class PodDirectories:
    """The subdirectories of ``/var/lib/kubelet/pods``. Used from the event loop.

    A missing directory proves the end of a pod that had one before, or whose admission is long past; the latter only if
    the kubelet uses this directory at all.
    """

    def __init__(self, directory: Path, changed: Callable[[], None], poll: float = POLL) -> None:
        """``changed``: called when a pod's directory was created or removed. ``poll``: seconds."""
        self._directory, self._changed, self._poll = directory, changed, poll
        self.seen = False
        """Whether the last look could list the directory."""
        self.watched = False
        """Whether ``changed`` is called; not while the directory is missing, or inotify is used up."""
        self.starting: frozenset[str] = frozenset()
        """The pods without a directory at the last look that may still get one."""
        self.started: frozenset[str] | None = None
        """All pods with a directory at the last look; None if one that an earlier kubelet admitted may still get it."""
        self._known: frozenset[str] = frozenset()
        """All pods with a directory at the last look, and the asked-for ones with one at any look."""

    async def run(self) -> None:
        """Watches until cancelled; retries while the directory can't be watched."""
        with Watch() as watch:
            while True:
                self.watched = watch.add(self._directory, _EVENTS) is not None
                if self.watched:  # changes before the watch made no event
                    self._changed()
                while self.watched:
                    event = await watch.next()
                    self.watched = event is not None and not event.mask & _LOST
                    self._changed()
                await asyncio.sleep(self._poll)

    def gone(
        self, uids: Iterable[str], *, started: bool, sure: bool = False, waiting: frozenset[str] = frozenset()
    ) -> frozenset[str]:
        """The ``uids`` whose pods are gone.

        ``started``: the kubelet started more than STARTED seconds ago; otherwise a missing directory may still come,
        unless it was seen before. ``sure``: the kubelet is known to use this directory; otherwise an empty one proves
        nothing about pods that were never seen in it. ``waiting``: those that still get a directory, unless they had
        one: they were admitted within STARTED, or a static pod starts after the one before it of its name, and is
        admitted before.
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
        gone = missing & self._known if self.started is None else missing - (waiting - self._known)
        self.starting = missing - gone
        self._known = there | (wanted & self._known)
        return gone
