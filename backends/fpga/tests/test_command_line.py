"""The command reads the gateway's configuration, takes the gateway's steps, and leaves held boards alone."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from dpgateway_fpga.command_line import Teller, main

from tests.support.waiting import until

README = (Path(__file__).parents[1] / "README.md").read_text()


@pytest.fixture
def configuration(tmp_path):
    """Two functions for one board; the second has another board, too."""
    for name in ("aes", "fft"):
        (tmp_path / f"{name}.bin").write_text(name)
    simulated = {"state_dir": str(tmp_path / "simulated"), "duration": "0s"}

    def resource(name, *boards, **changes):
        options = {
            "boards": [{"id": board} for board in boards],
            "bitstream": {"path": str(tmp_path / f"{name}.bin"), "id": f"{name}-v1"},
            "state_dir": str(tmp_path / "state"),
            "simulated": simulated | changes,
        }
        return {"name": f"example.com/{name}", "driver": "fpga", "pool": "boards", "options": options}

    def write(**changes):
        resources = [resource("aes", "a", **changes), resource("fft", "a", "b", **changes)]
        (tmp_path / "config.yaml").write_text(json.dumps({"resources": resources}))

    write()
    return write


@pytest.fixture
def run(configuration, tmp_path, monkeypatch):
    monkeypatch.setenv("DPGATEWAY_CONFIG", str(tmp_path / "config.yaml"))
    monkeypatch.setenv("DPGATEWAY_CONTROL_SOCKET", str(tmp_path / "control.sock"))
    return lambda *arguments: CliRunner().invoke(main, arguments, catch_exceptions=False)


@contextmanager
def gateway(path, *held, started=True, failure=None):
    """Says of itself what a gateway says, as far as it matters here: which boards are held, and as what."""
    pod = {"namespace": "team", "pod": "encoder-0"}
    resources = [
        {
            "name": f"example.com/{name}",
            "started": started,
            "failure": failure,
            "devices": [
                {"device": board, "held": (name, board) in held, "holders": [pod] if (name, board) in held else []}
                for board in "ab"
            ],
        }
        for name in ("aes", "fft")
    ]
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()

        def answer():
            connection, _ = listening.accept()
            with connection:
                assert connection.recv(100) == b"status\n"
                connection.sendall(json.dumps({"schema": 2, "resources": resources}).encode() + b"\n")

        thread = threading.Thread(target=answer)
        thread.start()
        yield
        thread.join(20)
    path.unlink()


def test_programs_verifies_and_lists(run, tmp_path):
    with gateway(tmp_path / "control.sock"):
        done = run("program", "a", "example.com/aes")
    assert (done.exit_code, done.stdout) == (0, "board a runs aes-v1\n")
    assert done.stderr.count("board a: programming (") == 1
    assert run("verify", "a", "example.com/aes").exit_code == 0
    other = run("verify", "a", "example.com/fft")
    assert other.exit_code == 1
    assert "board 'a': expected the board to run " in other.stderr
    with gateway(tmp_path / "control.sock", ("fft", "b")):
        listed = run("list", "--output", "json")
    rows = {row["board"]: row for row in json.loads(listed.stdout)["boards"]}
    assert rows["a"]["resources"] == ["example.com/aes", "example.com/fft"]
    assert (rows["a"]["state"], rows["a"]["programmed"]["bitstream"], rows["a"]["holders"]) == ("loaded", "aes-v1", [])
    assert (rows["b"]["state"], rows["b"]["programmed"]) == ("unknown", None)
    assert rows["b"]["holders"] == ["team/encoder-0 as example.com/fft"]


@pytest.mark.parametrize(
    "command", [("list",), ("verify", "b"), ("program", "b", "--force"), ("reset", "b", "--force")]
)
def test_unreadable_journal_is_an_error(run, tmp_path, command):
    (tmp_path / "state").write_text("")
    done = run(*command)
    assert done.exit_code == 1
    told = f"journal is in state_dir {tmp_path}/state, which user {os.geteuid()} can't read: Not a directory; run as"
    assert told in done.stderr


@pytest.mark.parametrize("command", [("program", "a", "example.com/aes"), ("reset", "a")])
def test_leaves_held_boards_alone(run, tmp_path, command):
    with gateway(tmp_path / "control.sock", ("fft", "a")):
        refused = run(*command)
    assert refused.exit_code == 1
    assert "is held by team/encoder-0 as example.com/fft. Delete the pod first, or say --force" in refused.stderr
    assert not (tmp_path / "state").exists()
    assert run(*command, "--force").exit_code == 0


def test_touches_nothing_without_gateway(run, tmp_path):
    refused = run("program", "a", "example.com/aes")
    assert refused.exit_code == 1
    assert "it isn't known whether a pod holds it: no gateway is running" in refused.stderr
    assert "Start the gateway, or make sure that no pod uses the board and say --force" in refused.stderr
    listed = run("list")
    assert listed.exit_code == 0
    assert listed.stdout.splitlines()[1].split() == ["a", "unknown", "-", "-", "?", "-", "identity"]
    assert "the holders aren't known: no gateway is running" in listed.stderr


def test_other_resources_know_no_holder(run, tmp_path, configuration):
    with gateway(tmp_path / "control.sock"):
        file = tmp_path / "config.yaml"
        file.write_text(file.read_text().replace("example.com/fft", "example.com/new"))
        refused = run("program", "a", "example.com/aes")
    assert refused.exit_code == 1
    assert "the running gateway doesn't serve example.com/new" in refused.stderr


@pytest.mark.parametrize("how", [{"started": False}, {"failure": {"reason": "a bug", "since": None}}])
def test_unlisted_boards_have_no_holder(run, tmp_path, how):
    with gateway(tmp_path / "control.sock", **how):
        refused = run("program", "b")
    assert refused.exit_code == 1
    assert (
        "no list of devices for example.com/fft; `dpgateway status` says why. Start the gateway, or" in refused.stderr
    )


def test_failure_names_the_board(run, configuration):
    configuration(fail_first=1)
    failed = run("program", "b", "--force")
    assert (failed.exit_code, failed.stderr.splitlines()[-1]) == (1, "Error: board 'b': simulated failure 1 of 1")
    listed = run("list").stdout.splitlines()[2]
    assert "faulted fft-v1" in listed
    assert "simulated failure 1 of 1" in listed


def test_an_interrupted_attempt_leaves_the_board_unknown(run, configuration, tmp_path):
    """The tool goes on, and may succeed: the board is programmed again, and isn't out of use until somebody comes."""
    configuration(duration="1000s")
    # A shell without job control has its background processes ignore it, and so do these tests then.
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    code += "from dpgateway_fpga.command_line import main; main()"
    command = [sys.executable, "-c", code, "program", "a", "example.com/aes", "--force"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert any("board a: programming (" in line for line in process.stderr)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 1
    (board, _) = json.loads(run("list", "--output", "json").stdout)["boards"]
    assert (board["programmed"]["state"], board["fault"]) == ("programming", None)


def test_progress_may_have_no_reader(run: Callable[..., Result], tmp_path: Path) -> None:
    """As with `2>&1 | head -1`."""
    reader, writer = os.pipe()
    os.close(reader)
    code = f"import sys; sys.path[:] = {sys.path!r}; from dpgateway_fpga.command_line import main; main()"
    command = [sys.executable, "-c", code, "program", "a", "example.com/aes", "--force"]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=writer, text=True, timeout=120, check=False)
    finally:
        os.close(writer)
    assert done.stdout == "board a runs aes-v1\n"
    (board, _) = json.loads(run("list", "--output", "json").stdout)["boards"]
    assert (board["programmed"]["state"], board["fault"]) == ("loaded", None)


def test_a_reset_board_is_unknown_again(run, tmp_path):
    run("program", "b", "--force")
    assert run("reset", "b", "--force").stdout == "board b is reset\n"
    assert run("verify", "b").exit_code == 1
    row = json.loads(run("list", "--output", "json").stdout)["boards"][1]
    assert (row["state"], row["programmed"]) == ("unknown", None)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("verify", "a"), "is one of several resources, say which one: example.com/aes, example.com/fft"),
        (("verify", "b", "example.com/aes"), "isn't one of example.com/aes; it is one of example.com/fft"),
        (("verify", "c"), "config.yaml has a board 'c'; the boards are a, b"),
    ],
)
def test_ambiguous_board_is_named(run, arguments, text):
    done = run(*arguments)
    assert done.exit_code == 1
    assert text in done.stderr


def test_a_wrong_configuration_is_code_2(run, tmp_path):
    (tmp_path / "config.yaml").write_text("resources: [{name: example.com/x, driver: fpga}]")
    done = run("list")
    assert done.exit_code == 2
    assert "config.yaml" in done.stderr


def test_every_command_and_option_is_documented():
    section = README.partition("## The command")[2].partition("\n## ")[0]
    for name, command in main.commands.items():
        assert f"`dpgateway-fpga {name}" in section
        options = [option for one in command.params if isinstance(one, click.Option) for option in one.opts]
        assert [option for option in options if f"`{option}`" not in section] == []


async def test_a_step_that_lasts_is_told_again(capsys):
    said = []

    def seen():
        said.extend(capsys.readouterr().err.splitlines())
        return len(said) >= 3

    with Teller("b", pause=0.01) as tell:
        tell("writing")
        await until(seen)
        tell("verifying")
    said += capsys.readouterr().err.splitlines()
    steps = [line.partition(" (")[0] for line in said]
    assert set(steps[:3]) == {"board b: writing"}
    assert "board b: verifying" in steps


def test_a_tool_that_fails_has_not_programmed_the_board(run, tmp_path):
    """Also under a supervisor that ignores SIGCHLD, where the kernel drops exit codes."""
    file = tmp_path / "config.yaml"
    config = json.loads(file.read_text())
    for one in config["resources"]:
        one["options"] |= {"programmer": "command", "command": {"argv": ["/bin/false"]}}
    file.write_text(json.dumps(config))
    command = [str(Path(sys.executable).with_name("dpgateway-fpga")), "program", "b", "--force"]
    done = subprocess.run(["env", "--ignore-signal=CHLD", *command], check=False, capture_output=True, text=True)
    assert (done.returncode, "board 'b': " in done.stderr) == (1, True), done
    assert "/bin/false" in done.stderr


@pytest.mark.parametrize("command", ["program", "reset"])
def test_leaves_absent_boards_alone(run, tmp_path, command):
    """Nor does anything by its address, under which nobody else would know it."""
    file = tmp_path / "config.yaml"
    config = json.loads(file.read_text())
    for one in config["resources"]:
        one["options"] |= {"programmer": "fpga-manager", "sysfs": str(tmp_path / "sys")}
    file.write_text(json.dumps(config))
    done = run(command, "b", "--force")
    assert (done.exit_code, f"directory: '{tmp_path}/sys'" in done.stderr) == (1, True)
    (tmp_path / "sys").mkdir()
    done = run(command, "b", "--force")
    assert (done.exit_code, "board 'b': expected one fpga_manager at b in /sys, found none" in done.stderr) == (1, True)
    assert not (tmp_path / "state").exists()
