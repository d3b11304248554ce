"""A node of a cluster, as its kubelet needs it: the API server, the container runtime, the lengths of its pauses."""

import secrets
from dataclasses import dataclass, field
from pathlib import Path

from dpgateway_simulator.apiserver import ApiRefusal, Object, SimulatedApiServer, Store


@dataclass(frozen=True)
class KubeletPauses:
    """The kubelet's pauses in seconds, with the lengths that were seen or read (1.37); tests make them shorter."""

    registry: float = 1.0  # between two looks at the plugins' sockets (loopSleepDuration in pluginmanager)
    first_look: float = 0.25  # from the start of the process to the first look: seen 0.25 to 0.3
    first_wipe: float = 0.26  # ... until all slices of the node are deleted: seen 10 ms around the registration
    wipe: float = 30.0  # from the end of a driver's last connection to the deletion of its slices
    prepare: float = 45.0  # deadline of both calls (PluginClientTimeout in cm/dra)
    prepare_again: float = 71.0  # from a failed Prepare to the next: seen 45 to 85
    unprepare_again: float = 2.0  # seen
    start_again: float = 10.0  # from a container that couldn't start to its next start (backOffPeriod in kubelet.go)
    reconcile: float = 60.0  # between two searches for claims of pods that have ended
    health: float = 30.0  # after which what was said of a device is too old
    health_again: float = 5.0  # from the end of a health stream to the next
    status: float = 10.0  # between two updates of the Node: allocatable was seen after 0.7 to 8.9
    ending: float = 0.0  # that a container takes to end


class ApiAwayError(Exception):
    """The API server doesn't answer."""


@dataclass
class ClusterNode:
    """What a node of a cluster has. `cdi_dirs`: where the runtime looks for CDI specs, the last one first; without
    `cdi` it drops CDI names in silence, as containerd 1.6 (seen). `boot` is the boot id.
    """

    server: SimulatedApiServer
    name: str
    cdi_dirs: tuple[Path, ...] = (Path("/etc/cdi"), Path("/var/run/cdi"))
    cdi: bool = True
    pauses: KubeletPauses = field(default_factory=KubeletPauses)
    boot: str = field(default_factory=lambda: secrets.token_hex(8))

    def reboot(self) -> None:
        """Another boot, with an empty /run."""
        self.boot = secrets.token_hex(8)
        directory = self.cdi_dirs[-1]
        for path in directory.glob("*.json") if directory not in {Path("/var/run/cdi"), Path("/run/cdi")} else ():
            path.unlink()

    async def api_back(self) -> Store:
        """The API server's objects, once it answers."""
        while not self.server.serving:
            await self.server.store.changed()
        return self.server.store

    def find(self, plural: str, name: str, namespace: str = "") -> Object | None:
        """An object; None if there is none. Raises ApiAwayError."""
        if not self.server.serving:
            raise ApiAwayError(f"Get {self.server.url}: dial tcp: connect: connection refused")
        try:
            return self.server.store.get((plural, namespace, name))
        except ApiRefusal:
            return None
