"""Two sticks with one serial number: while the gateway is away, one is unplugged, and the other one has its id then."""

import pytest

from dpgateway.testing import FakeTree
from dpgateway_simulator import Kubelet, PluginError
from tests.support.gateway import Gateway

R = "example.com/stick"
USB = "/sys/devices/pci0000:00/0000:00:14.0/usb1"
FIRST, SECOND = "1-1:1.0", "1-2:1.0"
SERIAL = "0403:6001:0001:1.0"
ONE = {"c": {R: 1}}


class Ports:
    def __init__(self, tree: FakeTree) -> None:
        self._tree = tree
        places = {"dev": str(tree.at("/dev")), "sysfs": str(tree.at("/sys"))}
        options = {"match": {"subsystem": "tty", "attrs": {"idVendor": "0403"}}, **places}
        self.resource = {"name": R, "driver": "chardev", "options": options, "refresh": "100ms"}

    def plug(self, interface: str) -> None:
        port = interface.partition(":")[0]
        number = int(port[-1])
        tty, stick = f"ttyUSB{number}", f"{USB}/{port}"
        here = f"{stick}/{interface}/{tty}/tty/{tty}"
        self._tree.write(f"""
            {stick}/idVendor = 0403
            {stick}/idProduct = 6001
            {stick}/serial = 0001
            {stick}/subsystem -> /sys/bus/usb
            {stick}/{interface}/subsystem -> /sys/bus/usb
            {here}/subsystem -> /sys/class/tty
            {here}/uevent = MAJOR=188\\nMINOR={number}\\nDEVNAME={tty}
            c /dev/{tty} 188:{number}
            /sys/class/tty/{tty} -> {here}
        """)

    def unplug_first(self) -> None:
        for path in ("/sys/class/tty/ttyUSB1", "/dev/ttyUSB1", f"{USB}/1-1"):
            self._tree.remove(path)


@pytest.fixture
def ports(short_path):
    return Ports(FakeTree(short_path))


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


async def listed(kubelet, **ids):
    """Waits until exactly these ids are listed, Healthy or not."""
    expected = {id_: "Healthy" if healthy else "Unhealthy" for id_, healthy in ids.items()}

    def so():
        devices = kubelet.resources().get(R, {}).get("devices", ())
        return {one["id"]: one["health"] for one in devices} == expected

    await kubelet.wait_for(so)


@pytest.mark.parametrize("taken", [False, True], ids=["free", "taken"])
async def test_what_a_pod_has_is_nobody_elses_though_its_id_is_another_sticks_now(process, kubelet, ports, taken):
    ports.plug(FIRST)
    await process.start(ports.resource)
    await listed(kubelet, **{SERIAL: True})
    assert (await kubelet.admit("pod", ONE))["ok"]
    ports.plug(SECOND)
    await listed(kubelet, **{SERIAL: True, SECOND: True})
    if taken:
        assert (await kubelet.admit("neighbour", ONE))["ok"]
    await process.end()
    ports.unplug_first()
    before = len(kubelet.events)
    await process.start(ports.resource)
    await kubelet.wait_for_event("list received", since=before)
    if taken:
        await refused(kubelet, SERIAL, rf"(usb {SECOND}|char 188:2) is held as {SECOND}")
    else:
        await listed(kubelet, **{SERIAL: True})
    assert not (await kubelet.admit("other", ONE))["ok"]
    ports.plug(FIRST)
    still = {SERIAL: False, SECOND: False} if taken else {SERIAL: True}
    await listed(kubelet, **{FIRST: False, **still})
    await refused(kubelet, FIRST, rf"(usb {FIRST}|char 188:1) is held as {SERIAL}")
    assert not (await kubelet.admit("other", ONE))["ok"]
    assert await process.end() == 0


async def refused(kubelet, id_, reason):
    with pytest.raises(PluginError, match=reason):
        await kubelet.allocate(R, [id_])
