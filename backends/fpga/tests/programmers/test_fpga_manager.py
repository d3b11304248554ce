"""The real code writes to a file system that behaves like the kernel: what it loads, what it tells, and what hangs."""

import errno
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest
from dpgateway_fpga import Board, FpgaDriver, FpgaManager
from dpgateway_fpga.options import FpgaOptions
from dpgateway_fpga.programmers import BoardState, Failed, verify
from dpgateway_fpga.programmers.fpga_manager import FpgaManagerProgrammer

from backends.fpga.tests.kernel.left import left_behind
from backends.fpga.tests.kernel.manager import STATES
from dpgateway import DriverError
from dpgateway.testing import Recorder
from tests.support.fuse import Text


@pytest.fixture
def manager(kernel):
    return kernel.manager("f8007000.devcfg")


@pytest.fixture
def boards(real):
    return real().boards


@pytest.fixture
def programmer(real):
    return FpgaManagerProgrammer(real())


def test_loads_the_very_bytes(manager, programmer, boards, image, firmware):
    assert programmer.read(boards[0]) == BoardState("unknown")
    programmer.program(boards[0], image, print)
    name = f"dpgateway/{image.sha256}-fpga-a.bin"
    assert manager.loaded == [(name, image.content, "0")]
    assert verify(programmer, boards[0], image) == BoardState("operating", operating=True)
    assert list((firmware / "dpgateway").iterdir()) == []


@pytest.mark.usefixtures("manager")
def test_listed_boards_are_watched_as_those_that_are_found(real: Callable[..., FpgaOptions]) -> None:
    """A board that goes is noticed by its uevent, not only at the next refresh."""
    with closing(FpgaDriver(real(programmer="fpga-manager"), Recorder().context("example.com/watched"))) as driver:
        driver.devices()
        assert "fpga example.com/watched" in {one.name for one in threading.enumerate()}


class Deaf(Text):
    """Takes whatever is written, and says the same as before."""

    def write(self, text):
        pass


def test_flags_are_written_before_each_load(manager, real, boards, image):
    manager.flags = "20"
    FpgaManagerProgrammer(replace(real(), fpga_manager=replace(real().fpga_manager, flags=0x41))).program(
        boards[0], image, print
    )
    FpgaManagerProgrammer(real()).program(boards[0], image, print)
    assert [flags for _, _, flags in manager.loaded] == ["41", "0"]


def test_tells_states_of_a_load(manager, programmer, boards, image):
    gate, told = manager.hold("write"), []

    def progress(state):
        told.append(state)
        if state == "write":
            gate.open()

    programmer.program(boards[0], image, progress)
    assert "write" in told
    assert manager.seen == list(STATES)


@pytest.mark.parametrize(("number", "again"), [(errno.EIO, False), (errno.EINVAL, False), (errno.EBUSY, True)])
def test_failed_load_quotes_the_kernel(manager, real, image, number, again):
    programmer, boards = FpgaManagerProgrammer(real()), real().boards
    manager.fail, manager.error = "write", number
    with pytest.raises(Failed) as failed:
        programmer.program(boards[0], image, print)
    told = "state: write error; status: reconfig CRC error, reconfig operation error"
    assert str(failed.value).endswith(f"({errno.errorcode[number]}); {told}")
    assert (failed.value.again, failed.value.touched) == (again, True)
    assert programmer.read(boards[0]) == BoardState("write error", fault=told)
    manager.fail = ""
    programmer.program(boards[0], image, print)
    assert programmer.read(boards[0]).fault is None


def test_load_needs_an_operating_manager(manager, programmer, boards, image):
    manager.last = "power up"
    programmer.program(boards[0], image, print)
    with pytest.raises(Failed, match=r"^expected the board to be operating now, found the state 'power up'$"):
        verify(programmer, boards[0], image)


def test_names_an_unsearched_directory(manager, real, boards, image, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    options = replace(real(), fpga_manager=FpgaManager(firmware=tmp_path / "elsewhere"))
    told = r"\(ENOENT\); state: firmware request error: the kernel found no such file .*/firmware_class/parameters/path"
    with pytest.raises(Failed, match=told):
        FpgaManagerProgrammer(options).program(boards[0], image, print)


@pytest.fixture
def first(kernel, tmp_path):
    """What /sys/module/firmware_class/parameters/path names: it comes before /lib/firmware
    (drivers/base/firmware_loader/main.c).
    """
    kernel.search.insert(0, tmp_path / "first")
    (tmp_path / "first" / "dpgateway").mkdir(parents=True)
    return tmp_path / "first"


def test_kernel_finds_images_everywhere(first, manager, real, image, firmware):
    (board, _) = real().boards
    for place in (firmware, first):
        FpgaManagerProgrammer(replace(real(), fpga_manager=FpgaManager(firmware=place))).program(board, image, print)
    assert [content for _, content, _ in manager.loaded] == [image.content] * 2
    assert not [*firmware.rglob("*.bin"), *first.rglob("*.bin")]


def test_never_loads_a_namesake(first, manager, programmer, boards, image):
    for name in (f"{'cd' * 32}-fpga-a.bin", f"{image.sha256}-fpga-b.bin", "fpga-a.bin"):
        (first / "dpgateway" / name).write_bytes(b"another image")
    programmer.program(boards[0], image, print)
    assert [content for _, content, _ in manager.loaded] == [image.content]


def test_prefers_the_cards_own_manager(kernel, real, image):
    inside = kernel.manager("0000:3b:00.0/pcap.1", 1)
    options = real(boards=(Board("card", address="0000:3b:00.0"), Board("part", address="pcap.1")))
    programmer, (card, part) = FpgaManagerProgrammer(options), options.boards
    programmer.program(card, image, print)
    assert len(inside.loaded) == 1, "the only one that the card has"
    own = kernel.manager("0000:3b:00.0", 0)
    programmer.program(card, image, print)
    programmer.program(part, image, print)
    assert (len(own.loaded), len(inside.loaded)) == (1, 2)


def test_refuses_two_inner_managers(kernel, real, image):
    both = [kernel.manager(f"0000:3b:00.0/pcap.{number}", number) for number in range(2)]
    options = real(boards=(Board("card", address="0000:3b:00.0"),))
    with pytest.raises(DriverError, match=r"expected one fpga_manager at 0000:3b:00.0 in /sys, found .*fpga0, .*fpga1"):
        FpgaManagerProgrammer(options).program(options.boards[0], image, print)
    assert [one.loaded for one in both] == [[], []]


def test_waits_for_an_ongoing_load(kernel, manager, programmer, boards, image):
    manager.early, gate = True, manager.hold("write")

    def state():
        now = manager.state
        if manager.written.is_set():
            gate.open()
        return now

    kernel.root.make(f"{manager.path}/state", Text(state))
    programmer.program(boards[0], image, print)
    assert verify(programmer, boards[0], image).operating


def test_distrusts_a_changed_file(manager, programmer, boards, image, firmware):
    def progress(state):
        if state == "write":
            (firmware / "dpgateway" / f"{image.sha256}-fpga-a.bin").write_bytes(b"evil")
            gate.open()

    gate = manager.hold("write")
    with pytest.raises(DriverError, match=r"^/.*/dpgateway/.*-fpga-a\.bin was changed while it was loaded"):
        programmer.program(boards[0], image, progress)


@pytest.mark.parametrize("said", ["n/a\n", "", "2\n", "\u00fc", pytest.param("0" + " " * 5000 + "\n1", id="long")])
def test_wrong_flags_stop_the_load(kernel, programmer, boards, image, said):
    manager = kernel.manager("f8007000.devcfg")
    kernel.root.make(f"{manager.path}/flags", Deaf(said))
    with pytest.raises(Failed, match=r"^flags /.*/flags: says .*, expected 0 \(EIO\); state: unknown$"):
        programmer.program(boards[0], image, print)
    assert manager.loaded == []


def test_unreadable_status_is_a_fault(kernel, manager, programmer, boards):
    for number, fault in (
        (errno.EIO, "state: unknown; status: can't be read: Input/output error"),
        (errno.ENOENT, None),
    ):
        kernel.root.make(f"{manager.path}/status", Text(partial(_fails, number)))
        assert programmer.read(boards[0]).fault == fault


def _fails(number):
    raise OSError(number, "")


def test_state_without_newline(kernel, manager, programmer, boards):
    kernel.root.make(f"{manager.path}/state", Text("operating"))
    assert programmer.read(boards[0]) == BoardState("operating", operating=True)
    kernel.root.make(f"{manager.path}/state", Text(""))
    assert not programmer.read(boards[0]).operating


def test_vanished_board_recovers(kernel, manager, real, start):
    driver = start(real(programmer="fpga-manager", boards=real().boards[:1]))
    (device,) = driver.devices()
    gate = manager.hold("write")
    manager.fail, manager.error = "write", errno.ENODEV
    with ThreadPoolExecutor() as threads:
        starting = threads.submit(driver.prepare, [device])
        assert gate.reached.wait(60)
        kernel.unplug("f8007000.devcfg")
        gate.open()
        with pytest.raises(DriverError, match=r"No such device \(ENODEV\); /sys/.*/state is absent"):
            starting.result()
    assert [one.health.reason for one in driver.devices()] == [
        "expected one fpga_manager at f8007000.devcfg in /sys, found none"
    ]
    again = kernel.manager("f8007000.devcfg", 1)
    assert [one.health.ok for one in driver.devices()] == [True]
    driver.prepare([device])
    assert again.state == "operating"


def test_returned_board_is_programmed(kernel, manager, real, start):
    """It lost its power, and may run an image of its own since."""
    driver = start(real(programmer="fpga-manager", boards=real().boards[:1]))
    (device,) = driver.devices()
    driver.prepare([device])
    kernel.unplug("f8007000.devcfg")
    assert [one.health.ok for one in driver.devices()] == [False]
    back = kernel.manager("f8007000.devcfg")
    back.state = "operating"
    driver.prepare([device])
    driver.prepare([device])
    assert (len(manager.loaded), len(back.loaded)) == (1, 1)


def test_mainline_manager_is_no_board(kernel, real, start):
    kernel.manager("f8007000.devcfg")
    here = kernel.root["devices"]["platform"]["axi"]["f8007000.devcfg"]["fpga_manager"]["fpga0"]
    firmware = here.pop("firmware")
    options = real(programmer="fpga-manager", boards=real().boards[:1])
    driver = start(options)
    told = r"/sys/devices/.*/fpga0 has no attribute firmware: .* use another programmer$"
    assert re.search(told, driver.devices()[0].health.reason)
    with pytest.raises(DriverError, match=told):
        driver.prepare(driver.devices())
    assert not options.state_dir.exists() or not [*options.state_dir.glob("*.json")], "no fault is written down"
    here["firmware"] = firmware
    driver.prepare(driver.devices())
    assert start(options).devices()[0].health.ok


class Unwritable(Text):
    """An attribute of a read-only /sys, as the gateway has it as a systemd service."""

    def open(self):
        raise OSError(errno.EROFS, "")


@pytest.mark.parametrize("missing", ["search", "directory", "flags", "permission"])
def test_retries_untouched_loads(kernel, real, start, recorder, missing):
    manager, (firmware,) = kernel.manager("f8007000.devcfg"), kernel.search
    attributes = kernel.root["devices"]["platform"]["axi"]["f8007000.devcfg"]["fpga_manager"]["fpga0"]
    attribute = attributes["firmware"]
    options = real(programmer="fpga-manager", boards=real().boards[:1], retry_first=timedelta(milliseconds=1))
    where = firmware / "new" if missing == "directory" else firmware
    if missing == "search":
        kernel.search.clear()
    if missing == "flags":
        kernel.root.make(f"{manager.path}/flags", Deaf("2\n"))
    if missing == "permission":
        attributes["firmware"] = Unwritable("")
    slow = replace(options, retry_first=timedelta(hours=1), retry_limit=timedelta(hours=1))
    driver, other = start(replace(slow, fpga_manager=FpgaManager(firmware=where))), Recorder()
    with pytest.raises(DriverError) as failed:
        driver.prepare(driver.devices())
    (reason,) = [device.health.reason for device in driver.devices()]
    assert reason
    assert reason.removeprefix("programming crypto-v3 failed: ") in str(failed.value)
    with closing(FpgaDriver(options, other.context("example.com/other"))) as another:
        assert [device.health.ok for device in another.devices()] == [True], "it's no fault of the board"
    driver.close()
    driver = start(replace(options, fpga_manager=FpgaManager(firmware=where)))
    driver.devices()
    where.mkdir(exist_ok=True)
    kernel.search[:] = [where]
    kernel.root.make(f"{manager.path}/flags", Deaf("0\n"))
    attributes["firmware"] = attribute
    recorder.until(lambda: manager.state == "operating" and driver.devices()[0].health.ok)


def test_waits_for_late_states(kernel, manager, programmer, boards, image):
    """The state of a load that goes on, and the status of one that failed, or of the one before."""
    late: dict[str, list[str]] = {"state": [], "status": []}
    over = "operating", "write error"

    def said(name):
        return late[name].pop() if late[name] and manager.state in over else f"{getattr(manager, name)}\n"

    for name, first in (("state", "unknown\n"), ("status", "reconfig CRC error\n")):
        kernel.root.make(f"{manager.path}/{name}", Text(partial(said, name)))
        manager.state, late[name] = "unknown", [first] * 3
        programmer.program(boards[0], image, print)
        assert verify(programmer, boards[0], image).operating
        assert late[name] == []
    manager.fail, late["status"] = "write", [""] * 3
    with pytest.raises(Failed, match=r"; state: write error; status: reconfig CRC error, reconfig operation error$"):
        programmer.program(boards[0], image, print)


def test_a_board_without_a_manager_is_faulty(kernel, programmer, boards):
    assert programmer.read(boards[1]).fault == "expected one fpga_manager at f8008000.devcfg in /sys, found none"


def test_refuses_a_second_writer(manager, real, boards, image):
    gate = manager.hold("write")
    first = threading.Thread(target=FpgaManagerProgrammer(real()).program, args=(boards[0], image, print))
    first.start()
    assert gate.reached.wait(60)
    with pytest.raises(Failed, match=r"another process is programming it \(EAGAIN\)") as failed:
        FpgaManagerProgrammer(real()).program(boards[0], image, print)
    assert (failed.value.again, failed.value.touched) == (True, False)
    gate.open()
    first.join(20)
    assert (manager.at_once, len(manager.loaded)) == (1, 1)


def test_hanging_load_holds_up_nobody(kernel, real, image):
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
