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


def test_what_ends_a_process_with_a_log_of_its_own_thread_is_logged():
    """`run` is one. Once it ended without a word."""
    ends = "from dpgateway.kit import log\nlog.setup('json')\nwith log.captured():\n    raise LookupError('at the end')"
    process = subprocess.run([sys.executable, "-c", ends], capture_output=True, text=True, check=False)
    (entry,) = map(json.loads, process.stderr.splitlines())
    assert (entry["level"], entry["message"], process.returncode) == ("critical", "uncaught LookupError", 1)
    assert entry["exception"].endswith("LookupError: at the end")


def test_the_noise_of_libraries_is_not_logged_at_debug(logged):
    lines = logged(log_level="debug")
    for name in ("grpc._cython.cygrpc", "asyncio", "httpx2", "some.driver"):
        logging.getLogger(name).debug("a detail")
        logging.getLogger(name).info("a word")
    said = [(entry["logger"], entry["message"]) for entry in map(json.loads, lines())]
    assert said == [
        ("grpc._cython.cygrpc", "a word"),
        ("asyncio", "a word"),
        ("some.driver", "a detail"),
        ("some.driver", "a word"),
    ]
