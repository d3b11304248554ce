"""Several resources offer the same boards, each with its own bitstream."""

import fcntl
import hashlib
import json
import os
import re
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from dpgateway_fpga import Bitstream, Board, FpgaDriver
from dpgateway_fpga.bitstream import Image
from dpgateway_fpga.programmers import BoardState, Failed, Verification

from dpgateway import Busy, DriverError
from dpgateway.testing import Recorder

AES, FFT = "example.com/aes", "example.com/fft"


class Hardware:
    """Boards that all resources see, whatever their drivers."""

    def __init__(self, verification=Verification.IDENTITY):
        self.verification = verification
        self.runs, self.programmed, self.faults, self.operating = {}, [], {}, True
        self.act = lambda board, progress: None

    def expected(self, board, image):
        return image.content.decode()

    def read(self, board):
        if self.verification is not Verification.IDENTITY:
            return BoardState("operating", operating=self.operating, fault=self.faults.get(board.id))
        return BoardState("", self.runs.get(board.id), fault=self.faults.get(board.id))

    def reset(self, board):
        raise AssertionError("nobody asked for that")

    def program(self, board, image, progress, locks=()):
        self.runs.pop(board.id, None)
        self.programmed.append((board.id, image.content.decode()))
        self.act(board, progress)
        self.runs[board.id] = image.content.decode()


class Function(FpgaDriver):
    """The driver of one function, as a gateway has it, and what it said."""

    def __init__(self, options, hardware):
        self.recorder = Recorder()
        super().__init__(options, self.recorder.context(f"example.com/{options.bitstream.id}"), hardware)


class Gate:
    """Programming that goes on until the test says so."""

    def __init__(self):
        self._opened = threading.Event()
        self.open = self._opened.set
        self.entered = threading.Event()

    def __call__(self):
        self.entered.set()
        assert self._opened.wait(20), "nobody opened the gate"


@pytest.fixture
def held():
    gate = Gate()
    yield gate
    gate.open()


@pytest.fixture
def hardware():
    return Hardware()


@pytest.fixture
def bitstream(tmp_path):
    def make(name):
        file = tmp_path / f"{name}.bin"
        file.write_text(name)
        file.chmod(0o644)
        return Bitstream(file, id=name)

    return make


@pytest.fixture
def function(options, hardware, bitstream):
    drivers = []

    def make(name, hardware=hardware, sha256=None, **changes):
        one = replace(bitstream(name), sha256=sha256)
        drivers.append(Function(replace(options, bitstream=one, **changes), hardware))
        return drivers[-1]

    yield make
    for driver in drivers:
        driver.close()


def reasons(driver):
    return {device.id: device.health.reason for device in driver.devices() if not device.health.ok}


def entry(options, board="fpga-a"):
    return json.loads((options.state_dir / f"{board}.json").read_text())


def test_board_has_the_last_function(function, hardware):
    aes, fft = function("aes"), function("fft")
    for driver in (aes, aes, fft, fft, aes):
        driver.prepare(driver.devices()[:1])
    assert hardware.programmed == [("fpga-a", name) for name in ("aes", "fft", "aes")]


def test_prefers_least_programming(function, options):
    aes, fft = function("aes"), function("fft")
    a, b, c = aes.devices()
    fft.prepare([b])
    aes.prepare([a])
    assert aes.prefer([c, b, a], [], 3) == [a, c, b]
    assert fft.prefer([a, b, c], [], 2) == [b, c]
    assert aes.prefer([c, b, a], [b], 2) == [b, a]
    aes.prepare([c])
    assert aes.prefer([a, c], [], 1) == [c], "c is near no NUMA node, a is near one"


def test_second_function_hears_progress(function, hardware, held):
    hardware.act = lambda board, progress: (progress("write init"), held())
    aes, fft = function("aes", wait=timedelta(milliseconds=10), prefetch=True), function("fft")
    aes.allocate(aes.devices()[:1])
    assert held.entered.wait(20)
    with pytest.raises(Busy) as caught:
        aes.prepare(aes.devices()[:1])
    text = (
        r"board 'fpga-a' is being programmed with aes as example.com/aes for \d+ s: write init; it goes on, "
        "and the next attempt joins it"
    )
    assert re.fullmatch(text, str(caught.value))
    with pytest.raises(Busy, match=r"^board 'fpga-a' can't be programmed: it is being programmed with aes as "):
        fft.prepare(fft.devices()[:1])
    assert reasons(fft) == {"fpga-a": "it is being programmed with aes as example.com/aes"}
    assert reasons(aes) == {}
    assert fft.recorder.changes == 1
    held.open()
    function("aes").prepare(aes.devices()[:1])
    assert [what for what in hardware.programmed if what[0] == "fpga-a"] == [("fpga-a", "aes")]
    fft.recorder.until(lambda: not reasons(fft))


def test_hanging_board_holds_up_nobody(function, hardware, held):
    hardware.act = lambda board, progress: held() if board.id == "fpga-a" else None
    aes, fft = function("aes", wait=timedelta(milliseconds=10)), function("fft")
    with pytest.raises(Busy):
        aes.prepare(aes.devices()[:2])
    function("aes").prepare(aes.devices()[1:2])
    fft.prepare(fft.devices()[2:])
    aes.release(aes.devices()[:1])
    aes.close()
    assert held.entered.wait(20)
    assert sorted(hardware.programmed) == [("fpga-a", "aes"), ("fpga-b", "aes"), ("fpga-c", "fft")]


def test_next_driver_joins_programming(function, hardware, held):
    """A reload makes drivers again, and hardware can't be told to stop."""
    hardware.act = lambda board, progress: held()
    first = function("aes", wait=timedelta(milliseconds=10))
    with pytest.raises(Busy):
        first.prepare(first.devices()[:1])
    first.close()
    second = function("aes")
    told = "nothing is known of it until its programming has ended"
    assert reasons(second) == {"fpga-a": told}, "it may have been faulted before"
    held.open()
    assert second.recorder.until(lambda: reasons(second) == {})
    second.prepare(second.devices()[:1])
    assert hardware.programmed == [("fpga-a", "aes")]


def test_another_process_keeps_off(function, options, hardware):
    aes = function("aes")
    aes.prepare(aes.devices()[:1])
    fft = function("fft")
    lock = os.open(options.state_dir / "fpga-a.lock", os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another description of the file, as another process would have
        with pytest.raises(Busy, match=r"^board 'fpga-a' .*another process is programming it, .*loaded aes as example"):
            fft.prepare(fft.devices()[:1])
    finally:
        os.close(lock)
    assert reasons(fft) == {}
    fft.prepare(fft.devices()[:1])


def broken(board, progress):
    raise Failed("state: write error; status: reconfig CRC error")


def test_fault_lasts_in_all_resources(function, hardware):
    aes, fft = function("aes"), function("fft")

    def broken_once_its_beginning_was_told(board, progress):
        fft.recorder.until(lambda: fft.recorder.changes == 1)
        broken(board, progress)

    hardware.act = broken_once_its_beginning_was_told
    with pytest.raises(DriverError, match="reconfig CRC error"):
        aes.prepare(aes.devices()[:1])
    fault = {"fpga-a": "programming aes failed: state: write error; status: reconfig CRC error"}
    assert reasons(aes) == reasons(fft) == reasons(function("fft")) == fault
    assert (aes.recorder.changes, fft.recorder.changes) == (1, 2)
    hardware.act = lambda board, progress: None
    aes.prepare(aes.devices()[:1])
    assert reasons(aes) == reasons(fft) == {}


def test_permanent_failures_wait_for_a_container(function, hardware):
    before = set(threading.enumerate())
    aes = function("aes", retry_first=timedelta(milliseconds=1))
    hardware.act = broken
    with pytest.raises(DriverError):
        aes.prepare(aes.devices()[:1])
    assert not [one for one in set(threading.enumerate()) - before if isinstance(one, threading.Timer)]


def busy(board, progress):
    raise Failed("EBUSY", again=True)


def test_passing_failures_are_retried(function, hardware):
    hardware.act = busy
    first = function("aes")
    with pytest.raises(DriverError):
        first.prepare(first.devices()[:1])
    first.close()
    hardware.act = lambda board, progress: None
    second = function("aes", retry_first=timedelta(milliseconds=1))
    second.recorder.until(lambda: not reasons(second))
    assert hardware.runs == {"fpga-a": "aes"}


def prepare_again(driver):
    """As the kubelet does it, while the board is being programmed for another resource."""
    end = time.monotonic() + 60
    while True:
        try:
            return driver.prepare(driver.devices()[:1])
        except Busy:
            assert time.monotonic() < end


def test_never_takes_a_board_back(function, hardware):
    hardware.act = busy
    aes = function("aes", retry_first=timedelta(milliseconds=200), retry_limit=timedelta(milliseconds=200))
    fft = function("fft")
    with pytest.raises(DriverError):
        aes.prepare(aes.devices()[:1])
    hardware.act = lambda board, progress: None if hardware.programmed[-1][1] == "fft" else busy(board, progress)
    prepare_again(fft)  # aes is tried once more meanwhile, if this takes longer than its pause
    for timer in [one for one in threading.enumerate() if isinstance(one, threading.Timer) and one.interval < 1]:
        timer.join(20)
    for thread in [one for one in threading.enumerate() if one.name == "program a board"]:
        thread.join(20)
    assert hardware.runs == {"fpga-a": "fft"}


def test_refused_file_is_one_resources_fault(function, hardware, tmp_path):
    aes, fft = function("aes", retry_first=timedelta(milliseconds=1)), function("fft")
    (tmp_path / "aes.bin").chmod(0o666)
    with pytest.raises(DriverError, match="chmod go-w"):
        aes.prepare(aes.devices()[:1])
    assert (reasons(aes).keys(), reasons(fft)) == ({"fpga-a"}, {})
    (tmp_path / "aes.bin").chmod(0o644)
    aes.recorder.until(lambda: not reasons(aes))
    assert hardware.programmed == []


def refuse(driver, file):
    file.chmod(0o666)
    with pytest.raises(DriverError, match="chmod go-w"):
        driver.prepare(driver.devices()[:1])


def test_refused_file_is_checked_after_a_release(function, hardware, bitstream, tmp_path):
    aes, fft = function("aes", blank=bitstream("blank"), retry_first=timedelta(milliseconds=100)), function("fft")
    fft.prepare(fft.devices()[:1])
    refuse(aes, tmp_path / "aes.bin")
    aes.release(aes.devices()[:1])  # which doesn't blank it, because fft has programmed it
    (tmp_path / "aes.bin").chmod(0o644)
    aes.recorder.until(lambda: not reasons(aes))
    assert hardware.runs == {"fpga-a": "fft"}


def test_refused_file_is_checked_beside_another_process(function, options, tmp_path):
    aes = function("aes", retry_first=timedelta(milliseconds=100))
    refuse(aes, tmp_path / "aes.bin")
    with (options.state_dir / "fpga-a.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(Busy):
            aes.prepare(aes.devices()[:1])
        (tmp_path / "aes.bin").chmod(0o644)
        aes.recorder.until(lambda: not reasons(aes))


def test_refused_file_is_checked_once_there_is_a_thread(function: Callable[..., Function], tmp_path: Path) -> None:
    """Until then each list plans it."""
    aes = function("aes", retry_first=timedelta(milliseconds=1))

    def told() -> bool:
        return any("isn't tried again before the next list" in one for one in aes.recorder.messages)

    refuse(aes, tmp_path / "aes.bin")
    size = threading.stack_size(2**48)
    try:
        aes.recorder.until(told)
    finally:
        threading.stack_size(size)
    (tmp_path / "aes.bin").chmod(0o644)
    aes.recorder.until(lambda: not reasons(aes))


def test_a_check_that_hangs_is_the_only_one(
    function: Callable[..., Function], hardware: Hardware, held: Gate, tmp_path: Path
) -> None:
    """Each list would begin another one, on a thread that hangs, too."""
    before = set(threading.enumerate())
    aes = function("aes", retry_first=timedelta(milliseconds=1))

    def expected(board: Board, image: Image) -> str:  # it looks into /sys, which may hang
        held()
        return image.content.decode()

    hardware.expected = expected  # type: ignore[method-assign]
    refuse(aes, tmp_path / "aes.bin")
    (tmp_path / "aes.bin").chmod(0o644)
    assert held.entered.wait(20)
    for _ in range(5):
        assert "is refused" in reasons(aes)["fpga-a"]
    end = time.monotonic() + 20
    while len([one for one in set(threading.enumerate()) - before if isinstance(one, threading.Timer)]) > 1:
        assert time.monotonic() < end, "the earlier checks have ended by now"
    held.open()
    aes.recorder.until(lambda: not reasons(aes))


def test_a_job_that_hangs_is_a_fault(function: Callable[..., Function], hardware: Hardware, held: Gate) -> None:
    """Else a board whose driver hangs would fail one pod after another."""
    hardware.act = lambda board, progress: held()
    aes = function("aes", wait=timedelta(milliseconds=1), patience=timedelta(milliseconds=200))
    with pytest.raises(Busy, match="it goes on"):
        aes.prepare(aes.devices()[:1])
    end = time.monotonic() + 20
    while reasons(aes) != {"fpga-a": "programming aes hasn't ended after 0.2 s: programming"}:
        assert time.monotonic() < end
        os.sched_yield()
    held.open()
    aes.recorder.until(lambda: not reasons(aes))
    assert hardware.runs == {"fpga-a": "aes"}


def test_blank_board_keeps_the_refusal(function, hardware, bitstream, tmp_path):
    aes = function("aes", blank=bitstream("blank"), retry_first=timedelta(milliseconds=1))
    refuse(aes, tmp_path / "aes.bin")
    aes.release(aes.devices()[:1])
    assert hardware.runs == {"fpga-a": "blank"}
    assert "is refused" in reasons(aes)["fpga-a"]
    (tmp_path / "aes.bin").chmod(0o644)
    aes.recorder.until(lambda: not reasons(aes))


def test_refused_blank_is_no_fault_of_the_board(
    function: Callable[..., Function], hardware: Hardware, bitstream: Callable[[str], Bitstream], tmp_path: Path
) -> None:
    aes = function("aes", blank=bitstream("blank"))
    aes.prepare(aes.devices()[:1])
    (tmp_path / "blank.bin").chmod(0o666)
    aes.release(aes.devices()[:1])
    assert reasons(aes) == {}
    (line,) = [one for one in aes.recorder.messages if "blanked" in one]
    assert re.search(
        r"a free board isn't blanked: .*blank\.bin\) is refused: expected a file that only its owner", line
    )
    (tmp_path / "blank.bin").chmod(0o644)
    aes.release(aes.devices()[:1])
    assert hardware.runs == {"fpga-a": "blank"}


def test_fallback_is_programmed_once(function, hardware, bitstream):
    aes, fft = function("aes", fallback=bitstream("safe")), function("fft")
    hardware.act = lambda board, progress: broken(board, progress) if hardware.programmed[-1][1] == "aes" else None
    with pytest.raises(DriverError):
        aes.prepare(aes.devices()[:1])
    assert hardware.programmed == [("fpga-a", "aes"), ("fpga-a", "safe")]
    reason = "programming aes failed: state: write error; status: reconfig CRC error; it runs safe"
    assert (reasons(aes), reasons(fft)) == ({"fpga-a": reason}, {})
    fft.prepare(fft.devices()[:1])
    assert reasons(aes) == {}


def test_failed_fallback_is_a_fault(function, hardware, bitstream):
    aes, fft = function("aes", fallback=bitstream("safe")), function("fft")
    hardware.act = broken
    with pytest.raises(DriverError):
        aes.prepare(aes.devices()[:1])
    assert reasons(fft)["fpga-a"].startswith("programming safe failed: programming aes failed: state: write error")
    hardware.act = busy
    with pytest.raises(DriverError):
        aes.prepare(aes.devices()[1:2])
    assert hardware.programmed == [("fpga-a", "aes"), ("fpga-a", "safe"), ("fpga-b", "aes")]


def test_free_board_gets_blank(function, hardware, bitstream):
    aes, fft = function("aes", blank=bitstream("blank")), function("fft")
    aes.prepare(aes.devices()[:1])
    fft.prepare(fft.devices()[1:2])
    aes.release(aes.devices()[:2])
    assert hardware.runs == {"fpga-a": "blank", "fpga-b": "fft"}
    aes.prepare(aes.devices()[2:])
    assert [device.id for device in aes.prefer(aes.devices(), [], 3)] == ["fpga-c", "fpga-a", "fpga-b"]


def test_board_is_blanked_after_programming(function, hardware, bitstream, held):
    """A pod was deleted during its start; a slow board doesn't hold up the others of the pod."""
    aes = function("aes", blank=bitstream("blank"), wait=timedelta(milliseconds=10))

    def act(board, progress):
        if hardware.programmed[-1] == ("fpga-b", "blank"):
            held.open()
        elif board.id == "fpga-a":
            held()

    hardware.act = act
    with pytest.raises(Busy):
        aes.prepare(aes.devices()[:1])
    aes.release(aes.devices()[:2])
    assert hardware.runs == {"fpga-a": "blank", "fpga-b": "blank"}


def test_tells_that_a_board_isnt_blanked(function, options, hardware, bitstream):
    aes = function("aes", blank=bitstream("blank"))
    aes.prepare(aes.devices()[:1])
    with (options.state_dir / "fpga-a.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        aes.release(aes.devices()[:1])
    told = "a free board isn't blanked: board 'fpga-a' can't be programmed: another process is programming it"
    assert told in aes.recorder.messages[-1]
    assert hardware.runs == {"fpga-a": "aes"}


@pytest.mark.parametrize("sha256", [None, hashlib.sha256(b"aes").hexdigest()], ids=["unpinned", "pinned"])
def test_last_holder_blanks_the_board(function, hardware, bitstream, tmp_path, sha256):
    """Also if its image was there already, as another resource's."""
    aes, twin = (function(name, sha256=sha256, blank=bitstream("blank")) for name in ("aes", "twin"))
    (tmp_path / "twin.bin").write_text("aes")
    aes.prepare(aes.devices()[:1])
    twin.prepare(twin.devices()[:1])
    aes.release(aes.devices()[:1])
    assert hardware.programmed == [("fpga-a", "aes")]
    assert twin.prefer(twin.devices(), [], 1) == twin.devices()[:1]
    twin.release(twin.devices()[:1])
    assert hardware.runs == {"fpga-a": "blank"}


def test_fallback_becomes_anothers_function(function, hardware, bitstream):
    aes, safe = function("aes", fallback=bitstream("safe")), function("safe", blank=bitstream("blank"))
    hardware.act = lambda board, progress: broken(board, progress) if hardware.programmed[-1][1] == "aes" else None
    with pytest.raises(DriverError):
        aes.prepare(aes.devices()[:1])
    safe.prepare(safe.devices()[:1])
    assert hardware.programmed == [("fpga-a", "aes"), ("fpga-a", "safe")]
    assert (reasons(aes), reasons(safe)) == ({}, {})
    safe.release(safe.devices()[:1])
    assert hardware.runs == {"fpga-a": "blank"}


def test_joins_its_own_resource_only(options, hardware, bitstream, held):
    hardware.act = lambda board, progress: held()
    same = replace(options, bitstream=bitstream("aes"), blank=bitstream("blank"))
    short = replace(same, wait=timedelta(milliseconds=10))
    with (
        closing(FpgaDriver(short, Recorder().context(AES), hardware)) as aes,
        closing(FpgaDriver(same, Recorder().context(FFT), hardware)) as fft,
    ):
        with pytest.raises(Busy, match="it goes on"):
            aes.prepare(aes.devices()[:1])
        with pytest.raises(Busy, match=r"can't be programmed: it is being programmed with aes as example\.com/aes"):
            fft.prepare(fft.devices()[:1])
        held.open()
        prepare_again(fft)
        fft.release(fft.devices()[:1])
    assert hardware.programmed == [("fpga-a", "aes"), ("fpga-a", "blank")]


def test_prefetch_begins_at_allocation(function, hardware):
    aes, plain = function("aes", prefetch=True), function("fft")
    aes.allocate(aes.devices()[:1])
    plain.allocate(plain.devices()[1:2])
    aes.prepare(aes.devices()[:1])
    assert hardware.programmed == [("fpga-a", "aes")]


def test_prefetch_of_a_blank_board_begins_at_allocation(function, hardware, bitstream):
    aes = function("aes", prefetch=True, blank=bitstream("blank"))
    for _ in range(2):
        aes.allocate(aes.devices()[:1])
        for thread in [thread for thread in threading.enumerate() if thread.name == "program a board"]:
            thread.join(20)
        assert hardware.runs == {"fpga-a": "aes"}
        aes.release(aes.devices()[:1])
        assert hardware.runs == {"fpga-a": "blank"}


def test_prefetch_leaves_a_running_container_alone(function, hardware, bitstream):
    """What kubelets 1.8 and 1.9 store is compared with what a driver gives now, so it is asked again."""
    aes = function("aes", prefetch=True)
    aes.allocate(aes.devices()[:1])
    aes.prepare(aes.devices()[:1])
    bitstream("aes").path.write_text("a newer one")
    aes.allocate(aes.devices()[:1])
    for thread in [thread for thread in threading.enumerate() if thread.name == "program a board"]:
        thread.join(20)
    assert hardware.runs == {"fpga-a": "aes"}
    aes.prepare(aes.devices()[:1])
    assert hardware.runs == {"fpga-a": "a newer one"}


@pytest.mark.parametrize("change", [{"boot": "an earlier one"}, {"state": "programming"}, {"sha256": "0" * 64}])
def test_journal_of_this_boot_counts(function, options, change):
    """After a power cut it runs nothing, whatever the journal says; and half an image is none."""
    mute = Hardware(Verification.NONE)
    aes = function("aes", mute)
    aes.prepare(aes.devices()[:1])
    aes.prepare(aes.devices()[:1])
    assert mute.programmed == [("fpga-a", "aes")]
    file = options.state_dir / "fpga-a.json"
    file.write_text(json.dumps(entry(options) | change))
    assert reasons(aes) == {}
    aes.prepare(aes.devices()[:1])
    assert mute.programmed == [("fpga-a", "aes")] * 2


def test_idle_board_is_programmed(function):
    """Its kernel driver was loaded again, say, or its overlay was taken away."""
    hardware = Hardware(Verification.STATE)
    aes = function("aes", hardware)
    hardware.act = lambda board, progress: setattr(hardware, "operating", True)
    for operating in (False, True, False):
        hardware.operating = operating
        aes.prepare(aes.devices()[:1])
    assert hardware.programmed == [("fpga-a", "aes")] * 2


def test_truncated_journal_says_nothing(function, options):
    aes = function("aes")
    a, b, _ = aes.devices()
    aes.prepare([a])
    assert aes.prefer([b, a], [], 1) == [a], "it runs the image, b is near no NUMA node"
    file = options.state_dir / "fpga-a.json"
    whole = file.read_bytes()
    for text in (bytes(len(whole)), *(whole[:length] for length in range(len(whole)))):
        file.write_bytes(text)
        assert aes.prefer([b, a], [], 1) == [b]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"state": "loaded"}'])
def test_broken_journal_means_unknown(function, options, text):
    mute = Hardware(Verification.NONE)
    aes = function("aes", mute)
    aes.prepare(aes.devices()[:1])
    (options.state_dir / "fpga-a.json").write_text(text)
    aes.prepare(aes.devices()[:1])
    assert (mute.programmed, entry(options)["state"]) == ([("fpga-a", "aes")] * 2, "loaded")


def test_unwritable_journal_stops_programming(function, options, hardware):
    options.state_dir.mkdir(mode=0o777)
    options.state_dir.chmod(0o777)
    aes = function("aes")
    with pytest.raises(DriverError, match=r"^board 'fpga-a' can't be programmed: expected a directory .*chmod go-w"):
        aes.prepare(aes.devices()[:1])
    assert hardware.programmed == []
    told = f"no image can be recorded in {options.state_dir}: expected a directory {options.state_dir} that only its "
    assert reasons(aes)["fpga-a"].startswith(told)
    options.state_dir.chmod(0o700)
    assert reasons(aes) == {}


@pytest.mark.parametrize("why", ["Read-only file system", "No space left on device"])
def test_boards_of_an_unwritable_disk_are_unhealthy(function, options, why):
    options.state_dir.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "none", options.state_dir], check=True)
    try:
        aes, full = function("aes"), options.state_dir / "full"
        board, *_ = aes.devices()
        assert board.health.ok
        if why.startswith("Read"):
            subprocess.run(["mount", "-o", "remount,ro", options.state_dir], check=True)
        else:
            full.write_bytes(bytes(65536))
        with pytest.raises(DriverError, match=why):
            aes.prepare([board])
        assert aes.recorder.changes == 1
        assert reasons(aes) == dict.fromkeys(
            ["fpga-a", "fpga-b", "fpga-c"], f"no image can be recorded in {options.state_dir}: {why}"
        )
        subprocess.run(["mount", "-o", "remount,rw", options.state_dir], check=True)
        full.unlink(missing_ok=True)
        aes.prepare([board])
        assert reasons(aes) == {}
    finally:
        subprocess.run(["umount", "--lazy", options.state_dir], check=True)


def test_boards_are_read_at_the_same_time(function, hardware):
    """Those that hang, or whose tool is slow, take no longer together than one of them: a list has 10 s."""
    together = threading.Barrier(3)

    def read(board):
        together.wait(20)
        return BoardState("")

    hardware.read = read
    assert reasons(function("aes")) == {}


def test_faulty_board_is_unhealthy(function, hardware):
    hardware.faults["fpga-b"] = "process 7 hangs"
    assert reasons(function("aes")) == {"fpga-b": "process 7 hangs"}
