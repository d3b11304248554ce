import stat

import pytest

from dpgateway.sysfs import Roots
from dpgateway.testing import FakeTree
from tests.support.uevents import changes


@pytest.fixture
def tree(tmp_path):
    return FakeTree(tmp_path)


@pytest.fixture
def roots(tmp_path):
    return Roots(sysfs=f"{tmp_path}/sys", dev=f"{tmp_path}/dev", proc=f"{tmp_path}/proc", udev=f"{tmp_path}/run/udev")


@pytest.fixture
def change():
    """Has the kernel say that an object of sysfs changed."""
    with changes() as change:
        yield change


STICKS = "devices/pci0000:00/0000:00:14.0/usb1"


@pytest.fixture
def stick(tree):
    """Plugs in a USB stick with a tty at a port: ``stick("1-1", "ttyUSB0", serial="A1")``."""

    def plug(port, tty, minor=0, product="6001", **attributes):
        usb, interface = f"/sys/{STICKS}/{port}", f"/sys/{STICKS}/{port}/{port}:1.0"
        here = f"{interface}/{tty}/tty/{tty}"
        lines = [f"{usb}/{name} = {value}" for name, value in attributes.items()]
        tree.write(f"""
            {usb}/idVendor = 0403
            {usb}/idProduct = {product}
            {usb}/subsystem -> /sys/bus/usb
            {usb}/driver -> /sys/bus/usb/drivers/usb
            {interface}/subsystem -> /sys/bus/usb
            {interface}/{tty}/subsystem -> /sys/bus/usb-serial
            {here}/subsystem -> /sys/class/tty
            {here}/device -> {interface}/{tty}
            {here}/uevent = MAJOR=188\\nMINOR={minor}\\nDEVNAME={tty}
            /sys/class/tty/{tty} -> {here}
            c /dev/{tty} 188:{minor}
        """)
        tree.write("\n".join(lines))

    tree.write(f"""
        /sys/{STICKS}/serial = 0000:00:14.0
        /sys/{STICKS}/idVendor = 1d6b
        /sys/{STICKS}/subsystem -> /sys/bus/usb
        /sys/devices/pci0000:00/0000:00:14.0/subsystem -> /sys/bus/pci
        /sys/devices/pci0000:00/0000:00:14.0/numa_node = 1
    """)
    return plug


class Dev:
    def __init__(self, tree):
        self.tree, self.path = tree, tree.at("/dev")

    def node(self, name, minor=0, kind=stat.S_IFCHR):
        self.tree.write(f"{'c' if kind == stat.S_IFCHR else 'b'} /dev/{name} 240:{minor}")

    def link(self, name, target):
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)


@pytest.fixture
def dev(tree):
    return Dev(tree)
