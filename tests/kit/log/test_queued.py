"""The thread that writes the log, and what it is spared."""

import json
import os
import subprocess
import sys
import threading
from typing import Any

import pytest

from dpgateway.kit import log

ENTRY = {"ts": "2026-01-01T00:00:00.000Z", "level": "info", "logger": "x", "message": ""}


def test_what_cannot_be_shown_costs_nobody_anything(logged):
    class Shy:
        def __str__(self):
            raise LookupError("no")

        __repr__ = __str__

    lines = logged()
    log.in_background()
    log.bind("x", device=Shy()).info("found %s", Shy())
    log.finish(20)
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
    log.in_background()
    thread = threading.Thread(target=lambda: log.bind("driver").info("%s", Hanging()))
    thread.start()
    log.bind("other").info("next")
    log.finish(20)
    assert [json.loads(line)["message"] for line in lines()] == ["next"]
    gate.set()
    thread.join(20)
    log.finish(20)
    assert json.loads(lines()[1])["message"] == "shown"


UNFIT: Any = b"{{ x"
"""The text of a syntax error has to be a string: with bytes it can't be formatted."""


def test_what_cannot_be_formatted_is_told_without_it(logged):
    lines = logged()
    log.in_background()
    unfit = SyntaxError("bad template", ("t.tpl", 1, 1, UNFIT))
    log.bind("x").error("the driver failed", exc_info=(SyntaxError, unfit, None))
    log.finish(20)
    (line,) = lines()
    entry = json.loads(line)
    assert (entry["level"], entry["logger"]) == ("error", "x")
    assert entry["message"].startswith("the driver failed (TypeError: ")


@pytest.mark.parametrize("length", [1_000, 30_000])
def test_unread_lines_are_bounded_and_counted(logged, length):
    lines = logged()
    log.in_background()
    logged.gate.clear()
    fitting = log.MOST_WAITING // sys.getsizeof(json.dumps(ENTRY | {"message": "x" * length}))
    for _ in range(fitting + 3):
        log.bind("x").info("x" * length)
    logged.gate.set()
    log.finish(20)
    told = [json.loads(line)["message"] for line in lines()]
    assert sorted(told) == ["3 lines were lost, because nobody read the log"] + ["x" * length] * fitting
    assert log.lost() == 3
    log.bind("x").info("next")  # what was written makes room
    log.finish(20)
    assert json.loads(lines()[-1])["message"] == "next"


def run_hurried(body, **streams):
    start = "import logging, os\nfrom dpgateway.kit import log\nlog.setup('text', 'INFO')\nlog.in_background()\n"
    program = f"{start}{body}\nos._exit(0)"
    return subprocess.run([sys.executable, "-c", program], check=True, timeout=60, **streams)


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
    done = run_hurried("for n in range(500): logging.info('line %d', n)\nlog.finish(20)", stderr=subprocess.PIPE)
    assert [line.split()[-1] for line in done.stderr.decode().splitlines()] == [str(n) for n in range(500)]
