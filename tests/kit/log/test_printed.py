"""What is printed in a process whose drivers print."""

import json
import subprocess
import sys

PRINTS = """
import io, logging, os, subprocess, sys, threading, traceback
from dpgateway.kit import log
log.setup(sys.argv[1], "info")
before = sys.stdout, sys.stderr
with log.captured():
    print("to", "stdout")
    print("two\\nlines, and", end=" ", flush=True)
    print("half a character: \\udce9", file=sys.stderr)
    sys.stdout.buffer.write(b"bytes \\xff\\n"); sys.stdout.flush()
    logging.getLogger("own").addHandler(logging.StreamHandler())
    logging.getLogger("own").info("logged twice")
    try: int("x")
    except ValueError: traceback.print_exc()
    thread = threading.Thread(target=print, args=["from a thread"], name="example.com/thing list")
    thread.start(); thread.join()
    sys.stdout.write("without an end")
    sys.stdout.flush()
    subprocess.run([sys.executable, "-c", "pass"], stdout=sys.stdout, stderr=sys.stderr, check=True)
assert (sys.stdout, sys.stderr) == before
"""


def test_what_is_printed_becomes_lines():
    done = subprocess.run(
        [sys.executable, "-c", PRINTS, "json"], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == ""
    entries = [json.loads(line) for line in done.stderr.splitlines()]
    said = [(entry["logger"], entry["level"], entry["message"]) for entry in entries]
    assert said[:4] == [
        ("stdout", "info", "to stdout"),
        ("stdout", "info", "two"),
        ("stdout", "info", "lines, and"),
        ("stderr", "warning", r"half a character: \udce9"),
    ]
    assert said[4:7] == [
        ("stdout", "info", r"bytes \xff"),
        ("stderr", "warning", "logged twice"),
        ("own", "info", "logged twice"),
    ]
    assert said[7] == ("stderr", "warning", "Traceback (most recent call last):")
    assert said[-2:] == [("stdout", "info", "from a thread"), ("stdout", "info", "without an end")]
    assert [entry["thread_name"] for entry in entries[-2:]] == ["example.com/thing list", "MainThread"]


PRINTS_MUCH = """
import sys
from dpgateway.kit import log
log.setup("json", "info")
with log.captured():
    print("x" * 10_000_000)
    log.finish(20)  # its own end leaves less time, and may cut the last line short
"""


def test_what_is_printed_without_end_costs_little_memory():
    done = subprocess.run([sys.executable, "-c", PRINTS_MUCH], capture_output=True, text=True, check=True, timeout=60)
    assert all(len(json.loads(line)["message"]) < 40_000 for line in done.stderr.splitlines())
