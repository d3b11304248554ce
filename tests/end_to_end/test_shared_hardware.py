"""Two names of one device node are one device, whatever becomes of the names, the configuration or the gateway."""

import os
import shutil
import signal
import stat

import pytest

from tests.support import kubelet as asked
from tests.support.files import texts
from tests.support.waiting import until

R = "example.com/serial"
NODE, LINK = "ttyUSB0", "gps"
HELD = "char 240:4 is held as gps"


@pytest.fixture
def dev(short_path):
    """A node, and a link to it."""
    path = short_path / "dev"
    path.mkdir()
    os.mknod(path / NODE, stat.S_IFCHR | 0o600, os.makedev(240, 4))
    (path / LINK).symlink_to(NODE)
    return path


def serial(dev, *names):
    return {"name": R, "driver": "chardev", "options": {"paths": [f"/dev/{name}" for name in names], "dev": str(dev)}}


async def healthy(kubelet, *ids):
    """Waits until these ids are Healthy, and no others."""

    def so():
        devices = kubelet.resources().get(R, {}).get("devices", ())
        return {one["id"] for one in devices if one["health"] == "Healthy"} == set(ids)

    await kubelet.wait_for(so)


async def refused(kubelet, id_, reason):
    await asked.refused(kubelet, R, id_, reason)
    assert (await kubelet.admit("another", {"c": {R: 1}}))["reason"] == "UnexpectedAdmissionError"


async def given(process, kubelet, dev):
    """A pod has the device under the link's name, and the gateway has written that down."""
    await process.start(serial(dev, LINK, NODE))
    await healthy(kubelet, LINK)
    assert (await kubelet.admit("pod", {"c": {R: 1}}))["ok"]
    state = process.folder / "state"
    await until(lambda: any("char 240:4" in text for text in texts(state).values()))


async def restarted(process, number, *resources):
    await process.end(number)
    registered = process.lines("registered")
    await process.start(*resources)
    await process.said("registered", registered + 1)


@pytest.mark.parametrize(
    ("change", "number"), [("order", signal.SIGTERM), ("link", signal.SIGTERM), ("order and link", signal.SIGKILL)]
)
async def test_held_node_after_a_restart(process, kubelet, dev, change, number):
    await given(process, kubelet, dev)
    if "link" in change:
        (dev / LINK).unlink()
    await restarted(process, number, serial(dev, *([NODE, LINK] if "order" in change else [LINK, NODE])))
    await refused(kubelet, NODE, HELD)
    assert await process.end() == 0


async def test_hardware_that_nobody_remembers(process, kubelet, dev):
    """As after an update from a gateway that wrote nothing down."""
    await given(process, kubelet, dev)
    await process.end(signal.SIGKILL)
    shutil.rmtree(process.folder / "state")
    (dev / LINK).unlink()
    await restarted(process, signal.SIGTERM, serial(dev, NODE, LINK))
    await refused(kubelet, NODE, "it may be what a container holds as gps, because nobody remembers what that was")
    assert await process.end() == 0


async def test_a_link_that_vanishes_frees_nothing(process, kubelet, dev):
    await given(process, kubelet, dev)
    (dev / LINK).unlink()
    await healthy(kubelet)
    await refused(kubelet, NODE, HELD)
    (dev / LINK).symlink_to(NODE)
    await healthy(kubelet, LINK)
    assert await process.end() == 0


async def test_a_name_that_comes_later(process, kubelet, dev):
    """As with udev, which makes its links after the kernel has made the node."""
    (dev / LINK).unlink()
    await process.start(serial(dev, "gp?", "ttyUSB*"))
    await healthy(kubelet, NODE)
    assert (await kubelet.admit("pod", {"c": {R: 1}}))["ok"]
    (dev / LINK).symlink_to(NODE)
    await healthy(kubelet)
    await refused(kubelet, LINK, "char 240:4 is held as ttyUSB0")
    assert await process.end() == 0
