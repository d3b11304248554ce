"""Tools are called as they want it, without a shell; what they say is read back where another tool can say it."""

import os
import pickle
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from dpgateway_fpga import Bitstream, Board, Command, FpgaDriver, FpgaOptions
from dpgateway_fpga.bitstream import Image
from dpgateway_fpga.programmers import BoardState, Failed, Verification, verify
from dpgateway_fpga.programmers.command import CommandProgrammer
from dpgateway_fpga.staging import Unwritten

from backends.fpga.tests.kernel.dfl import Card
from backends.fpga.tests.kernel.gbs import AES, INTERFACE, gbs_file
from backends.fpga.tests.kernel.left import left_behind
from dpgateway import DriverError
from dpgateway.testing import FakeTree, Recorder

BOARD = Board("card", address="0000:3b:00.0")


class Tools:
    """A directory of tools that write down how they were called."""

    def __init__(self, directory):
        self.directory = directory

    def __call__(self, name, script):
        (self.directory / name).write_text(f'#!/bin/sh\necho $0 "$@" >> {self.directory}/calls\n{script}\n')
        (self.directory / name).chmod(0o755)

    def calls(self):
        return (self.directory / "calls").read_text().replace(f"{self.directory}/", "").splitlines()


@pytest.fixture
def tools(tmp_path):
    directory = tmp_path / "bin"
    directory.mkdir()

    return Tools(directory)


@pytest.fixture
def make(options, tools, tmp_path):
    def make(board=BOARD, patience=timedelta(seconds=20), **command):
        tool = Command(files=tmp_path / "files", env={"PATH": f"{tools.directory}:/usr/bin:/bin"}, **command)
        changed = replace(options, boards=(board,), programmer="command", command=tool, patience=patience)
        return CommandProgrammer(changed)

    return make


def test_tool_gets_arguments_and_bytes(make, tools, image, tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET", "1")
    tools("load", f'cat "$2" > {tmp_path}/got; env > {tmp_path}/env; pwd >> {tmp_path}/env; echo; echo 100 %')
    programmer = make(argv=("load", "{board}; rm -rf $HOME `x` {{}}", "{file}"))
    programmer.program(BOARD, image, print)
    assert tools.calls() == [f"load card; rm -rf $HOME `x` {{}} {tmp_path}/files/{image.sha256}-card.bin"]
    assert (tmp_path / "got").read_bytes() == image.content
    assert sorted(line.partition("=")[0] for line in (tmp_path / "env").read_text().splitlines()) == [
        "/", "LC_ALL", "PATH", "PWD",
    ]  # fmt: skip
    assert list((tmp_path / "files").iterdir()) == []
    assert programmer.verification is Verification.NONE
    assert verify(programmer, BOARD, image) == BoardState("unknown")


def test_tool_gets_each_image_with_its_own_suffix(
    tools: Tools, options: FpgaOptions, recorder: Recorder, tmp_path: Path
) -> None:
    tools("load", 'case "$1" in *.rbf) ;; *) exit 1;; esac')
    blank = tmp_path / "blank.rbf"
    blank.write_bytes(b"blank")
    command = Command(
        argv=("load", "{file}"), files=tmp_path / "files", env={"PATH": f"{tools.directory}:/usr/bin:/bin"}
    )
    wants = replace(options, boards=(BOARD,), programmer="command", command=command, blank=Bitstream(blank, "blank"))
    driver = FpgaDriver(wants, recorder.context())
    driver.release(driver.devices())
    assert tools.calls()[0].endswith("-card.rbf")
    assert driver.devices()[0].health.ok
    driver.close()


def test_a_tool_that_fails_is_quoted(make, tools, image):
    tools("load", "echo no board; echo bad luck >&2; exit 3")
    with pytest.raises(Failed, match=r"^load ended with code 3: no board\nbad luck$"):
        make(argv=("load",)).program(BOARD, image, print)


@pytest.mark.parametrize(
    ("argv", "why"), [(("load",), r"\[Errno 2\] No such file"), (("/bin/true", "\0"), "embedded null byte")]
)
def test_a_tool_that_cannot_be_started_is_named(make, image, argv, why):
    with pytest.raises(Failed, match=f"^{argv[0]} can't be started: {why}") as failed:
        make(argv=argv).program(BOARD, image, print)
    assert failed.value.again, "nothing was touched"


EXHAUSTED = """
import os, pickle, resource, sys
options, image = pickle.loads(bytes.fromhex(sys.argv[1]))
from dpgateway_fpga.programmers import Failed
from dpgateway_fpga.programmers.command import CommandProgrammer
programmer = CommandProgrammer(options)
resource.setrlimit(resource.RLIMIT_NOFILE, (os.dup(0) + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
try:
    programmer.program(options.boards[0], image, print)
except Failed as error:
    print(error.again, error.touched, error)
"""


def test_tool_without_descriptors_touches_nothing(options, image):
    tool = replace(options, boards=(BOARD,), programmer="command", command=Command(argv=("load",)))
    argv = [sys.executable, "-c", EXHAUSTED, pickle.dumps((tool, image)).hex()]
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True, timeout=60)
    assert done.stdout == "True False load can't be started: [Errno 24] Too many open files\n"


def test_impossible_directory_touches_nothing(options, image, tmp_path):
    (tmp_path / "file").touch()
    tool = Command(argv=("load", "{file}"), files=tmp_path / "file/a/b")
    with pytest.raises(Unwritten, match=f"can't be put into {tmp_path}/file/a/b: .*Not a directory"):
        CommandProgrammer(replace(options, boards=(BOARD,), programmer="command", command=tool)).program(
            BOARD, image, print
        )


def test_an_image_that_no_tool_can_get_is_no_fault_of_the_board(options, tools, recorder):
    command = Command(argv=("load", "{uuid}"), env={"PATH": f"{tools.directory}:/usr/bin:/bin"})
    wants = replace(options, boards=(BOARD,), programmer="command", command=command)
    other = replace(wants, command=replace(command, argv=("load",)))
    drivers = [FpgaDriver(one, recorder.context(name)) for one, name in ((wants, "a.com/a"), (other, "a.com/b"))]
    with pytest.raises(DriverError, match="expected an xclbin file"):
        drivers[0].prepare(drivers[0].devices())
    assert [driver.devices()[0].health.ok for driver in drivers] == [False, True]
    for driver in drivers:
        driver.close()


def test_a_tool_tells_how_far_it_is(make, tools, image, tmp_path):
    os.mkfifo(tmp_path / "go")
    tools("load", f"echo 10 %; cat {tmp_path}/go > {tmp_path}/rest")
    told = []

    def progress(line):
        told.append(line)
        (tmp_path / "go").write_text("20 %")

    make(argv=("load",)).program(BOARD, image, progress)
    assert told == ["10 %"]


def test_a_tool_that_hangs_is_left_behind(make, tools, image, tmp_path):
    os.mkfifo(tmp_path / "go")
    tools("load", f"cat {tmp_path}/go")
    programmer = make(argv=("load",), patience=timedelta(seconds=0.2))
    with pytest.raises(Failed, match=r"^load \(process \d+\) hasn't ended after 0.2 s; it is left behind") as failed:
        programmer.program(BOARD, image, print)
    assert "hangs" in str(programmer.read(BOARD).fault)
    with left_behind(failed.value) as ended:
        (tmp_path / "go").write_text("")
        assert ended()
    assert programmer.read(BOARD).fault is None


def test_verifies_what_a_tool_reads(make, tools, image, tmp_path):
    tools("show", f"cat {tmp_path}/runs")
    programmer = make(argv=("true",), read=("show", "{address}"), pattern="runs ([0-9a-f]+)", expect="{sha256}")
    (tmp_path / "runs").write_text("the board\nruns cafe\n")
    assert programmer.read(BOARD) == BoardState("running", "cafe", operating=True)
    with pytest.raises(Failed, match=f"^expected the board to run {image.sha256} now, found cafe$"):
        verify(programmer, BOARD, image)
    (tmp_path / "runs").write_text(f"runs {image.sha256}\n")
    assert verify(programmer, BOARD, image).identity == image.sha256
    (tmp_path / "runs").write_text("idle\n")
    assert programmer.read(BOARD) == BoardState("empty")
    (tmp_path / "runs").unlink()
    assert str(programmer.read(BOARD).fault).startswith("show ended with code 1: ")


def test_xrt_smi(make, tools, tmp_path):
    uuid = "01234567-89ab-cdef-0123-456789abcdef"
    image = Image(b"xclbin2\0".ljust(416, b"x") + UUID(uuid).bytes + b"more", "ab" * 32, ".bin")
    tools("xrt-smi", "")
    tools("cat", f'case "$1" in */sys/bus/pci/devices/0000:3b:00.0/xclbinuuid) echo {uuid};; *) exit 1;; esac')
    programmer = make(preset="xrt-smi")
    programmer.program(BOARD, image, print)
    assert verify(programmer, BOARD, image).identity == uuid
    assert tools.calls()[0] == f"xrt-smi program --device 0000:3b:00.0 --user {tmp_path}/files/{'ab' * 32}-card.bin"
    with pytest.raises(DriverError, match=r"^expected an xclbin file"):
        programmer.expected(BOARD, Image(b"xclbin", ""))


def test_fpgaconf(tools, kernel, real, tmp_path):
    card = Card(kernel.host, "0000:3b:00.0", INTERFACE)
    card.afus[0] = AES
    image = Image(gbs_file(AES), "ab" * 32, ".bin")
    tools("fpgaconf", "")
    command = Command(preset="fpgaconf", files=tmp_path / "files", env={"PATH": f"{tools.directory}:/usr/bin:/bin"})
    programmer = CommandProgrammer(real(programmer="command", command=command))
    programmer.program(BOARD, image, print)
    assert verify(programmer, BOARD, image).identity == AES
    assert tools.calls() == [
        f"fpgaconf --segment 0x0000 --bus 0x3b --device 0x00 --function 0x0 {tmp_path}/files/{'ab' * 32}-card.bin"
    ]
    with pytest.raises(DriverError, match=r"^expected an address such as 0000:3b:00\.0, found 'card'$"):
        programmer.program(Board("card"), image, print)


def test_fpga_load_local_image(make, tools):
    agfi, board = Image(b"agfi-0123456789abcdef0\n", "ab" * 32), Board("slot-0", address="0")
    tools("fpga-load-local-image", "")
    tools(
        "fpga-describe-local-image",
        "echo 'Type  FpgaImageSlot  FpgaImageId  StatusName'\n"
        "echo 'AFI          0       agfi-0123456789abcdef0  loaded            0        ok   0  0x10212415'",
    )
    programmer = make(board, preset="fpga-load-local-image")
    programmer.program(board, agfi, print)
    assert verify(programmer, board, agfi).identity == "agfi-0123456789abcdef0"
    assert tools.calls() == [
        "fpga-load-local-image -S 0 -I agfi-0123456789abcdef0",
        "fpga-describe-local-image -S 0 -H",
    ]
    with pytest.raises(DriverError, match=r"^expected one word as the image's text, found '-x'$"):
        programmer.program(board, Image(b"-x", ""), print)


def test_openfpgaloader(make, tools, image, tmp_path):
    board = Board("FT4232-17")
    tools("openFPGALoader", "")
    make(board, preset="openFPGALoader", arguments=("--board", "arty")).program(board, image, print)
    file = f"{tmp_path}/files/{image.sha256}-FT4232-17.bin"
    assert tools.calls() == [f"openFPGALoader --board arty --ftdi-serial FT4232-17 {file}"]


class Usb:
    """A USB board with a serial number, in a fake /sys."""

    def __init__(self, tree):
        self._tree, self._gone = tree, 0
        tree.write("/sys/bus/usb/devices/")

    def plug(self, port="1-1", serial="FT4232-17"):
        device = f"/sys/devices/pci0000:00/usb1/{port}"
        self._tree.write(f"""
            {device}/subsystem -> /sys/bus/usb
            {device}/serial = {serial}
            /sys/bus/usb/devices/{port} -> {device}
        """)

    def unplug(self, port="1-1"):
        self._gone += 1  # it stays somewhere, so that its inode isn't used again at once
        self._tree.remove(f"/sys/bus/usb/devices/{port}")
        self._tree.at(f"/sys/devices/pci0000:00/usb1/{port}").rename(self._tree.at(f"/gone-{self._gone}"))


@pytest.fixture
def usb(tmp_path):
    return Usb(FakeTree(tmp_path / "host"))


@pytest.fixture
def serial(options, tools, tmp_path, start):
    """A driver whose board is programmed by openFPGALoader."""
    tools("openFPGALoader", "")
    tool = Command("openFPGALoader", files=tmp_path / "files", env={"PATH": f"{tools.directory}:/usr/bin:/bin"})
    boards = (Board("arty", address="FT4232-17"),)
    return start(replace(options, boards=boards, programmer="command", command=tool, sysfs=str(tmp_path / "host/sys")))


def test_usb_board_is_unhealthy_while_unplugged(serial, usb):
    usb.plug("1-2", serial="FT0")
    (device,) = serial.devices()
    assert device.health.reason == "expected one USB device (by its serial number) at FT4232-17 in /sys, found none"
    with pytest.raises(DriverError):
        serial.prepare([device])
    usb.plug()
    assert [one.health.ok for one in serial.devices()] == [True]
    usb.unplug()
    assert [one.health.ok for one in serial.devices()] == [False]


@pytest.mark.parametrize("port", ["1-1", "1-3"])
@pytest.mark.parametrize("seen", [True, False])
def test_replugged_usb_board_is_programmed_again(serial, usb, tools, port, seen):
    """It lost its power, which the tool can't tell."""
    usb.plug()
    (device,) = serial.devices()
    serial.prepare([device])
    serial.prepare([device])
    usb.unplug()
    if seen:
        serial.devices()
    usb.plug(port)
    serial.prepare([device])
    serial.prepare([device])
    assert len(tools.calls()) == 2


def test_two_usb_boards_of_one_serial_number(serial, usb, tools):
    usb.plug("1-1")
    usb.plug("1-2")
    (device,) = serial.devices()
    assert "found /sys/devices/pci0000:00/usb1/1-1, /sys/devices/pci0000:00/usb1/1-2" in device.health.reason
    with pytest.raises(DriverError):
        serial.prepare([device])
    assert not (tools.directory / "calls").exists()
