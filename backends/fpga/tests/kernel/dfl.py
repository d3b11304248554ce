"""A card with the kernel's DFL drivers: the ioctls of its management engine and of its port, and its trap.

Checked against the real drivers in a virtual machine: after a reconfiguration that failed, ``afu_id`` answers EBUSY for
ever, even after one that succeeds (drivers/fpga/fpga-region.c leaves the bridge disabled).
"""

import errno
import os
import struct
from pathlib import Path

from backends.fpga.tests.kernel.manager import Gate
from tests.support.fuse import Directory, File, Link, Text

_PR = struct.Struct("=IIIIQ")


class Card:
    """One card with ports; an image's first 32 bytes are the id of its accelerator."""

    def __init__(self, host, address, interface, ports=1):
        self.state, self.status, self.images = "unknown", "", []
        self.afus, self.opened = ["0" * 32] * ports, False
        self.fail, self.disabled, self.busy, self.resets = None, set(), set(), 0
        self.gate = Gate()
        self.gate.open()
        base = f"sys/devices/pci0000:3a/{address}"
        region = f"{base}/fpga_region/region0"
        host.make("sys/class/fpga_region/region0", Link(f"../../{region.removeprefix('sys/')}"))
        manager = f"{region}/dfl-fme.0/dfl-fme-mgr.0/fpga_manager/fpga0"
        host.make("sys/class/fpga_manager/fpga0", Link(f"../../{manager.removeprefix('sys/')}"))
        inner = f"{region}/dfl-fme.0/dfl-fme-region.1/fpga_region/region1"
        bridge = f"{region}/dfl-fme.0/dfl-fme-br.0/fpga_bridge/br0"
        host.make("sys/class/fpga_region/region1", Link(f"../../{inner.removeprefix('sys/')}"))
        host.make("sys/class/fpga_bridge/br0", Link(f"../../{bridge.removeprefix('sys/')}"))
        files = {
            f"{base}/subsystem": Link("../../../bus/pci"),
            f"{manager}/name": Text("DFL FME FPGA Manager\n"),
            f"{manager}/state": Text(lambda: f"{self.state}\n"),
            f"{manager}/status": Text(lambda: self.status),
            f"{inner}/compat_id": Text(f"{interface}\n"),
            f"{bridge}/name": Text("DFL FPGA FME Bridge\n"),
            # it says so, too, while the port is disabled: the driver has no enable_show (drivers/fpga/dfl-fme-br.c)
            f"{bridge}/state": Text("enabled\n"),
            "dev/dfl-fme.0": Engine(self),
        }
        names = [f"dfl-port.{port}" for port in range(ports)]
        for port, name in enumerate(names):
            files[f"{region}/{name}/id"] = Text(f"{port}\n")
            files[f"{region}/{name}/afu_id"] = _AfuId(self, port)
            files[f"dev/{name}"] = Port(self)
        for name in ("dfl-fme.0", *names):
            files[f"{region}/{name}/uevent"] = Text(f"DEVNAME={name}\n")
            files[f"{region}/{name}/dev"] = Text("0:0\n")  # what fstat(2) says of a file here
        for path, file in files.items():
            host.make(path, file)
        self.region: Directory = host["sys"]["devices"]["pci0000:3a"][address]["fpga_region"]["region0"]

    def reconfigure(self, port, image):
        trapped = port in self.disabled
        self.disabled.add(port)
        for state in ("write init", "write", "write complete"):
            self.state = state
            self.gate.wait()
            if state == "write" and self.fail:
                self.state, self.status = "write error", "reconfig CRC error\n"
                raise OSError(self.fail, "")
        self.state, self.status = "operating", ""
        if not trapped:
            self.disabled.remove(port)
        self.images.append(image)
        self.afus[port] = image[:32].decode()


class _AfuId(File):
    def __init__(self, card, port):
        self._card, self._port = card, port

    def read(self):
        if self._port in self._card.disabled:
            raise OSError(errno.EBUSY, "")
        return f"{self._card.afus[self._port]}\n"


class _Node(File):
    def __init__(self, card):
        self._card = card

    def open(self):
        if type(self) in self._card.busy:
            raise OSError(errno.EBUSY, "")


class Engine(_Node):
    """/dev/dfl-fme.0, which is always opened with O_EXCL."""

    def open(self):
        super().open()
        if self._card.opened:
            raise OSError(errno.EBUSY, "")
        self._card.opened = True

    def close(self):
        self._card.opened = False

    def ioctl(self, command, argument, pid):
        if command != 0xB680:
            raise OSError(errno.ENOTTY, "")
        with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
            size, flags, port, length, address = _PR.unpack(os.pread(memory.fileno(), _PR.size, argument))
            if size != _PR.size or flags or port >= len(self._card.afus):
                raise OSError(errno.EINVAL, "")
            image = os.pread(memory.fileno(), length, address)
        self._card.reconfigure(port, image)


class Port(_Node):
    """/dev/dfl-port.0."""

    def ioctl(self, command, argument, pid):
        if command != 0xB640 or argument:
            raise OSError(errno.ENOTTY if command != 0xB640 else errno.EINVAL, "")
        self._card.resets += 1
