import asyncio
import logging
from collections.abc import Mapping

import pytest

from dpgateway.deviceplugin.offer.news import LEFT, MOST_LINES, MOST_NAMED, NEW, RECOVERED, Fate, News, changes
from dpgateway.model import Health, Offer
from dpgateway.process.observable import Observable
from tests.support.time import advance, in_virtual_time
from tests.support.waiting import until


def listed(*ids, **unhealthy):
    offers = [Offer(id_, Health.healthy()) for id_ in ids]
    offers += [Offer(id_, Health.unhealthy(reason)) for id_, reason in unhealthy.items()]
    return {offer.id: offer for offer in offers}


def unhealthy(reason):
    return Fate(logging.WARNING, f"Unhealthy: {reason}")


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
        (listed(a="wet"), listed("a"), {"a": RECOVERED}),
        (listed("a", "b"), listed("b"), {"a": LEFT}),
        (listed(a="wet"), {}, {"a": LEFT}),
        (listed("a", "a::1"), listed(**{"a": "wet", "a::1": "wet"}), {"a": unhealthy("wet")}),
        (listed("a", "a::1"), listed("a", **{"a::1": "its share is gone"}), {}),
        (listed("a", "a::1"), {}, {"a": LEFT}),
    ],
)
def test_what_became_of_each_device(told, now, found):
    assert dict(changes(told, now)) == found


class Followed:
    """News of an inventory."""

    def __init__(self, log, gathering):
        self.inventory: Observable[Mapping[str, Offer] | None] = Observable(None)
        self.quiet = False
        self.news = News(self.inventory, log, lambda: self.quiet, gathering=gathering)
        self.task = asyncio.ensure_future(self.news.follow())


@pytest.fixture
async def followed(log, request):
    followed = Followed(log, getattr(request, "param", 0.01))
    yield followed
    followed.task.cancel()
    await asyncio.wait([followed.task])


def told(records):
    return [(record.levelno, record.getMessage(), record.device) for record in records.records]


async def test_each_line_names_its_devices_and_a_cause_is_said_once(followed, records):
    followed.inventory.publish(listed(a="wet", b="wet", c="dry"))
    await until(records.texts)
    followed.inventory.publish(listed("a", b="wet", c="dry"))
    await until(lambda: len(records.records) == 3)
    assert told(records) == [
        (logging.WARNING, "2 devices are Unhealthy: wet", "a, b"),
        (logging.WARNING, "the device is Unhealthy: dry", "c"),
        (logging.INFO, "the device is Healthy again", "a"),
    ]


@pytest.mark.parametrize("followed", [0.5], indirect=True)
async def test_what_is_undone_at_once_is_no_news(followed, records):
    followed.inventory.publish(listed("a", "b"))
    for offers in (listed("b", a="wet"), listed("a", "b"), listed("a"), listed("a", "b"), listed("a", b="dry")):
        followed.inventory.publish(offers)
        await asyncio.sleep(0)
    await until(records.texts)
    assert told(records) == [(logging.WARNING, "the device is Unhealthy: dry", "b")]


@in_virtual_time
async def test_what_fails_as_a_whole_is_said_elsewhere(log, records):
    followed = Followed(log, 0.01)
    followed.inventory.publish(listed(a="the driver failed", b="the driver failed"))
    followed.quiet = True
    await advance(60)
    assert records.texts() == []
    followed.quiet = False
    followed.inventory.publish(listed("a", b="wet"))
    await advance(60)
    assert told(records) == [(logging.WARNING, "the device is Unhealthy: wet", "b")]


async def test_many_devices_and_many_causes_do_not_fill_the_log(followed, records):
    wet = {f"a{n}": "wet" for n in range(100)}
    followed.inventory.publish(listed(**wet))
    await until(records.texts)
    followed.inventory.publish(listed(**wet, **{f"b{n}": f"{n} degrees" for n in range(100)}))
    await until(lambda: len(records.records) == 1 + MOST_LINES + 1)
    first, *_, last = records.records
    assert first.getMessage() == "100 devices are Unhealthy: wet"
    assert first.device == ", ".join(f"a{n}" for n in range(MOST_NAMED)) + " and 90 more"
    assert last.getMessage() == "90 more devices changed, each in a way of its own"
