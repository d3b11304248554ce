"""What claims add to a container: the kubelet's CDI names, and what the runtime makes of them."""

from dataclasses import dataclass
from typing import Any

from dpgateway_simulator.kubelet.cluster_node import ClusterNode
from dpgateway_simulator.kubelet.dra import cdi
from dpgateway_simulator.kubelet.dra.claims import ClaimManager
from dpgateway_simulator.kubelet.dra.health import DeviceHealths
from dpgateway_simulator.kubelet.pods import Pod
from dpgateway_simulator.kubelet.starting import NOTHING


@dataclass(frozen=True)
class ClaimedDevices:
    """The devices that containers have by claims."""

    node: ClusterNode
    claims: ClaimManager
    health: DeviceHealths

    def added(self, pod: Pod, container: str, options: dict[str, Any] | None) -> dict[str, Any] | None:
        """The options of a container that is created. Raises AllocationError."""
        names = [name for _, one in self.claims.devices(pod, container) for name in one.cdi]
        if not names and (options is None or not options["cdi_devices"]):
            return options
        options = NOTHING if options is None else options
        options = {**options, "cdi_devices": list(dict.fromkeys([*options["cdi_devices"], *names]))}
        return cdi.injected(options, self.node.cdi_dirs) if self.node.cdi else options

    def status(self, pod: Pod, container: str) -> list[dict[str, Any]]:
        """`allocatedResourcesStatus`, with the health of the devices of claims in the pod's spec; not of extended
        resources (seen on 1.37).
        """
        names = {one.object: one.name for one in self.claims.uses(pod) if one.name}
        found: dict[str, list[dict[str, str]]] = {}
        for claim, one in self.claims.devices(pod, container):
            if claim in names:
                health, message = self.health.of(one.driver, one.pool, one.device)
                said = {"health": health, **({"message": message} if message else {})}
                found.setdefault(names[claim], []).extend({"resourceID": cdi_name, **said} for cdi_name in one.cdi)
        return [{"name": f"claim:{name}", "resources": resources} for name, resources in found.items()]
