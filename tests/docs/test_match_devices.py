"""What the page says of matching is so: its examples find what it says, and its tables are complete."""

import dataclasses
import re
import subprocess

import pytest
from dpgateway_chardev import CharDevices
from dpgateway_chardev.settings import Probes
from ruamel.yaml import YAML

from dpgateway import Allocation, DeviceNode, Mount, from_plain
from dpgateway.sysfs import FIELDS, GroupOption, Match, Test
from dpgateway.testing import FakeTree, Recorder
from tests.docs.pages import Page
from tests.docs.test_reference import rows
from tests.support.gateway import COMMAND

PAGE = Page("how-to/match-devices.md")
SECTIONS = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", PAGE.text, re.MULTILINE | re.DOTALL))
USB = "/sys/devices/pci0000:00/0000:00:14.0/usb1/1-1"
TTY = f"{USB}/1-1:1.0/ttyUSB3/tty/ttyUSB3"
QAT = "/sys/devices/pci0000:6b/0000:6b:00"


def first_column(text):
    return [re.sub(r"[`{}]|:.*", "", row[0]) for row in rows(text)]


def test_each_key_test_and_field():
    keys = [key for key in first_column(SECTIONS["Tests"]) if key not in {"test", "---"}]
    assert keys == [field.name for kind in (Match, Test) for field in dataclasses.fields(kind)]
    assert first_column(SECTIONS["Templates"]) == [*FIELDS, "group", "part", "id", "name"]


def test_every_key_of_a_group_is_on_the_page():
    assert first_column(SECTIONS["Several objects"]) == [field.name for field in dataclasses.fields(GroupOption)]


def test_each_key_of_probes():
    assert first_column(SECTIONS["Probes"]) == [field.name for field in dataclasses.fields(Probes)]


def test_the_radio_that_is_probed(drive):
    assert drive("probes.yaml").devices() == []


@pytest.fixture
def tree(tmp_path):
    return FakeTree(tmp_path)


@pytest.fixture
def drive(tree):
    """The driver that one of the page's configurations makes."""
    made = []

    def drive(name):
        (resource,) = YAML(typ="safe", pure=True).load(PAGE.files[name])["resources"]
        written = resource["options"] | tree.roots
        made.append(CharDevices(from_plain(written, CharDevices.Options), Recorder().context(resource["name"])))
        return made[-1]

    yield drive
    for driver in made:
        driver.close()


def test_the_modem_of_the_udev_rule(tree, drive):
    tree.write(f"""
        {USB}/idVendor = 0403
        {USB}/idProduct = 6001
        {USB}/serial = A1
        {TTY}/uevent = MAJOR=188\\nMINOR=3\\nDEVNAME=ttyUSB3
        /sys/class/tty/ttyUSB3 -> {TTY}
        c /dev/ttyUSB3 188:3
        /sys/class/tty/tty1 -> /sys/devices/virtual/tty/tty1
        /sys/devices/virtual/tty/tty1/
    """)
    driver = drive("config.yaml")
    (device,) = driver.devices()
    assert (device.id, device.health.ok) == ("modem-A1", True)
    assert driver.allocate([device]) == Allocation(device_nodes=(DeviceNode("/dev/ttyUSB3", "/dev/modem"),))


def test_the_modems_that_are_explained(tree, tmp_path):
    """The page's own command, on a tree with what its table shows."""
    tree.write("/sys/class/tty/tty1 -> /sys/devices/virtual/tty/tty1\n/sys/devices/virtual/tty/tty1/")
    tree.write("/sys/devices/virtual/tty/tty1/subsystem -> /sys/class/tty")
    for port, number, product in ((1, 3, "6001"), (2, 0, "6015"), (3, 1, "6001")):
        usb, name = USB.replace("1-1", f"1-{port}"), f"ttyUSB{number}"
        tty = f"{usb}/{name}"
        tree.write(f"""
            {usb}/idVendor = 0403
            {usb}/idProduct = {product}
            {usb}/serial = A{port - port // 3}
            {tty}/subsystem -> /sys/class/tty
            {tty}/uevent = MAJOR=188\\nMINOR={number}\\nDEVNAME={name}
            /sys/class/tty/{name} -> {tty}
        """)
    tree.write("c /dev/ttyUSB3 188:3\nc /dev/ttyUSB0 188:0")
    config = tmp_path / "config.yaml"
    roots = f"      sysfs: {tree.at('/sys')}\n      dev: {tree.at('/dev')}\n"
    config.write_text(PAGE.files["config.yaml"].replace("    options:\n", f"    options:\n{roots}"))
    shown = re.search(r"```text\n(RESOURCE .*?)```", SECTIONS["Why and why not"], re.DOTALL)
    command = [*COMMAND, "devices", "--config", str(config), "--explain"]
    assert shown
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == shown[1]


def test_the_console_by_its_links(tree, drive):
    links = ("input/by-id/usb-Acme-event-kbd", "input/event3"), ("serial/by-path/pci-1-usb-0:1:1.0", "ttyUSB0")
    for number, (link, name) in enumerate(links):
        here = f"/sys/devices/virtual/{name.rpartition('/')[2]}"
        tree.write(f"""
            {here}/uevent = MAJOR=240\\nMINOR={number}\\nDEVNAME={name}
            /sys/class/{("input", "tty")[number]}/{name.rpartition("/")[2]} -> {here}
            /run/udev/data/c240:{number} = S:{link}
            c /dev/{name} 240:{number}
            /dev/{link} -> /dev/{name}
        """)
    driver = drive("console.yaml")
    (device,) = driver.devices()
    assert driver.allocate([device]).device_nodes == tuple(DeviceNode(f"/dev/{link}") for link, _ in links)


def test_the_functions_with_uio(tree, drive):
    tree.write(f"""
        {QAT}.0/driver -> /sys/bus/pci/drivers/4xxx
        {QAT}.1/driver -> /sys/bus/pci/drivers/igb_uio
        {QAT}.1/physfn -> {QAT}.0
        {QAT}.1/uio/uio0/device -> {QAT}.1
        /sys/class/uio/uio0 -> {QAT}.1/uio/uio0
        {QAT}.1/subsystem -> /sys/bus/pci
        c /dev/uio0 240:0
    """)
    for number in range(2):
        tree.write(f"""
            {QAT}.{number}/vendor = 0x8086
            {QAT}.{number}/device = 0x4941
            /sys/bus/pci/devices/0000:6b:00.{number} -> {QAT}.{number}
        """)
    driver = drive("functions.yaml")
    (device,) = driver.devices()
    assert (device.id, device.health.ok) == ("0000:6b:00.1", True)
    assert driver.allocate([device]) == Allocation(
        env={"CRYPTO": "0000:6b:00.1"},
        device_nodes=(DeviceNode("/dev/uio0"),),
        mounts=(Mount("/sys/class/uio/uio0/device", "/sys/crypto/0000:6b:00.1"),),
    )


def test_the_cards_with_their_sound(tree, drive):
    tree.write("c /dev/vfio/vfio 10:196\nc /dev/vfio/7 240:7")
    for number, kind in enumerate(("0x030000", "0x040300")):
        here = f"{QAT}.{number}"
        tree.write(f"""
            {here}/vendor = 0x10de
            {here}/class = {kind}
            {here}/subsystem -> /sys/bus/pci
            {here}/driver -> /sys/bus/pci/drivers/vfio-pci
            {here}/iommu_group -> /sys/kernel/iommu_groups/7
            /sys/bus/pci/devices/0000:6b:00.{number} -> {here}
        """)
    driver = drive("cards.yaml")
    (device,) = driver.devices()
    assert device.id == "0000:6b:00"
    assert driver.allocate([device]) == Allocation(
        env={"PCI_RESOURCE_EXAMPLE_COM_GPU": "0000:6b:00.0,0000:6b:00.1"},
        device_nodes=(DeviceNode("/dev/vfio/7"), DeviceNode("/dev/vfio/vfio")),
    )
