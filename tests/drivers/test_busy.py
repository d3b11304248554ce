import asyncio
import time

import pytest

from dpgateway.drivers.busy import LAST_CHANCE, persist
from dpgateway.errors import Busy, DriverError

LONG = 5.0


class Driver:
    """Is Busy so often, or until then, and answers afterwards."""

    def __init__(self, error=None, times=0, until=0.0):
        self.error, self.times, self.until = error or Busy("still"), times, until
        self.ends = []

    async def ask(self, end):
        self.ends.append(end)
        if len(self.ends) <= self.times or time.monotonic() < self.until:
            raise self.error
        return "answer"


async def test_busy_is_asked_again_until_it_answers():
    driver = Driver(times=2)
    assert await persist(driver.ask, LONG) == "answer"
    assert len(driver.ends) == 3
    assert len(set(driver.ends)) == 1


async def test_busy_until_the_deadline_is_busy_in_the_end():
    driver = Driver(times=100)
    with pytest.raises(Busy, match="still"):
        async with asyncio.timeout(5):
            await persist(driver.ask, 1)
    assert 4 <= len(driver.ends) <= 6


async def test_it_is_asked_once_more_shortly_before_the_deadline():
    """The next of the doubling pauses would end at 0.75 s, and the one after it at 1.55 s."""
    driver = Driver(until=time.monotonic() + 1.0)
    assert await persist(driver.ask, 1.2) == "answer"
    assert time.monotonic() <= driver.ends[0] - LAST_CHANCE + 0.1


async def test_an_error_that_is_not_busy_is_not_asked_again():
    driver = Driver(DriverError("broken"), times=100)
    with pytest.raises(DriverError, match="broken"):
        await persist(driver.ask, LONG)
    assert len(driver.ends) == 1
