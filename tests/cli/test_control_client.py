"""The commands ask a gateway that may be of an older version."""

import contextlib
import json
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dpgateway.status import SCHEMA
from tests.cli.conftest import Line
from tests.support.gateway import COMMAND
from tests.support.waiting import BUSY

R = "example.com/a"
NOW = "2026-01-01T00:00:00Z"
WHERE = {"state": "serving", "since": NOW, "registered": True, "streaming": True, "listed": True, "api": "v1beta1"}
DRIVER = {"name": "fake", "version": "1.2", "listed": NOW, "failure": None, "error": None}
COUNTS = dict.fromkeys(("listed", "healthy", "unhealthy", "held", "free", "lost"), 0)
OLD = {
    "schema": 1,
    "time": NOW,
    "gateway": {"version": "0.1.0", "pid": 1, "node": "n1", "since": NOW},
    "reloads": {"read": NOW, "succeeded": 0, "refused": 1, "refusal": {"time": NOW, "problems": ["wrong"]}},
    "kubelet": {"there": True, "since": NOW, "incarnation": None, "api": "v1alpha2", "release": "1.9"},
    "pod_resources": {"answered": None, "failure": None},
    "troubles": [],
    "resources": [
        {"name": R, "started": True, "registration": WHERE, "failure": None, "driver": DRIVER, "counts": COUNTS}
        | {"devices": []}
    ],
    "events": [],
}


@contextlib.contextmanager
def answering(path: Path, text: bytes) -> Iterator[Path]:
    """A socket that answers one request with this text."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def answer() -> None:
            try:
                connection, _ = listener.accept()
            except OSError:  # nobody has asked
                return
            with connection:
                connection.recv(1024)
                connection.sendall(text)

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield path
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.fixture
def older(short_path):
    """The socket of a gateway that answers in schema 1."""
    with answering(short_path / "control.sock", f"{json.dumps(OLD)}\n".encode()) as path:
        yield path


def test_schema_1_becomes_the_present_one(line, older):
    told = json.loads(line("status", f"--control-socket={older}", "--output=json").stdout)
    assert (told["schema"], told["resources"][0]["registrations"]) == (SCHEMA, [{"front": "deviceplugin", **WHERE}])
    assert "registration" not in told["resources"][0]


def test_schema_1_as_a_table(line, older):
    table = line("status", f"--control-socket={older}").stdout
    assert f"{R}  serving" in table


@pytest.mark.usefixtures("fake_driver")
@pytest.mark.parametrize(
    ("api", "clues"), [("v1alpha2", ["it accepted v1alpha2"]), ("v9", [])], ids=["a known API", "a later one"]
)
def test_preflight_asks_a_gateway_of_another_version(line, short_path, tmp_path, api, clues):
    config = line.config(f"resources: [{{name: {R}, driver: fake, options: {{mode: list}}}}]\nstate_dir: {tmp_path}\n")
    kubelet = {"there": True, "since": NOW, "incarnation": None, "api": api, "release": None}
    said = json.dumps(OLD | {"kubelet": kubelet})
    with answering(short_path / "control.sock", f"{said}\n".encode()) as path:
        found = line(
            *("preflight", f"--config={config}", f"--device-plugins-dir={tmp_path}", f"--control-socket={path}"),
            *("--to=1.34", "--output=json"),
        )
    told = json.loads(found.stdout)
    assert told["from"]["clues"] == clues
    assert (told["from"]["oldest"] == told["from"]["newest"] == "1.9") is bool(clues)


NEWER = json.dumps({"schema": SCHEMA + 1, "resources": {}})
WORDS = (["status"], ["status", R], ["status", "--output=json"], ["status", "--watch"], ["check", "--against-running"])


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
@pytest.mark.parametrize(
    ("text", "why"),
    [
        (NEWER, f"the gateway at {{}} is newer than this command: found schema {SCHEMA + 1}, expected {SCHEMA}"),
        ("[]", "no gateway answers at {}, but another program: expected a status"),
        ('{"a": 1}', "no gateway answers at {}, but another program: expected a status"),
        ('{"schema": 1}', "no gateway answers at {}, but another program: expected a status"),
        ('{"schema":2}', "no gateway answers at {}, but another program: expected a status"),
        ('{"schema": "2", "configuration": {}}', "no gateway answers at {}, but another program: expected a status"),
        ("220 mail.example.com ESMTP", "the gateway at {} hasn't answered: Extra data"),
        ("[" * 100_000, "the gateway at {} hasn't answered: "),
        ("\xff", "the gateway at {} hasn't answered: "),
    ],
    ids=["newer", "list", "mapping", "no resources", "none of the present", "schema", "text", "nested", "binary"],
)
def test_an_answer_that_is_no_known_status(line: Line, short_path: Path, words: list[str], text: str, why: str) -> None:
    config = line.config("resources: []\n")
    with answering(short_path / "control.sock", f"{text}\n".encode("latin-1")) as path:
        where = [f"--config={config}", f"--control-socket={path}", f"--device-plugins-dir={line.directory}"]
        told = line(*words, *where)
    assert told.exit_code == 1
    assert why.format(path) in told.output


LACKS = ["status"], ["status", R], ["status", "--watch"], ["check", "--against-running"], ["preflight", "--to=1.34"]


@pytest.mark.parametrize("words", LACKS, ids=" ".join)
@pytest.mark.parametrize(
    "answer",
    [{"configuration": {}}, {"resources": [{"name": R}]}, {"resources": [3]}, {"resources": 3, "configuration": 3}],
    ids=["no resources", "a name alone", "numbers", "a number"],
)
def test_an_answer_that_lacks_fields(line: Line, short_path: Path, words: list[str], answer: dict[str, object]) -> None:
    config = line.config(f"resources: []\nstate_dir: {line.directory}\n")
    with answering(short_path / "control.sock", f"{json.dumps({'schema': SCHEMA, **answer})}\n".encode()) as path:
        where = [f"--config={config}", f"--control-socket={path}", f"--device-plugins-dir={line.directory}"]
        told = line(*words, *where)
    assert told.exit_code == 1
    assert f"the gateway at {path} is of another version than this command, which can't read its answer" in told.output


@pytest.fixture
def refusing(short_path: Path) -> Iterator[Path]:
    """The socket of a gateway that closes each connection at once, as one with too many clients does."""
    path = short_path / "control.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def refuse() -> None:
            try:
                while True:
                    listener.accept()[0].close()
            except OSError:
                return

        refused = threading.Thread(target=refuse)
        refused.start()
        yield path
        listener.shutdown(socket.SHUT_RDWR)
        refused.join()


def test_a_gateway_with_too_many_clients(line: Line, refusing: Path, tmp_path: Path) -> None:
    """It closes the connection before the request or after it: often enough both are seen."""
    where = [f"--control-socket={refusing}", f"--device-plugins-dir={tmp_path}"]
    for _ in range(100):
        told = line("status", *where)
        assert told.exit_code == 1
        assert told.stdout.startswith(f"the gateway at {refusing} hasn't answered: "), told.exception


@pytest.fixture
def hanging(short_path: Path) -> Iterator[tuple[Path, threading.Event]]:
    """The socket of a gateway whose answer never ends, and the event that somebody has asked."""
    path, asked, ended = short_path / "control.sock", threading.Event(), threading.Event()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def answer() -> None:
            try:
                connection, _ = listener.accept()
            except OSError:  # nobody has asked
                return
            with connection:
                connection.recv(1024)
                asked.set()
                while not ended.wait(1):  # a piece each second, so no timeout of the socket passes
                    try:
                        connection.sendall(b" ")
                    except OSError:
                        return

        answering = threading.Thread(target=answer)
        answering.start()
        yield path, asked
        ended.set()
        listener.shutdown(socket.SHUT_RDWR)
        answering.join()


@pytest.mark.parametrize("command", [["status"], ["check", "--against-running"], ["preflight"]], ids=lambda it: it[0])
def test_ctrl_c_while_the_gateway_hangs(
    hanging: tuple[Path, threading.Event], tmp_path: Path, command: list[str]
) -> None:
    control, asked = hanging
    (tmp_path / "config.yaml").write_text(f"resources: []\nstate_dir: {tmp_path}\n")
    where = [f"--{name}={path}" for name, path in (("config", tmp_path / "config.yaml"), ("control-socket", control))]
    with subprocess.Popen([*COMMAND, *command, *where, f"--device-plugins-dir={tmp_path}"]) as process:
        try:
            assert asked.wait(BUSY)
            process.send_signal(signal.SIGINT)
            assert process.wait(BUSY) == 1
        finally:
            process.kill()
