"""The real ioctls go to files that behave like the kernel's DFL drivers, with the trap that a failure leaves."""

import errno
import pickle
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from dpgateway_fpga import Board
from dpgateway_fpga.bitstream import Image
from dpgateway_fpga.programmers import BoardState, Failed, verify
from dpgateway_fpga.programmers.dfl import DflProgrammer

from backends.fpga.tests.kernel.dfl import Card, Engine, Port
from backends.fpga.tests.kernel.gbs import AES, FFT, INTERFACE, gbs_file
from dpgateway import DriverError
from tests.support.fuse import File, Text

BOARD = Board("card", address="0000:3b:00.0")


def _image(accelerator=AES, interface=INTERFACE):
    return Image(gbs_file(accelerator, interface), "ab" * 32)


@pytest.fixture
def card(kernel):
    return Card(kernel.host, "0000:3b:00.0", INTERFACE)


@pytest.fixture
def programmer(real):
    return DflProgrammer(real(boards=(BOARD,)))


def test_port_gets_the_raw_image(card, programmer):
    assert programmer.read(BOARD) == BoardState("unknown", "0" * 32, operating=True)
    programmer.program(BOARD, _image(), print)
    assert [bytes(image) for image in card.images] == [AES.encode() + b" raw image"]
    assert verify(programmer, BOARD, _image()) == BoardState("operating", AES, operating=True)
    with pytest.raises(Failed, match=f"^expected the board to run {FFT} now, found {AES}$"):
        verify(programmer, BOARD, _image(FFT))


def test_refuses_another_interface(card, programmer):
    with pytest.raises(
        DriverError, match=f"is for the interface {'e' * 32}, found a card whose compat_id is {INTERFACE}"
    ):
        programmer.program(BOARD, _image(interface="e" * 32), print)
    assert (card.state, card.images) == ("unknown", [])


def test_ports_share_an_interface(card, programmer):
    """drivers/fpga/dfl-fme-pr.c, pr_mgmt_init: a region for each port, all with the id of the one manager."""
    card.region.make("dfl-fme.0/dfl-fme-region.2/fpga_region/region2/compat_id", Text(f"{INTERFACE}\n"))
    programmer.program(BOARD, _image(), print)
    assert verify(programmer, BOARD, _image()).identity == AES


def test_refuses_a_card_without_interface(card, programmer):
    """Reading fails with ENOENT where there is none (drivers/fpga/fpga-region.c, compat_id_show)."""
    region = card.region["dfl-fme.0"]["dfl-fme-region.1"]["fpga_region"]["region1"]
    region["compat_id"] = File()
    with pytest.raises(DriverError, match="found a card whose compat_id can't be read"):
        programmer.program(BOARD, _image(), print)
    del region["compat_id"]
    with pytest.raises(DriverError, match="found a card whose compat_id"):
        programmer.program(BOARD, _image(), print)
    assert card.images == []


@pytest.mark.parametrize("number", [errno.EIO, errno.ETIMEDOUT])
def test_failed_port_stays_disabled(card, programmer, number):
    card.fail = number
    with pytest.raises(Failed) as failed:
        programmer.program(BOARD, _image(), print)
    assert not failed.value.again
    assert str(failed.value).endswith(f"({errno.errorcode[number]}); state: write error; status: reconfig CRC error")
    card.fail = None
    programmer.program(BOARD, _image(), print)
    trap = "afu_id can't be read: Device or resource busy: its port is disabled, .*; unload and load the card's driver"
    with pytest.raises(Failed, match=trap):
        verify(programmer, BOARD, _image())
    assert re.match(trap, str(programmer.read(BOARD).fault))


@pytest.mark.parametrize("node", [Port, Engine])
def test_leaves_a_used_port_alone(card, programmer, node):
    card.busy.add(node)
    with pytest.raises(Failed, match=r"another process has it open \(EBUSY\); state: unknown$") as failed:
        programmer.program(BOARD, _image(), print)
    assert (failed.value.again, failed.value.touched) == (True, False)
    assert card.state == "unknown"


def test_programs_ports_in_turn(kernel, real):
    """A container may have both; the engine can be opened once only."""
    card = Card(kernel.host, "0000:3b:00.0", INTERFACE, ports=2)
    boards = (BOARD, replace(BOARD, id="other", port=1))
    card.gate.close()
    programmers = [DflProgrammer(real(boards=boards)) for _ in boards]  # of two resources
    with ThreadPoolExecutor() as threads:
        done = [
            threads.submit(programmer.program, board, _image(accelerator), print)
            for programmer, board, accelerator in zip(programmers, boards, (AES, FFT), strict=True)
        ]
        assert card.gate.reached.wait(60)
        card.gate.open()
        assert [one.result() for one in done] == [None, None]
    assert [programmers[0].read(board).identity for board in boards] == card.afus == [AES, FFT]


def test_other_ports_keep_running(kernel, real, start):
    """The manager's state is that of the last port that was programmed; the bridge is each port's own."""
    card = Card(kernel.host, "0000:3b:00.0", INTERFACE, ports=2)
    image = real().bitstream.path
    image.write_bytes(gbs_file(AES))
    boards = (BOARD, replace(BOARD, id="other", port=1))
    driver = start(real(programmer="dfl", boards=boards))
    first, second = driver.devices()
    driver.prepare([second])
    card.gate.close()
    card.fail = errno.EIO
    with ThreadPoolExecutor() as threads:
        failing = threads.submit(driver.prepare, [first])
        assert card.gate.reached.wait(60)
        driver.prepare([second])
        card.gate.open()
        assert isinstance(failing.exception(), DriverError)
    driver.prepare([second])
    assert [device.health.ok for device in driver.devices()] == [False, True]
    assert len(card.images) == 1


def test_a_node_of_another_device_is_refused(card, programmer):
    card.region["dfl-fme.0"]["dev"] = Text("240:3\n")
    with pytest.raises(Failed, match=r"is device 0:0, expected 240:3 \(ENXIO\)"):
        programmer.program(BOARD, _image(), print)


FULL = """
import pickle, resource, sys
options, image = pickle.loads(bytes.fromhex(sys.argv[1]))
from dpgateway_fpga.programmers import Failed
from dpgateway_fpga.programmers.dfl import DflProgrammer
resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
try:
    DflProgrammer(options).program(options.boards[0], image, print)
except Failed as error:
    print(error.again, error.touched, error)
"""


def test_memory_without_space_touches_nothing(card, real):
    argv = [sys.executable, "-c", FULL, pickle.dumps((real(boards=(BOARD,)), _image())).hex()]
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True, timeout=60)
    assert done.stdout == "True False there is no memory for the image: [Errno 27] File too large\n"
    assert card.images == []


def test_busy_port_is_no_fault(card, programmer):
    card.gate.close()
    thread = threading.Thread(target=programmer.program, args=(BOARD, _image(), print))
    thread.start()
    assert card.gate.reached.wait(60)
    assert programmer.read(BOARD) == BoardState("write init")
    card.gate.open()
    thread.join(20)
    assert programmer.read(BOARD).identity == AES


def test_dead_card_is_faulty(card, programmer):
    card.afus[0] = "f" * 32
    assert programmer.read(BOARD).fault == f"afu_id is {'f' * 32}: the card doesn't answer"


def test_a_board_that_is_absent_is_faulty(card, programmer):
    assert (
        programmer.read(replace(BOARD, port=1)).fault
        == "expected one dfl-port with id 1 at 0000:3b:00.0 in /sys, found none"
    )
    assert "expected one dfl-fme at 0000:af:00.0" in programmer.read(Board("0000:af:00.0")).fault


def test_a_port_is_reset(card, programmer):
    programmer.reset(BOARD)
    assert card.resets == 1
