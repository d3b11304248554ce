import pytest

from dpgateway.sysfs import Look, Object, identity

PCI = "devices/pci0000:00/0000:00:02.0"


@pytest.mark.parametrize(
    ("attributes", "names"),
    [
        ({"serial": "A1"}, ("0403:6001:A1:1.0", "1-1:1.0")),
        ({"serial": " A1 "}, ("0403:6001:A1:1.0", "1-1:1.0")),
        ({"serial": " "}, ("1-1:1.0",)),
        ({}, ("1-1:1.0",)),
    ],
)
def test_tty_has_its_sticks_serial(stick, roots, attributes, names):
    stick("1-1", "ttyUSB0", **attributes)
    look = Look(roots)
    (tty,) = look.objects("tty")
    assert identity(look, tty) == names


def test_the_stick_itself_has_no_interface(stick, roots):
    stick("1-1", "ttyUSB0", serial="A1")
    usb = Object("devices/pci0000:00/0000:00:14.0/usb1/1-1")
    assert identity(Look(roots), usb) == ("0403:6001:A1", "1-1")


def test_what_counts_is_no_name(tree, roots):
    tree.write(f"""
        /sys/{PCI}/subsystem -> /sys/bus/pci
        /sys/{PCI}/drm/card0/subsystem -> /sys/class/drm
        /sys/{PCI}/virtio3/subsystem -> /sys/bus/virtio
        /sys/{PCI}/mlx5_core.sf.4/subsystem -> /sys/bus/auxiliary
        /sys/devices/virtual/misc/kvm/subsystem -> /sys/class/misc
    """)
    look = Look(roots)
    for path in ("", "/drm/card0", "/virtio3", "/mlx5_core.sf.4"):
        assert identity(look, Object(PCI + path)) == ("0000:00:02.0",)
    assert identity(look, Object("devices/virtual/misc/kvm")) == ("kvm",)
