"""Processes that are left behind are asked for by several threads."""

import ctypes
import errno
import os
import re
import signal
import struct
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from dpgateway_fpga import Board
from dpgateway_fpga.programmers import Failed
from dpgateway_fpga.programmers.processes import ExitStatus, Processes

from backends.fpga.tests.kernel.left import left_behind
from tests.support.fuse import Directory, File, mounted


@pytest.fixture
def hasty():
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def kill(error):
    with left_behind(error) as ended:
        os.kill(int(re.findall(r"process (\d+)", str(error))[0]), signal.SIGKILL)
        assert ended()


def test_all_that_hang_are_remembered():
    """A list and a job read one board at the same time."""
    processes, board, errors = Processes(timedelta(seconds=1)), Board("fpga-a"), []

    def read(progress):
        with pytest.raises(Failed, match="it is left behind") as failed:
            processes.run(board, ["sleep", "60"], progress)
        errors.append(failed.value)

    while len(errors) < 2:  # on a busy machine the first one may be left before it asks for progress
        while errors:
            kill(errors.pop())
        read(lambda _: errors or read(print))
    second, first = errors
    kill(first)
    assert processes.left(board)
    kill(second)
    assert processes.left(board) is None


def test_many_notice_the_end_at_once(hasty):
    processes, boards = Processes(timedelta()), [Board(f"fpga-{number}") for number in range(100)]

    def leave(board):
        with pytest.raises(Failed, match="it is left behind") as failed:
            processes.run(board, ["sleep", "60"], print)
        return failed.value

    with ThreadPoolExecutor(25) as threads:
        errors = list(threads.map(leave, boards))
    for error in errors:
        kill(error)
    with ThreadPoolExecutor(8) as threads:
        assert not any(threads.map(processes.left, [board for board in boards for _ in range(8)]))


def without_pidfds():
    """This thread gets no pidfd, as if no descriptor was left for it: seccomp(2), pidfd_open is 434 everywhere."""
    steps = ((0x20, 0, 0, 0), (0x15, 0, 1, 434), (6, 0, 0, 0x50000 | errno.EMFILE), (6, 0, 0, 0x7FFF0000))
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("HP", len(steps), ctypes.addressof(code)))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    assert prctl(38, *map(ctypes.c_ulong, (1, 0, 0, 0))) == 0  # PR_SET_NO_NEW_PRIVS
    assert prctl(22, ctypes.c_ulong(2), program) == 0, ctypes.get_errno()  # PR_SET_SECCOMP
    with pytest.raises(OSError, match="Too many open files"):
        os.pidfd_open(os.getpid())


def test_a_process_without_a_descriptor_is_waited_for():
    with ThreadPoolExecutor(1, initializer=without_pidfds) as thread:
        run = thread.submit(Processes(timedelta(minutes=1)).run, Board("fpga-a"), ["sh", "-c", "echo 5; exit 3"], print)
        assert run.result() == ExitStatus(3, "5")


class Loading(File):
    """A program whose first bytes don't come before ``over``."""

    def __init__(self) -> None:
        self.asked, self.over = threading.Event(), threading.Event()

    def read(self) -> str:
        self.asked.set()
        assert self.over.wait(20)
        return "no program"


@pytest.mark.parametrize("named", ["tool", "PATH", "interpreter"])
def test_a_program_that_is_loaded_slowly_holds_up_nobody(tmp_path: Path, named: str) -> None:
    """In subprocess Python before 3.11.4 has all threads wait for it, also that of this file system."""
    loading, tool, script = Loading(), tmp_path / "tool", tmp_path / "script"
    (tmp_path / "fuse").mkdir()
    tool.symlink_to("fuse/file")
    script.write_text(f"#! {tool}\t-x\n")
    script.chmod(0o755)
    program = {"tool": str(tool), "PATH": "tool", "interpreter": str(script)}[named]
    processes = Processes(timedelta(minutes=1), {"PATH": str(tmp_path)})
    with mounted(Directory(file=loading), tmp_path / "fuse"), ThreadPoolExecutor(1) as threads:
        running = threads.submit(processes.run, Board("fpga-a"), [program], print)
        assert loading.asked.wait(20)
        tool.unlink()
        tool.symlink_to("/bin/true")
        loading.over.set()
        assert running.result().code == 0
