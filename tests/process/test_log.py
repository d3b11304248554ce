"""The log, as a process's standard error shows it."""

import io
import json
import logging
import os
import re
import subprocess
import sys
import threading
from typing import Any

import pytest

from dpgateway.process import log


class Slow(io.StringIO):
    """What is written waits for the gate, which is open at first."""

    def __init__(self):
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()

    def write(self, text):
        assert self.gate.wait(20)
        return super().write(text)


class Logged:
    """Sets up the log into a string, of which the caller gets the lines. Nothing is written while the gate is shut."""

    def __init__(self):
        self._stream = Slow()
        self.gate = self._stream.gate

    def __call__(self, log_format="json", log_level="info"):
        logging.getLogger().handlers.clear()  # pytest's own would raise for a wrong format
        log.setup(log_format, log_level, self._stream)
        return lambda: self._stream.getvalue().splitlines()


@pytest.fixture
def logged(monkeypatch):
    """Puts everything back afterwards."""
    for owner, hook in ((sys, "excepthook"), (threading, "excepthook"), (sys, "unraisablehook")):
        monkeypatch.setattr(owner, hook, getattr(owner, hook))
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    logged = Logged()
    yield logged
    logged.gate.set()
    logging.captureWarnings(capture=False)
    root.handlers[:] = handlers
    root.setLevel(level)


def test_a_json_line(logged):
    lines = logged()
    log.bind("some.logger", resource="example.com/a", api="v1beta1").info("%d devices", 3, extra={"device": "d0"})
    (line,) = lines()
    entry = json.loads(line)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", entry.pop("ts"))
    assert entry == {
        "level": "info",
        "logger": "some.logger",
        "message": "3 devices",
        "resource": "example.com/a",
        "api": "v1beta1",
        "device": "d0",
    }


def test_a_text_line(logged):
    lines = logged("text")
    log.bind("x", resource="example.com/a").warning("careful", extra={"device": "d0", "attempt": 2})
    (line,) = lines()
    assert line.endswith("WARNING careful resource=example.com/a device=d0 attempt=2")


def test_auto_is_json_where_nobody_looks(logged):
    lines = logged("auto")
    logging.getLogger("x").info("hello")
    assert json.loads(lines()[0])["message"] == "hello"


def test_the_innermost_field_wins_and_none_hides_a_field(logged):
    lines = logged()
    outer = log.bind(logging.getLogger("x"), resource="a", api="v1")
    log.bind(outer, api="v2", device=None).info("", extra={"resource": "b"})
    entry = json.loads(lines()[0])
    assert (entry["resource"], entry["api"], "device" in entry) == ("b", "v2", False)


def test_the_level_counts(logged):
    lines = logged(log_level="warning")
    logging.getLogger("x").info("no")
    logging.getLogger("x").warning("yes")
    assert [json.loads(line)["message"] for line in lines()] == ["yes"]


def test_a_second_setup_replaces_the_first(logged):
    logged("text")
    lines = logged("json")
    logging.getLogger("x").info("once")
    assert [json.loads(line)["message"] for line in lines()] == ["once"]


def test_a_message_survives_a_wrong_format_and_odd_characters(logged):
    lines = logged()
    logging.getLogger("x").info("%d", "x")
    logging.getLogger("x").info("a\nb \udce9")
    assert [json.loads(line)["message"] for line in lines()] == ["%d ('x',)", "a\nb \udce9"]


def test_half_a_character_is_escaped_in_text(logged):
    lines = logged("text")
    logging.getLogger("x").info("caf\udce9")
    assert lines()[0].endswith(r"caf\udce9")


def test_what_cannot_be_shown_costs_nobody_anything(logged):
    class Shy:
        def __str__(self):
            raise LookupError("no")

        __repr__ = __str__

    lines = logged()
    log.hurry()
    log.bind("x", device=Shy()).info("found %s", Shy())
    log.finish(5)
    (line,) = lines()
    entry = json.loads(line)
    assert entry["message"] == "found %s <tuple that can't be shown: LookupError>"
    assert entry["device"] == "<Shy that can't be shown: LookupError>"


def test_what_hangs_while_it_is_shown_holds_up_nobody_else(logged):
    gate = threading.Event()

    class Hanging:
        def __str__(self):
            assert gate.wait(20)
            return "shown"

    lines = logged()
    log.hurry()
    thread = threading.Thread(target=lambda: log.bind("driver").info("%s", Hanging()))
    thread.start()
    log.bind("other").info("next")
    log.finish(5)
    assert [json.loads(line)["message"] for line in lines()] == ["next"]
    gate.set()
    thread.join(5)
    log.finish(5)
    assert json.loads(lines()[1])["message"] == "shown"


UNFIT: Any = b"{{ x"
"""The text of a syntax error has to be a string: with bytes it can't be formatted."""


@pytest.mark.parametrize(
    "how",
    [
        {"exc_info": (SyntaxError, SyntaxError("bad template", ("t.tpl", 1, 1, UNFIT)), None)},
        {"extra": {("a",): 1}},
    ],
    ids=["a traceback that can't be formatted", "a field whose name is no string"],
)
def test_what_cannot_be_formatted_is_told_without_it(logged, how):
    lines = logged()
    log.hurry()
    log.bind("x").error("the driver failed", **how)
    log.finish(5)
    (line,) = lines()
    entry = json.loads(line)
    assert (entry["level"], entry["logger"]) == ("error", "x")
    assert entry["message"].startswith("the driver failed (TypeError: ")


def test_lines_that_nobody_read_are_counted(logged):
    lines = logged()
    log.hurry()
    logged.gate.clear()
    for number in range(log.MOST_WAITING + 3):
        log.bind("x").info("line %d", number)
    logged.gate.set()
    log.finish(20)
    told = [json.loads(line)["message"] for line in lines()]
    lost = log.MOST_WAITING + 3 - (len(told) - 1)
    assert lost in {2, 3}  # the first one may be on its way already
    assert f"{lost} lines were lost, because nobody read the log" in told


def test_an_exception_is_a_field(logged):
    lines = logged()
    try:
        int("broken")
    except ValueError:
        logging.getLogger("x").exception("it failed")
    entry = json.loads(lines()[0])
    assert entry["message"] == "it failed"
    assert entry["exception"].startswith("Traceback")
    assert entry["exception"].endswith("ValueError: invalid literal for int() with base 10: 'broken'")


BYPASSES = """
import logging, sys, threading, warnings
logging.basicConfig()
from dpgateway.process import log
log.setup(sys.argv[1], "info")
logging.basicConfig()
log.setup(sys.argv[1], "info")
logging.getLogger("x").info("logged")
warnings.warn("warned")
thread = threading.Thread(target=lambda: 1 / 0, name="worker")
thread.start(); thread.join()
leaving = threading.Thread(target=sys.exit)
leaving.start(); leaving.join()
class Bad:
    def __del__(self): raise ValueError("in del")
Bad()
raise LookupError("at the end")
"""


def test_nothing_but_json_lines_reaches_standard_error():
    process = subprocess.run([sys.executable, "-c", BYPASSES, "json"], capture_output=True, text=True, check=False)
    entries = [json.loads(line) for line in process.stderr.splitlines()]
    assert [(entry["level"], entry["message"].split(":")[0]) for entry in entries] == [
        ("info", "logged"),
        ("warning", "<string>"),
        ("error", "uncaught ZeroDivisionError, in worker"),
        ("error", entries[3]["message"].split(":")[0]),
        ("critical", "uncaught LookupError"),
    ]
    assert "in del" in entries[3]["exception"]
    assert (process.returncode, process.stdout) == (1, "")


def run_hurried(body, **streams):
    start = "import logging, os\nfrom dpgateway.process import log\nlog.setup('text', 'INFO')\nlog.hurry()\n"
    program = f"{start}{body}\nos._exit(0)"
    return subprocess.run([sys.executable, "-c", program], check=True, timeout=20, **streams)


def test_a_log_that_nobody_reads_holds_up_nobody():
    reading, writing = os.pipe()
    try:
        body = "for n in range(20_000): logging.info('line %d', n)\nlog.finish(0.01)\nprint('done', flush=True)"
        done = run_hurried(body, stdout=subprocess.PIPE, stderr=writing)
    finally:
        os.close(writing)
        os.close(reading)
    assert done.stdout == b"done\n"


def test_what_was_logged_is_written_before_the_end():
    done = run_hurried("for n in range(500): logging.info('line %d', n)\nlog.finish(5)", stderr=subprocess.PIPE)
    assert [line.split()[-1] for line in done.stderr.decode().splitlines()] == [str(n) for n in range(500)]
