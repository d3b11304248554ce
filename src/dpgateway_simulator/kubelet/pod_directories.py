"""The kubelet's directory of each pod, named by the pod's uid: pods/<uid> in its --root-dir.

A kubelet makes pods/ when it starts (setupDataDirs in pkg/kubelet/kubelet.go). cleanupOrphanedPodDirs is in
pkg/kubelet/kubelet_volumes.go.
"""

import contextlib
from collections.abc import Mapping

from dpgateway_simulator.kubelet.incarnation import Incarnation
from dpgateway_simulator.kubelet.pods import Pod

CLEANING = 2.0  # seconds between clean-ups: housekeepingPeriod in pkg/kubelet/kubelet.go


class RootDirectory:
    """The pods' directories. Without a --root-dir nothing is created or removed."""

    def __init__(self, incarnation: Incarnation) -> None:
        self._incarnation = incarnation
        self._made, root = incarnation.node.pod_directories, incarnation.node.root
        self._directory = root / "pods" if root is not None else None
        if self._directory is not None:
            self._directory.mkdir(parents=True, exist_ok=True)

    def make(self, uid: str) -> None:
        if self._directory is not None and "/" not in uid:
            self._made.add(uid)
            (self._directory / uid).mkdir(parents=True, exist_ok=True)

    async def clean(self, pods: Mapping[str, Pod]) -> None:
        """Removes the directories of removed pods, among those that `make` created; never returns."""
        while self._directory is not None:
            await self._incarnation.sleep(CLEANING)
            known = {pod.uid for pod in pods.values()}
            for uid in [one for one in self._made if one not in known and self._incarnation.sources_ready]:
                self._made.remove(uid)
                with contextlib.suppress(OSError):  # it isn't empty
                    (self._directory / uid).rmdir()
