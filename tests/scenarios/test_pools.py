"""Two resources that offer the same devices, under every release: a pod of the one keeps out those of the other."""

import asyncio
import signal
from pathlib import Path

from tests.scenarios.engines import REAL
from tests.scenarios.gateway import Gateway
from tests.scenarios.kubelet import RESOURCE, Kubelet, devices

OTHER = "example.com/other"
ONE, ANOTHER = {"c": {RESOURCE: 1}}, {"c": {OTHER: 1}}

CLEANING = 1.0
"""Seconds until a deleted pod's directory is removed, if the test has to do it: a kubelet looks every 2 s."""


async def test_a_pod_of_another_name_is_refused(kubelet: Kubelet, gateway: Gateway, folder: Path) -> None:
    """Also after the gateway was killed: then the other name has the device, and keeps out the first."""
    (folder / "pods" / "agent").mkdir(parents=True)  # where no pod is, a gateway that has seen none believes nothing
    gateway.resource["pool"] = "things"
    gateway.options |= {"count": 1}
    await kubelet.start()
    await gateway.start(gateway.resource, gateway.resource | {"name": OTHER})
    for resource in (RESOURCE, OTHER):
        await kubelet.wait_for_devices(1, resource=resource)

    held = devices(await kubelet.admit("p1", ONE))
    assert held == {"node-0"}
    (folder / "pods" / "p1").mkdir(exist_ok=True)  # a device manager alone doesn't make it
    await kubelet.wait_for_devices(0, 1, resource=OTHER)
    await gateway.said("withheld: held as example.com/thing by")
    await gateway.end(signal.SIGKILL)
    await kubelet.wait_for({8: (None, None), 9: (0, 0)}.get(kubelet.minor, (1, 0)))  # it knows of that
    await gateway.start()
    await kubelet.wait_for_devices(1)
    await kubelet.wait_for_devices(0, 1, resource=OTHER)
    assert (await kubelet.start_container("p1"))["ok"]
    refused = await kubelet.admit("p2", ANOTHER)
    assert not refused["ok"], refused
    await ends(kubelet, folder, "p1")
    # a gateway that had not seen the pod's directory by then looks again after STARTED (node/pods.py), or 30 s
    await kubelet.wait_for((1, 1), resource=OTHER, timeout=120)

    assert devices(await kubelet.admit("p3", ANOTHER)) == held
    (folder / "pods" / "p3").mkdir(exist_ok=True)
    await kubelet.wait_for_devices(0, 1)
    await gateway.said("withheld: held as example.com/other by")
    refused = await kubelet.admit("p4", ONE)
    assert not refused["ok"], refused
    await ends(kubelet, folder, "p3")
    await kubelet.wait_for((1, 1), timeout=120)
    assert devices(await kubelet.admit("p5", ONE)) == held
    await kubelet.wait_for_devices(0, 1, resource=OTHER)


async def ends(kubelet: Kubelet, folder: Path, pod: str) -> None:
    await kubelet.remove(pod)
    if REAL:
        await asyncio.sleep(CLEANING)
        (folder / "pods" / pod).rmdir()
