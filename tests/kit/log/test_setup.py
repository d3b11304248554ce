"""The log, as a process's standard error shows it."""

import json
import logging
import subprocess
import sys

from dpgateway.kit import log


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


BYPASSES = """
import logging, sys, threading, warnings
logging.basicConfig()
from dpgateway.kit import log
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


KEPT = """
import json, logging, logging.config, sys
from dpgateway.kit import log
ours = log.bind("dpgateway.some")
log.setup("json", "info")
def fail(*arguments, **named): raise LookupError
with log.kept():
    for disturb in sys.stdin.read().splitlines():
        eval(disturb)
        if sys.argv[1] == "hold":
            log.hold()
        else:
            ours.info("ours")
        logging.getLogger("library of " + disturb).info(disturb)
"""
ROOT = "logging.getLogger()"
TO_A_TERMINAL = {
    "version": 1,
    "handlers": {"console": {"class": "logging.StreamHandler"}},
    "root": {"handlers": ["console"], "level": "ERROR"},
}
DISTURB = (
    'logging.config.dictConfig({"version": 1})',
    f"logging.config.dictConfig({TO_A_TERMINAL})",
    "logging.basicConfig(force=True, level='ERROR')",
    "logging.disable()",
    f"{ROOT}.handlers.clear()",
    f"{ROOT}.setLevel('CRITICAL')",
    f"{ROOT}.handlers[0].setFormatter(logging.Formatter())",
    f"{ROOT}.handlers[0].setLevel('CRITICAL')",
    f"{ROOT}.handlers[0].addFilter(lambda record: False)",
    "logging.getLogger('dpgateway').setLevel('CRITICAL')",
    "logging.getLogger('dpgateway').addFilter(lambda record: False)",
    "setattr(logging.getLogger('dpgateway'), 'propagate', False)",
    "logging.setLogRecordFactory(fail)",
    "logging.setLoggerClass(type('Failing', (logging.Logger,), {'__init__': fail}))",
    "logging.shutdown()",
    "logging.getLogger('dpgateway').addHandler(logging.StreamHandler())",
)


def kept(how, *disturb):
    """What a process logs in which a driver disturbs the log."""
    words = [sys.executable, "-c", KEPT, how]
    done = subprocess.run(words, input="\n".join(disturb), capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == ""
    return [json.loads(line)["message"] for line in done.stderr.splitlines()]


def test_a_driver_can_not_change_the_log():
    assert kept("hold", *DISTURB) == list(DISTURB)


def test_the_log_is_as_it_was_at_the_gateways_next_line():
    assert kept("line", *DISTURB) == [word for disturb in DISTURB for word in ("ours", disturb)]


def test_a_driver_may_log_to_a_file_too(tmp_path):
    file = tmp_path / "own.log"
    disturb = f"{ROOT}.addHandler(logging.FileHandler({str(file)!r}))"
    assert kept("line", disturb) == ["ours", disturb]
    assert file.read_text() == f"ours\n{disturb}\n"


def test_the_noise_of_libraries_is_not_logged_at_debug(logged):
    lines = logged(log_level="debug")
    for name in ("grpc._cython.cygrpc", "asyncio", "some.driver"):
        logging.getLogger(name).debug("a detail")
        logging.getLogger(name).info("a word")
    said = [(entry["logger"], entry["message"]) for entry in map(json.loads, lines())]
    assert said == [
        ("grpc._cython.cygrpc", "a word"),
        ("asyncio", "a word"),
        ("some.driver", "a detail"),
        ("some.driver", "a word"),
    ]
