"""What lines look like."""

import json
import logging
import re

import pytest

from dpgateway.kit import log
from dpgateway.kit.log.lines import LONGEST, MOST_NAMED


@pytest.fixture
def line(logged):
    """The last line."""

    def line(log_format, say):
        lines = logged(log_format)
        say(logging.getLogger("x"))
        *_, last = lines()
        return json.loads(last) if log_format == "json" else last

    return line


def test_a_json_line(logged):
    lines = logged()
    bound = log.bind("some.logger", resource="example.com/a", api="v1beta1")
    bound.info("%d devices", 3, extra={"devices": ("d0", "d1"), "seconds": 0.5, "count": 2, "lost": True})
    (line,) = lines()
    entry = json.loads(line)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", entry.pop("ts"))
    assert entry == {
        "level": "info",
        "logger": "some.logger",
        "message": "3 devices",
        "resource": "example.com/a",
        "api": "v1beta1",
        "devices": ["d0", "d1"],
        "seconds": 0.5,
        "count": 2,
        "lost": True,
    }


def test_a_text_line(logged):
    lines = logged("text")
    log.bind("x", resource="example.com/a").warning("careful", extra={"device": "d0", "attempt": 2})
    (line,) = lines()
    assert line.endswith("WARNING careful resource=example.com/a device=d0 attempt=2")


def test_text_omits_fields_of_the_prose(logged):
    lines = logged("text")
    fields = {"driver": "chardev", "count": 2, "seconds": 0.5, "reason": "wet"}
    log.bind("dpgateway.some", resource="a", **fields).info("it is so")
    log.bind("dpgateway.driver.chardev", resource="a", **fields).info("it is so")
    assert [line.partition("it is so ")[2] for line in lines()] == [
        "resource=a",
        "resource=a driver=chardev count=2 seconds=0.5 reason=wet",
    ]


NAMES = [f"d{n}" for n in range(MOST_NAMED + 5)]


def test_text_names_some_devices_and_json_names_all(line):
    def say(logger):
        logger.info("gone", extra={"devices": NAMES})

    assert line("text", say).endswith(f'gone devices="{",".join(NAMES[:MOST_NAMED])} and 5 more"')
    assert line("json", say)["devices"] == NAMES


def test_text_names_as_many_devices_as_may_be_named(line):
    said = line("text", lambda logger: logger.info("gone", extra={"devices": NAMES[:MOST_NAMED]}))
    assert said.endswith(f"gone devices={','.join(NAMES[:MOST_NAMED])}")


@pytest.mark.parametrize(
    ("value", "shown"),
    [("two words", '"two words"'), ("a=b", '"a=b"'), ("", '""'), ('say "x"', r'"say \"x\""'), (["a", "b"], "a,b")],
)
def test_a_value_is_one_word_of_text(line, value, shown):
    assert line("text", lambda logger: logger.info("", extra={"value": value})).endswith(f" value={shown}")


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_what_is_no_number_in_json_is_a_text(line, number):
    assert line("json", lambda logger: logger.info("", extra={"value": number}))["value"] == str(number)


def test_a_message_survives_a_wrong_format(line):
    assert line("json", lambda logger: logger.info("%d", "x"))["message"] == "%d ('x',)"


HALF = "caf\udce9"
FORGED = "x\n2026-01-01T00:00:00.000Z ERROR forged\r\x1b[2J\x9b31m\u2028\u202e"


def fail(text):
    raise LookupError(text)


def say_everywhere(text):
    def say(logger):
        try:
            fail(text)
        except LookupError:
            logger.exception("%s", text, extra={"value": text, "values": [text], text: 1})

    return say


def test_half_a_character_is_escaped_everywhere(line):
    entry = line("json", say_everywhere(HALF))
    assert {entry["message"], entry["value"], *entry["values"]} == {r"caf\udce9"}
    assert entry["exception"].endswith(r"LookupError: caf\udce9")
    assert entry[r"caf\udce9"] == 1


def test_text_can_not_look_like_another_line(logged):
    lines = logged("text")
    say_everywhere(FORGED)(logging.getLogger(FORGED))
    first, *others = lines()
    assert r"ERROR   x\n2026-01-01T00:00:00.000Z ERROR forged\r\x1b[2J\x9b31m\u2028\u202e" in first
    assert all(line.startswith("    ") for line in others)
    assert others[0] == "    Traceback (most recent call last):"
    assert all(line.isprintable() for line in [first, *others])


def test_a_strange_level_and_no_name(line):
    named = logging.makeLogRecord({"levelname": FORGED + HALF, "levelno": 35, "msg": "said"})
    assert line("text", lambda logger: logger.handle(named)).isprintable()
    assert line("json", lambda logger: logger.handle(named))["level"].endswith(r"caf\udce9")


def test_a_line_has_an_end(line):
    entry = line("json", say_everywhere("x" * 3 * LONGEST))
    assert entry["message"] == "x" * LONGEST + f"... and {2 * LONGEST} more characters"
    assert len(json.dumps(entry)) < 6 * LONGEST
    assert entry["exception"].endswith("xxx")


def test_an_exception_is_a_field(line):
    entry = line("json", say_everywhere("broken"))
    assert entry["message"] == "broken"
    assert entry["exception"].startswith("Traceback")
    assert entry["exception"].endswith("LookupError: broken")


def test_a_traceback_may_be_given_as_text(line):
    def say(logger):
        logger.info("it failed", extra={"exception": "Traceback\nLookupError: broken"})

    assert line("json", say)["exception"] == "Traceback\nLookupError: broken"
    assert line("text", say) == "    LookupError: broken"


def test_a_field_whose_name_is_no_string_is_shown(line):
    assert line("json", lambda logger: logger.info("", extra={("a",): 1}))["('a',)"] == 1
