"""The devices of one walk: real nodes in a directory of their own below /dev, and sysfs objects of serial sticks.

Nothing is behind the numbers: nobody opens them. To make them the process has to be root.
"""

import os
import shutil
import stat
import tempfile
from pathlib import Path

from dpgateway.testing import FakeTree

STICK = "/sys/devices/usb1/{0}/{0}:1.0"
FAMILIES = {"card": 240, "shared": 241, "slow": 242}
"""Families of nodes, by their major number."""
SERIAL = 188


class Gone(OSError):
    """There is no device node where a container runtime looks for one."""


class Hardware:
    """`dev` is its directory below /dev, `things` what is behind each major:minor now."""

    def __init__(self, folder: Path) -> None:
        self.dev = Path(tempfile.mkdtemp(prefix="walk-", dir="/dev"))
        self.dev.chmod(0o755)
        folder.mkdir()
        (folder / "dev").symlink_to(self.dev)
        self.root = folder
        self.things: dict[str, str] = {}
        self.sticks: dict[str, int | None] = {}
        """The number of each stick's node, by serial number; None while it is unplugged."""
        self._tree = FakeTree(folder)

    def close(self) -> None:
        shutil.rmtree(self.dev)

    def make(self, family: str, count: int) -> None:
        for minor in range(count):
            self._node(f"{family}{minor}", f"{FAMILIES[family]}:{minor}", f"{family}-{minor}")

    def _node(self, name: str, number: str, thing: str) -> None:
        self._tree.write(f"c /dev/{name} {number}")
        self.things[number] = thing

    def swap_nodes(self, one: str, other: str) -> None:
        """Two nodes of one family change places, as drivers that are loaded in another order have it."""
        numbers = [self.resolve(str(self.dev / name))[0] for name in (one, other)]
        for name, number in zip((one, other), reversed(numbers), strict=True):
            self._node(name, number, self.things[number])

    # sticks

    def plug(self, serial: str, index: int) -> None:
        """The stick becomes ttyUSB<index>."""
        port, tty = f"1-{1 + sorted(self.sticks | {serial: None}).index(serial)}", f"ttyUSB{index}"
        usb, at = f"/sys/devices/usb1/{port}", STICK.format(port)
        self._tree.write(f"""
            {usb}/idVendor = 10c4
            {usb}/idProduct = ea60
            {usb}/serial = {serial}
            {usb}/subsystem -> /sys/bus/usb
            {usb}/uevent = DEVTYPE=usb_device
            /sys/bus/usb/devices/{port} -> {usb}
            {at}/bInterfaceNumber = 00
            {at}/subsystem -> /sys/bus/usb
            {at}/uevent = DEVTYPE=usb_interface
            {at}/{tty}/subsystem -> /sys/bus/usb-serial
            {at}/{tty}/tty/{tty}/subsystem -> /sys/class/tty
            {at}/{tty}/tty/{tty}/dev = {SERIAL}:{index}
            {at}/{tty}/tty/{tty}/uevent = MAJOR={SERIAL}\\nMINOR={index}\\nDEVNAME={self.dev.name}/{tty}
            /sys/class/tty/{tty} -> {at}/{tty}/tty/{tty}
        """)
        self._node(tty, f"{SERIAL}:{index}", serial)
        self.sticks[serial] = index

    def unplug(self, serial: str) -> None:
        index = self.sticks[serial]
        port, tty = f"1-{1 + sorted(self.sticks).index(serial)}", f"ttyUSB{index}"
        for path in (f"/dev/{tty}", f"/sys/class/tty/{tty}", f"{STICK.format(port)}/{tty}"):
            self._tree.remove(path)
        self.things.pop(f"{SERIAL}:{index}")
        self.sticks[serial] = None

    # what a runtime finds

    def resolve(self, path: str, *, follows: bool = True) -> tuple[str, str]:
        """The number of the device node at a path, and the thing behind it. Raises Gone.

        ``follows``: whether links are followed, as for what a device plugin names, and not for what a CDI spec names
        (deviceInfoFromPath of container-device-interface).
        """
        try:
            found = os.stat(path, follow_symlinks=follows)  # noqa: PTH116  its argument says which
        except OSError as error:
            raise Gone(f"{path}: {error.strerror}") from error
        if not stat.S_ISCHR(found.st_mode):
            raise Gone(f"{path} is no device node")
        number = f"{os.major(found.st_rdev)}:{os.minor(found.st_rdev)}"
        return number, self.things[number]
