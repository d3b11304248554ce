"""What drivers say of their devices' health (pkg/kubelet/cm/dra/healthinfo.go and manager.go, 1.37).

A driver repeats it: what is older than 30 s, or than the time that it gave with it, is Unknown. The end of a stream
clears all that is known of the driver, whichever of its instances said it; the stream is opened again after 5 s, unless
the driver doesn't have it.
"""

from collections.abc import Callable
from dataclasses import dataclass

from dpgateway_simulator.kubelet.cluster_node import KubeletPauses
from dpgateway_simulator.kubelet.incarnation import Incarnation
from dpgateway_simulator.wire import v1
from dpgateway_simulator.wire.plugin_calls import CallError, PluginCalls

LONGEST_MESSAGE = 1024
_NAMES = {v1.HealthStatus.HEALTHY: "Healthy", v1.HealthStatus.UNHEALTHY: "Unhealthy"}


@dataclass(frozen=True)
class ReportedHealth:
    """What was said of a device, and until when it holds."""

    health: str
    message: str
    until: float


class DeviceHealths:
    """The health of the devices of all drivers, for one incarnation. `changed` is called after a change."""

    def __init__(self, incarnation: Incarnation, pauses: KubeletPauses) -> None:
        self._incarnation, self._pauses = incarnation, pauses
        self._said: dict[str, dict[tuple[str, str], ReportedHealth]] = {}
        """`_said` contains, by driver, what was said of each (pool, device)."""
        self.changed: Callable[[], None] = lambda: None

    def of(self, driver: str, pool: str, device: str) -> tuple[str, str]:
        """Health and message of a device now."""
        said = self._said.get(driver, {}).get((pool, device))
        if said is None or self._incarnation.now() > said.until:
            return "Unknown", ""
        return said.health, said.message

    async def watch(self, driver: str, calls: PluginCalls, package: str) -> None:
        """Follows one instance, until it says that it has no such stream."""
        while True:
            self._incarnation.emit("health stream opened", driver=driver)
            reason = "EOF"
            try:
                async for message in calls.health(package):
                    self._take(driver, message)
            except CallError as error:
                reason = str(error)
                if error.unimplemented:
                    self._incarnation.emit("health stream ended", driver=driver, reason=reason)
                    return
            finally:
                self._said.pop(driver, None)
            self._incarnation.emit("health stream ended", driver=driver, reason=reason)
            self.changed()
            if calls.closed:
                return
            await self._incarnation.sleep(self._pauses.health_again)

    def _take(self, driver: str, message: v1.NodeWatchResourcesResponse) -> None:
        said, changed = self._said.setdefault(driver, {}), []
        for one in message.devices:
            key = one.device.pool_name, one.device.device_name
            before = self.of(driver, *key)
            holds = one.health_check_timeout_seconds or self._pauses.health
            text = one.message.encode()[:LONGEST_MESSAGE].decode(errors="ignore")
            said[key] = ReportedHealth(_NAMES.get(one.health, "Unknown"), text, self._incarnation.now() + holds)
            if before != self.of(driver, *key):
                changed.append(f"{key[1]}={said[key].health}")
        self._incarnation.emit("health received", driver=driver, devices=len(message.devices), changed=tuple(changed))
        if changed:
            self.changed()
