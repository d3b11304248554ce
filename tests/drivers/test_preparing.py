import asyncio
import dataclasses
import re
import threading

import pytest

from dpgateway import Device, Health
from dpgateway.drivers.preparing import KEPT, MOST_AT_ONCE, PrepareLane
from dpgateway.drivers.running import CallsAfterClose
from dpgateway.errors import Busy, DriverError, DriverFault, DriverTimeout
from dpgateway.kit.threads import Threads
from tests.support.time import Clock
from tests.support.waiting import turns, until

A, B, C = Device("a"), Device("b"), Device("c")
SOON = 0.02
LONG = 10


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
async def lane(log, clock):
    async with asyncio.TaskGroup() as group:
        lane = PrepareLane("example.com/thing", Threads(), group, log, clock.monotonic)
        yield lane
        lane.close()
        for task in asyncio.all_tasks():
            if task.get_name().startswith("example.com/thing"):
                task.cancel()


def all_of_them(devices):
    return devices


async def too_late(lane, devices, function):
    with pytest.raises(DriverTimeout) as caught:
        await lane.prepare(devices, function, SOON)
    return str(caught.value)


def under_way(*names):
    """Calls that haven't been answered, or wait for their turn."""
    wanted = {f"example.com/thing prepare {name}" for name in names}
    return [task for task in asyncio.all_tasks() if task.get_name() in wanted]


async def finished(*names):
    await until(lambda: not under_way(*(names or ("a", "a, b"))))


async def unclaimed(lane, gate):
    """A success that nobody was told; returns what the next call would ask."""
    slow, again = gate(), gate()
    again.open()
    await too_late(lane, [A], slow)
    slow.open()
    await finished()
    return again


async def test_it_returns_when_the_driver_has_prepared(lane, gate):
    slow = gate()
    task = asyncio.ensure_future(lane.prepare([A], slow, LONG))
    await slow.entered()
    assert not task.done()
    slow.open()
    assert await task is None


async def test_a_timeout_tells_progress_and_the_call_goes_on(lane, gate):
    slow = gate()
    text = await too_late(lane, [A, B], slow)
    assert re.fullmatch(
        r"prepare\(\) of a, b hasn't finished within 0\.02 s \(running for \d+ s\); it goes on, "
        r"and the next attempt joins it",
        text,
    )
    await slow.entered()
    assert slow.running == 1


async def test_a_later_prepare_joins_the_call(lane, gate):
    slow, never = gate(), gate()
    await too_late(lane, [A, B], slow)
    joining = asyncio.ensure_future(lane.prepare([B, A], never, LONG))
    await turns()
    slow.open()
    await joining
    assert (len(slow.calls), never.calls) == (1, [])


async def test_an_unclaimed_success_answers_once(lane, gate):
    again = await unclaimed(lane, gate)
    await lane.prepare([A], again, LONG)
    assert again.calls == []
    await lane.prepare([A], again, LONG)
    assert len(again.calls) == 1


@pytest.mark.parametrize(("seconds", "calls"), [(KEPT - 0.001, 0), (KEPT, 1)])
async def test_an_unclaimed_success_is_kept_5_minutes(lane, gate, clock, seconds, calls):
    again = await unclaimed(lane, gate)
    clock.now += seconds
    await lane.prepare([A], again, LONG)
    assert len(again.calls) == calls


async def test_a_claimed_success_answers_nobody_else(lane, gate):
    slow = gate()
    slow.open()
    await lane.prepare([A], slow, LONG)
    await lane.prepare([A], slow, LONG)
    assert len(slow.calls) == 2


async def test_a_joined_success_answers_nobody_else(lane, gate):
    slow, again = gate(), gate()
    again.open()
    await too_late(lane, [A], slow)
    joining = asyncio.ensure_future(lane.prepare([A], slow, LONG))
    await turns()
    slow.open()
    await joining
    await lane.prepare([A], again, LONG)
    assert len(again.calls) == 1


async def test_a_cancelled_prepare_answers_the_next(lane, gate):
    slow, never = gate(), gate()
    task = asyncio.ensure_future(lane.prepare([A], slow, LONG))
    await slow.entered()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    slow.open()
    await finished()
    await lane.prepare([A], never, LONG)
    assert never.calls == []


async def test_a_late_failure_is_logged_and_retried(lane, gate, records):
    slow, again = gate(ValueError("no bitstream")), gate()
    again.open()
    await too_late(lane, [A], slow)
    slow.open()
    await until(records.texts)
    (text,) = records.texts()
    assert "after its deadline, prepare() of a failed: prepare() raised ValueError: no bitstream" in text
    await lane.prepare([A], again, LONG)
    assert len(again.calls) == 1


async def test_a_call_in_time_is_not_logged(lane, gate, records):
    fine, broken = gate(), gate(DriverError("no"))
    fine.open()
    broken.open()
    await lane.prepare([A], fine, LONG)
    with pytest.raises(DriverError):
        await lane.prepare([A], broken, LONG)
    assert not records.texts()


async def test_a_release_forgets_a_success(lane, gate):
    slow, again = gate(), gate()
    again.open()
    await too_late(lane, [A], slow)
    released = lane.release([A], lambda _: None, all_of_them)
    slow.open()
    await released
    await lane.prepare([A], again, LONG)
    assert len(again.calls) == 1


async def test_a_release_of_what_others_have_since_forgets_a_success(lane, gate):
    again = await unclaimed(lane, gate)
    await lane.release([A], all_of_them, lambda _: [])
    await lane.prepare([A], again, LONG)
    assert len(again.calls) == 1


async def test_giving_the_same_devices_keeps_a_success(lane, gate):
    slow, never = gate(), gate()
    await too_late(lane, [A], slow)
    lane.given([A])
    slow.open()
    await finished()
    lane.given([A])
    lane.given([B, C])
    await lane.prepare([A], never, LONG)
    assert never.calls == []


async def test_nobody_joins_an_outdated_call(lane, gate):
    slow, again = gate(), gate()
    again.open()
    await too_late(lane, [A], slow)
    lane.given([A, B])
    anew = asyncio.ensure_future(lane.prepare([A], again, LONG))
    await turns()
    slow.open()
    await anew
    assert (len(slow.calls), len(again.calls)) == (1, 1)
    await lane.prepare([A], again, LONG)
    assert len(again.calls) == 2


async def test_nobody_joins_a_call_on_what_the_device_was_before(lane, gate):
    slow, again, other = gate(), gate(), Device("a", hardware=("other",))
    again.open()
    await too_late(lane, [A], slow)
    anew = asyncio.ensure_future(lane.prepare([other], again, LONG))
    await turns()
    slow.open()
    await anew
    assert (len(slow.calls), len(again.calls)) == (1, 1)


async def test_containers_with_a_common_device_get_ready(lane, gate):
    """Each attempt is too short for its own call, and what one prepared the other doesn't undo."""
    gates = {"one": gate(), "two": gate()}
    sets = {"one": [A], "two": [A, B]}
    await too_late(lane, sets["one"], gates["one"])
    await too_late(lane, sets["two"], gates["two"])  # waits for its devices in vain
    gates["one"].open()
    await finished("a")
    await too_late(lane, sets["two"], gates["two"])
    gates["two"].open()
    await finished()
    for name, devices in sets.items():
        await lane.prepare(devices, gates[name], LONG)
    assert [len(gate.calls) for gate in gates.values()] == [1, 1]


async def test_a_release_skips_devices_given_away(lane, gate):
    slow, free = gate(), [A, B]
    released: list[tuple[Device, ...]] = []
    await too_late(lane, [A], slow)
    release = lane.release([A, B], released.append, lambda devices: [d for d in devices if d in free])
    later = lane.release([A], released.append, lambda devices: [d for d in devices if d in free])
    await turns()
    free.remove(A)
    slow.open()
    await asyncio.gather(release, later)
    assert released == [(B,)]


@pytest.mark.parametrize(
    "change",
    [
        lambda lane: lane.given([A, B]),
        lambda lane: lane.listed([B]),
        lambda lane: lane.listed([Device("a", Health.unhealthy("lost its program")), B]),
        lambda lane: lane.listed([Device("a", hardware=("other",)), B]),
    ],
    ids=["given with another", "gone", "sick", "other hardware"],
)
async def test_a_changed_device_forgets_a_success(lane, gate, change):
    again = await unclaimed(lane, gate)
    lane.listed([A, B])
    change(lane)
    await lane.prepare([A], again, LONG)
    assert len(again.calls) == 1


async def test_own_devices_are_compared_by_model_fields(lane, gate):
    @dataclasses.dataclass(frozen=True)
    class Board(Device):
        found: dict[str, int] = dataclasses.field(default_factory=dict)

    slow, never = gate(), gate()
    await too_late(lane, [Board("a", found={"at": 1})], slow)
    slow.open()
    await finished()
    lane.listed([Board("a", found={"at": 2})])
    await lane.prepare([Board("a", found={"at": 3})], never, LONG)
    assert never.calls == []


async def test_errors_of_prepare_are_not_retried(lane, gate):
    for error, kind in [(Busy("later"), Busy), (DriverError("no"), DriverError), (KeyError("x"), DriverFault)]:
        opened = gate(error)
        opened.open()
        with pytest.raises(kind):
            await lane.prepare([A], opened, LONG)
        assert len(opened.calls) == 1


async def test_different_devices_are_prepared_at_once(lane, gate):
    slow = gate()
    tasks = [asyncio.ensure_future(lane.prepare([device], slow, LONG)) for device in (A, B, C)]
    await slow.entered(3)
    assert slow.most_running == 3
    slow.open()
    await asyncio.gather(*tasks)


async def test_at_most_sixteen_preparations_at_once(lane, gate):
    slow = gate()
    devices = [Device(f"d{number}") for number in range(MOST_AT_ONCE + 4)]
    tasks = [asyncio.ensure_future(lane.prepare([device], slow, LONG)) for device in devices]
    await slow.entered(MOST_AT_ONCE)
    text = await too_late(lane, [A], slow)
    assert "waiting for one of 16 calls to end" in text
    assert slow.most_running == MOST_AT_ONCE == 16
    slow.open()
    await asyncio.gather(*tasks)
    assert slow.most_running == 16


async def test_calls_of_one_device_run_in_order(lane, gate):
    slow, order = gate(), []
    first = asyncio.ensure_future(lane.prepare([A, B], slow, LONG))
    await slow.entered()
    released = lane.release([A], lambda _: order.append("release"), all_of_them)
    second = asyncio.ensure_future(lane.prepare([A], lambda: order.append("prepare"), LONG))
    third = asyncio.ensure_future(lane.prepare([B], lambda: order.append("b"), LONG))
    await turns()
    assert order == []
    slow.open()
    await asyncio.gather(first, released, second, third)
    assert order.index("release") < order.index("prepare")


@pytest.mark.parametrize("how", ["too late", "cancelled"])
async def test_an_unwanted_call_is_dropped_before_it_begins(lane, gate, how):
    slow, never, last = gate(), gate(), gate()
    last.open()
    await too_late(lane, [A], slow)
    if how == "too late":
        text = await too_late(lane, [A, B], never)
        assert re.fullmatch(
            r"prepare\(\) of a, b hasn't finished within 0\.02 s \(waiting for its devices for \d+ s\); "
            r"the next attempt waits again",
            text,
        )
    else:
        queued = asyncio.ensure_future(lane.prepare([A, B], never, LONG))
        await turns()
        queued.cancel()
    await lane.prepare([B], last, LONG)
    slow.open()
    await lane.prepare([A, B], last, LONG)
    assert (len(slow.calls), never.calls, len(last.calls)) == (1, [], 2)


async def test_what_others_still_wait_for_is_not_dropped(lane, gate):
    slow, queued = gate(), gate()
    queued.open()
    await too_late(lane, [A], slow)
    patient = asyncio.ensure_future(lane.prepare([A, B], queued, LONG))
    await too_late(lane, [A, B], queued)
    slow.open()
    await patient
    assert len(queued.calls) == 1


async def test_nothing_piles_up_behind_a_driver_that_hangs(lane, gate):
    slow, never = gate(), gate()
    await too_late(lane, [A], slow)
    for _ in range(20):
        await too_late(lane, [A, B], never)
        await too_late(lane, [A], never)
    await turns()
    assert len([task for task in asyncio.all_tasks() if task.get_name().startswith("example.com/thing")]) == 1


async def test_overlapping_sets_do_not_deadlock(lane):
    sets = [[A, B], [B, A, C], [C, B], [C, A], [B], [A, C, B]]
    async with asyncio.timeout(20):
        await asyncio.gather(*(lane.prepare(devices, lambda: None, LONG) for devices in sets * 10))


async def test_a_hung_device_delays_no_other(lane, gate):
    await too_late(lane, [A], gate())
    await lane.prepare([B], lambda: None, LONG)


async def test_errors_of_release_are_returned(lane, gate):
    broken = gate(SystemExit(1))
    broken.open()
    assert "SystemExit: 1" in str(await lane.release([A], broken, all_of_them))
    await lane.prepare([A], lambda: None, LONG)


async def test_the_end_fails_a_prepare(gate, log):
    slow, tasks, ended, unended = gate(), [], [], CallsAfterClose()

    async def live():
        async with asyncio.TaskGroup() as group:
            ended.append(PrepareLane("ended", Threads(), group, log))
            tasks.append(asyncio.ensure_future(ended[0].prepare([A], slow, LONG)))
            await slow.entered()
            for call in ended[0].close():
                unended.add(call)
            raise LookupError

    with pytest.raises(ExceptionGroup):
        await live()
    with pytest.raises(DriverError, match="the driver ended"):
        await tasks[0]
    with pytest.raises(DriverError, match="the driver ended"):
        await ended[0].prepare([B], slow, LONG)
    assert [(one.resource, one.method, one.devices) for one in unended.now.value] == [("ended", "prepare", (A,))]
    slow.open()
    await until(lambda: not unended.now.value)
    await until(lambda: not [thread for thread in threading.enumerate() if thread.name == "ended prepare"])
