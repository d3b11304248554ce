"""Boards are programmed once, each in its own time; what fails is seen, and tried again."""

import hashlib
import json
import threading
import time
from dataclasses import replace
from datetime import timedelta

import pytest
from dpgateway_fpga import Bitstream, FpgaDriver
from dpgateway_fpga.programmers import BoardState, Failed, Verification
from dpgateway_fpga.retrying import pause

from dpgateway import Device, DeviceUnavailable, DriverError


class Programmer:
    """Counts, and lets the test decide what programming does."""

    verification = Verification.IDENTITY

    def __init__(self, act=lambda board: None):
        self.act, self.images, self.programmed = act, {}, []

    def expected(self, board, image):
        return image.sha256

    def read(self, board):
        return BoardState("", self.images.get(board.id))

    def reset(self, board):
        del self.images[board.id]

    def program(self, board, image, progress, locks=()):
        self.programmed.append(board.id)
        self.act(board)
        self.images[board.id] = image.sha256


def busy(board):
    raise Failed(f"{board.id} is busy", again=True)


@pytest.fixture
def start_with(start):
    return lambda options, programmer: start(options, lambda o, context: FpgaDriver(o, context, programmer))


def _state(options, board="fpga-a"):
    return options.simulated.state_dir / f"{board}.json"


def _programmed(recorder):
    return [message.split()[2] for message in recorder.messages if message.startswith("programming board")]


@pytest.mark.parametrize("error", [SystemExit("the tool says no"), KeyError("no")])
def test_any_error_fails_the_board(options, start_with, error):
    def act(board):
        if board.id == "fpga-b":
            raise error

    driver = start_with(options, Programmer(act))
    with pytest.raises(DriverError, match="board 'fpga-b' can't be programmed"):
        driver.prepare(driver.devices()[:2])
    assert [device.health.ok for device in driver.devices()] == [True, False, True]


def test_a_fault_of_many_words_is_remembered(options, start_with):
    def act(board):
        raise Failed("\N{ELECTRIC PLUG}" * 20_000)

    driver = start_with(options, Programmer(act))
    with pytest.raises(DriverError):
        driver.prepare(driver.devices()[:1])
    assert driver.devices()[0].health.reason.startswith("programming crypto-v3 failed: ")


def test_boards_are_listed_and_given(options, start):
    driver = start(options)
    assert list(driver.devices()) == [
        Device("fpga-a", numa_nodes=(1,), hardware=("fpga fpga-a",)),
        Device("fpga-b", hardware=("fpga fpga-b",)),
        Device("fpga-c", hardware=("fpga fpga-c",)),
    ]
    assert not options.state_dir.exists(), "preflight and others change nothing"
    allocation = driver.allocate(driver.devices()[:2])
    assert [node.host_path for node in allocation.device_nodes] == ["/dev/fpga-a", "/dev/fpga-a-dma", "/dev/fpga-b"]
    assert dict(allocation.env) == {"FPGA_BITSTREAM": "crypto-v3", "FPGA_BOARDS": "fpga-a,fpga-b"}


@pytest.mark.parametrize("method", ["allocate", "prepare"])
def test_a_board_of_another_resource_is_refused(options, start, method):
    expected = "^board 'fpga-z' isn't one of the resource's boards, which are fpga-a, fpga-b, fpga-c$"
    with pytest.raises(DeviceUnavailable, match=expected):
        getattr(start(options), method)([Device("fpga-z")])


def test_leaves_programmed_boards_alone(options, start, recorder):
    driver = start(options)
    driver.prepare(driver.devices()[:1])
    driver.prepare(driver.devices()[:1])
    start(options).prepare(driver.devices()[:2])
    assert _programmed(recorder) == ["fpga-a", "fpga-b"]
    assert recorder.changes == 0


@pytest.mark.parametrize(
    "found",
    ['{"state": "programming", "sha256": "%s"}', "{", "[" * 4000, " " * 5000, '{"state": "loaded"}', ""],
    ids=range(6),
)
def test_programs_unknown_boards(options, start, recorder, found):
    driver = start(options)
    driver.prepare(driver.devices()[:1])
    sha256 = json.loads(_state(options).read_text())["sha256"]
    _state(options).write_text(found.replace("%s", sha256))
    driver.prepare(driver.devices()[:1])
    assert _programmed(recorder) == ["fpga-a", "fpga-a"]
    assert json.loads(_state(options).read_text()) == {"state": "loaded", "sha256": sha256}


def test_unknown_while_programmed(simulate, start):
    options = simulate(fail_first=1)
    driver = start(options)
    with pytest.raises(DriverError):
        driver.prepare(driver.devices()[:1])
    assert json.loads(_state(options).read_text())["state"] == "programming"


def test_another_bitstream_is_programmed_over_the_last(options, start, recorder):
    driver = start(options)
    driver.prepare(driver.devices()[:1])
    options.bitstream.path.write_bytes(b"another one")
    driver.prepare(driver.devices()[:1])
    assert _programmed(recorder) == ["fpga-a", "fpga-a"]


def test_running_digest_needs_no_file(options, start):
    start(options).prepare(start(options).devices())
    sha256 = json.loads(_state(options).read_text())["sha256"]
    options.bitstream.path.unlink()
    pinned = replace(options, bitstream=replace(options.bitstream, sha256=sha256))
    start(pinned).prepare(start(pinned).devices())


def test_next_prepare_tries_at_once(simulate, start, recorder):
    driver = start(simulate(fail_first=1))
    with pytest.raises(DriverError, match=r"^board 'fpga-a' can't be programmed: simulated failure 1 of 1$"):
        driver.prepare(driver.devices()[:1])
    assert [device.health.reason for device in driver.devices()] == [
        "programming crypto-v3 failed: simulated failure 1 of 1",
        None,
        None,
    ]
    assert recorder.changes == 1
    driver.prepare(driver.devices()[:1])
    assert driver.devices()[0].health.ok
    assert recorder.changes == 2


def test_retries_failed_boards(simulate, start, recorder):
    driver = start(simulate(fail_first=3, retry=timedelta(milliseconds=5)))
    with pytest.raises(DriverError):
        driver.prepare(driver.devices()[:1])
    # a look between a message and the telling of it would have the news already, and nothing would be told
    recorder.until(lambda: recorder.changes >= 2 and len(_programmed(recorder)) == 4)
    recorder.until(lambda: driver.devices()[0].health.ok)
    assert _programmed(recorder) == ["fpga-a"] * 4


def test_all_that_failed_is_told(simulate, start):
    driver = start(simulate(fail_first=1))
    with pytest.raises(DriverError, match=r"^board 'fpga-a' .* 1 of 1; board 'fpga-b' .* 1 of 1$"):
        driver.prepare(driver.devices()[:2])


@pytest.mark.parametrize("spoil", [lambda path: path.chmod(0o666), lambda path: path.unlink()])
def test_nothing_is_programmed_from_a_doubtful_file(options, start_with, spoil):
    spoil(options.bitstream.path)
    programmer = Programmer()
    driver = start_with(options, programmer)
    with pytest.raises(DriverError, match=r"^board 'fpga-a' can't be programmed: bitstream 'crypto-v3'"):
        driver.prepare(driver.devices()[:1])
    assert programmer.programmed == []
    assert "is refused" in driver.devices()[0].health.reason


@pytest.mark.parametrize("bad", ["fpga-a", "fpga-b", "fpga-c"])
def test_one_attempt_per_start(options, start_with, bad):
    programmer = Programmer(lambda board: {}[board.id] if board.id == bad else None)
    driver = start_with(options, programmer)
    with pytest.raises(DriverError, match=rf"^board '{bad}' can't be programmed: '{bad}'$"):
        driver.prepare(driver.devices())
    assert sorted(programmer.programmed) == ["fpga-a", "fpga-b", "fpga-c"]


def _end(before):
    """Waits for the end of all threads but those that were there before."""
    deadline = time.monotonic() + 20
    while left := set(threading.enumerate()) - before:
        if (thread := left.pop()).is_alive():  # one that just begins can't be joined yet
            thread.join(max(0, deadline - time.monotonic()))
        assert time.monotonic() < deadline, thread


def test_success_resets_failures(options, start_with, recorder):
    before = set(threading.enumerate())
    bad = True
    driver = start_with(replace(options, retry_limit=timedelta(hours=9)), Programmer(lambda board: bad and busy(board)))
    for hours in (1, 2, 4):
        with pytest.raises(DriverError):
            driver.prepare(driver.devices()[:1])
        assert f"(failure {hours.bit_length()})" in recorder.messages[-1]
        timers = [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]
        planned = [timer for timer in timers if timer not in before and not timer.finished.is_set()]
        assert [0.8 * hours <= timer.interval / 3600 <= hours for timer in planned] == [True]
    bad = False
    driver.prepare(driver.devices()[:1])
    _end(before)  # a board that works has no attempt planned
    bad = True
    options.bitstream.path.write_bytes(b"another one")
    with pytest.raises(DriverError):
        driver.prepare(driver.devices()[:1])
    assert "(failure 1)" in recorder.messages[-1]


def test_programmers_bug_is_unhealthy(options, start_with):
    driver = start_with(options, Programmer(lambda board: {}[board.id]))
    with pytest.raises(DriverError, match=r"can't be programmed: 'fpga-a'"):
        driver.prepare(driver.devices()[:1])
    assert not driver.devices()[0].health.ok


def test_a_programmer_is_not_believed(options, start_with):
    programmer = Programmer()
    programmer.images = type("Forgetful", (dict,), {"__setitem__": lambda *_: None})()
    driver = start_with(options, programmer)
    with pytest.raises(DriverError, match=r"expected the board to run [0-9a-f]{64} now, found an unknown state"):
        driver.prepare(driver.devices()[:1])


def test_boards_are_programmed_at_once(options, start_with):
    together = threading.Barrier(3, timeout=20)
    programmer = Programmer(lambda board: together.wait())
    driver = start_with(options, programmer)
    driver.prepare(driver.devices())
    assert sorted(programmer.programmed) == ["fpga-a", "fpga-b", "fpga-c"]


def test_callers_share_an_attempt(options, start_with):
    begun, go = threading.Event(), threading.Event()

    def act(board):
        begun.set()
        assert go.wait(20)

    programmer = Programmer(act)
    driver = start_with(options, programmer)
    asking = [threading.Thread(target=driver.prepare, args=(driver.devices()[:1],)) for _ in range(4)]
    for thread in asking:
        thread.start()
    assert begun.wait(20)
    assert len(driver.devices()) == 3, "listing doesn't wait for programming"
    assert driver.allocate(driver.devices()), "nor does allocating"
    go.set()
    for thread in asking:
        thread.join(20)
    assert programmer.programmed == ["fpga-a"]


def test_close_ends_the_attempts(simulate, start, recorder):
    before = set(threading.enumerate())
    driver = start(simulate(fail_first=10**9, retry=timedelta(milliseconds=1)))
    with pytest.raises(DriverError):
        driver.prepare(driver.devices())
    recorder.until(lambda: not any(device.health.ok for device in driver.devices()))
    driver.close()
    _end(before)
    attempts = len(_programmed(recorder))
    with pytest.raises(DriverError):
        driver.prepare(driver.devices()[:1])
    _end(before)
    assert len(_programmed(recorder)) == attempts + 1


def test_close_waits_for_no_pause(options, start_with):
    before = set(threading.enumerate())
    driver = start_with(options, Programmer(busy))  # tries again in an hour
    with pytest.raises(DriverError):
        driver.prepare(driver.devices()[:1])
    (planned,) = [one for one in set(threading.enumerate()) - before if isinstance(one, threading.Timer)]
    driver.close()
    planned.join(20)
    assert not planned.is_alive()


def test_pauses_double_with_jitter(options):
    options = replace(options, retry_first=timedelta(seconds=1), retry_limit=timedelta(seconds=60))
    for failures, longest in [(1, 1), (2, 2), (3, 4), (6, 32), (7, 60), (5000, 60)]:
        pauses = {pause(failures, options) for _ in range(20)}
        assert len(pauses) > 1
        assert 0.8 * longest <= min(pauses) <= max(pauses) <= longest


@pytest.fixture
def functions(options, tmp_path):
    """The resource's own bitstream, and one more."""
    file = tmp_path / "net.bin"
    file.write_bytes(b"net")
    file.chmod(0o644)
    return replace(options, functions=(Bitstream(file, id="net-v1"),))


def test_a_claim_chooses_the_function(functions, start_with):
    programmer = Programmer()
    driver = start_with(functions, programmer)
    first, second = driver.devices()[:2]
    chosen = driver.with_options(replace(functions, function="net-v1"))
    assert chosen.allocate([first]).env == {"FPGA_BITSTREAM": "net-v1", "FPGA_BOARDS": "fpga-a"}
    assert chosen.allocate([first]).device_nodes == driver.allocate([first]).device_nodes
    chosen.prepare([first])
    driver.prepare([second])
    assert programmer.images["fpga-a"] == hashlib.sha256(b"net").hexdigest()
    assert programmer.images["fpga-b"] == hashlib.sha256(b"a bitstream").hexdigest()

    # The next claim has the function of its own, or the resource's.
    driver.release([first])
    driver.prepare([first])
    assert programmer.images["fpga-a"] == hashlib.sha256(b"a bitstream").hexdigest()
    assert driver.allocate([first]).env["FPGA_BITSTREAM"] == "crypto-v3"
    assert programmer.programmed == ["fpga-a", "fpga-b", "fpga-a"]


def test_a_board_that_runs_the_chosen_function_is_left_alone(functions, start_with):
    programmer = Programmer()
    driver = start_with(functions, programmer)
    chosen = driver.with_options(replace(functions, function="net-v1"))
    for _ in range(2):
        chosen.prepare(driver.devices()[:1])
    assert programmer.programmed == ["fpga-a"]


def test_a_refused_file_of_a_claims_function_says_nothing_of_the_board(functions, start_with):
    functions.functions[0].path.unlink()
    driver = start_with(functions, Programmer())
    chosen = driver.with_options(replace(functions, function="net-v1"))
    with pytest.raises(DriverError, match=r"bitstream 'net-v1' .* is refused"):
        chosen.prepare(driver.devices()[:1])
    assert driver.devices()[0].health.ok


def test_refusal_outlasts_a_claims_function(functions, start_with):
    functions.bitstream.path.chmod(0o666)
    programmer = Programmer()
    programmer.act = lambda board: {}[board.id] if len(programmer.programmed) == 1 else None
    driver = start_with(functions, programmer)
    chosen = driver.with_options(replace(functions, function="net-v1"))
    for one, expected in ((driver, "is refused"), (chosen, "'fpga-a'")):
        with pytest.raises(DriverError, match=expected):
            one.prepare(driver.devices()[:1])
    chosen.prepare(driver.devices()[:1])
    assert "is refused" in driver.devices()[0].health.reason


def _until_healthy(driver):
    deadline = time.monotonic() + 60
    while not driver.devices()[0].health.ok:
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.mark.parametrize("wait", [timedelta(microseconds=1), timedelta(milliseconds=1)], ids=str)
def test_a_board_on_which_a_claims_function_failed_is_repaired(functions, start_with, wait):
    """With the resource's own function, once the retry is due; it is a fault until that has ended, however soon."""
    repair = threading.Event()
    programmer = Programmer()
    programmer.act = lambda board: busy(board) if len(programmer.programmed) == 1 else repair.wait(60)
    soon = replace(functions, retry_first=wait, retry_limit=wait)
    driver = start_with(soon, programmer)
    with pytest.raises(DriverError):
        driver.with_options(replace(soon, function="net-v1")).prepare(driver.devices()[:1])
    assert not driver.devices()[0].health.ok
    repair.set()
    _until_healthy(driver)
    assert programmer.images["fpga-a"] == hashlib.sha256(b"a bitstream").hexdigest()
