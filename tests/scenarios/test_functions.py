"""One FPGA board with two functions, under every release: it is programmed for who has it, and kept from others."""

import asyncio
import hashlib
import json
import signal
from pathlib import Path
from typing import Any

from tests.scenarios.gateway import Gateway
from tests.scenarios.kubelet import RESOURCE, Kubelet
from tests.scenarios.test_pools import CLEANING

OTHER = "example.com/other"


def function(folder: Path, name: str) -> dict[str, Any]:
    file = folder / "bitstream" / name.rpartition("/")[2]
    file.parent.mkdir(exist_ok=True)
    file.write_text(name)
    file.chmod(0o600)
    options = {
        "boards": [{"id": "b0", "nodes": ["/dev/null"]}],
        "bitstream": {"path": str(file), "id": file.name},
        "simulated": {"state_dir": str(folder / "boards"), "duration": "50ms"},
        "state_dir": str(folder / "fpga"),
    }
    return {"name": name, "driver": "fpga", "pool": "boards", "options": options}


def runs(folder: Path, name: str) -> bool:
    state = json.loads((folder / "boards" / "b0.json").read_text())
    return bool(state == {"state": "loaded", "sha256": hashlib.sha256(name.encode()).hexdigest()})


async def test_another_function_after_the_first(kubelet: Kubelet, gateway: Gateway, folder: Path) -> None:
    first = folder / "pods" / "p1"  # a device manager alone doesn't make it
    first.parent.mkdir()
    await kubelet.start()
    await gateway.start(function(folder, RESOURCE), function(folder, OTHER))
    for resource in (RESOURCE, OTHER):
        await kubelet.wait_for_devices(1, resource=resource)
    admitted = await kubelet.admit("p1", {"c": {RESOURCE: 1}})
    assert admitted["ok"], admitted
    assert runs(folder, RESOURCE)
    first.mkdir(exist_ok=True)
    await kubelet.wait_for_devices(0, 1, resource=OTHER)
    await gateway.restart(signal.SIGKILL)
    await kubelet.wait_for_devices(1)
    await kubelet.wait_for_devices(0, 1, resource=OTHER)
    assert (await kubelet.start_container("p1"))["ok"]
    refused = await kubelet.admit("p2", {"c": {OTHER: 1}})
    assert not refused["ok"], refused
    assert runs(folder, RESOURCE)
    await kubelet.remove("p1")
    await asyncio.sleep(CLEANING)
    first.rmdir()
    # As in test_pools.py, of a gateway that hadn't seen the pod's directory.
    await kubelet.wait_for((1, 1), resource=OTHER, timeout=120)
    admitted = await kubelet.admit("p3", {"c": {OTHER: 1}})
    assert admitted["ok"], admitted
    assert runs(folder, OTHER)
    programmed = [line for line in gateway.log if "programming board b0 with" in line]
    assert ["with thing" in line for line in programmed] == [True, False], programmed
