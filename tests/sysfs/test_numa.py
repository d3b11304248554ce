import pytest

from dpgateway.sysfs import DevNode, numa_nodes


@pytest.fixture
def sysfs(tmp_path):
    """A sysfs with one char device, 240:7, deep below a PCI device."""
    tty = tmp_path / "devices/pci0000:00/0000:00:14.0/usb1/1-1/1-1:1.0/tty/ttyACM0"
    tty.mkdir(parents=True)
    for kind in ("char", "block"):
        (tmp_path / "dev" / kind).mkdir(parents=True)
    (tmp_path / "dev/char/240:7").symlink_to(f"../../{tty.relative_to(tmp_path)}")
    return tmp_path


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({"pci0000:00/0000:00:14.0": "1"}, (1,)),
        ({"pci0000:00": "1", "pci0000:00/0000:00:14.0": "0"}, (0,)),
        ({"pci0000:00": "1", "pci0000:00/0000:00:14.0": "-1"}, ()),
        ({"pci0000:00/0000:00:14.0": "rubbish"}, ()),
        ({}, ()),
        ({"..": "1"}, ()),
    ],
)
def test_the_nearest_ancestor_says(sysfs, found, expected):
    for directory, number in found.items():
        (sysfs / "devices" / directory / "numa_node").write_text(f"{number}\n")
    assert numa_nodes(DevNode("char", 240, 7), str(sysfs)) == expected


def test_unknown_device_has_no_node(sysfs):
    assert numa_nodes(DevNode("block", 240, 7), str(sysfs)) == ()


def test_absent_device_is_not_cached(sysfs):
    pci = sysfs / "devices/pci0000:00/0000:00:14.0"
    pci.rename(sysfs / "elsewhere")
    assert numa_nodes(DevNode("char", 240, 7), str(sysfs)) == ()
    (sysfs / "elsewhere").rename(pci)
    (pci / "numa_node").write_text("1\n")
    assert numa_nodes(DevNode("char", 240, 7), str(sysfs)) == (1,)
