"""Two sticks that are one device: what a container holds is the same two after a restart, whatever was plugged in."""

import pytest

from dpgateway.testing import FakeTree
from dpgateway_simulator import Kubelet
from tests.support.gateway import Gateway

R = "example.com/pair"
USB = "/sys/devices/pci0000:00/0000:00:14.0/usb1"
ONE = {"c": {R: 1}}


class Sticks:
    def __init__(self, tree: FakeTree) -> None:
        self._tree = tree
        places = {"dev": str(tree.at("/dev")), "sysfs": str(tree.at("/sys"))}
        match = {"subsystem": "usb", "attr": {"idVendor": "0403"}}
        options = {"match": match, "group": {"size": 2}, "id": None, **places}
        self.resource = {"name": R, "driver": "chardev", "options": options, "refresh": "100ms"}

    def plug(self, *serials: str) -> None:
        for serial in serials:
            number = ord(serial)
            here = f"{USB}/1-{number}"
            self._tree.write(f"""
                {here}/idVendor = 0403
                {here}/idProduct = 6001
                {here}/serial = {serial}
                {here}/subsystem -> /sys/bus/usb
                {here}/uevent = MAJOR=189\\nMINOR={number}\\nDEVNAME=bus/usb/001/{number}
                c /dev/bus/usb/001/{number} 189:{number}
                /sys/bus/usb/devices/1-{number} -> {here}
            """)


@pytest.fixture
def sticks(short_path):
    return Sticks(FakeTree(short_path))


@pytest.fixture(params=["1.8", "1.37"])
async def kubelet(short_path, request):
    one = Kubelet(request.param, short_path / "dp")
    await one.start()
    yield one
    await one.kill()


@pytest.fixture
async def process(short_path, kubelet):
    async with Gateway(short_path, short_path / "dp") as process:
        process.imported = True
        yield process


async def listed(kubelet, *pairs):
    expected = {"+".join(f"0403:6001:{serial}" for serial in pair): "Healthy" for pair in pairs}

    def so():
        devices = kubelet.resources().get(R, {}).get("devices", ())
        return {one["id"]: one["health"] for one in devices} == expected

    await kubelet.wait_for(so)


@pytest.mark.parametrize("shares", [1, 2])
async def test_a_held_pair_is_the_same_pair_after_a_restart(process, kubelet, sticks, shares):
    sticks.plug("b", "d")
    resource = sticks.resource | {"shares": shares}
    await process.start(resource)
    offered = ["bd"] if shares == 1 else ["bd", "bd"]
    await kubelet.wait_for(lambda: len(kubelet.resources().get(R, {}).get("devices", ())) == len(offered))
    assert (await kubelet.admit("pod", ONE))["ok"]
    await process.end()
    sticks.plug("a", "c")
    before = len(kubelet.events)
    await process.start(resource)
    await kubelet.wait_for_event("list received", since=before)
    if shares == 1:
        await listed(kubelet, "bd", "ac")
    ids = {one["id"].partition("::")[0] for one in kubelet.resources()[R]["devices"]}
    assert ids == {"0403:6001:b+0403:6001:d", "0403:6001:a+0403:6001:c"}
    assert await process.end() == 0
