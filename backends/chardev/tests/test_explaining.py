"""Why something is a device, or why not: each candidate, with the first test that it failed."""

import os

import pytest

from dpgateway import Candidate
from dpgateway.testing import Recorder

PCI = "/sys/devices/pci0000:00"


@pytest.fixture
def functions(tree):
    """A VF for VFIO, its PF, a sound card beside another driver's function, and a tty in the PF."""
    for address, vendor, kind, driver in (
        ("0000:01:00.0", "0x8086", "0x020000", "i40e"),
        ("0000:01:00.1", "0x8086", "0x020000", "vfio-pci"),
        ("0000:02:00.0", "0x10de", "0x040300", None),
    ):
        here = f"{PCI}/{address}"
        tree.write(f"""
            {here}/subsystem -> /sys/bus/pci
            {here}/vendor = {vendor}
            {here}/class = {kind}
            /sys/bus/pci/devices/{address} -> {here}
        """)
        if driver:
            tree.write(f"{here}/driver -> /sys/bus/pci/drivers/{driver}")
    tree.write(f"""
        {PCI}/0000:01:00.1/iommu_group -> /sys/kernel/iommu_groups/45
        {PCI}/0000:01:00.0/tty/ttyS4/subsystem -> /sys/class/tty
        /sys/class/tty/ttyS4 -> {PCI}/0000:01:00.0/tty/ttyS4
        /sys/dev/char/4:68 -> {PCI}/0000:01:00.0/tty/ttyS4
        c /dev/ttyS4 4:68
    """)


def pci(address, **outcome):
    return Candidate(f"pci {address}", f"{PCI}/{address}", **outcome)


VFIO = {"subsystem": "pci", "driver": "vfio-pci"}
PF = pci("0000:01:00.0", test="match.driver", found="'i40e'", expected="vfio-pci")
VF = pci("0000:01:00.1", device="0000:01:00.1")
CARD = pci("0000:02:00.0", test="match.driver", found="nothing", expected="vfio-pci")


@pytest.mark.usefixtures("functions")
@pytest.mark.parametrize(
    ("about", "expected"),
    [
        (None, [PF, VF, CARD]),
        ("0000:01:00.1", [VF]),
        (f"{PCI}/0000:02:00.0", [CARD]),
        ("/sys/bus/pci/devices/0000:02:00.0", [CARD]),
        (PCI, [PF, VF, CARD]),
        ("/dev/ttyS4", [PF]),
        ("ttyS4", [PF]),
        ("/sys/devices/none", []),
        ("/dev/none", []),
        ("none", []),
    ],
)
def test_explains_all_or_one(drive, about, expected):
    assert list(drive(VFIO, nodes=[]).explain(about)) == expected


def test_explains_the_nearest_object(tree, drive):
    bridge, function = f"{PCI}/0000:00:01.0", f"{PCI}/0000:00:01.0/0000:03:00.0"
    for here in (bridge, function):
        tree.write(f"{here}/subsystem -> /sys/bus/pci\n/sys/bus/pci/devices/{here.rpartition('/')[2]} -> {here}")
    tree.write(f"{function}/tty/ttyS5/subsystem -> /sys/class/tty\n/sys/class/tty/ttyS5 -> {function}/tty/ttyS5")
    assert [one.path for one in drive({"subsystem": "pci"}, nodes=[]).explain("ttyS5")] == [function]


@pytest.mark.usefixtures("functions")
def test_explains_objects_of_other_subsystems(drive):
    (candidate,) = drive({"subsystem": "usb"}).explain("ttyS4")
    assert (candidate.name, candidate.test, candidate.found, candidate.expected) == (
        "tty ttyS4", "match.subsystem", "'tty'", "usb",
    )  # fmt: skip


@pytest.mark.usefixtures("functions")
def test_explains_each_alternative(drive):
    match = [VFIO, {"subsystem": "pci", "attr": {"class": "0x0403*"}, "optional": True}]
    driver = drive(match, group="{attr:iommu_group}", nodes=[])
    found = [(one.name[-1], one.test, one.found, one.device) for one in driver.explain(None)]
    assert found == [
        ("0", "match[0].driver", "'i40e'", None),
        ("0", "match[1].attr.class", "'0x020000'", None),
        ("1", None, "", "45"),
        ("0", "match[0].driver", "nothing", None),
        ("0", "group.by", "that attr iommu_group of 0000:02:00.0 is absent", None),
    ]


def test_paths_and_what_they_leave_out(dev):
    dev.node("ttyUSB0", 0)
    dev.node("ttyUSB1", 1)
    dev.link("serial/by-id/x", "../../ttyUSB0")
    (dev.path / "ttyUSB2").write_text("")
    driver = dev.drive("serial/by-id/*", "ttyUSB*", "gps", exclude=("/dev/ttyUSB1",))
    found = {one.name: (one.device, one.test, one.found) for one in driver.explain(None)}
    assert found == {
        "/dev/gps": ("gps", None, ""),
        "/dev/serial/by-id/x": ("serial/by-id/x", None, ""),
        "/dev/ttyUSB0": (None, "paths", "the same device as /dev/serial/by-id/x"),
        "/dev/ttyUSB1": (None, "exclude", "/dev/ttyUSB1"),
        "/dev/ttyUSB2": (None, "type", "expected a char device at /dev/ttyUSB2, found a regular file"),
    }
    assert list(driver.explain("/dev/ttyS0")) == [], "it isn't there"
    dev.node("ttyS0", 2)
    (candidate,) = driver.explain("/dev/ttyS0")
    assert (candidate.test, candidate.expected) == ("paths", "/dev/serial/by-id/* or /dev/ttyUSB* or /dev/gps")


def test_half_gone_object_has_a_name(tree, drive):
    tree.write("/sys/class/misc/old/x = 1")
    (one,) = drive({"subsystem": "misc", "kernel": "new"}).explain(None)
    assert (one.name, one.path) == ("old", "/sys/class/misc/old")


@pytest.mark.usefixtures("functions")
def test_explains_names_without_utf8(tree, drive):
    """What one device calls itself explains nothing away of the others."""
    strange = os.fsdecode(b"tty\xff")
    here = f"{PCI}/0000:02:00.0/tty/{strange}"
    tree.write(f"{here}/subsystem -> /sys/class/tty\n/sys/class/tty/{strange} -> {here}\nc /dev/{strange} 4:69")
    driver = drive({"subsystem": "tty", "kernel": "ttyS*"})
    driver.devices()
    assert {one.name: (one.test, one.found, one.device) for one in driver.explain(None)} == {
        "tty ttyS4": (None, "", "0000:01:00.0"),
        "tty tty\\udcff": ("match.kernel", "'tty\\udcff'", None),
    }
    recorder = Recorder()
    everything = drive({"subsystem": "tty"}, recorder, nodes=["/dev/{kernel}"], id="{kernel}")
    assert [one.id for one in everything.devices()] == ["ttyS4"]
    assert "/tty\\udcff can't be offered: id: " in recorder.messages[0]
    assert [(one.test, one.device) for one in everything.explain(None)] == [(None, "ttyS4"), ("id", None)]


@pytest.mark.usefixtures("functions")
def test_who_means_an_ancestor_is_told_so(drive):
    (tty,) = drive({"subsystem": "tty", "attr": {"vendor": "0x8086"}}).explain(None)
    why = "it isn't there; 0000:01:00.0, which it is in, has one: write attrs"
    assert (tty.test, tty.found, tty.expected) == ("match.attr.vendor", why, "0x8086")


PLURAL = "the keys in the plural are about one ancestor"


@pytest.fixture
def stick(tree):
    """A USB stick, its interface and its tty."""
    usb = f"{PCI}/usb1/1-1"
    tree.write(f"""
        {usb}/idVendor = 0403
        {usb}/serial = A1
        {usb}/subsystem -> /sys/bus/usb
        {usb}/1-1:1.0/subsystem -> /sys/bus/usb
        {usb}/1-1:1.0/driver -> /sys/bus/usb/drivers/ftdi_sio
        {usb}/1-1:1.0/tty/ttyUSB0/subsystem -> /sys/class/tty
        /sys/bus/usb/devices/1-1 -> {usb}
        /sys/bus/usb/devices/1-1:1.0 -> {usb}/1-1:1.0
        /sys/class/tty/ttyUSB0 -> {usb}/1-1:1.0/tty/ttyUSB0
    """)


@pytest.mark.usefixtures("stick")
@pytest.mark.parametrize(
    ("match", "options", "test", "found"),
    [
        ({"subsystem": "usb", "kernel": "*:*", "attr": {"idVendor": "0403"}}, {}, "match.attr.idVendor", "nothing"),
        (
            {"subsystem": "tty", "drivers": "ftdi_sio", "attrs": {"idVendor": "0403"}},
            {},
            "match.attrs.idVendor",
            f"it isn't at 1-1:1.0, which passed the tests before it, but at 1-1: {PLURAL}",
        ),
        (
            {"subsystem": "tty", "attrs": {"idVendor": "0403"}},
            {"id": "modem-{attr:serial}"},
            "id",
            "that attr serial of ttyUSB0 is absent; 1-1, which it is in, has one: write attrs",
        ),
        (
            {"subsystem": "tty", "attrs": {"idVendor": "0403"}},
            {"id": "modem-{attr:number}"},
            "id",
            "that attr number of ttyUSB0 is absent",
        ),
    ],
    ids=["an interface", "one ancestor", "the id", "nowhere"],
)
def test_explains_where_the_attribute_is(drive, match, options, test, found):
    candidate = next(one for one in drive(match, nodes=[], **options).explain(None) if one.name != "usb 1-1")
    assert (candidate.test, candidate.found) == (test, found)
