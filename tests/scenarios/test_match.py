"""Devices that are found by what they are in sysfs, here in a tree of files."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from dpgateway.testing import FakeTree
from tests.real_kubelet.programs import RELEASES
from tests.scenarios.engines import REAL
from tests.scenarios.gateway import Gateway
from tests.scenarios.kubelet import RESOURCE, Kubelet
from tests.scenarios.sticks import USB, plug
from tests.scenarios.test_pools import CLEANING

ONE = {"c": {RESOURCE: 1}}
LONG = "-".join(["A1", *["usb"] * 64])
"""An id of 258 characters, because no release holds to the 63 of the API's comment."""


@pytest.mark.parametrize("kubelet", RELEASES if REAL else ["1.37"], indirect=True)
async def test_a_device_that_comes_back_elsewhere(kubelet: Kubelet, gateway: Gateway, folder: Path) -> None:
    tree = FakeTree(folder)
    plug(tree, "1-1", "A1", 3)
    gateway.resource |= {"driver": "chardev", "refresh": "100ms"}
    gateway.resource["options"] = {
        "match": {"subsystem": "tty", "attrs": {"idVendor": "0403"}},
        "id": f"{{attrs:serial}}{LONG.removeprefix('A1')}",
        "container_path": "/dev/modem",
        "env": {"MODEM": "{id}", "PORT": "{kernels}"},
        **tree.roots,
    }
    await kubelet.start()
    await gateway.start()
    for pod, port, tty in (("p1", "1-1", "ttyUSB3"), ("p2", "1-2", "ttyUSB0")):
        await kubelet.wait_for_devices(1, 0)
        admitted = await kubelet.admit(pod, ONE)
        assert admitted["ok"], admitted
        options = admitted["containers"][0]["options"]
        assert options["envs"] == {"MODEM": LONG, "PORT": port}
        node = {"container_path": "/dev/modem", "host_path": f"/dev/{tty}", "permissions": "rw"}
        assert options["devices"] == [node]
        if pod == "p2":
            break
        assert (await kubelet.restart(first="plugin"))[pod]["ok"]
        assert not (await kubelet.admit("p0", ONE))["ok"]  # it knows whose the device is
        await kubelet.remove(pod)
        for path in (f"/sys/class/tty/{tty}", f"/dev/{tty}"):
            tree.remove(path)
        await kubelet.wait_for_devices(0, 1)
        tree.remove(f"{USB}/{port}")
        plug(tree, "1-2", "A1", 0)


@pytest.mark.parametrize("kubelet", RELEASES if REAL else ["1.37"], indirect=True)
async def test_a_pod_gets_several_functions_of_one_iommu_group_and_no_other_pod_does(
    kubelet: Kubelet, gateway: Gateway, folder: Path
) -> None:
    tree, first = FakeTree(folder), folder / "pods" / "vm"
    first.parent.mkdir()
    tree.write("c /dev/vfio/12 240:12")
    for number in range(3):
        here = f"/sys/devices/pci0000:00/0000:01:00.{number}"
        tree.write(f"""
            {here}/iommu_group -> /sys/kernel/iommu_groups/12
            /sys/bus/pci/devices/0000:01:00.{number} -> {here}
        """)
    gateway.resource |= {"driver": "chardev", "refresh": "100ms"}
    gateway.resource["options"] = {
        "match": {"subsystem": "pci"},
        "nodes": ["/dev/vfio/{attr:iommu_group}"],
        "env": {"FUNCTIONS": "{kernel}"},
        **tree.roots,
    }
    await kubelet.start()
    await gateway.start()
    await kubelet.wait_for_devices(3, 0)
    admitted = await kubelet.admit("vm", {"c": {RESOURCE: 2}})
    assert admitted["ok"], admitted
    first.mkdir(exist_ok=True)  # a device manager alone doesn't make it
    await asyncio.sleep(CLEANING)  # the gateway knows its pod by then: of an unknown one the end is seen late
    options = admitted["containers"][0]["options"]
    assert len(options["envs"]["FUNCTIONS"].split(",")) == 2
    assert [node["host_path"] for node in options["devices"]] == ["/dev/vfio/12"]

    # the third function is another pod's only once both are free, also after restarts
    await kubelet.wait_for_devices(2, 1)
    assert not (await kubelet.admit("p1", ONE))["ok"]
    assert (await kubelet.restart(first="plugin"))["vm"]["ok"]
    assert not (await kubelet.admit("p2", ONE))["ok"]
    await kubelet.remove("vm")
    await asyncio.sleep(CLEANING)
    with suppress(FileNotFoundError):
        first.rmdir()
    # As in test_pools.py, of a gateway that hadn't seen the pod's directory.
    await kubelet.wait_for((3, 3), timeout=120)
    assert (await kubelet.admit("p3", {"c": {RESOURCE: 3}}))["ok"]
