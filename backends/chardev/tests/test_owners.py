"""A node is given for an object only if it has the number that sysfs says, wherever its path comes from."""

import pytest

from dpgateway import DeviceUnavailable
from tests.support.listed import reasons

ACME = {"subsystem": "acme"}
ROOT = "/sys/devices/virtual/acme"


def acme(tree, number, *, uevent=True, node=True, root=ROOT, **attributes):
    here = f"{root}/acme{number}"
    said = f"MAJOR=3722\\nMINOR={number}\\nDEVNAME=acme{number}" if uevent else ""
    tree.write(f"""
        {here}/subsystem -> /sys/class/acme
        /sys/class/acme/acme{number} -> {here}
        {here}/dev = 3722:{number}
        {here}/uevent = {said}
        {f"c /dev/acme{number} 3722:{number}" if node else ""}
    """)
    for name, value in attributes.items():
        tree.write(f"{here}/{name} = {value}")
    return here


PATHS = ["/dev/{kernel}", "/dev/acme{number}", "/dev/acme{attr:index}", "/dev/acme17"]
OF_UEVENT = ["/dev/acme{minor}", "{devnode}"]
"""What can't be filled without the file ``uevent``."""


@pytest.mark.parametrize(
    ("path", "uevent"), [*((one, False) for one in PATHS), *((o, True) for o in PATHS + OF_UEVENT)]
)
def test_refuses_a_link_elsewhere(tree, drive, path, uevent):
    acme(tree, 0, uevent=uevent, index=0)
    acme(tree, 17, uevent=uevent, node=False, index=17)
    tree.write("/dev/acme17 -> /dev/acme0")
    driver = drive({**ACME, "kernel": "acme17"}, nodes=path)
    why = "expected /dev/acme17 to be 3722:17, as sysfs says, found 3722:0"
    assert reasons(driver) == {"acme17": why}
    tree.write("c /dev/acme17 3722:17")
    assert reasons(driver) == {"acme17": None}


@pytest.mark.parametrize(
    "nodes",
    [
        {"host_path": "/dev/{kernel}", "optional": True},
        {"host_path": ["/dev/{kernel}", "/dev/other{number}"]},
    ],
    ids=["optional", "the first of two"],
)
def test_a_wrong_node_is_not_passed_over(tree, drive, nodes):
    acme(tree, 0)
    acme(tree, 17, node=False)
    tree.write("/dev/acme17 -> /dev/acme0\nc /dev/other17 3722:17")
    driver = drive({**ACME, "kernel": "acme17"}, nodes=nodes)
    assert "found 3722:0" in reasons(driver)["acme17"]


def test_refuses_a_node_of_another(tree, drive):
    acme(tree, 17)
    driver = drive(ACME, nodes="/dev/{kernel}")
    devices = driver.devices()
    assert driver.allocate(devices)
    tree.write("c /dev/acme17 3722:0")
    with pytest.raises(DeviceUnavailable, match=r"acme17: expected /dev/acme17 to be 3722:17, .* found 3722:0"):
        driver.allocate(devices)


def test_block_and_char_differ(tree, drive):
    tree.write("""
        /sys/devices/virtual/block/disk0/subsystem -> /sys/class/block
        /sys/class/block/disk0 -> /sys/devices/virtual/block/disk0
        /sys/devices/virtual/block/disk0/dev = 8:0
        /sys/devices/virtual/block/disk0/uevent = MAJOR=8\\nMINOR=0\\nDEVNAME=disk0
        c /dev/disk0 8:0
    """)
    why = "expected /dev/disk0 to be block 8:0, as sysfs says, found char 8:0"
    assert reasons(drive({"subsystem": "block"}, nodes="/dev/{kernel}")) == {"disk0": why}


@pytest.fixture
def card(tree):
    """A PCI function with two nodes in drm, and a link of udev to each."""
    here = "/sys/devices/pci0000:00/0000:02:00.0"
    tree.write(f"{here}/subsystem -> /sys/bus/pci\n/sys/bus/pci/devices/0000:02:00.0 -> {here}")
    for name, minor in (("card0", 0), ("renderD128", 128)):
        tree.write(f"""
            {here}/drm/{name}/subsystem -> /sys/class/drm
            {here}/drm/{name}/device -> {here}
            {here}/drm/{name}/dev = 226:{minor}
            {here}/drm/{name}/uevent = MAJOR=226\\nMINOR={minor}\\nDEVNAME=dri/{name}
            /sys/class/drm/{name} -> {here}/drm/{name}
            /sys/dev/char/226:{minor} -> {here}/drm/{name}
            c /dev/dri/{name} 226:{minor}
            /dev/dri/by-path/pci-0000:02:00.0-{name.strip("D0128")} -> /dev/dri/{name}
        """)
    return here


CARD = {"subsystem": "drm", "kernel": "card*"}


@pytest.mark.usefixtures("card")
@pytest.mark.parametrize(
    "path",
    [
        "/dev/dri/{each:device/drm/*}",
        "/dev/dri/{entry:device/drm/renderD*}",
        "/dev/dri/by-path/pci-{attr:device}-render",
        "/dev/dri/renderD128",
    ],
)
@pytest.mark.parametrize("known", [True, False])
def test_sibling_node_has_own_number(tree, drive, path, known):
    if not known:
        tree.remove("/sys/dev")
    driver = drive(CARD, nodes=path)
    assert reasons(driver) == {"0000:02:00.0": None}
    tree.write("c /dev/dri/renderD128 226:129")
    if "{" in path:
        assert reasons(driver)["0000:02:00.0"].endswith("found 226:129")


@pytest.mark.usefixtures("card")
def test_function_gives_own_nodes_only(tree, drive):
    driver = drive({"subsystem": "pci"}, nodes="/dev/dri/{entry:drm/card*}")
    assert reasons(driver) == {"0000:02:00.0": None}
    tree.write("/dev/dri/card0 -> /dev/dri/renderD128")
    why = "expected /dev/dri/card0 to be 226:0, as sysfs says, found 226:128"
    assert reasons(driver) == {"0000:02:00.0": why}


def test_gives_the_kernels_sibling(tree, drive):
    """``/dev/tpmrm0`` of tpm0, ``/dev/snd/pcmC1D0c`` of controlC1."""
    here = "/sys/devices/platform/TPM:00"
    tree.write(f"{here}/subsystem -> /sys/bus/platform")
    for name, number in (("tpm", "10:224"), ("tpmrm", "253:65536")):
        major, _, minor = number.partition(":")
        tree.write(f"""
            {here}/{name}/{name}0/subsystem -> /sys/class/{name}
            {here}/{name}/{name}0/uevent = MAJOR={major}\\nMINOR={minor}\\nDEVNAME={name}0
            /sys/class/{name}/{name}0 -> {here}/{name}/{name}0
            /sys/dev/char/{number} -> {here}/{name}/{name}0
            c /dev/{name}0 {number}
        """)
    driver = drive({"subsystem": "tpm"}, nodes=["{devnode}", "/dev/tpmrm{number}"])
    assert reasons(driver) == {"TPM:00": None}
    tree.write("/dev/tpmrm0 -> /dev/tpm0")
    assert reasons(driver) == {"TPM:00": None}  # it is the object's own
    tree.write("c /dev/tpmrm0 253:65537")
    assert "expected /dev/tpmrm0 to be 10:224" in reasons(driver)["TPM:00"]


def test_inner_tty_is_the_sticks(tree, drive):
    here = "/sys/devices/pci0000:00/0000:00:14.0/usb1/1-2"
    tree.write(f"""
        {here}/subsystem -> /sys/bus/usb
        /sys/bus/usb/devices/1-2 -> {here}
        {here}/serial = A1
        {here}/uevent = MAJOR=189\\nMINOR=3\\nDEVNAME=bus/usb/001/004
        {here}/1-2:1.0/ttyUSB0/tty/ttyUSB0/subsystem -> /sys/class/tty
        {here}/1-2:1.0/ttyUSB0/tty/ttyUSB0/uevent = MAJOR=188\\nMINOR=0\\nDEVNAME=ttyUSB0
        /sys/dev/char/188:0 -> {here}/1-2:1.0/ttyUSB0/tty/ttyUSB0
        c /dev/ttyUSB0 188:0
        c /dev/ttyUSB1 188:1
        /dev/serial/by-id/usb-A1 -> /dev/ttyUSB0
    """)
    driver = drive({"subsystem": "usb"}, nodes="/dev/serial/by-id/usb-{attr:serial}")
    assert list(reasons(driver).values()) == [None]
    tree.write("/dev/serial/by-id/usb-A1 -> /dev/ttyUSB1")
    assert "to be 189:3, as sysfs says, found 188:1" in next(iter(reasons(driver).values()))


@pytest.mark.parametrize("known", [True, False])
def test_tty_gives_its_stick(tree, drive, known):
    """Also where there is no ``/sys/dev``."""
    here = "/sys/devices/pci0000:00/0000:00:14.0/usb1/1-2"
    tty = f"{here}/1-2:1.0/ttyUSB0/tty/ttyUSB0"
    tree.write(f"""
        {here}/subsystem -> /sys/bus/usb
        {here}/serial = A1
        {here}/busnum = 1
        {here}/devnum = 4
        {here}/uevent = MAJOR=189\\nMINOR=3\\nDEVNAME=bus/usb/001/004
        {tty}/subsystem -> /sys/class/tty
        {tty}/uevent = MAJOR=188\\nMINOR=0\\nDEVNAME=ttyUSB0
        /sys/class/tty/ttyUSB0 -> {tty}
        c /dev/ttyUSB0 188:0
        c /dev/bus/usb/001/004 189:3
    """)
    if known:
        tree.write(f"/sys/dev/char/189:3 -> {here}")
    nodes = ["{devnode}", "/dev/bus/usb/00{attrs:busnum}/00{attrs:devnum}"]
    driver = drive({"subsystem": "tty", "attrs": {"serial": "A1"}}, nodes=nodes)
    assert list(reasons(driver).values()) == [None]
    tree.write("c /dev/bus/usb/001/004 189:4")
    assert "to be 188:0, as sysfs says, found 189:4" in next(iter(reasons(driver).values()))


def test_part_has_its_own_number(tree, drive):
    acme(tree, 0)
    tree.write(f"{ROOT}/acme0/queue/q1/dev = 3723:1\n{ROOT}/acme0/queue/q2/dev = 3723:2")
    tree.write("c /dev/q1 3723:1\n/dev/q2 -> /dev/q1")
    driver = drive(ACME, parts="queue/q*", nodes="/dev/{part}")
    assert reasons(driver) == {
        "acme0/q1": None,
        "acme0/q2": "expected /dev/q2 to be 3723:2, as sysfs says, found 3723:1",
    }


def test_unowned_nodes_have_any_number(tree, drive):
    acme(tree, 17)
    tree.write("c /dev/control 10:1")
    assert reasons(drive(ACME, nodes=["/dev/{kernel}", "/dev/control"])) == {"acme17": None}
