import asyncio
import threading

import pytest

from dpgateway import Device, DriverError
from dpgateway.deviceplugin.offer.offering import Offering
from dpgateway.drivers.running import RunningDriver
from tests.support.resources import configured, scripted
from tests.support.waiting import until

A, B = Device("a"), Device("b")


class Running:
    """A driver run beside an offering, until the test ends."""

    def __init__(self, config, log):
        self.offering = Offering(config, log, lambda: None)
        self.offering.hold(frozenset(), 0.0)
        self.lanes, self.attached = None, []
        self.driver = RunningDriver(config, "node-a", self.offering, self._attach, log)
        self.task = asyncio.ensure_future(self.driver.run())

    def _attach(self, lanes):
        self.lanes = lanes
        self.attached.append(lanes is not None)

    def offers(self):
        current = self.offering.inventory.current
        return None if current is None else {offer.id: offer.health.reason for offer in current.offers.values()}

    async def end(self):
        self.task.cancel()
        await asyncio.wait([self.task])
        self.offering.close()


@pytest.fixture
async def run(log):
    running = []

    def make(driver_class=None, **config):
        running.append(Running(configured(driver_class=driver_class, **config), log))
        return running[-1]

    yield make
    for one in running:
        await one.end()


async def test_a_driver_is_made_attached_and_listed(run):
    one = run(scripted())
    await until(one.offers)
    assert one.offers() == {"a": None, "b": None}
    assert one.attached == [True]
    assert (await one.lanes.allocate([A])).env == {"GOT": "a"}


async def test_a_driver_gets_its_options_and_a_context(run):
    made = []

    class Curious(scripted()):
        def __init__(self, options, context):
            made.append((options, context))
            super().__init__(options, context)

    one = run(Curious)
    await until(one.offers)
    ((options, context),) = made
    assert options == configured().options
    assert (context.resource, context.node_name) == ("example.com/thing", "node-a")


async def test_a_driver_that_can_not_be_made_is_said_once_and_tried_again(run, records):
    answers = [ZeroDivisionError("no bus"), None]

    class Shy(scripted()):
        def __init__(self, options, context):
            if error := answers.pop(0):
                raise error

    one = run(Shy)
    await until(one.offers, 10)
    assert [text for text in records.texts() if "failed" in text] == [
        "the resource failed: the driver scripted isn't running: __init__() raised ZeroDivisionError: no bus"
    ]


@pytest.mark.parametrize("error", [SystemExit(1), BaseExceptionGroup("x", [GeneratorExit()]), DriverError("no")])
async def test_whatever_a_driver_raises_its_task_goes_on(run, records, error):
    class Bad(scripted()):
        def __init__(self, options, context):
            raise error

    one = run(Bad)
    await until(records.texts)
    assert not one.task.done()
    assert "isn't running: " in records.texts()[0]


async def test_a_driver_that_is_not_installed_fails_its_resource(run, records):
    run(None)
    await until(records.texts)
    assert records.texts() == ["the resource failed: the driver scripted isn't running: it isn't installed"]


async def test_without_a_driver_the_held_ids_are_offered_at_the_list_deadline_unhealthy(run):
    one = run(None, failure="its options are wrong", timeouts={"list": 0.001})
    one.offering.hold(frozenset({"a"}), 0.0)
    assert one.offers() is None
    await until(lambda: one.offers() is not None)
    assert list(one.offers()) == ["a"]
    assert one.offers()["a"]


async def test_a_driver_that_hangs_being_made_is_offered_at_the_deadline_and_taken_in_the_end(run, gate):
    slow = gate()

    class Slow(scripted()):
        def __init__(self, options, context):
            slow()

    one = run(Slow, timeouts={"list": 0.02})
    await until(lambda: one.offers() == {})
    assert one.attached == []
    slow.open()
    await until(lambda: one.offers() == {"a": None, "b": None})


@pytest.mark.parametrize("hangs", ["devices", "__init__", None])
async def test_the_first_list_is_awaited_until_the_list_deadline_whatever_the_driver_is_at(run, gate, hangs):
    """Its failures have pauses of 1, 2, 4 seconds between them, and each of its calls a deadline of its own."""
    slow, began = gate(), asyncio.get_running_loop().time()

    class Slow(scripted()):
        def __init__(self, options, context):
            if hangs == "__init__":
                slow()

        def devices(self):
            if hangs == "devices":
                slow()
            raise DriverError("no bus")

    one = run(Slow, timeouts={"list": 1})
    one.offering.hold(frozenset({"a"}), 0.0)
    await until(one.offers)
    assert 1 <= asyncio.get_running_loop().time() - began < 1.9
    assert list(one.offers()) == ["a"]
    assert one.offers()["a"]


async def test_a_driver_that_hangs_listing_has_its_devices_unhealthy_until_it_answers(run, gate):
    slow, context = gate([A]), []
    lists = iter([lambda: [A, B], slow])

    def listed():
        return next(lists)()

    class Slow(scripted(devices=listed)):
        def __init__(self, options, given):
            context.append(given)

    one = run(Slow, timeouts={"list": 0.05})
    await until(one.offers)
    context[0].changed()
    await until(lambda: one.offers() == dict.fromkeys("ab", "the driver hasn't answered for 0.05 s"))
    slow.open()
    await until(lambda: one.offers()["a"] is None)
    assert one.offers()["b"] == "its device is gone"


async def test_a_driver_that_hangs_in_allocate_and_prepare_lists_all_the_same(run, gate):
    hangs, context = gate(), []

    class Stuck(scripted(allocate=hangs, prepare=hangs)):
        def __init__(self, options, given):
            context.append(given)
            self.count = 0

        def devices(self):
            self.count += 1
            return [Device(f"d{number}") for number in range(self.count)]

    one = run(Stuck, timeouts={"allocate": 0.02, "prepare": 0.02})
    await until(one.offers)
    for call in (one.lanes.allocate, one.lanes.prepare):
        with pytest.raises(Exception, match="hasn't"):
            await call([Device("d0")])
    context[0].changed()
    await until(lambda: "d1" in one.offers())


async def test_what_nobody_holds_any_more_is_released(run):
    released = []
    one = run(scripted(release=released.append))
    await until(one.offers)
    one.offering.hold(frozenset({"a", "b"}), 0.0)
    one.offering.hold(frozenset({"b"}), 0.0)
    await until(lambda: released == [(A,)])


async def test_no_thread_of_a_driver_that_ended_stays(run):
    one = run(scripted(), name="example.com/ended")
    await until(one.offers)
    await one.lanes.allocate([A])
    await one.lanes.prepare_lane.release([A], lambda _: None, lambda devices: devices)
    await one.end()
    names = {"example.com/ended allocate", "example.com/ended release"}
    await until(lambda: not names & {thread.name for thread in threading.enumerate()})


async def test_a_driver_that_failed_as_a_whole_is_closed_before_another_is_made(run):
    life = []

    class Odd(scripted(close=lambda: life.append("closed"))):
        def __init__(self, options, context):
            life.append("made")

        @property
        def prefer(self):
            if len(life) == 1:
                raise LookupError("not this time")
            return lambda available, must, size: available[:size]

    one = run(Odd)
    await until(one.offers)
    assert life == ["made", "closed", "made"]


async def test_closing_waits_for_close_as_long_as_it_is_told_and_says_so(run, gate, records):
    hangs = gate()
    one = run(scripted(close=hangs))
    await until(one.offers)
    async with asyncio.timeout(2):
        await one.driver.close(0.02)
    assert records.texts() == ["the driver hasn't closed: close() hasn't answered for 0.02 s"]


async def test_what_close_raises_is_logged(run, records):
    one = run(scripted(close=lambda: 1 / 0))
    await until(one.offers)
    await one.driver.close(5)
    assert records.texts() == ["the driver failed: close() raised ZeroDivisionError: division by zero"]


async def test_a_driver_is_closed_while_its_other_methods_hang(run, gate):
    hangs, closed = gate([]), threading.Event()
    one = run(scripted(devices=hangs, close=closed.set))
    await hangs.entered()
    await one.driver.close(5)
    assert closed.is_set()
