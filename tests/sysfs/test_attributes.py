import pytest

from dpgateway.sysfs import Look, Match, Test, find, identity
from dpgateway.sysfs.explaining import attributes


@pytest.fixture
def known(stick, roots):
    """What is known of a stick's tty, with that match, after it was identified or not."""
    stick("1-1", "ttyUSB0", serial="A1", bMaxPower="90mA")

    def known(match, *, identified=False):
        look = Look(roots)
        ((_, found),) = find(look, [match])
        if identified:
            identity(look, found.thing)
        return attributes(look, found, [match])

    return known


def test_attributes_have_common_names(known):
    one = Test(present=True)
    match = Match("tty", attr={"device": one}, attrs={"idVendor": one, "bMaxPower": one})
    assert known(match) == {"address": "1-1:1.0", "vendor": "0403", "bMaxPower": "90mA"}
    assert known(Match("tty"), identified=True) == {
        "address": "1-1:1.0",
        "vendor": "0403",
        "product": "6001",
        "serial": "A1",
    }


def test_nearest_driver_is_shown(known, tree):
    tree.write("/sys/devices/pci0000:00/0000:00:14.0/driver -> /sys/bus/pci/drivers/xhci")
    assert "driver" not in known(Match("tty"))
    tree.write("/sys/devices/pci0000:00/0000:00:14.0/usb1/1-1/1-1:1.0/driver -> /sys/bus/usb/drivers/ftdi_sio")
    assert known(Match("tty"))["driver"] == "ftdi_sio"


def test_a_pci_functions_device_is_its_product(tree, roots):
    here = "/sys/devices/pci0000:00/0000:3b:00.0"
    tree.write(f"{here}/vendor = 0x8086\n{here}/device = 0x4941\n/sys/bus/pci/devices/0000:3b:00.0 -> {here}")
    match = Match("pci", attr={"vendor": Test(("0x8086",)), "device": Test(("0x4941",))})
    look = Look(roots)
    ((_, found),) = find(look, [match])
    assert attributes(look, found, [match]) == {"vendor": "0x8086", "product": "0x4941"}
