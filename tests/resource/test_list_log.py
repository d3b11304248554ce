import asyncio
import logging
from collections.abc import Mapping

import pytest

from dpgateway.kit.observable import Observable
from dpgateway.model import Health
from dpgateway.resource.list_log import FEW, FREE, LEFT, MOST_LINES, NEW, RECOVERED, Fate, ListLog, changes, falls
from dpgateway.resource.shares import Offer
from tests.support.time import advance, in_virtual_time
from tests.support.waiting import until


def listed(*ids, **unhealthy):
    offers = [Offer(id_, Health.healthy()) for id_ in ids]
    offers += [Offer(id_, Health.unhealthy(reason)) for id_, reason in unhealthy.items()]
    return {offer.id: offer for offer in offers}


def forms(*ids, reason=None):
    """Shares of one device, whose ids don't say so."""
    return {id_: Offer(id_, Health.unhealthy(reason) if reason else Health.healthy(), first=ids[0]) for id_ in ids}


def in_use(id_, reason):
    """Its hardware is in use under another name."""
    return {id_: Offer(id_, Health.unhealthy(reason), taken=True)}


def withheld(reason):
    return Fate(logging.INFO, f"withheld: {reason}", reason)


def unhealthy(reason):
    return Fate(logging.WARNING, f"Unhealthy: {reason}", reason)


@pytest.mark.parametrize(
    ("told", "now", "found"),
    [
        (None, listed("a", "b"), {}),
        (None, listed("a", b="wet"), {"b": unhealthy("wet")}),
        (listed("a"), listed("a", "b"), {"b": NEW}),
        (listed("a"), listed("a", b="wet"), {"b": unhealthy("wet")}),
        (listed("a", "b"), listed("b", a="wet"), {"a": unhealthy("wet")}),
        (listed(a="wet"), listed(a="dry"), {"a": unhealthy("dry")}),
        (listed(a="wet"), listed(a="wet"), {}),
        (listed(a="91.5 degrees"), listed(a="104 degrees"), {}),
        (listed(a="7 errors (-3.5C, load=98%)."), listed(a="12 errors (4C, load=9%)."), {}),
        (listed(a="held by tty-1"), listed(a="held by tty-2"), {"a": unhealthy("held by tty-2")}),
        (listed(a="0000:03:00.0 is lost"), listed(a="0000:04:00.0 is lost"), {"a": unhealthy("0000:04:00.0 is lost")}),
        (listed(a="pod 7f-9"), listed(a="pod 8f-9"), {"a": unhealthy("pod 8f-9")}),
        (listed(a="wet"), listed("a"), {"a": RECOVERED}),
        (listed("a", "b"), listed("b"), {"a": LEFT}),
        (listed(a="wet"), {}, {"a": LEFT}),
        (listed("a", "a::1"), listed(**{"a": "wet", "a::1": "wet"}), {"a": unhealthy("wet")}),
        (listed("a", "a::1"), listed("a", **{"a::1": "its share is gone"}), {}),
        (listed("a", "a::1"), {}, {"a": LEFT}),
        (forms("x0", "x1"), forms("x0", "x1", reason="wet"), {"x0": unhealthy("wet")}),
        (forms("x0", "x1"), forms("x0"), {}),
        (forms("x0", "x1"), {}, {"x0": LEFT}),
        (listed("a"), in_use("a", "held as b"), {"a": withheld("held as b")}),
        (None, in_use("a", "held as b"), {"a": withheld("held as b")}),
        (in_use("a", "held as b"), in_use("a", "held as c"), {"a": withheld("held as c")}),
        (in_use("a", "held as b"), listed("a"), {"a": FREE}),
        (in_use("a", "held as b"), listed(a="wet"), {"a": unhealthy("wet")}),
    ],
)
def test_what_became_of_each_device(told, now, found):
    assert dict(changes(told, now)) == found


class Followed:
    """News of an inventory."""

    def __init__(self, log, gathering):
        # As if there were never news for the kubelet, which isn't told of reasons.
        self.inventory: Observable[Mapping[str, Offer] | None] = Observable(None, news=lambda *_: False)
        self.quiet = False
        self.holders: dict[str, tuple[str, ...]] = {}
        self.news = ListLog(self.inventory, log, lambda: self.quiet, gathering=gathering, holders=lambda: self.holders)
        self.task = asyncio.ensure_future(self.news.follow())


@pytest.fixture
async def followed(log, request):
    followed = Followed(log, getattr(request, "param", 0.01))
    yield followed
    followed.task.cancel()
    await asyncio.wait([followed.task])


def told(records):
    return [(record.levelno, record.getMessage(), record.devices) for record in records.records]


async def test_each_line_names_its_devices(followed, records):
    followed.inventory.set(listed(a="wet", b="wet", c="dry"))
    await until(records.texts)
    followed.inventory.set(listed("a", b="wet", c="dry"))
    await until(lambda: len(records.records) == 3)
    assert told(records) == [
        (logging.WARNING, "2 devices are Unhealthy: wet", ["a", "b"]),
        (logging.WARNING, "the device is Unhealthy: dry", ["c"]),
        (logging.INFO, "the device is Healthy again", ["a"]),
    ]


async def test_what_is_worse_names_its_holders(followed, records):
    followed.holders = {"a::1": ("shop/till-0 (app)",), "b": ("shop/till-1 (app)",), "c": ("pod 1-2-3 (c)",)}
    followed.inventory.set(listed("a", "a::1", "b", "c", d="dry"))
    await until(records.texts)
    records.records.clear()
    followed.inventory.set(listed("c", **dict.fromkeys(["a", "a::1", "b"], "wet")))
    await until(lambda: len(records.records) == 2)
    followed.inventory.set(listed("a", "a::1", "b"))
    await until(lambda: len(records.records) == 4)
    assert [(record.getMessage(), record.devices, record.holders) for record in records.records] == [
        (
            "2 devices are Unhealthy: wet; held by shop/till-0 (app), shop/till-1 (app)",
            ["a", "b"],
            ["shop/till-0 (app)", "shop/till-1 (app)"],
        ),
        ("the device is not listed any more", ["d"], None),
        ("2 devices are Healthy again", ["a", "b"], None),
        ("the device is not listed any more; held by pod 1-2-3 (c)", ["c"], ["pod 1-2-3 (c)"]),
    ]


async def test_devices_of_one_line_are_not_all_held(followed, records):
    followed.holders = {"a": ("shop/till-0 (app)",)}
    followed.inventory.set(listed(a="no link", b="no link", c="no link"))
    await until(records.texts)
    assert records.texts() == ["3 devices are Unhealthy: no link; 1 of them held by shop/till-0 (app)"]


async def test_many_holders_do_not_fill_a_message(followed, records):
    followed.holders = {f"a{n}": (f"shop/till-{n} (app)",) for n in range(5)}
    followed.inventory.set(listed(**dict.fromkeys(followed.holders, "wet")))
    await until(records.texts)
    (line,) = records.records
    assert line.getMessage().endswith("; held by shop/till-0 (app), shop/till-1 (app), shop/till-2 (app) and 2 more")
    assert len(line.holders) == 5


@pytest.mark.parametrize("followed", [0.5], indirect=True)
async def test_what_is_undone_at_once_is_no_news(followed, records):
    followed.inventory.set(listed("a", "b"))
    for offers in (listed("b", a="wet"), listed("a", "b"), listed("a"), listed("a", "b"), listed("a", b="dry")):
        followed.inventory.set(offers)
        await asyncio.sleep(0)
    await until(records.texts)
    assert told(records) == [(logging.WARNING, "the device is Unhealthy: dry", ["b"])]


@in_virtual_time
async def test_what_fails_as_a_whole_is_said_elsewhere(log, records):
    followed = Followed(log, 0.01)
    followed.inventory.set(listed(a="the driver failed", b="the driver failed"))
    followed.quiet = True
    await advance(60)
    assert records.texts() == []
    followed.quiet = False
    followed.inventory.set(listed("a", b="wet"))
    await advance(60)
    assert told(records) == [(logging.WARNING, "the device is Unhealthy: wet", ["b"])]


async def test_many_devices_and_many_causes_do_not_fill_the_log(followed, records):
    wet = {f"a{n}": "wet" for n in range(100)}
    followed.inventory.set(listed(**wet))
    await until(records.texts)
    followed.inventory.set(listed(**wet, **{f"b{n}": f"{n} degrees" for n in range(100)}))
    await until(lambda: len(records.records) == 1 + MOST_LINES + 1)
    first, *lines, last = records.records
    assert first.getMessage() == "100 devices are Unhealthy: wet"
    assert (first.devices, first.reason) == (list(wet), "wet")
    assert last.getMessage() == "90 more devices changed, each in a way of its own"
    assert [*(line.devices[0] for line in lines), *last.devices] == [f"b{n}" for n in range(100)]


class Flapping:
    """One device, or several, that turn Unhealthy and Healthy again. Time is virtual."""

    def __init__(self, log, *devices):
        self.devices = devices or ("a",)
        self.followed = Followed(log, 0.5)
        self.followed.inventory.set(listed(*self.devices, "b"))

    async def flap(self, times, seconds):
        """So many times, each for half of the seconds."""
        for _ in range(times):
            self.followed.inventory.set(listed("b", **dict.fromkeys(self.devices, "wet")))
            await advance(seconds / 2)
            self.followed.inventory.set(listed(*self.devices, "b"))
            await advance(seconds / 2)

    async def end(self):
        self.followed.task.cancel()
        await asyncio.wait([self.followed.task])


SUMMED = "the device is flapping: Unhealthy {} times in the last minute, {} now"
FIRST = [text for _ in range(FEW) for text in ("the device is Unhealthy: wet", "the device is Healthy again")]


@in_virtual_time
async def test_a_flapping_device_is_summed_up(log, records):
    device = Flapping(log)
    await advance(1)
    await device.flap(30, 2)
    await advance(0.1)
    assert records.texts() == [*FIRST, SUMMED.format(30, "Healthy")]
    last = records.records[-1]
    assert (last.devices, last.count, last.levelname, last.reason) == (["a"], 30, "WARNING", None)
    await device.flap(1, 2)  # it hasn't stopped
    await advance(60)
    assert records.texts()[7:] == [SUMMED.format(1, "Healthy").replace("times", "time")]
    await advance(60)
    await device.flap(1, 10)  # a minute of rest, and all is told again
    assert records.texts()[8:] == FIRST[:2]
    await device.end()


@in_virtual_time
async def test_changes_too_short_to_be_said_are_counted(log, records):
    device = Flapping(log)
    await advance(1)
    await device.flap(100, 0.2)
    assert len(records.texts()) <= len(FIRST)
    await advance(60)
    assert records.texts()[-1] == SUMMED.format(100, "Healthy")
    await device.end()


@in_virtual_time
async def test_a_few_changes_in_a_minute_are_all_said(log, records):
    device = Flapping(log)
    await advance(1)
    await device.flap(FEW, 10)
    await advance(300)
    assert records.texts() == FIRST
    await device.end()


@in_virtual_time
async def test_a_flapping_device_is_summed_up_as_it_is_now(log, records):
    device = Flapping(log, "a", "c")
    await advance(1)
    await device.flap(20, 2)
    device.followed.inventory.set(listed("b", "c", a="wet"))
    await advance(60)
    assert records.texts()[2 * FEW :] == [
        "the device is flapping: Unhealthy 21 times in the last minute, Unhealthy now: wet",
        "the device is flapping: Unhealthy 20 times in the last minute, Healthy now",
    ]
    assert [record.reason for record in records.records[-2:]] == ["wet", None]
    device.followed.inventory.set(listed("b"))
    await advance(60)
    assert told(records)[-1] == (logging.INFO, "2 devices are not listed any more", ["c", "a"])
    await device.end()


@in_virtual_time
async def test_reasons_that_change_often_are_summed_up(log, records):
    device = Flapping(log)
    await advance(1)
    for reason in ["wet", "dry"] * 10:
        device.followed.inventory.set(listed("b", a=reason))
        await advance(1)
    assert records.texts() == [f"the device is Unhealthy: {reason}" for reason in ("wet", "dry", "wet")]
    await advance(60)
    assert records.texts()[FEW:] == [SUMMED.format(20, "Unhealthy") + ": dry"]
    assert device.followed.news.falls == 1
    await device.end()


@in_virtual_time
async def test_a_flapping_driver(log, records):
    device = Flapping(log)
    await advance(1)
    device.followed.quiet = True
    await device.flap(30, 2)
    await advance(60)
    assert records.texts() == []
    await device.end()


def test_a_device_falls_once_whatever_its_shares():
    before = listed("a", "a::1", "b", "c", d="wet")
    now = listed("c", **dict.fromkeys(["a", "a::1", "b::1", "d", "e"], "wet"), b="dry")
    assert falls(before, now) == {"a": True, "b": True}


def test_a_device_that_is_in_use_doesnt_fall():
    assert falls(listed("a", "b"), listed(b="wet") | in_use("a", "held as c")) == {"b": True}


def test_another_reason_counts_as_a_fall():
    assert falls(listed(a="wet", b="wet", c="1 V"), listed(a="dry", b="wet", c="2 V")) == {"a": False}
