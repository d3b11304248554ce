"""``dpgateway status`` in the gateway's own container: what it imports, takes, and leaves to the whole command line."""

import json
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from dpgateway.cli.plain_status import CONTROL_SOCKET, StatusRequest, plain
from dpgateway.status import SCHEMA
from tests.cli.test_control_client import COUNTS, DRIVER, OLD, WHERE, R

HEAVY = "asyncio click dpgateway.config dpgateway.drivers dpgateway.kit.log dpgateway.status google grpc logging pluggy"
HEAVY += " prometheus_client rich ruamel uvloop yaml"
LARGEST = 15 * 1024
"""KiB of memory; bare Python takes 9 MiB."""
RUN = f"""
import resource, sys
from dpgateway_start import main
sys.argv = ["dpgateway", "status", *sys.argv[1:]]
code = main()
with open("/proc/self/status") as status:
    peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))
print(peak, *set({HEAVY.split()}) & set(sys.modules), file=sys.stderr)
sys.exit(code)
"""


def device(number):
    health = {"healthy": number % 100 > 0, "reason": "too hot", "since": None, "lost": False}
    hold: dict[str, object] = {
        "held": False,
        "held_since": None,
        "holders": [],
        "numa_nodes": [],
        "attributes": {"a": "b" * 100},
    }
    return {"id": f"device-{number}", "device": f"device-{number}", **health, **hold}


RESOURCE = {"name": R, "started": True, "registrations": [{"front": "deviceplugin", **WHERE}], "failure": None}
RESOURCE |= {"driver": DRIVER, "counts": COUNTS}
NEW = OLD | {"schema": SCHEMA, "resources": [RESOURCE | {"devices": list(map(device, range(6400)))}]}
ALL = f"{json.dumps(NEW)}\n"
FEW = f"{json.dumps(NEW | {'resources': [RESOURCE | {'devices': [device(0)]}]})}\n"


@pytest.fixture
def answering(short_path):
    """A gateway with these answers, by request; it hangs up at any other."""
    path = short_path / "control.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve(answers):
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(answers.get(connection.recv(1024).decode().strip(), "").encode())

        def answer(**answers):
            threading.Thread(target=serve, args=[answers], daemon=True).start()
            return path

        yield answer
        listener.shutdown(socket.SHUT_RDWR)


def run(path, *words):
    command = [sys.executable, "-c", RUN, *words, f"--control-socket={path}"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("words", [[], ["--output=json"]], ids=["table", "json"])
def test_it_imports_and_takes_little(answering, words):
    done = run(answering(summary=FEW, status=ALL), *words)
    peak, *imported = done.stderr.split()
    assert (done.returncode, imported) == (0, [])
    assert int(peak) < LARGEST
    assert json.loads(done.stdout) == NEW if words else "device-0" in done.stdout


def test_an_older_gateway_without_a_summary(answering):
    done = run(answering(status=ALL))
    assert done.returncode == 0
    assert "and 44 more that are Unhealthy" in done.stdout


def test_an_answer_that_breaks_off(answering):
    done = run(answering(status=ALL[:100_000]), "--output=json")
    assert (done.returncode, done.stderr.splitlines()[0]) == (1, "Error: the gateway ended before it had answered")


def test_an_answer_that_lacks_fields(answering):
    path = answering(summary=f"{json.dumps({'schema': SCHEMA, 'resources': []})}\n")
    done = run(path)
    why = f"the gateway at {path} is of another version than this command, which can't read its answer"
    assert (done.returncode, done.stderr.splitlines()[0]) == (1, f"Error: {why}: KeyError: 'time'")


@pytest.mark.parametrize("watch", [[], ["--watch"]], ids=["once", "watch"])
def test_a_name_that_is_no_text(answering, watch):
    none = f"{json.dumps(NEW | {'resources': []})}\n"
    done = run(answering(**{"status ?": none, "watch ?": none}), "\udcff", *watch)
    assert (done.returncode, done.stdout) == (1, "the gateway has no resource \\udcff\n")


DEFAULT = StatusRequest("", CONTROL_SOCKET, "table")


@pytest.mark.parametrize(
    ("words", "variables", "expected"),
    [
        ("", {}, DEFAULT),
        ("--output json", {}, DEFAULT._replace(output="json")),
        ("a/b --control-socket=/s", {"OUTPUT": "json"}, StatusRequest("a/b", Path("/s"), "json")),
        ("", {"CONTROL_SOCKET": "/s", "OUTPUT": ""}, DEFAULT._replace(control_socket=Path("/s"))),
        *((words, {}, None) for words in ("--watch", "a b", "--help", "--output=xml", "--output", "--control-socket=")),
        ("", {"WATCH": "1"}, None),
    ],
)
def test_what_is_plain(words, variables, expected):
    assert plain(words.split(), {f"DPGATEWAY_{name}": value for name, value in variables.items()}) == expected
