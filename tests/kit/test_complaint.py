import pytest

from dpgateway.kit.complaint import EVERY, Complaint, Reminder
from tests.support.logs import Records
from tests.support.time import advance, in_virtual_time


@pytest.fixture
def records():
    return Records()


@pytest.fixture
def complaint(records):
    return Complaint(records.bound(), "it fails: %s", recovered="it works again")


def test_a_text_is_said_once_until_it_changes(complaint, records):
    for text in ("a", "a", "100 %", "100 %", "a"):
        complaint.say(text)
        assert complaint.text == text
    assert records.texts() == ["it fails: a", "it fails: 100 %", "it fails: a"]


def test_a_recovery_is_said_once(complaint, records):
    complaint.over()
    complaint.say("a")
    complaint.over()
    complaint.over()
    assert complaint.text == ""
    complaint.say("a")
    assert records.texts() == ["it fails: a", "it works again", "it fails: a"]


def test_several_problems_at_once(complaint, records):
    complaint.say("a", "b", "a")
    complaint.say("b", "c")
    assert complaint.text == "b; c"
    complaint.say()
    assert records.texts() == ["it fails: a", "it fails: b", "it fails: c", "it works again"]


def test_a_message_an_error_and_fields(complaint, records):
    error = ValueError("no")
    complaint.say("a\udce9", message="for now: %s", error=error, extra={"reason": "a"})
    (record,) = records.records
    assert record.getMessage() == "for now: a\\udce9"
    assert record.exc_info[1] is error
    assert record.reason == "a"


class Heard(list[tuple[str, int]]):
    def say(self, trouble, seconds):
        self.append((trouble, round(seconds)))


@in_virtual_time
async def test_what_is_wrong_is_said_again_until_it_is_over():
    heard = Heard()
    reminder = Reminder(heard.say)
    reminder.set("no power")
    await advance(EVERY - 1)
    assert heard == []
    await advance(1)
    reminder.set("no light")  # it is still the same story
    await advance(EVERY)
    assert heard == [("no power", 600), ("no light", 1200)]
    assert reminder.since is not None
    reminder.set("")
    assert reminder.since is None
    await advance(10 * EVERY)
    assert len(heard) == 2
    reminder.set("no power")
    await advance(EVERY)
    assert heard[2:] == [("no power", 600)]
    reminder.close()


@in_virtual_time
async def test_nothing_is_said_after_the_end():
    heard = Heard()
    reminder = Reminder(heard.say)
    reminder.set("no power")
    reminder.close()
    reminder.set("no light")
    await advance(10 * EVERY)
    assert heard == []
