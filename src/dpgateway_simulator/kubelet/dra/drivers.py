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
        self._instances: dict[str, list[DraInstance]] = {}
        """`_instances` contains the instances of each driver, in the order of their registration."""
        self._wiping: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Deletes the slices that the node has at the start of its kubelet."""
        await self._incarnation.sleep(self._node.pauses.first_wipe)
        await self._wipe({})

    def add(self, instance: DraInstance) -> DraInstance:
        """Raises RefusedError."""
        behaviour, known = self._incarnation.behaviour, self._instances.setdefault(instance.driver, [])
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
        self._instances[instance.driver].remove(instance)
        for task in instance.tasks:
            task.cancel()
        if instance.calls is not None:
            instance.calls.close()
        instance.connected = False
        self._incarnation.emit("plugin deregistered", driver=instance.driver, endpoint=str(instance.endpoint))
        self._wipe_if_gone(instance.driver)

    def close(self) -> None:
        """The kubelet's process ends."""
        for one in [one for known in self._instances.values() for one in known]:
            if one.calls is not None:
                one.calls.close()

    def find(self, driver: str) -> DraInstance | None:
        """The instance to call."""
        known = self._instances.get(driver, [])
        connected = [one for one in known if one.connected]
        return (connected or known)[-1] if known else None

    @property
    def registered(self) -> dict[str, tuple[DraInstance, ...]]:
        return {driver: tuple(known) for driver, known in self._instances.items() if known}

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
        connected = any(one.connected for one in self._instances.get(driver, ()))
        waiting = self._wiping.get(driver)
        if connected and waiting is not None:
            self._wiping.pop(driver).cancel()
        elif not connected and waiting is None and not self._incarnation.ended:
            work = self._wipe_later(driver)
            self._wiping[driver] = self._incarnation.tasks.spawn(f"kubelet: wipe {driver}", work)

    async def _wipe_later(self, driver: str) -> None:
        await self._incarnation.sleep(self._node.pauses.wipe)
        await self._wipe({"spec.driver": driver})
        self._wiping.pop(driver, None)

    async def _wipe(self, fields: dict[str, str]) -> None:
        store = await self._node.api_back()
        count = store.wipe("resourceslices", {"spec.nodeName": self._node.name, **fields})
        self._incarnation.emit("slices wiped", count=count, driver=fields.get("spec.driver", "all"))
