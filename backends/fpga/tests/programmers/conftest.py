import os
from dataclasses import replace
from datetime import timedelta

import pytest
from dpgateway_fpga import Board, FpgaManager
from dpgateway_fpga.bitstream import Image

from backends.fpga.tests.kernel.manager import Manager
from tests.support.fuse import Directory, Link, mounted


@pytest.fixture
def image():
    return Image(b"the image", "ab" * 32, ".bin")


@pytest.fixture
def firmware(tmp_path):
    """The host's /lib/firmware."""
    (tmp_path / "firmware").mkdir()
    return tmp_path / "firmware"


class Kernel:
    """What the kernel has below /sys and /dev."""

    def __init__(self, firmware):
        self.host, self.search = Directory(), [firmware]
        """``search``: where the kernel looks for files, one after the other."""
        self.host.make("sys/class/fpga_manager", Directory())
        self.host.make("dev", Directory())
        self.root = self.host["sys"]

    def manager(self, address, number=0):
        where = f"devices/platform/axi/{address}/fpga_manager/fpga{number}"
        deeper = "../" * address.count("/")
        self.root.make(f"devices/platform/axi/{address}/subsystem", Link(f"{deeper}../../../../bus/platform"))
        self.root.make(f"{where}/subsystem", Link(f"{deeper}../../../../../../class/fpga_manager"))
        self.root.make(f"class/fpga_manager/fpga{number}", Link(f"../../{where}"))
        return Manager(self.root, where, self.search)

    def unplug(self, address):
        """The driver of one manager lets go of its device."""
        del self.root["devices"]["platform"]["axi"][address]["fpga_manager"]
        managers = self.root["class"]["fpga_manager"]
        for name in [name for name, link in managers.items() if f"/{address}/" in link]:
            del managers[name]


@pytest.fixture
def kernel(tmp_path, firmware):
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("only root can mount a file system of its own")
    kernel = Kernel(firmware)
    (tmp_path / "host").mkdir()
    with mounted(kernel.host, tmp_path / "host"):
        yield kernel


@pytest.fixture
def real(options, tmp_path, firmware):
    """Options of boards below a kernel that is a file system."""

    def make(**changes):
        usual = {
            "boards": (Board("fpga-a", address="f8007000.devcfg"), Board("fpga-b", address="f8008000.devcfg")),
            "sysfs": str(tmp_path / "host/sys"),
            "dev": str(tmp_path / "host/dev"),
            "fpga_manager": FpgaManager(firmware=firmware),
            "patience": timedelta(seconds=20),
        }
        return replace(options, **{**usual, **changes})

    return make
