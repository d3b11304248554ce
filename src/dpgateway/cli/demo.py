"""``dpgateway demo``: the main job on one machine, in about five seconds.

Runs the gateway as on a node, as a process of its own, and a simulated kubelet beside it. Plays what happens to a node,
checks the result of each step, and prints it. A wrong result ends the demonstration with exit code 1.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
from ruamel.yaml import YAML

from dpgateway.cli.asking import asked
from dpgateway.cli.output import print_line, print_table
from dpgateway.drivers.discovery import installed
from dpgateway.errors import GatewayError
from dpgateway_simulator import Kubelet

SENSOR, BOARD, NODE = "demo.example/sensor", "demo.example/fpga-board", "demo.example/memory-node"
BACKENDS = ("simulated", "fpga", "chardev")
DEVICE_NODES = ("/dev/full", "/dev/null", "/dev/zero")
PROGRAMMING = 1.0
"""Seconds that a simulated board takes."""


class Unexpected(GatewayError):
    """A step's result is wrong."""


def expect(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise Unexpected(f"{what}: expected {expected}, found {found}")


@dataclass
class Stage:
    """The gateway's process, the kubelet, and the files between them."""

    folder: Path
    kubelet: Kubelet
    process: asyncio.subprocess.Process
    steps: int = 0
    held: dict[str, list[str]] = field(default_factory=dict)

    def step(self, title: str) -> None:
        self.steps += 1
        click.echo()
        print_line(f"{self.steps}. {title}", "cyan")

    def say(self, text: str) -> None:
        print_line(f"   {text}")

    async def offered(self, counts: Mapping[str, tuple[int, int]], why: str) -> None:
        """Waits until the kubelet has these counts: (capacity, allocatable) by resource."""
        began = time.monotonic()

        def all_there() -> bool:
            return all(self.kubelet.counts(name) == pair for name, pair in counts.items())

        try:
            await self.kubelet.wait_for(all_there, 10)
        except TimeoutError as error:
            now = {name: self.kubelet.counts(name) for name in counts}
            raise Unexpected(f"{why}: expected {dict(counts)}, found {now} after 10 s: {error}") from error
        self.say(f"{why}: seen by the kubelet after {(time.monotonic() - began) * 1000:.0f} ms")

    def table(self) -> None:
        rows = []
        for name in (SENSOR, BOARD, NODE):
            capacity, allocatable = self.kubelet.counts(name)
            rows.append([f"   {name}", str(capacity), str(allocatable), ", ".join(self.holders(name)) or "-"])
        print_table(["   resource", "capacity", "allocatable", "held"], rows)

    def holders(self, name: str) -> list[str]:
        return [f"{held[1]} by {pod}" for pod, held in self.held.items() if held[0] == name]

    async def pod(self, name: str, resource: str) -> None:
        """Runs a pod with one device, and says what its container got."""
        began = time.monotonic()
        before = len(self.kubelet.events)
        reply = await self.kubelet.admit(name, {"main": {resource: 1}})
        if not reply["ok"]:
            raise Unexpected(f"pod {name}: {reply['error']}")
        given = [e for e in self.kubelet.events[before:] if e.kind == "allocate"]
        ids = ", ".join(str(i) for e in given for i in e.fields["devices"])
        self.held[name] = [resource, ids]
        self.say(f"pod {name} got {ids} after {time.monotonic() - began:.2f} s: {_summary(reply)}")

    async def refused(self, name: str, resource: str, count: int) -> None:
        reply = await self.kubelet.admit(name, {"main": {resource: count}})
        expect(f"pod {name} is admitted", reply["ok"], False)
        self.say(f"pod {name}, which wants {count}, is refused: {reply['error']}")

    def faults(self, *faults: Mapping[str, Any]) -> None:
        """Gives the simulated sensors these faults from now on."""
        new = self.folder / "sensors.new"
        new.write_text(json.dumps({"faults": list(faults)}))
        new.rename(self.folder / "sensors.json")


def _summary(reply: Mapping[str, Any]) -> str:
    options = reply["containers"][0]["options"]
    parts = [f"{name}={value}" for name, value in sorted(options["envs"].items())]
    parts += [f"{d['host_path']} ({d['permissions']})" for d in options["devices"]]
    return ", ".join(parts) or "nothing but the device"


def configuration(folder: Path) -> dict[str, Any]:
    """What an operator would write, except that the hardware is simulated."""
    boards = [{"id": f"board-{n}"} for n in (1, 2)]
    bitstream = folder / "filter.bin"
    bitstream.write_bytes(os.urandom(4096))
    bitstream.chmod(0o600)
    programmer = {"state_dir": str(folder / "boards"), "duration": f"{PROGRAMMING:g}s"}
    fpga = {
        "boards": boards,
        "state_dir": str(folder / "journal"),
        "bitstream": {"path": str(bitstream), "id": "filter"},
        "simulated": programmer,
    }
    sensors = {
        "count": 3,
        "device_id_prefix": "sensor",
        "env_prefix": "SENSOR",
        "control_file": str(folder / "sensors.json"),
    }
    return {
        "state_dir": str(folder / "state"),
        "resources": [
            {"name": SENSOR, "driver": "simulated", "options": sensors, "preference": "packed"},
            {"name": BOARD, "driver": "fpga", "options": fpga},
            {"name": NODE, "driver": "chardev", "options": {"paths": list(DEVICE_NODES)}},
        ],
    }


ALL = {SENSOR: (3, 3), BOARD: (2, 2), NODE: (3, 3)}


async def legacy(stage: Stage) -> None:
    stage.step("A kubelet 1.9 starts: it knows only the old API, v1alpha2")
    await stage.offered(ALL, "all resources allocatable")
    stage.table()
    stage.step("Pods get devices; this kubelet can't prepare a board, so Allocate programs it first")
    await stage.pod("weather", SENSOR)
    await stage.pod("video", BOARD)
    await stage.pod("logger", NODE)
    stage.table()


async def upgrade(stage: Stage) -> None:
    stage.step("The node is upgraded in place, to a kubelet 1.10, which speaks v1beta1 only; the pods keep running")
    before = len(stage.kubelet.events)
    replies = await stage.kubelet.upgrade("1.10")
    expect("pods admitted again", [r["ok"] for r in replies], [True] * 3)
    await stage.offered(ALL, "all resources allocatable again")
    expect("devices allocated again", [e for e in stage.kubelet.events[before:] if e.kind == "allocate"], [])
    stage.say("the kubelet read from its checkpoint who holds what; nothing was allocated twice")
    stage.step("A container restarts: v1beta1 asks the gateway before each start; the board has its bitstream already")
    began = time.monotonic()
    reply = await stage.kubelet.start_container("video", "main")
    expect("the restart", reply["ok"], True)
    stage.say(f"video restarted after {(time.monotonic() - began) * 1000:.0f} ms; programming takes {PROGRAMMING:g} s")


async def restart(stage: Stage) -> None:
    stage.step("The kubelet is killed and starts again")
    replies = await stage.kubelet.restart()
    expect("pods admitted again", [r["ok"] for r in replies], [True] * 3)
    await stage.offered(ALL, "all resources allocatable again")


async def unplug(stage: Stage) -> None:
    held = stage.held["weather"][1]
    stage.step(f"Somebody unplugs {held}, which the pod weather holds")
    stage.faults({"devices": [held], "absent": True})
    await stage.offered({SENSOR: (3, 2)}, "listed, but Unhealthy")
    stage.say("a held device never leaves the list, because newer kubelets crash when it does")
    await stage.refused("greedy", SENSOR, 3)
    stage.table()
    stage.step("The kubelet restarts while the device is away, and the device returns")
    await stage.kubelet.restart(graceful=True)
    await stage.offered({SENSOR: (3, 2)}, "the same list")
    stage.faults()
    await stage.offered(ALL, "healthy again")


async def newest(stage: Stage) -> None:
    stage.step("The node is drained, and upgraded to a kubelet 1.37")
    for pod in list(stage.held):
        stage.kubelet.remove(pod)
        del stage.held[pod]
    await stage.kubelet.upgrade("1.37")
    await stage.offered(ALL, "all resources allocatable again")
    await stage.pod("video-2", BOARD)
    await stage.pod("weather-2", SENSOR)
    stage.table()


async def ask(stage: Stage) -> None:
    stage.step("The gateway is asked who holds what, as `dpgateway status --watch` asks it")
    expected = {f"default/{pod} (main)": (resource, ids) for pod, (resource, ids) in stage.held.items()}
    async with asyncio.timeout(10):
        found = await asyncio.to_thread(_told, stage.folder / "control.sock", len(expected))
    expect("who holds what", found, expected)
    for holder, (resource, id_) in found.items():
        stage.say(f"{holder} holds {id_} of {resource}")


def _told(socket: Path, count: int) -> dict[str, tuple[str, str]]:
    """The resource and the id of each holder, once the kubelet has named so many."""
    with asked(socket, "watch") as answers:
        for answer in answers:
            found = {
                f"{holder['namespace']}/{holder['pod']} ({holder['container']})": (resource["name"], device["id"])
                for resource in answer["resources"]
                for device in resource["devices"]
                for holder in device["holders"]
                if holder["pod"]
            }
            if len(found) >= count:
                return found
    raise Unexpected("the gateway ended before it knew who holds what")


async def end(stage: Stage) -> None:
    stage.step("SIGTERM ends the gateway")
    began = time.monotonic()
    stage.process.send_signal(signal.SIGTERM)
    expect("its exit code", await stage.process.wait(), 0)
    stage.say(f"ended after {(time.monotonic() - began) * 1000:.0f} ms, exit code 0")
    expect("files it left", list((stage.folder / "device-plugins/dpgateway").iterdir()), [])


STEPS = (legacy, upgrade, restart, unplug, newest, ask, end)


@contextlib.asynccontextmanager
async def stage_in(folder: Path) -> AsyncIterator[Stage]:
    """Starts the gateway, then a kubelet 1.9."""
    plugins = folder / "device-plugins"
    plugins.mkdir()
    config = folder / "config.yaml"
    YAML().dump(configuration(folder), config)
    command = [sys.executable, "-m", "dpgateway", "run", "--config", str(config)]
    command += ["--device-plugins-dir", str(plugins), "--node-name", "demo", "--log-format", "text"]
    command += ["--control-socket", str(folder / "control.sock")]
    with (folder / "gateway.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.DEVNULL, stderr=log)
    try:
        async with Kubelet("1.9", plugins) as kubelet:
            yield Stage(folder, kubelet, process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def play(folder: Path) -> None:
    async with stage_in(folder) as stage:
        for act in STEPS:
            await act(stage)


def _run(work: Callable[[], Any]) -> None:
    try:
        work()
    except TimeoutError as error:
        raise Unexpected(str(error)) from error


@click.command()
def demo() -> None:
    """Show the gateway with simulated devices and a simulated kubelet.

    Serves simulated sensors, simulated FPGA boards and three of this machine's own device nodes to a kubelet that
    speaks the API of 1.9, through an upgrade to v1beta1, restarts, an unplugged device and its return. Uses a temporary
    directory only, takes about five seconds, and exits with 1 if a step's result is wrong.
    """
    if missing := [name for name in BACKENDS if name not in installed()]:
        packages = " ".join(f"dpgateway-{name}" for name in missing)
        raise Unexpected(f"the demonstration needs the drivers {', '.join(missing)} too: install {packages}")
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="dpgateway-demo-") as name:
        folder = Path(name)
        print_line("One gateway process serves three resources of three drivers to a simulated kubelet.")
        try:
            _run(lambda: asyncio.run(play(folder)))
        except GatewayError:
            log = folder / "gateway.log"
            click.echo()
            print_line("the gateway's log:", "red")
            click.echo(log.read_text() if log.exists() else "(none)")
            raise
    click.echo()
    print_line(f"All as expected, in {time.monotonic() - began:.1f} s.", "green")
