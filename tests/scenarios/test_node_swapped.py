"""Two sticks that swap their numbers on a whole node: what a container that starts again really gets."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from dpgateway.testing import FakeTree
from tests.real_kubelet.node.node import Node
from tests.real_kubelet.node.waiting import until
from tests.scenarios.gateway import Gateway
from tests.scenarios.kubelet import RESOURCE

pytestmark = pytest.mark.xdist_group("node")
NULL, ZERO = (1, 3), (1, 5)
"""What the sticks are: a container knows which of the two it has."""
USB = "/sys/devices/pci0000:00/0000:00:14.0/usb1"
PREFIX = f"dpgateway-swapped-{os.getpid()}-"


class Sticks:
    """In a tree of files, but with their nodes in /dev, where containerd looks for them."""

    def __init__(self, folder: Path) -> None:
        self.tree = FakeTree(folder)

    def plug(self, **names: str) -> None:
        """Under these names, by serial number: A is /dev/null, B is /dev/zero."""
        for serial, name in names.items():
            major, minor = NULL if serial == "A" else ZERO
            here = f"{USB}/{serial}/{serial}:1.0/{name}/tty/{name}"
            Path(f"/dev/{name}").unlink(missing_ok=True)
            os.mknod(f"/dev/{name}", 0o020666, os.makedev(major, minor))
            for path in (f"{USB}/{serial}", f"/sys/class/tty/{name}"):
                if os.path.lexists(self.tree.at(path)):
                    self.tree.remove(path)
            self.tree.write(f"""
                {USB}/{serial}/idVendor = 0403
                {USB}/{serial}/serial = {serial}
                {here}/dev = {major}:{minor}
                {here}/uevent = MAJOR={major}\\nMINOR={minor}\\nDEVNAME={name}
                /sys/class/tty/{name} -> {here}
            """)


@pytest.fixture
def sticks(tmp_path: Path) -> Iterator[Sticks]:
    sticks = Sticks(tmp_path / "tree")
    sticks.plug(A=f"{PREFIX}0", B=f"{PREFIX}1")
    yield sticks
    for path in Path("/dev").glob(f"{PREFIX}*"):
        path.unlink()


@pytest.mark.parametrize("cdi", ["never", "always"])
async def test_a_restarted_container_has_its_own_stick_or_none(
    node: Node, sticks: Sticks, tmp_path: Path, cdi: str
) -> None:
    gateway = Gateway(tmp_path, node.device_plugins_dir)
    gateway.runtime = {"socket": str(node.root / "containerd.sock"), "cdi_dirs": [str(node.cdi_dir)]}
    gateway.resource |= {"driver": "chardev", "refresh": "100ms", "cdi": cdi}
    gateway.resource["options"] = {
        "match": {"subsystem": "tty", "attrs": {"idVendor": "0403"}},
        "id": "{attrs:serial}",
        "container_path": "/dev/stick",
        "sysfs": str(sticks.tree.at("/sys")),
    }

    async with gateway:
        await gateway.start()
        await node.listed()
        await node.run_pod("a", {"c": {RESOURCE: 1}}, restartPolicy="Always")
        container = (await node.wait_for_pod("a")).container_id("c")
        own = await number(node, container)
        given, now = (f"/dev/{PREFIX}{index}" for index in ("01" if own == NULL else "10"))

        sticks.plug(A=f"{PREFIX}1", B=f"{PREFIX}0")
        await gateway.said("CDI devices lead to where" if cdi == "always" else "delete the pod")
        await node.kill_container(container)
        if cdi == "always":
            assert await number(node, await node.another_container("a", container)) == own
            return

        async def refused() -> bool:
            pod = await node.pod("a")
            state = pod.containers["c"]["state"].get("waiting", {}) if pod is not None else {}
            return f"was given {given}, and it is {now} now: delete the pod" in state.get("message", "")

        await until("the refusal in the pod's status", refused)
        await node.delete_pod("a")
        await node.run_pod("b", {"c": {RESOURCE: 1}})
        await node.wait_for_pod("b")


async def number(node: Node, container: str) -> tuple[int, int]:
    """What the container has."""
    shown = await node.exec(container, "stat", "-c", "%t %T", "/dev/stick")
    major, minor = shown.output.split()
    return int(major, 16), int(minor, 16)
