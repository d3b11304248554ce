"""Ids are what devices are: any order, any numbers and any subset of optional members give the same ones."""

import tempfile
from pathlib import Path

from dpgateway_chardev import CharDevices
from hypothesis import given, settings
from hypothesis import strategies as st

from dpgateway import from_plain
from dpgateway.testing import FakeTree, Recorder

ROOT = "/sys/devices/pci0000:00/0000:00:14.0/usb1"
PCI = "/sys/devices/pci0000:00"
serials = st.sampled_from(["A", "B", "C", "", " "])
sticks = st.dictionaries(st.sampled_from([f"1-{port}" for port in range(1, 6)]), serials, min_size=1)


def ids(lines, match, **options):
    """The ids of all devices, and of those that are healthy, in a tree of these lines."""
    with tempfile.TemporaryDirectory() as directory:
        tree = FakeTree(Path(directory))
        tree.write("\n".join(lines))
        driver = CharDevices(
            from_plain({"match": match, **tree.roots, **options}, CharDevices.Options), Recorder().context()
        )
        found = driver.devices()
        driver.close()
    return {device.id for device in found if device.health.ok}


def stick(port, serial, number):
    """A stick, as it is when the kernel has given it this number."""
    usb, name = f"{ROOT}/{port}", f"ttyUSB{number}"
    here = f"{usb}/{port}:1.0/{name}/tty/{name}"
    yield f"{usb}/idVendor = 0403"
    yield f"{usb}/idProduct = 6001"
    yield f"{usb}/devnum = {number + 2}"
    if serial:
        yield f"{usb}/serial = {serial}"
    yield f"{usb}/subsystem -> /sys/bus/usb"
    yield f"{usb}/{port}:1.0/subsystem -> /sys/bus/usb"
    yield f"{here}/subsystem -> /sys/class/tty"
    yield f"{here}/uevent = MAJOR=188\\nMINOR={number}\\nDEVNAME={name}"
    yield f"/sys/class/tty/{name} -> {here}"
    yield f"c /dev/{name} 188:{number}"


@settings(max_examples=15, deadline=None)
@given(plugged=sticks, data=st.data())
def test_serial_number_or_port(plugged, data):
    order = data.draw(st.permutations(list(plugged)))
    numbers = data.draw(st.lists(st.integers(0, 99), min_size=len(order), max_size=len(order), unique=True))
    lines = [line for port, number in zip(order, numbers, strict=True) for line in stick(port, plugged[port], number)]
    once = [serial for serial in plugged.values() if list(plugged.values()).count(serial) == 1 and serial.strip()]
    expected = {f"0403:6001:{serial}:1.0" if serial in once else f"{port}:1.0" for port, serial in plugged.items()}
    assert ids(lines, {"subsystem": "tty", "attrs": {"idVendor": "0403"}}) == expected


def test_shared_serial_number_is_no_id(tree, drive):
    """What a container has by that number is no device any more then, so that the gateway lists it as lost."""
    match = {"subsystem": "tty", "attrs": {"idVendor": "0403"}}

    def listed(driver):
        return {device.id: device.attributes["object"].partition("/usb1/")[2][:3] for device in driver.devices()}

    tree.write("\n".join(stick("1-1", "0001", 0)))
    before = drive(match)
    assert listed(before) == {"0403:6001:0001:1.0": "1-1"}
    tree.write("\n".join(stick("1-2", "0001", 1)))
    assert listed(drive(match)) == {"1-1:1.0": "1-1", "1-2:1.0": "1-2"}
    by_port = {"id": "{kernels}"}
    assert listed(drive(match, **by_port)) == {"1-1": "1-1", "1-2": "1-2"}
    tree.remove("/sys/class/tty/ttyUSB0")
    assert listed(drive(match)) == {"0403:6001:0001:1.0": "1-2"}, "nobody knows of the other one"
    assert listed(drive(match, **by_port)) == {"1-2": "1-2"}


@settings(max_examples=15, deadline=None)
@given(cards=st.permutations(range(1, 5)), sound=st.sets(st.integers(1, 4)), groups=st.permutations(range(40, 44)))
def test_optional_members_change_no_id(cards, sound, groups):
    lines = []
    for card, group in zip(cards, groups, strict=True):
        for function, kind in ((0, "0x030000"), (1, "0x040300")):
            if function == 0 or card in sound:
                here = f"{PCI}/0000:0{card}:00.{function}"
                lines += [f"{here}/class = {kind}", f"{here}/subsystem -> /sys/bus/pci"]
                lines += [f"{here}/iommu_group -> /sys/kernel/iommu_groups/{group}"]
                lines += [f"/sys/bus/pci/devices/0000:0{card}:00.{function} -> {here}"]
        lines.append(f"c /dev/vfio/{group} 240:{group}")
    match = [
        {"subsystem": "pci", "attr": {"class": "0x04*"}, "optional": True},
        {"subsystem": "pci", "attr": {"class": "0x03*"}},
    ]
    options = {"group": "{attr:iommu_group}", "nodes": ["/dev/vfio/{attr:iommu_group}"], "id": "{slot:{kernel}}"}
    assert ids(lines, match, **options) == {f"0000:0{card}:00" for card in cards}
