"""A load that hangs in the kernel holds up nothing else: no other board, and not the end of the process."""

import asyncio
import errno
import pickle
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from dpgateway_fpga import FpgaDriver, FpgaOptions
from dpgateway_fpga.journal import BoardJournal
from dpgateway_fpga.programmers import Failed
from dpgateway_fpga.programmers.fpga_manager import FpgaManagerProgrammer

from backends.fpga.tests.kernel.manager import Gate
from dpgateway import Busy, DriverError
from dpgateway_simulator import Kubelet
from tests.support.fuse import Text
from tests.support.gateway import Gateway

PROGRAM = """
import pickle, sys, threading
options, image = pickle.loads(bytes.fromhex(sys.argv[1]))
from dpgateway_fpga.journal import BoardJournal
from dpgateway_fpga.programmers import Failed
from dpgateway_fpga.programmers.fpga_manager import FpgaManagerProgrammer
reached = threading.Event()
def work():
    with BoardJournal(options.state_dir).locked("fpga-a") as locks:
        FpgaManagerProgrammer(options).program(options.boards[0], image, lambda _: reached.set(), locks)
threading.Thread(target=work, daemon=True).start()
assert reached.wait(60)
"""


def _reasons(driver):
    return {device.id: device.health.reason for device in driver.devices() if not device.health.ok}


def _start_container(driver, device):
    """As the kubelet does it, again and again."""
    end = time.monotonic() + 120  # on a busy machine each child may take longer than the patience
    while True:
        try:
            return driver.prepare([device])
        except DriverError:
            assert time.monotonic() < end


def test_hanging_load_is_isolated(kernel, real, start):
    gate = kernel.manager("f8007000.devcfg").hold("write")
    other = kernel.manager("f8008000.devcfg", 1)
    driver = start(real(programmer="fpga-manager", wait=timedelta(seconds=0.1)))
    hung, free = driver.devices()
    told = ""
    while ": write; it goes on" not in told:
        with pytest.raises(Busy, match=r"^board 'fpga-a' is being programmed with crypto-v3 ") as busy:
            driver.prepare([hung])
        told = str(busy.value)
    _start_container(driver, free)
    assert other.state == "operating"
    assert _reasons(driver) == {}
    gate.open()
    _start_container(driver, hung)


def test_boards_found_after_the_end_are_not_tried_again(
    kernel: Any, real: Callable[..., FpgaOptions], start: Callable[..., FpgaDriver]
) -> None:
    """A look that hung ends after close(). Else the retries of a removed resource would go on for ever."""
    managers = [
        kernel.manager(address, number) for number, address in enumerate(("f8007000.devcfg", "f8008000.devcfg"))
    ]
    managers[0].fail, managers[0].error = "write", errno.EBUSY
    before, driver = set(threading.enumerate()), start(real(programmer="fpga-manager"))
    driver.close()
    with pytest.raises(DriverError):
        driver.prepare(driver.devices()[:1])
    assert not any(isinstance(one, threading.Timer) for one in set(threading.enumerate()) - before)


def test_hanging_status_is_isolated(kernel, real, start, recorder):
    gate, hung = Gate(), kernel.manager("f8007000.devcfg")
    kernel.manager("f8008000.devcfg", 1)
    kernel.root.make(f"{hung.path}/status", Text(lambda: gate.wait() or ""))
    driver = start(real(programmer="fpga-manager"))
    reasons = _reasons(driver)
    assert reasons.keys() == {"fpga-a"}
    assert reasons["fpga-a"].startswith("a read of its state hangs, which began ")
    driver.prepare([device for device in driver.devices() if device.health.ok])
    gate.open()
    recorder.until(lambda: not _reasons(driver))


def test_hanging_look_keeps_boards(kernel, real, recorder):
    kernel.manager("f8007000.devcfg")
    options = real(programmer="fpga-manager", discover=("*",), boards=real().boards[:1])
    with closing(FpgaDriver(options, recorder.context(), looking=0.2)) as driver:
        recorder.until(lambda: [(one.id, one.health.ok) for one in driver.devices()] == [("fpga-a", True)])
        recorder.messages.clear()  # of a first look that took longer
        gate, late = Gate(), kernel.manager("f8008000.devcfg", 1)
        kernel.root.make(f"{late.path}/uevent", Text(lambda: gate.wait() or ""))
        for _ in range(2):
            (device,) = driver.devices()
            assert (device.id, device.health.ok) == ("fpga-a", True)
        driver.prepare([device])
        assert [text for text in recorder.messages if "a search for boards hangs" in text] == [
            "a search for boards hangs; until it ends, boards that come or go aren't noticed"
        ]
        gate.open()
        recorder.until(lambda: [device.id for device in driver.devices()] == ["fpga-a", "f8008000.devcfg"])


def test_board_returns_after_hanging_load(kernel, real, start):
    manager = kernel.manager("f8007000.devcfg")
    gate = manager.hold("write")
    driver = start(real(programmer="fpga-manager", patience=timedelta(seconds=1), boards=real().boards[:1]))
    (hung,) = driver.devices()
    with pytest.raises(DriverError, match="it is left behind"):
        driver.prepare([hung])
    assert "it is left behind" in _reasons(driver)["fpga-a"]
    with pytest.raises(Busy, match="another process is programming it, and has locked"):
        driver.prepare([hung])
    gate.open()
    _start_container(driver, hung)
    assert (_reasons(driver), manager.at_once) == ({}, 1)


def test_next_process_waits_for_load(kernel, real, image):
    gate = kernel.manager("f8007000.devcfg").hold("write")
    options = replace(real(), programmer="fpga-manager")
    arguments = pickle.dumps((options, image)).hex()
    subprocess.run([sys.executable, "-c", PROGRAM, arguments], timeout=120, check=True)
    assert gate.reached.wait(60)  # its child is in the write, and has the lock
    with (
        pytest.raises(Busy, match="another process is programming it"),
        BoardJournal(options.state_dir).locked("fpga-a"),
    ):
        pass
    with pytest.raises(Failed, match=r"another process is programming it \(EAGAIN\); state: write$"):
        FpgaManagerProgrammer(options).program(options.boards[0], image, print)
    gate.open()


AES, THING = "example.com/aes", "example.com/thing"


def _resources(options):
    fpga = {
        "boards": [{"id": "fpga-a", "address": "f8007000.devcfg"}],
        "bitstream": {"path": str(options.bitstream.path), "id": "crypto-v3"},
        "programmer": "fpga-manager",
        "fpga_manager": {"firmware": str(options.fpga_manager.firmware)},
        "sysfs": options.sysfs,
        "state_dir": str(options.state_dir),
    }
    yield {"name": AES, "driver": "fpga", "options": fpga}
    yield {"name": THING, "driver": "simulated", "options": {"count": 1}}


async def test_gateway_survives_a_hanging_load(kernel, real):
    gate = kernel.manager("f8007000.devcfg").hold("write")
    folder = tempfile.TemporaryDirectory(prefix="dp-")  # of a short path, as sockets need it
    path = Path(folder.name)
    async with Kubelet("1.31", path) as kubelet, Gateway(path, path) as gateway:
        await gateway.start(*_resources(real()))
        await kubelet.wait_for(lambda: kubelet.counts(AES)[1] == kubelet.counts(THING)[1] == 1)
        starting = asyncio.ensure_future(kubelet.pre_start(AES, ["fpga-a"]))
        assert await asyncio.to_thread(gate.reached.wait, 60)
        assert (await kubelet.admit("other", {"c": {THING: 1}}))["ok"]
        assert await gateway.end() == 0
        await asyncio.wait([starting])
        assert starting.exception() is not None
    gate.open()
    folder.cleanup()
