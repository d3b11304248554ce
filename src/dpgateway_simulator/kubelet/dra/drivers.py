"""The DRA drivers of a node: their instances, connections, slices and calls (pkg/kubelet/cm/dra/plugin, 1.37).

A driver may have several instances at once, as in its rolling update. The one that registered last of those that are
connected is called. Once a driver has had no connected instance for 30 s, the kubelet deletes its slices; at its own
start it deletes all slices of its node.
"""

import asyncio
from dataclasses import dataclass
from pathlib import Path

from dpgateway_simulator.kubelet.cluster_node import ClusterNode
from dpgateway_simulator.kubelet.dra.health import DeviceHealths
from dpgateway_simulator.kubelet.errors import RefusedError
from dpgateway_simulator.kubelet.incarnation import Incarnation
from dpgateway_simulator.wire.plugin_calls import PluginCalls

FIRST_BACKOFF, LONGEST_BACKOFF, BACKOFF_FACTOR = 1.0, 120.0, 1.6  # grpc-go's, without its jitter


@dataclass(eq=False)
class DraInstance:
    """A registered instance of a driver. `service` is the version of DRA that it is called with."""

    driver: str
    endpoint: Path
    versions: tuple[str, ...]
    service: str = ""
    connected: bool = False
    calls: PluginCalls | None = None
    tasks: tuple[asyncio.Task[None], ...] = ()


class DraDrivers:
    """The drivers of one incarnation. `health` has what they say of their devices."""

    def __init__(self, incarnation: Incarnation, root: Path, node: ClusterNode) -> None:
        self._incarnation, self._root, self._node = incarnation, root, node
        self.health = DeviceHealths(incarnation, node.pauses)
        self.instances: dict[str, list[DraInstance]] = {}
        """The instances of each driver, in the order of their registration; empty once all have left."""
        self._wiping: dict[str, asyncio.Task[None]] = {}

    def add(self, instance: DraInstance) -> DraInstance:
        """Raises RefusedError."""
        behaviour, known = self._incarnation.behaviour, self.instances.setdefault(instance.driver, [])
        if not instance.versions:
            raise RefusedError("empty list for supported versions")
        instance.service = next((one for one in instance.versions if one in behaviour.dra_services), "")
        if not instance.service:
            found = ", ".join(instance.versions)
            raise RefusedError(f"none of the DRA gRPC services is supported: found {found}")
        if any(one.endpoint == instance.endpoint for one in known):
            raise RefusedError(f"endpoint {instance.endpoint} already registered for DRA driver {instance.driver}")
        instance.calls = PluginCalls(self._root, instance.endpoint, behaviour.user_agent)
        known.append(instance)
        tasks = self._incarnation.tasks
        connecting = tasks.spawn(f"kubelet: connect {instance.driver}", self._connect(instance, instance.calls))
        instance.tasks = (connecting,)
        packages = [one for one in behaviour.health_services if f"{one}.DRAResourceHealth" in instance.versions]
        if packages:
            watch = self.health.watch(instance.driver, instance.calls, packages[0])
            instance.tasks += (tasks.spawn(f"kubelet: health of {instance.driver}", watch),)
        self._wipe_if_gone(instance.driver)
        return instance

    def remove(self, instance: DraInstance) -> None:
        """The plugin has left: its connection ends."""
        self.instances[instance.driver].remove(instance)
        for task in instance.tasks:
            task.cancel()
        if instance.calls is not None:
            instance.calls.close()
        instance.connected = False
        self._incarnation.emit("plugin deregistered", driver=instance.driver, endpoint=str(instance.endpoint))
        self._wipe_if_gone(instance.driver)

    def close(self) -> None:
        """The kubelet's process ends."""
        for one in [one for known in self.instances.values() for one in known]:
            if one.calls is not None:
                one.calls.close()

    def find(self, driver: str) -> DraInstance | None:
        """The instance to call."""
        known = self.instances.get(driver, [])
        connected = [one for one in known if one.connected]
        return (connected or known)[-1] if known else None

    async def _connect(self, instance: DraInstance, calls: PluginCalls) -> None:
        """Keeps a connection, and tries again with backoff, until it is closed."""
        pause, about = FIRST_BACKOFF, {"driver": instance.driver, "endpoint": str(instance.endpoint)}
        while not calls.closed:
            try:
                await calls.dial()
                instance.connected, pause = True, FIRST_BACKOFF
                self._wipe_if_gone(instance.driver)
                self._incarnation.emit("driver connected", **about)
                await calls.lost()
            except OSError:
                if calls.closed:
                    return
                await self._incarnation.sleep(pause)
                pause = min(pause * BACKOFF_FACTOR, LONGEST_BACKOFF)
                continue
            if calls.closed:
                return
            instance.connected = False
            self._incarnation.emit("driver disconnected", **about)
            self._wipe_if_gone(instance.driver)

    def _wipe_if_gone(self, driver: str) -> None:
        """Begins to wait for the end of the driver's absence, or stops that."""
        connected = any(one.connected for one in self.instances.get(driver, ()))
        waiting = self._wiping.get(driver)
        if connected and waiting is not None:
            self._wiping.pop(driver).cancel()
        elif not connected and waiting is None and not self._incarnation.ended:
            work = self.wipe(self._node.pauses.wipe, driver)
            self._wiping[driver] = self._incarnation.tasks.spawn(f"kubelet: wipe {driver}", work)

    async def wipe(self, pause: float, driver: str = "") -> None:
        """Deletes the slices that the driver, or any driver, has on the node then. `pause`: in seconds."""
        await self._incarnation.sleep(pause)
        store = await self._node.api_back()
        fields = {"spec.driver": driver} if driver else {}
        count = store.wipe("resourceslices", {"spec.nodeName": self._node.name, **fields})
        self._incarnation.emit("slices wiped", count=count, driver=driver or "all")
        self._wiping.pop(driver, None)
