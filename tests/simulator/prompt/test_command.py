"""`simulate` as a command."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dpgateway_simulator.prompt.command import simulate

RUN = "from dpgateway_simulator.prompt.command import simulate; simulate()"
Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def invoke(*steps: str, arguments: Sequence[str] = (), environment: Mapping[str, str] | None = None) -> Result:
        script = tmp_path / "script"
        script.write_text("\n".join(steps))
        words = ["--device-plugins-dir", str(tmp_path / "dp"), "--script", str(script), *arguments]
        return CliRunner().invoke(simulate, words, env=environment or {})

    return invoke


def test_script_prints_events(run: Run, tmp_path: Path) -> None:
    result = run("print capacity", "upgrade 1.37", "print files", arguments=["--kubelet", "1.24"])
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert any(line.endswith(f"started version=1.24 directory={tmp_path / 'dp'}") for line in lines)
    assert any("started version=1.37" in line for line in lines)
    assert "RESOURCE  CAPACITY  ALLOCATABLE" in lines
    assert 'files: ["DEPRECATION", "kubelet.sock"]' in lines


def test_json_is_one_object_a_line(run: Run) -> None:
    result = run("print capacity", arguments=["--output", "json"])
    objects = [json.loads(line) for line in result.output.splitlines()]
    assert {"capacity": {"capacity": {}, "allocatable": {}, "removed": []}} in objects
    assert [one["event"] for one in objects if "event" in one] == ["socket created", "started", "stopped"]


def test_failed_step_exits_with_1(run: Run, tmp_path: Path) -> None:
    result = run("kill", "expect running", "print files")
    assert result.exit_code == 1
    assert f"{tmp_path}/script:2: expect running: the kubelet isn't running" in result.output
    assert "files:" not in result.output


def test_a_question_to_a_dead_kubelet_fails(run: Run) -> None:
    result = run("kill", "print capacity")
    assert result.exit_code == 1
    assert "isn't running" in result.output


@pytest.mark.parametrize(
    ("step", "error"), [("dance", "unknown step 'dance'"), ("delete", "found 'nothing', expected POD")]
)
def test_wrong_script_exits_with_2(run: Run, tmp_path: Path, step: str, error: str) -> None:
    result = run("", step)
    assert result.exit_code == 2
    assert f"{tmp_path}/script:2: {error}" in result.output
    assert not (tmp_path / "dp").exists()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--kubelet", "1.99"], "unknown kubelet version '1.99'"),
        (["--output", "xml"], "xml"),
        (["--script", "/dev/null/nowhere"], "can't be read"),
    ],
)
def test_wrong_usage_is_2(run: Run, arguments: list[str], error: str) -> None:
    result = run(arguments=arguments)
    assert result.exit_code == 2
    assert error in result.output


def test_options_come_from_the_environment(run: Run) -> None:
    result = run("kill", environment={"DPGATEWAY_KUBELET": "1.10", "DPGATEWAY_OUTPUT": "json"})
    assert '"version": "1.10"' in result.output
    assert all(
        f"DPGATEWAY_{option.opts[0][2:].upper().replace('-', '_')}" in (option.envvar or ())
        for option in simulate.params
    )


def test_leaves_foreign_directory_alone(run: Run, tmp_path: Path) -> None:
    (tmp_path / "dp").mkdir()
    (tmp_path / "dp" / "thesis.tex").write_text("x")
    result = run("kill")
    assert result.exit_code == 2
    assert "thesis.tex, which a kubelet would delete; expected an empty directory" in result.output
    assert (tmp_path / "dp" / "thesis.tex").exists()


def test_leaves_served_directory_alone(run: Run, tmp_path: Path) -> None:
    (tmp_path / "dp").mkdir()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(tmp_path / "dp" / "kubelet.sock"))
        other.listen()
        result = run("kill")
    assert result.exit_code == 2
    assert "a kubelet serves" in result.output


def test_failed_start_is_one_line(run: Run, tmp_path: Path) -> None:
    result = run(arguments=["--device-plugins-dir", "/proc/nowhere"])
    assert result.exit_code == 1
    assert "Error: the kubelet of /proc/nowhere can't start: No such file or directory" in result.output
    result = run(arguments=["--device-plugins-dir", f"/tmp/{'long' * 100}"])
    assert result.exit_code == 1
    assert "can't start: File name too long" in result.output
    directory = tmp_path / "device-plugins"
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        result = run(arguments=["--device-plugins-dir", str(directory), "--api-port", port])
    assert result.exit_code == 1
    assert f"Error: the kubelet of {directory} can't start: " in result.output
    assert f"('127.0.0.1', {port})" in result.output
    assert "address already in use" in result.output


def test_takes_over_leftovers(run: Run) -> None:
    assert run("kill").exit_code == 0
    assert run("kill").exit_code == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_interrupted_script_fails(tmp_path: Path, number: signal.Signals) -> None:
    script = tmp_path / "script"
    script.write_text("print files\nwait example.com/x=1\n")
    words = ["--device-plugins-dir", str(tmp_path / "dp"), "--script", str(script), "--output", "json"]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", RUN, *words, stdout=pipe, stderr=pipe)
    assert process.stdout is not None
    while "files" not in json.loads(await process.stdout.readline()):
        pass
    process.send_signal(number)
    rest, said = await process.communicate()
    assert process.returncode == 1
    assert said.decode() == f"{script}:2: wait example.com/x=1: interrupted\n"
    assert json.loads(rest.splitlines()[-1])["event"] == "stopped"


def test_broken_output_ends_the_kubelet(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("pause 1000\n")
    words = ["--device-plugins-dir", str(tmp_path / "dp"), "--script", str(script)]
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-u", "-c", RUN, *words]  # else Python fails again at its exit to write the rest
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "OSError: [Errno 28] No space left on device"  # dpgateway says it in a line
    assert "interrupted" not in done.stderr
    assert not (tmp_path / "dp" / "kubelet.sock").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_runs_until_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    words = ["--device-plugins-dir", str(tmp_path / "dp"), "--output", "json"]
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", RUN, *words, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    while json.loads(await process.stdout.readline())["event"] != "started":
        pass
    process.send_signal(number)
    rest = await process.stdout.read()
    assert await process.wait() == 0
    assert json.loads(rest.splitlines()[-1])["event"] == "stopped"
    assert not (tmp_path / "dp" / "kubelet.sock").exists()
