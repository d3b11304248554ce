"""What a test waits for, and asks, at a simulated kubelet."""

from collections.abc import Mapping

import pytest

from dpgateway_simulator import Kubelet, PluginError


async def listed(kubelet: Kubelet, resource: str, ids: Mapping[str, bool]) -> None:
    """Waits until exactly these ids are listed, Healthy or not."""
    expected = {id_: "Healthy" if healthy else "Unhealthy" for id_, healthy in ids.items()}

    def so() -> bool:
        devices = kubelet.resources().get(resource, {}).get("devices", ())
        return {one["id"]: one["health"] for one in devices} == expected

    await kubelet.wait_for(so)


def registered(kubelet: Kubelet, resource: str) -> int:
    """How often the resource was registered."""
    return sum(event.kind == "registered" and event.fields["resource"] == resource for event in kubelet.events)


async def refused(kubelet: Kubelet, resource: str, id_: str, reason: str) -> None:
    """``reason``: a regular expression."""
    with pytest.raises(PluginError, match=reason):
        await kubelet.allocate(resource, [id_])
