"""What ``dpgateway check`` says of a match on this node."""

import pytest
from dpgateway_chardev import CharDevices

from dpgateway import from_plain

PCI = "/sys/devices/pci0000:00"


@pytest.fixture
def options(tree):
    """Makes options for a tree with three functions."""
    for number, driver in enumerate(("vfio-pci", "vfio-pci", "i40e")):
        here = f"{PCI}/0000:01:00.{number}"
        tree.write(f"""
            {here}/driver -> /sys/bus/pci/drivers/{driver}
            /sys/bus/pci/devices/0000:01:00.{number} -> {here}
        """)
    return lambda match, **more: from_plain({"match": match, **tree.roots, **more}, CharDevices.Options)


VFIO = {"subsystem": "pci", "driver": "vfio-pci"}
ALL = {"subsystem": "pci"}


def test_right_match_has_no_doubts(tree, options):
    tree.write("c /dev/vfio/vfio 10:196")
    one, other = options(VFIO, nodes=["/dev/vfio/vfio"]), options({"subsystem": "pci", "driver": "i40e"}, nodes=[])
    assert list(other.warnings({"example.com/one": one})) == []


def test_what_can_not_be_listed_is_named(tree, options, no_files):
    one = options(VFIO, nodes=[])
    with no_files():
        found = list(one.warnings({}))
    assert found == [f"match: {tree.at('/sys')}/bus/pci/devices can't be listed: Too many open files"]


def test_names_alternatives_without_objects(options):
    nothing = {"subsystem": "pci", "driver": "none"}
    found = list(options([VFIO, nothing, {**nothing, "optional": True}], nodes=[]).warnings({}))
    assert found == ["match[1]: nothing on this node matches it; `dpgateway devices --explain` says why"]


def test_names_unknown_subsystem(tree, options):
    tree.write("/sys/class/tty/\n/sys/bus/usb/devices/")
    names = "tty", "usb", "ttyUSB", "tty|x", "x*"
    found = [text for name in names for text in options({"subsystem": name}, nodes=[]).warnings({})]
    explained = "match[0]: nothing on this node matches it; `dpgateway devices --explain` says why"
    unknown = "match[0]: nothing on this node matches it, because neither /sys/bus nor /sys/class has ttyUSB"
    assert found == [explained, explained, unknown, explained, explained]


def test_names_missing_companions(tree, options):
    nodes = ["/dev/vfio/vfio", "{devnode}", {"host_path": "/dev/kfd", "optional": True}]
    assert list(options(VFIO, nodes=nodes).warnings({})) == [
        "nodes[0]: no such device node: /dev/vfio/vfio, so all devices are Unhealthy"
    ]
    tree.write("c /dev/vfio/vfio2 10:196")
    assert list(options(VFIO, nodes=[{"host_path": ["/dev/vfio/vfio", "/dev/vfio/vfio2"]}]).warnings({})) == []
    (nothing,) = options({"subsystem": "usb"}, nodes=nodes).warnings({})
    assert nothing.startswith("match[0]: nothing on this node")


def test_names_resources_with_same_objects(options):
    (found,) = options(ALL, nodes=[]).warnings({"example.com/vfio": options(VFIO, nodes=[])})
    both = f"{PCI}/0000:01:00.0 and 1 more"
    why = (
        f"example.com/vfio takes {both}, too, so that two containers can get it; in one pool they exclude each other, "
    )
    why += "and no container can have both"
    assert found == f"match[0]: {why}"


def test_one_device_whose_objects_have_several_ids(tree, options):
    tree.write("c /dev/vfio/vfio 10:196")
    group = {"by": "{slot:{kernel}}"}
    (said,) = options(ALL, group=group, id="gpu-{kernel}", nodes=[]).warnings({})
    assert said.startswith(
        "id: found gpu-0000:01:00.0 and gpu-0000:01:00.1 for objects of one device, which gets anoth"
    )
    for id_ in ("{group}", "gpu-{slot:{kernel}}", None):
        assert list(options(ALL, group=group, id=id_, nodes=[]).warnings({})) == []
    kinds = [{**ALL, "kernel": "*.0"}, {**ALL, "optional": True}]
    assert list(options(kinds, group=group, id="{kernel}", nodes=[]).warnings({})) == []


def test_a_mount_that_is_missing(tree, options):
    mounts = [{"host_path": path, "container_path": "/x{kernel}"} for path in ("/run/x.sock", "/run/{kernel}")]
    made = options(VFIO, nodes=[], mounts=mounts[:1], host=str(tree.path))
    assert list(made.warnings({})) == ["mounts[0]: /run/x.sock isn't there, so all devices are Unhealthy"]
    tree.write("/run/x.sock = ")
    assert list(made.warnings({})) == []
    assert list(options(VFIO, nodes=[], mounts=mounts[1:], host=str(tree.path)).warnings({})) == []


def test_devices_of_one_iommu_group(tree, options):
    for number in range(2):
        tree.write(f"{PCI}/0000:01:00.{number}/iommu_group -> /sys/kernel/iommu_groups/12")
    vfio = {"nodes": ["/dev/vfio/{attr:iommu_group}"]}
    want = (
        "nodes: 0000:01:00.0 and 0000:01:00.1 have IOMMU group 12 in common, so while a container has one of them, no "
        'other container gets the other; `group: "{attr:iommu_group}"` makes them one device'
    )
    assert list(options(VFIO, **vfio).warnings({})) == [want]
    assert list(options({**VFIO, **vfio}).warnings({})) == [want]
    assert list(options(VFIO, **vfio, group="{attr:iommu_group}").warnings({})) == []
    assert list(options({**VFIO, "kernel": "*.0"}, **vfio).warnings({})) == []
