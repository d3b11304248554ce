"""USB sticks that are plugged in and out while the gateway is away: what a container holds stays the same hardware."""

import pytest

from dpgateway.testing import FakeTree
from tests.support.files import texts
from tests.support.kubelet import listed, refused
from tests.support.waiting import until

R = "example.com/stick"
USB = "/sys/devices/pci0000:00/0000:00:14.0/usb1"
FIRST, SECOND = "1-1:1.0", "1-2:1.0"
SERIAL = "0403:6001:0001:1.0"
ONE = {"c": {R: 1}}


class Sticks:
    """A stick is a serial port too."""

    def __init__(self, tree: FakeTree) -> None:
        self._tree = tree

    def resource(self, options, **keys):
        return {"name": R, "driver": "chardev", "options": options | self._tree.roots, "refresh": "100ms"} | keys

    def plug(self, number: int, serial: str) -> None:
        stick, tty = f"{USB}/1-{number}", f"ttyUSB{number}"
        port = f"{stick}/1-{number}:1.0"
        self._tree.write(f"""
            {stick}/idVendor = 0403
            {stick}/idProduct = 6001
            {stick}/serial = {serial}
            {stick}/subsystem -> /sys/bus/usb
            {stick}/uevent = MAJOR=189\\nMINOR={number}\\nDEVNAME=bus/usb/001/{number}
            c /dev/bus/usb/001/{number} 189:{number}
            /sys/bus/usb/devices/1-{number} -> {stick}
            {port}/subsystem -> /sys/bus/usb
            {port}/{tty}/tty/{tty}/subsystem -> /sys/class/tty
            {port}/{tty}/tty/{tty}/uevent = MAJOR=188\\nMINOR={number}\\nDEVNAME={tty}
            c /dev/{tty} 188:{number}
            /sys/class/tty/{tty} -> {port}/{tty}/tty/{tty}
        """)

    def unplug(self, number: int) -> None:
        for path in (f"/sys/class/tty/ttyUSB{number}", f"/dev/ttyUSB{number}", f"{USB}/1-{number}"):
            self._tree.remove(path)


@pytest.fixture
def sticks(short_path):
    return Sticks(FakeTree(short_path))


async def restarted(process, kubelet, meanwhile):
    await process.end()
    meanwhile()
    before = len(kubelet.events)
    await process.start()
    await kubelet.wait_for_event("list received", since=before)


@pytest.mark.parametrize(("kubelet", "shares"), [("1.8", 1), ("1.37", 2)], indirect=["kubelet"])
async def test_held_pair_after_a_restart(process, kubelet, sticks, shares):
    """Two sticks are one device."""
    for number, serial in ((2, "b"), (4, "d")):
        sticks.plug(number, serial)
    match = {"subsystem": "usb", "attr": {"idVendor": "0403"}}
    await process.start(sticks.resource({"match": match, "group": {"size": 2}, "id": None}, shares=shares))
    held, new = "0403:6001:b+0403:6001:d", "0403:6001:a+0403:6001:c"
    ids = [""] if shares == 1 else ["", "::1"]
    await listed(kubelet, R, {held + share: True for share in ids})
    assert (await kubelet.admit("pod", ONE))["ok"]
    await restarted(process, kubelet, lambda: [sticks.plug(number, serial) for number, serial in ((1, "a"), (3, "c"))])
    await listed(kubelet, R, {one + share: True for one in (held, new) for share in ids})
    assert await process.end() == 0


@pytest.mark.parametrize(("kubelet", "taken"), [("1.8", True), ("1.37", False), ("1.37", True)], indirect=["kubelet"])
async def test_held_stick_whose_id_is_anothers(process, kubelet, sticks, taken):
    """Two have one serial number: while the gateway is away, one is unplugged, and the other one has its id then."""
    sticks.plug(1, "0001")
    await process.start(sticks.resource({"match": {"subsystem": "tty", "attrs": {"idVendor": "0403"}}}))
    await listed(kubelet, R, {SERIAL: True})
    assert (await kubelet.admit("pod", ONE))["ok"]
    sticks.plug(2, "0001")
    await listed(kubelet, R, {SERIAL: True, SECOND: True})
    if taken:
        assert (await kubelet.admit("neighbour", ONE))["ok"]
        # What a slow disk hasn't written at the gateway's end is "a container holds it, but nobody remembers".
        state = process.folder / "state"
        await until(lambda: any("char 188:2" in text for text in texts(state).values()))
    await restarted(process, kubelet, lambda: sticks.unplug(1))
    if taken:
        await refused(kubelet, R, SERIAL, rf"(usb {SECOND}|char 188:2) is held as {SECOND}")
    else:
        await listed(kubelet, R, {SERIAL: True})
    assert not (await kubelet.admit("other", ONE))["ok"]
    sticks.plug(1, "0001")
    still = {SERIAL: False, SECOND: False} if taken else {SERIAL: True}
    await listed(kubelet, R, {FIRST: False, **still})
    await refused(kubelet, R, FIRST, rf"(usb {FIRST}|char 188:1) is held as {SERIAL}")
    assert not (await kubelet.admit("other", ONE))["ok"]
    assert await process.end() == 0
