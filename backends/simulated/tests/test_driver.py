"""Devices that exist on paper, and what faults do to them."""

import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest
from dpgateway_simulated import Fault, SimulatedDriver, SimulatedOptions

from dpgateway import Busy, Device, DeviceNode, DeviceUnavailable, DriverError
from dpgateway.testing import Recorder

SOON = timedelta(milliseconds=20)


def _ids(driver):
    return [device.id for device in driver.devices()]


def _reasons(driver):
    return [device.health.reason for device in driver.devices()]


def test_default_devices(start):
    driver = start()
    assert list(driver.devices()) == [Device("node-a-0"), Device("node-a-1")]
    allocation = driver.allocate(driver.devices())
    assert (dict(allocation.env), dict(allocation.annotations), allocation.device_nodes) == ({}, {}, ())
    assert not hasattr(driver, "prepare")


def test_ids_of_ones_own(start):
    driver = start(ids=("b", "a"), count=9, numa=(0, 1), faults=(Fault(extra=1),))
    assert list(driver.devices()) == [
        Device("b", numa_nodes=(0,)),
        Device("a", numa_nodes=(1,)),
        Device("node-a-2", numa_nodes=(0,)),
    ]
    assert driver.allocate(driver.devices()[1:2]) is not None


@pytest.mark.parametrize(("ids", "found"), [(("a", "a"), "'a', 'a'"), (("",), "''")])
def test_ids_that_are_none(ids, found):
    with pytest.raises(ValueError, match=f"ids: expected texts that differ, found {found}"):
        SimulatedOptions(ids=ids)


def test_a_cdi_kind(start):
    driver = start(cdi_kind="vendor.example/thing")
    assert driver.allocate(driver.devices()).cdi_devices == (
        "vendor.example/thing=node-a-0",
        "vendor.example/thing=node-a-1",
    )
    with pytest.raises(ValueError, match=r"cdi_kind: expected vendor\.example/class, found 'thing'"):
        SimulatedOptions(cdi_kind="thing")


def test_prefixes(start):
    driver = start(
        count=3, device_id_prefix="sim", env_prefix="ENV", annotation_prefix="note", device_file_prefix="file"
    )
    assert _ids(driver) == ["sim-node-a-0", "sim-node-a-1", "sim-node-a-2"]
    allocation = driver.allocate(driver.devices()[1:])
    assert dict(allocation.env) == {"ENV_sim-node-a-1": "/dev/sim-node-a-1", "ENV_sim-node-a-2": "/dev/sim-node-a-2"}
    assert dict(allocation.annotations) == {
        "note_sim-node-a-1": "/dev/sim-node-a-1",
        "note_sim-node-a-2": "/dev/sim-node-a-2",
    }
    assert allocation.device_nodes == (DeviceNode("/dev/file-1"), DeviceNode("/dev/file-2"))


def test_index_is_the_id():
    driver = SimulatedDriver(SimulatedOptions(), Recorder().context(node_name=""))
    assert _ids(driver) == ["0", "1"]


def test_numa_nodes_repeat(start):
    assert [device.numa_nodes for device in start(count=5, numa=(0, 0, 1)).devices()] == [(0,), (0,), (1,), (0,), (0,)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"count": -1}, "^count: expected 0 or more, found -1"),
        ({"numa": (0, -1)}, "^numa: expected no node below 0, found -1"),
        ({"control_file": Path("faults.json")}, "^control_file: expected an absolute path, found 'faults.json'"),
        ({"faults": (Fault(call="prepare", hang=True),)}, "^faults: 'call: prepare' needs 'prepare: true'"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        SimulatedOptions(**options)


def test_unhealthy_and_absent_devices(start):
    driver = start(
        count=4,
        device_file_prefix="f",
        faults=(
            Fault(indexes=(1,), unhealthy="hot"),
            Fault(devices=("node-a-3",), unhealthy="cold"),
            Fault(indexes=(0,), absent=True),
        ),
    )
    assert _ids(driver) == ["node-a-1", "node-a-2", "node-a-3"]
    assert _reasons(driver) == ["hot", None, "cold"]
    assert driver.allocate([Device("node-a-2")]).device_nodes == (DeviceNode("/dev/f-2"),)
    with pytest.raises(DeviceUnavailable, match=r"^device 'node-a-1' is unhealthy: hot"):
        driver.allocate([Device("node-a-2"), Device("node-a-1")])
    with pytest.raises(DeviceUnavailable, match=r"^device 'node-a-0' is gone"):
        driver.allocate([Device("node-a-0")])


def test_extra_devices_behave_alike(start):
    driver = start(count=1, device_file_prefix="f", faults=(Fault(indexes=(2,), unhealthy="new"), Fault(extra=2)))
    assert _ids(driver) == ["node-a-0", "node-a-1", "node-a-2"]
    assert _reasons(driver) == [None, None, "new"]
    assert driver.allocate([Device("node-a-1")]).device_nodes == (DeviceNode("/dev/f-1"),)


def test_faults_come_and_go(start, recorder):
    after, lasts, every = (timedelta(milliseconds=number) for number in (300, 300, 800))  # one may be missed
    driver = start(faults=(Fault(after=after, lasts=lasts, every=every, unhealthy="flip"),))
    seen = []

    def came_and_went():
        seen.append(_reasons(driver)[0])
        once = [reason for reason, before in zip(seen, [0, *seen], strict=False) if reason != before]
        return once[-3:] == [None, "flip", None]

    recorder.until(came_and_went)


@pytest.mark.parametrize("call", ["list", "allocate", "prepare"])
def test_a_call_fails_or_is_busy(start, call):
    failing = start(prepare=True, faults=(Fault(call=call, error="out of order"),))
    busy = start(prepare=True, faults=(Fault(call=call, busy=True),))
    for driver, error, message in [(failing, DriverError, "^out of order$"), (busy, Busy, f"{call} is busy")]:
        arguments = () if call == "list" else ([Device("node-a-0")],)
        method = getattr(driver, "devices" if call == "list" else call)
        with pytest.raises(error, match=message):
            method(*arguments)


def test_call_fails_for_its_devices(start):
    driver = start(faults=(Fault(call="allocate", error="bad slot", indexes=(1,)),))
    driver.allocate([Device("node-a-0")])
    with pytest.raises(DriverError, match=r"bad slot"):
        driver.allocate([Device("node-a-0"), Device("node-a-1")])


def test_a_slow_call_takes_its_time(start):
    driver = start(faults=(Fault(call="list", delay=SOON),))
    began = time.monotonic()
    assert len(driver.devices()) == 2
    assert time.monotonic() - began >= SOON.total_seconds()


def test_a_slow_call_ends_with_its_fault(start, recorder):
    lasts, delay = timedelta(seconds=1), timedelta(seconds=60)
    began = time.monotonic()
    driver = start(faults=(Fault(call="allocate", delay=delay, lasts=lasts),))
    driver.allocate([Device("node-a-0")])
    assert "allocate is held up" in recorder.messages
    assert lasts.total_seconds() <= time.monotonic() - began < delay.total_seconds()


def test_hanging_call_returns(start, control, recorder):
    control.write({"call": "list", "hang": True})
    driver = start(control_file=control.path)
    answers = []
    thread = threading.Thread(target=lambda: answers.append(_ids(driver)))
    thread.start()
    recorder.until(lambda: "list is held up" in recorder.messages)
    assert driver.allocate([Device("node-a-0")]), "only the list hangs"
    assert answers == []
    control.write()
    thread.join(20)
    assert answers == [["node-a-0", "node-a-1"]]


def test_close_ends_all_threads(start, control, recorder):
    before = set(threading.enumerate())
    later = Fault(after=timedelta(hours=1), absent=True)
    driver = start(control_file=control.path, faults=(Fault(call="allocate", hang=True), later))
    errors = []

    def allocate():
        try:
            driver.allocate([Device("node-a-0")])
        except DriverError as error:
            errors.append(str(error))

    thread = threading.Thread(target=allocate)
    thread.start()
    recorder.until(lambda: "allocate is held up" in recorder.messages)
    driver.close()
    for thread in set(threading.enumerate()) - before:
        thread.join(20)
        assert not thread.is_alive()
    assert errors == ["the simulated driver is closed"]


def test_without_faults_there_is_no_thread(start):
    before = set(threading.enumerate())
    start()
    assert set(threading.enumerate()) <= before
