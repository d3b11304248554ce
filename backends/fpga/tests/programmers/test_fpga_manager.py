"""The real code writes to a file system that behaves like the kernel: what it loads, what it tells, and what hangs."""

import errno
import re
import threading
from dataclasses import replace
from datetime import timedelta

import pytest
from dpgateway_fpga import FpgaManager
from dpgateway_fpga.programmers import Failed, Reading, verify
from dpgateway_fpga.programmers.fpga_manager import FpgaManagerProgrammer

from backends.fpga.tests.kernel.left import left_behind
from backends.fpga.tests.kernel.manager import STATES


@pytest.fixture
def manager(kernel):
    return kernel.manager("f8007000.devcfg")


@pytest.fixture
def boards(real):
    return real().boards


@pytest.fixture
def programmer(real):
    return FpgaManagerProgrammer(real())


def test_the_very_bytes_are_loaded_and_the_file_goes(manager, programmer, boards, image, firmware):
    assert programmer.read(boards[0]) == Reading("unknown")
    programmer.program(boards[0], image, print)
    name = f"dpgateway/{image.sha256}-fpga-a.bin"
    assert manager.loaded == [(name, image.content, "0")]
    assert verify(programmer, boards[0], image) == Reading("operating", operating=True)
    assert list((firmware / "dpgateway").iterdir()) == []


def test_flags_are_written_before_each_load(manager, real, boards, image):
    manager.flags = "20"
    FpgaManagerProgrammer(replace(real(), fpga_manager=replace(real().fpga_manager, flags=0x41))).program(
        boards[0], image, print
    )
    FpgaManagerProgrammer(real()).program(boards[0], image, print)
    assert [flags for _, _, flags in manager.loaded] == ["41", "0"]


def test_the_states_of_a_slow_load_are_told(manager, programmer, boards, image):
    gate, told = manager.hold("write"), []

    def progress(state):
        told.append(state)
        if state == "write":
            gate.open()

    programmer.program(boards[0], image, progress)
    assert "write" in told
    assert manager.seen == list(STATES)


@pytest.mark.parametrize(("number", "again"), [(errno.EIO, False), (errno.ETIMEDOUT, False), (errno.EBUSY, True)])
def test_a_failed_load_says_what_the_kernel_says(manager, real, image, number, again):
    programmer, boards = FpgaManagerProgrammer(real()), real().boards
    manager.fail, manager.error = "write", number
    with pytest.raises(Failed) as failed:
        programmer.program(boards[0], image, print)
    told = "state: write error; status: reconfig CRC error, reconfig operation error"
    assert str(failed.value).endswith(f"({errno.errorcode[number]}); {told}")
    assert failed.value.again is again
    assert programmer.read(boards[0]) == Reading("write error", fault=told)
    manager.fail = ""
    programmer.program(boards[0], image, print)
    assert programmer.read(boards[0]).fault is None


def test_a_load_without_an_error_is_not_believed_before_the_manager_is_operating(manager, programmer, boards, image):
    manager.last = "write complete"
    programmer.program(boards[0], image, print)
    with pytest.raises(Failed, match=r"^expected the board to be operating now, found the state 'write complete'$"):
        verify(programmer, boards[0], image)


def test_a_firmware_directory_that_the_kernel_does_not_search_is_told(manager, real, boards, image, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    options = replace(real(), fpga_manager=FpgaManager(firmware=tmp_path / "elsewhere"))
    with pytest.raises(Failed, match=r"No such file or directory \(ENOENT\); state: firmware request error$"):
        FpgaManagerProgrammer(options).program(boards[0], image, print)


def test_a_mainline_manager_cannot_be_told_a_file(kernel, programmer, boards, image):
    kernel.manager("f8007000.devcfg")
    here = kernel.root["devices"]["platform"]["axi"]["f8007000.devcfg"]["fpga_manager"]["fpga0"]
    del here["firmware"]
    with pytest.raises(Failed, match=r"^/sys/devices/.*/fpga0 has no attribute firmware: .* use another programmer$"):
        programmer.program(boards[0], image, print)


def test_a_board_without_a_manager_is_faulty(kernel, programmer, boards):
    assert programmer.read(boards[1]).fault == "expected one fpga_manager at f8008000.devcfg in /sys, found none"


def test_of_two_writers_one_is_refused_at_once(manager, real, boards, image):
    gate = manager.hold("write")
    first = threading.Thread(target=FpgaManagerProgrammer(real()).program, args=(boards[0], image, print))
    first.start()
    assert gate.reached.wait(10)
    with pytest.raises(Failed, match=r"another process is programming it \(EAGAIN\)") as failed:
        FpgaManagerProgrammer(real()).program(boards[0], image, print)
    assert failed.value.again
    gate.open()
    first.join(10)
    assert (manager.at_once, len(manager.loaded)) == (1, 1)


def test_a_load_that_hangs_is_left_behind_and_holds_up_no_other_board(kernel, real, image):
    manager, other = kernel.manager("f8007000.devcfg"), kernel.manager("f8008000.devcfg", 1)
    options = real(patience=timedelta(seconds=2))  # the child is in the write by then
    programmer, (board, free) = FpgaManagerProgrammer(options), options.boards
    gate = manager.hold("write")
    with pytest.raises(Failed, match=r"\(process \d+\) hasn't ended after 2 s; it is left behind") as failed:
        programmer.program(board, image, print)
    assert failed.value.again, "once that process has ended"
    assert re.match(r"process \d+ hangs, which began to program the board \d+ s ago", str(programmer.read(board).fault))
    with pytest.raises(Failed, match=r"^process \d+ hangs"):
        programmer.program(board, image, print)
    FpgaManagerProgrammer(real()).program(free, image, print)
    assert other.state == "operating"
    with left_behind(failed.value) as ended:
        gate.open()
        assert ended()
    assert programmer.read(board).fault is None
    assert verify(programmer, board, image).operating
