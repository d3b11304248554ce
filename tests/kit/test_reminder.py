"""What is still wrong, in virtual time."""

from dpgateway.kit.reminder import EVERY, Reminder
from tests.support.time import advance, in_virtual_time


class Heard(list[tuple[str, int]]):
    def say(self, trouble, seconds):
        self.append((trouble, round(seconds)))


@in_virtual_time
async def test_what_is_wrong_is_said_again_until_it_is_over():
    heard = Heard()
    reminder = Reminder(heard.say)
    reminder.hear("no power")
    await advance(EVERY - 1)
    assert heard == []
    await advance(1)
    reminder.hear("no light")  # it is still the same story
    await advance(EVERY)
    assert heard == [("no power", 600), ("no light", 1200)]
    assert reminder.since is not None
    reminder.hear("")
    assert reminder.since is None
    await advance(10 * EVERY)
    assert len(heard) == 2
    reminder.hear("no power")
    await advance(EVERY)
    assert heard[2:] == [("no power", 600)]
    reminder.close()


@in_virtual_time
async def test_nothing_is_said_after_the_end():
    heard = Heard()
    reminder = Reminder(heard.say)
    reminder.hear("no power")
    reminder.close()
    reminder.hear("no light")
    await advance(10 * EVERY)
    assert heard == []
