"""Several objects that are one device: IOMMU groups, cards of two functions, sets of parts."""

import pytest
from dpgateway_chardev import CharDevices
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpgateway import Allocation, DeviceNode, DeviceUnavailable, from_plain
from dpgateway.testing import FakeTree, Recorder

VFIO = {
    "nodes": ["/dev/vfio/{attr:iommu_group}", "/dev/vfio/vfio"],
    "env": {"PCI_RESOURCE_EXAMPLE_COM_GPU": "{kernel}"},
}
GPU = {"subsystem": "pci", "driver": "vfio-pci", "attr": {"class": "0x03*"}}
AUDIO = {"subsystem": "pci", "driver": "vfio-pci", "attr": {"class": "0x0403*"}, "optional": True}


def function(tree, address, iommu_group, number, kind="0x030000", **attributes):
    here = f"/sys/devices/pci0000:00/{address}"
    for name, value in {"class": kind, **attributes}.items():
        tree.write(f"{here}/{name} = {value}")
    tree.write(f"""
        {here}/subsystem -> /sys/bus/pci
        {here}/driver -> /sys/bus/pci/drivers/vfio-pci
        {here}/iommu_group -> /sys/kernel/iommu_groups/{iommu_group}
        /sys/bus/pci/devices/{address} -> {here}
        c /dev/vfio/{iommu_group} 240:{number}
    """)


@pytest.fixture
def cards(tree):
    """A card with its sound in one IOMMU group, one alone, and a sound that belongs to neither."""
    tree.write("c /dev/vfio/vfio 10:196")
    function(tree, "0000:01:00.0", 45, 1)
    function(tree, "0000:01:00.1", 45, 1, "0x040300")
    function(tree, "0000:02:00.0", 46, 2)
    function(tree, "0000:03:00.1", 47, 3, "0x040300")


@pytest.mark.usefixtures("cards")
def test_what_is_in_one_iommu_group_is_one_device(drive):
    recorder = Recorder()
    driver = drive([GPU, AUDIO], recorder, group="{attr:iommu_group}", **VFIO)
    one, two = driver.devices()
    assert (one.id, one.health.ok, one.hardware) == (
        "0000:01:00.0",
        True,
        ("char 240:1", "pci 0000:01:00.0", "pci 0000:01:00.1"),
    )
    assert (two.id, two.health.ok, two.hardware) == ("0000:02:00.0", True, ("char 240:2", "pci 0000:02:00.0"))
    assert driver.allocate([two, one]) == Allocation(
        env={"PCI_RESOURCE_EXAMPLE_COM_GPU": "0000:02:00.0,0000:01:00.0,0000:01:00.1"},
        device_nodes=(DeviceNode("/dev/vfio/46"), DeviceNode("/dev/vfio/vfio"), DeviceNode("/dev/vfio/45")),
    )
    (said,) = recorder.messages
    assert said.startswith("/sys/devices/pci0000:00/0000:03:00.1 can't be offered: optional: found nothing that it ")


@pytest.mark.usefixtures("cards")
def test_without_a_group_two_functions_with_one_node_exclude_each_other(drive):
    first, second, *_ = drive({"subsystem": "pci", "driver": "vfio-pci"}, **VFIO).devices()
    assert set(first.hardware) & set(second.hardware) == {"char 240:1"}


@pytest.mark.usefixtures("cards")
def test_a_companion_that_is_missing_is_named_and_is_no_devices_own(tree, drive):
    driver = drive(GPU, **VFIO)
    assert not {"char 10:196"} & {name for device in driver.devices() for name in device.hardware}
    tree.remove("/dev/vfio/vfio")
    assert {device.health.reason for device in driver.devices()} == {"no such device node: /dev/vfio/vfio"}


@pytest.mark.usefixtures("cards")
def test_a_part_that_left_its_group_is_not_given(tree, drive):
    driver = drive([GPU, AUDIO], group="{attr:iommu_group}", **VFIO)
    devices = driver.devices()
    tree.write("/sys/devices/pci0000:00/0000:01:00.1/iommu_group -> /sys/kernel/iommu_groups/46")
    with pytest.raises(DeviceUnavailable, match=r"0000:01:00.1 is 0000:01:00.1 of 46 now, it was .* of 45"):
        driver.allocate(devices[:1])
    assert driver.allocate(devices[1:])


@pytest.mark.usefixtures("cards")
def test_a_device_needs_one_of_each_kind_that_is_not_optional(drive):
    kinds = [GPU, {**AUDIO, "optional": False}]
    driver = drive(kinds, group={"by": "{attr:iommu_group}", "each": True}, **VFIO)
    assert {device.id: device.health.reason for device in driver.devices()} == {
        "0000:01:00.0": None,
        "0000:02:00.0": "there is no object for match[1]",
        "0000:03:00.1": "there is no object for match[0]",
    }


def test_a_fixed_number_of_objects_is_one_device(tree, drive):
    for number in range(3):
        function(tree, f"0000:0{number}:00.0", 40 + number, number)
    driver = drive(GPU, group={"size": 2}, nodes="/dev/vfio/{attr:iommu_group}")
    assert {device.id: device.health.reason for device in driver.devices()} == {
        "0000:00:00.0+0000:01:00.0": None,
        "0000:02:00.0": "expected 2 objects, found 1",
    }


def test_a_number_of_objects_of_one_card(tree, drive):
    for number, card in enumerate("AABBB"):
        function(tree, f"0000:0{number}:00.0", 40 + number, number, serial=card)
    driver = drive(GPU, group={"by": "{attr:serial}", "size": 2}, id="card-{group}", nodes=[])
    assert {device.id: device.health.reason for device in driver.devices()} == {
        "card-A": None,
        "card-B": "expected 2 objects, found 3",
    }


def test_everything_can_be_one_device(tree, drive):
    driver = drive(GPU, group="all", **VFIO)
    assert driver.devices() == ()
    tree.write("c /dev/vfio/vfio 10:196")
    function(tree, "0000:01:00.0", 45, 1)
    function(tree, "0000:02:00.0", 46, 2)
    (device,) = driver.devices()
    assert device.id == "all"
    assert [node.host_path for node in driver.allocate([device]).device_nodes] == [
        "/dev/vfio/45",
        "/dev/vfio/vfio",
        "/dev/vfio/46",
    ]


def test_two_of_one_part_and_one_of_another_make_one_device(tree, drive):
    recorder = Recorder()
    function(tree, "0000:01:00.0", 41, 1, "0xaa")
    function(tree, "0000:02:00.0", 42, 2, "0xaa")
    function(tree, "0000:03:00.0", 43, 3, "0xbb")
    kinds = [{"subsystem": "pci", "attr": {"class": kind}} for kind in ("0xaa", "0xbb")]
    (device,) = drive(kinds, recorder, group={"each": True}, nodes="/dev/vfio/{attr:iommu_group}").devices()
    assert (device.id, device.hardware) == (
        "0000:01:00.0",
        ("char 240:1", "char 240:3", "pci 0000:01:00.0", "pci 0000:03:00.0"),
    )
    (said,) = recorder.messages
    assert said.startswith("/sys/devices/pci0000:00/0000:02:00.0 can't be offered: group.each: found no counterpart, ")


@pytest.mark.parametrize(
    ("group", "message"),
    [
        ({}, "group: found none of them, expected by, size or each"),
        ({"size": 1}, "group.size: found 1, expected 2 or more"),
        ({"size": 2, "each": True}, "group.size: found 2, expected it without each"),
        ("{attr}", "group: .*expected the path of an attribute"),
        ("{attrs:slot}", "group: .*expected a test of the ancestor"),
    ],
)
def test_a_wrong_group_is_refused(group, message):
    with pytest.raises(ValueError, match=message):
        from_plain({"match": GPU, "group": group}, CharDevices.Options)


addresses = st.integers(0, 30).map("0000:{:02x}:00.0".format)


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(cards=st.dictionaries(addresses, st.booleans(), min_size=1, max_size=4), data=st.data())
def test_ids_depend_on_no_order_no_number_and_no_optional_part(tmp_path_factory, cards, data):
    """The groups' numbers, the nodes' numbers, and which cards have their sound: none of it is in an id."""
    tree = FakeTree(tmp_path_factory.mktemp("tree"))
    numbers = data.draw(st.permutations(range(len(cards))))
    for number, address in zip(numbers, data.draw(st.permutations(list(cards))), strict=True):
        function(tree, address, 40 + number, number)
        if cards[address]:
            function(tree, address[:-1] + "1", 40 + number, number, "0x040300")
    options = {"match": [GPU, AUDIO], "group": "{attr:iommu_group}", "nodes": "/dev/vfio/{attr:iommu_group}"}
    roots = {"sysfs": str(tree.at("/sys")), "dev": str(tree.at("/dev"))}
    driver = CharDevices(from_plain({**options, **roots}, CharDevices.Options), Recorder().context())
    assert [device.id for device in driver.devices()] == sorted(cards)
    driver.close()
