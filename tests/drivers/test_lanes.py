import asyncio
import contextlib
import re
import time

import pytest

from dpgateway import Allocation, Busy, Device, DeviceNode, DeviceUnavailable, DriverError
from dpgateway.drivers.contract import abilities
from dpgateway.drivers.lanes import Lanes
from dpgateway.errors import DriverFault, DriverTimeout, GatewayError
from dpgateway.kit.observable import Observable
from dpgateway.kit.threads import Threads
from tests.support.resources import Scripted, configured, scripted
from tests.support.waiting import turns, until

A, B = Device("a"), Device("b")
SOON = {"allocate": 0.05, "prepare": 0.05, "prefer": 0.05}


class One(Lanes):
    """With a caller that notes late answers, and says what is free."""

    def __init__(self, driver, config, group, held, log):
        super().__init__(driver, Observable(config), Threads(), group, log)
        self.held, self.late = held, 0

    def free(self, devices):
        return [one for one in devices if one.id not in self.held]

    def came_late(self, _):
        self.late += 1

    async def allocate(self, devices, abandoned=None, options=None):
        return await super().allocate(
            devices, abandoned or (lambda call: call.add_done_callback(self.came_late)), options
        )

    def release(self, devices, free=None, told=None):
        super().release(devices, free or self.free, told)


@pytest.fixture
async def make(log):
    """Makes the lanes of a driver with these methods; ``held``: ids of devices that containers have."""
    async with asyncio.TaskGroup() as group:
        made = []

        def lanes(held=(), timeouts=None, **methods):
            config = configured(timeouts={"allocate": 10, "prepare": 10, "prefer": 10, **(timeouts or {})})
            driver = scripted(**methods)(config.options, None)
            made.append(One(driver, config, group, held, log))
            return made[-1]

        yield lanes
        for one in made:
            one.preparing.close()


def test_abilities_are_optional_methods():
    assert abilities(Scripted) == frozenset()
    assert abilities(scripted(prepare=print, release=print, close=print)) == {"prepare", "release", "close"}


async def test_allocate_returns_the_drivers_allocation(make):
    assert await make().allocate([A, B]) == Allocation(env={"GOT": "a,b"})


@pytest.mark.parametrize(
    ("error", "kind"), [(DriverError("x"), DriverError), (DeviceUnavailable("x"), DeviceUnavailable), (Busy("x"), Busy)]
)
async def test_errors_keep_their_kind_and_name_the_device(make, gate, error, kind):
    fails = gate(error)
    fails.open()
    lanes = make(allocate=fails, prepare=fails)
    for call in (lanes.prepare, *([lanes.allocate] if kind is not Busy else [])):  # that asks a Busy driver again
        with pytest.raises(kind) as caught:
            await call([A, B])
        assert type(caught.value) is kind
        assert str(caught.value) == "resource example.com/thing, device a, b: driver scripted: x"


@pytest.mark.parametrize(
    "answer", [None, "x", [Allocation()], (one for one in [Allocation()])], ids=["none", "text", "list", "generator"]
)
async def test_a_wrong_allocation_is_a_fault(make, records, answer):
    with pytest.raises(DriverFault, match=r"allocate\(\) returned .*, expected an Allocation"):
        await make(allocate=lambda _: answer).allocate([A])
    assert records.texts()[0].startswith("the driver broke its contract: allocate() returned")


async def test_an_answer_with_a_broken_repr(make):
    class Odd:
        def __repr__(self):
            raise SystemExit

    with pytest.raises(DriverFault, match=r"allocate\(\) raised"):
        await make(allocate=lambda _: Odd()).allocate([A])


async def test_a_fault_is_logged_with_traceback(make, records):
    with pytest.raises(DriverFault, match=r"allocate\(\) raised ZeroDivisionError"):
        await make(allocate=lambda _: 1 / 0).allocate([A])
    assert records.records[-1].levelname == "ERROR"
    assert records.records[-1].exception.startswith("Traceback (most recent call last):")
    assert records.records[-1].exception.endswith("ZeroDivisionError: division by zero")


async def test_contract_errors_are_not_logged(make, gate, records):
    fails = gate(DriverError("no"))
    fails.open()
    with pytest.raises(DriverError):
        await make(allocate=fails).allocate([A])
    assert records.texts() == []


async def test_an_error_with_a_hanging_str(make, gate):
    hangs = gate("told at last")

    class Mute(Exception):
        def __str__(self):
            return hangs()

    def fails(_):
        raise Mute

    lanes = make(allocate=fails, prepare=fails, timeouts=SOON)
    for ask in (lanes.allocate, lanes.prepare):
        with pytest.raises(DriverTimeout):
            await ask([A])


async def test_each_call_has_its_deadline(make, gate):
    hangs = gate()
    lanes = make(allocate=hangs, prefer=hangs, prepare=hangs, timeouts=SOON)
    with pytest.raises(DriverTimeout, match=r"driver scripted: allocate\(\) hasn't answered for 0.0\d+ s"):
        await lanes.allocate([A])
    with pytest.raises(DriverTimeout, match=r"driver scripted: prefer\(\) hasn't answered for 0.05 s"):
        await lanes.prefer([A, B], [], 1)
    with pytest.raises(DriverTimeout, match=r"device a: driver scripted: prepare\(\) of a hasn't finished"):
        await lanes.prepare([A])


async def test_the_lanes_never_wait_for_one_another(make, gate):
    hangs = gate()
    lanes = make(allocate=hangs, prepare=hangs)
    async with asyncio.TaskGroup() as group:
        for devices in ([A], [B]):
            group.create_task(lanes.prepare(devices))
        allocating = group.create_task(lanes.allocate([A]))
        await hangs.entered(3)
        hangs.answer = Allocation()
        hangs.open()
    assert allocating.result() == Allocation()


async def test_prefer_behind_an_allocate_keeps_its_deadline(make, gate):
    hangs = gate(Allocation())
    lanes = make(allocate=hangs, prefer=lambda *_: [A], timeouts={"prefer": 0.05})
    allocating = asyncio.ensure_future(lanes.allocate([A]))
    await hangs.entered()
    with pytest.raises(DriverTimeout, match=r"prefer\(\) wasn't called"):
        async with asyncio.timeout(9):
            await lanes.prefer([A, B], [], 1)
    hangs.open()
    await allocating


async def test_what_was_allocated_too_late_is_told(make, gate):
    slow = gate(Allocation())
    lanes = make(allocate=slow, timeouts=SOON)
    with pytest.raises(DriverTimeout):
        await lanes.allocate([A, B])
    assert lanes.late == 0
    slow.open()
    await until(lambda: lanes.late == 1)


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (None, "success"),
        (DriverError("x"), "error"),
        (DeviceUnavailable("x"), "unavailable"),
        (Busy("x"), "busy"),
        (LookupError("x"), "fault"),
    ],
)
async def test_each_call_is_counted_by_its_outcome(make, gate, answer, outcome):
    called = gate(answer)
    called.open()
    lanes, told = make(prepare=called, release=called), asyncio.Event()
    with contextlib.suppress(GatewayError):
        await lanes.prepare([A])
    lanes.release([A], told=told.set)
    await told.wait()
    assert {name: calls.outcomes for name, calls in lanes.stats.read().items()} == {
        "prepare": {outcome: 1},
        "release": {outcome: 1},
    }


async def test_timeouts_and_cancellations_are_counted(make, gate):
    slow = gate(Allocation())
    lanes = make(allocate=slow, prefer=slow, timeouts={"allocate": 0.05})
    with pytest.raises(DriverTimeout):
        await lanes.allocate([A])
    waiting = asyncio.ensure_future(lanes.prefer([A], [], 1))
    await slow.entered(2)
    waiting.cancel()
    await asyncio.wait([waiting])
    counted = lanes.stats.read()
    assert (counted["allocate"].outcomes, counted["prefer"].outcomes) == ({"timeout": 1}, {"cancelled": 1})
    assert counted["allocate"].seconds >= 0.05


async def test_a_driver_without_release_isn_t_told(make):
    make().release([A])


async def test_a_preparation_delays_the_release(make, gate):
    hangs, told = gate(), []
    lanes = make(prepare=hangs, timeouts=SOON)
    with pytest.raises(DriverTimeout):
        await lanes.prepare([A])
    lanes.release([B], told=lambda: told.append(B))
    lanes.release([A], told=lambda: told.append(A))
    await until(lambda: told)
    assert told == [B]
    hangs.open()
    await until(lambda: told == [B, A])


async def test_what_is_allocated_again_is_not_released(make, gate):
    slow = gate()
    released: list[tuple[Device, ...]] = []
    held: set[str] = set()
    lanes = make(prepare=slow, release=released.append, held=held, timeouts=SOON)
    with pytest.raises(DriverTimeout):
        await lanes.prepare([A])
    lanes.release([A, B])
    held.add("a")
    slow.open()
    await until(lambda: released == [(B,)])


async def test_allocate_waits_for_a_release_of_its_devices(make, gate):
    slow = gate()
    calls: list[tuple[Device, ...]] = []

    def allocate(devices):
        calls.append(devices)
        return Allocation()

    lanes = make(release=slow, allocate=allocate)
    lanes.release([A])
    await slow.entered()
    waiting = asyncio.ensure_future(lanes.allocate([A, B]))
    await turns()
    await lanes.allocate([B])
    assert calls == [(B,)]
    slow.open()
    await waiting
    assert calls == [(B,), (A, B)]


async def test_waiting_for_a_release_counts(make, gate):
    slow, never = gate(), gate()
    lanes = make(release=slow, allocate=never, timeouts=SOON)
    lanes.release([A, B])
    await slow.entered()
    with pytest.raises(DriverTimeout) as caught:
        await lanes.allocate([A])
    text = r"allocate\(\) wasn't called within 0.05 s, because release\(\) of a has been under way for \d+ s"
    assert re.fullmatch(f"resource example.com/thing, device a: driver scripted: {text}", str(caught.value))
    assert never.calls == []


async def test_allocate_ignores_a_release_not_begun(make, gate):
    slow = gate()
    released: list[tuple[Device, ...]] = []
    held: set[str] = set()
    lanes = make(prepare=slow, release=released.append, held=held)
    preparing = asyncio.ensure_future(lanes.prepare([A]))
    await slow.entered()
    lanes.release([A], told=lambda: held.add("told"))
    held.add("a")
    await lanes.allocate([A])
    slow.open()
    await preparing
    await until(lambda: "told" in held)
    assert released == []


async def test_allocating_with_others_needs_another_prepare(make, gate):
    slow = gate()
    lanes = make(allocate=lambda _: Allocation(), prepare=slow)
    abandoned = asyncio.ensure_future(lanes.prepare([A]))
    await slow.entered()
    abandoned.cancel()
    await lanes.allocate([A, B])
    slow.open()
    await lanes.prepare([A])
    assert len(slow.calls) == 2


async def test_what_release_raises_is_logged(make, records):
    make(release=lambda _: 1 / 0).release([A])
    await until(records.texts)
    assert records.texts() == ["the driver failed: release() raised ZeroDivisionError: division by zero"]
    assert records.records[0].devices == ["a"]
    assert records.records[0].exception.endswith("ZeroDivisionError: division by zero")


async def test_a_contract_error_of_release_has_no_traceback(make, gate, records):
    fails = gate(DriverError("no power"))
    fails.open()
    make(release=fails).release([A])
    await until(records.texts)
    assert records.texts() == ["the driver failed: no power"]
    assert records.records[0].exception is None


async def test_a_release_cut_short_by_the_end(log, records, gate):
    slow = gate()

    async def end():
        async with asyncio.TaskGroup() as group:
            config = configured()
            One(scripted(release=slow)(config.options, None), config, group, (), log).release([A, B])
            await slow.entered()
            raise LookupError

    with pytest.raises(ExceptionGroup):
        await end()
    await until(records.texts)
    (record,) = records.records
    assert record.getMessage() == "the driver ended before it released its devices"
    assert (record.levelname, record.devices, record.exception) == ("WARNING", ["a", "b"], None)


async def test_a_release_after_the_end_is_dropped(make, gate):
    never = gate()
    lanes = make(release=never)
    lanes.preparing.close()
    lanes.release([A])
    assert never.calls == []


async def test_prefer_is_checked(make):
    with pytest.raises(DriverFault, match="'b', which isn't available"):
        await make(prefer=lambda *_: [B]).prefer([A], [], 1)
    assert await make(prefer=lambda available, must, size: available[:size]).prefer([A, B], [], 1) == (A,)


class BusyTwice:
    def __init__(self, answer):
        self.answer, self.calls = answer, 0

    def __call__(self, *_):
        self.calls += 1
        if self.calls <= 2:
            raise Busy("later")
        return self.answer


async def test_busy_is_retried_for_allocate(make):
    allocate, prepare = BusyTwice(Allocation()), BusyTwice(None)
    lanes = make(allocate=allocate, prepare=prepare)
    assert await lanes.allocate([A]) == Allocation()
    await lanes.prepare([A], once=False)
    assert (allocate.calls, prepare.calls) == (3, 3)
    prepare.calls = 0
    with pytest.raises(Busy, match="later"):
        await lanes.prepare([A])
    assert prepare.calls == 1


async def test_other_calls_run_between_busy_retries(make, gate):
    busy = gate(Busy("still"))
    busy.open()
    lanes = make(allocate=lambda devices: busy() if devices == (A,) else Allocation())
    waiting = asyncio.ensure_future(lanes.allocate([A]))
    await busy.entered()
    assert await lanes.allocate([B]) == Allocation()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def in_time(ask):
    """What ``ask`` returns. A machine may stall just before the deadline, or at the last chance, but not each time."""
    for _ in range(4):
        with contextlib.suppress(DriverTimeout, Busy):
            return await ask()
    return await ask()


class BusyUntil:
    """Is Busy until then, and answers afterwards."""

    def __init__(self, end):
        self.end, self.asked = end, []

    def __call__(self, _):
        self.asked.append(time.monotonic())
        if time.monotonic() < self.end:
            raise Busy("still")
        return Allocation()


async def test_busy_until_the_deadline_is_busy(make):
    async def ask():
        driver = BusyUntil(float("inf"))
        with pytest.raises(Busy, match="still"):
            await make(allocate=driver, timeouts={"allocate": 1}).allocate([A])
        if len(driver.asked) < 2:
            raise DriverTimeout("its first answer came after the last chance")
        return len(driver.asked)

    assert 2 <= await in_time(ask) <= 6


async def test_busy_has_a_last_chance(make):
    """The next of the doubling pauses would end at 0.75 s, and the one after it at 1.55 s."""

    async def ask():
        driver = BusyUntil(time.monotonic() + 1.0)
        return await make(allocate=driver, timeouts={"allocate": 1.2}).allocate([A])

    assert await in_time(ask) == Allocation()


async def test_other_errors_are_not_retried(make, gate):
    broken = gate(DriverError("broken"))
    broken.open()
    with pytest.raises(DriverError, match="broken"):
        await make(allocate=broken).allocate([A])
    assert len(broken.calls) == 1


def show_nodes(devices):
    return Allocation(device_nodes=tuple(DeviceNode(f"/dev/{one.id}") for one in devices))


@pytest.mark.parametrize(
    "methods",
    [
        {"allocate": show_nodes},
        {"preview": lambda device: show_nodes([device]), "prepare": lambda _: None, "allocate": pytest.fail},
    ],
    ids=["allocate", "preview"],
)
async def test_devices_are_shown_to_monitors_as_a_container_would_get_them(make, methods):
    assert await make(**methods).show([A, B]) == show_nodes([A, B])


async def test_a_driver_that_prepares_shows_nothing_without_preview(make):
    """In allocate() it may begin to change the device."""
    with pytest.raises(DriverError, match=r"prepare\(\), but no preview\(\)"):
        await make(allocate=pytest.fail, prepare=lambda _: None).show([A])


class Other:
    """What a driver returns for a claim's options."""

    def __init__(self, options, prepared):
        self.options, self.prepared = options, prepared

    def allocate(self, devices):
        return Allocation(env={"OTHER": self.options})

    def prepare(self, devices):
        self.prepared.append(self.options)


async def test_a_claims_options_go_to_what_the_driver_returns_for_them(make):
    prepared: list[str] = []
    lanes = make(with_options=lambda options: Other(options, prepared), prepare=lambda _: prepared.append("own"))
    assert "with_options" in lanes.abilities
    assert await lanes.allocate([A], options="net") == Allocation(env={"OTHER": "net"})
    await lanes.prepare([A], options="net")
    await lanes.prepare([A])
    assert prepared == ["net", "own"]


async def test_a_preparation_with_other_options_is_not_joined(make, gate):
    """It goes on, and the next one of the device comes after it."""
    prepared: list[str] = []
    slow = gate()

    class Slow(Other):
        def prepare(self, devices):
            slow(devices)
            super().prepare(devices)

    lanes = make(
        timeouts={"prepare": 0.05},
        with_options=lambda options: Slow(options, prepared),
        prepare=lambda _: prepared.append("own"),
    )
    with pytest.raises(DriverTimeout):
        await lanes.prepare([A], options="net")
    slow.open()
    await until(lambda: prepared == ["net"])
    await until(lambda: lanes.preparing.idle)
    with contextlib.suppress(DriverTimeout):  # on a busy machine
        await lanes.prepare([A], options="aes")  # the late success is of another function
    await until(lambda: prepared == ["net", "aes"])


async def test_a_refusal_of_options_is_the_drivers(make):
    def refuse(options):
        raise DriverError("no such function")

    lanes = make(with_options=refuse)
    with pytest.raises(DriverError, match="device a: driver scripted: no such function"):
        await lanes.allocate([A], options="net")
