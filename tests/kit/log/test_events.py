"""Which lines are events, and how many of them are kept."""

import logging

import pytest

from dpgateway.kit.log import events


def record(name="dpgateway.gateway", level=logging.INFO, message="registered", **fields):
    return logging.makeLogRecord(
        {"name": name, "levelno": level, "levelname": logging.getLevelName(level), "msg": message, **fields}
    )


@pytest.fixture
def kept():
    return events.Events()


@pytest.mark.parametrize(
    ("name", "level", "matters"),
    [
        ("dpgateway.gateway", logging.INFO, True),
        ("dpgateway.gateway", logging.DEBUG, False),
        ("dpgateway.driver.fpga", logging.INFO, False),
        ("dpgateway.driver.fpga", logging.WARNING, True),
        ("stderr", logging.WARNING, False),
        ("grpc", logging.ERROR, False),
    ],
)
def test_the_gateways_lines_are_and_what_drivers_warn_of(kept, name, level, matters):
    kept.add(record(name, level))
    assert bool(kept.last()) is matters


def test_an_event_has_what_the_line_is_about(kept):
    devices = [f"d{number}" for number in range(12)]
    kept.add(record(message="new\udce9", resource="example.com/a", devices=devices, created=0.0, msecs=0.0))
    assert kept.last() == (
        events.LogEvent("1970-01-01T00:00:00.000Z", "info", "new\\udce9", "example.com/a", tuple(devices[:10])),
    )


def test_the_last_events_are_kept(kept):
    told = []
    kept.added = lambda: told.append(len(kept.last()))
    for number in range(events.MOST + 3):
        kept.add(record(message=str(number)))
    assert [event.message for event in kept.last()] == [str(number) for number in range(3, events.MOST + 3)]
    assert told == [*range(1, events.MOST + 1), *[events.MOST] * 3]


def test_long_ones_are_cut_and_together_they_are_bounded(kept):
    for _ in range(events.MOST):
        kept.add(record(message="m" * 5000, devices=["d" * 5000] * 10))
    assert {len(event.message) for event in kept.last()} == {events.LONGEST_TEXT + len("...")}
    assert 10 < len(kept.last()) <= events.MOST_CHARACTERS // (11 * events.LONGEST_TEXT)
