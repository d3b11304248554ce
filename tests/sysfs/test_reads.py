"""Nothing is read that no test and no template names, and nothing twice."""

import pytest
from asyncinotify import Inotify, Mask

from dpgateway.sysfs import Look, Match, Test, find, identity, numa_of
from dpgateway.sysfs.explaining import attributes

ATTRIBUTES = ("vendor", "device", "class", "revision", "irq", "enable", "numa_node", "local_cpulist", "config")
HERE = "/sys/devices/pci0000:00/0000:3b:00.0"


@pytest.fixture
def opened(tree):
    """The names in the function's directory that were opened so far."""
    for name in ATTRIBUTES:
        tree.write(f"{HERE}/{name} = 0x1")
    tree.write(f"""
        {HERE}/subsystem -> /sys/bus/pci
        {HERE}/driver -> /sys/bus/pci/drivers/vfio-pci
        /sys/bus/pci/devices/0000:3b:00.0 -> {HERE}
    """)
    with Inotify(sync_timeout=0) as inotify:
        inotify.add_watch(tree.at(HERE), Mask.OPEN)
        yield lambda: [str(event.name) for event in inotify if event.name is not None]


def test_reads_tested_files_once(opened, roots):
    look = Look(roots)
    match = Match("pci", driver=Test(("vfio-pci",)), attr={"vendor": Test(("0x1",)), "class": Test(("0x1",))})
    ((_, found),) = find(look, [match, match])
    assert identity(look, found.thing) == ("0000:3b:00.0",)
    assert attributes(look, found, [match])["driver"] == "vfio-pci"
    assert numa_of(look, found.thing) == ()
    assert list(find(look, [match]))
    assert opened() == ["vendor", "class", "numa_node"]
