"""``dpgateway demo``: the gateway's main job on one machine, in about five seconds.

It runs the gateway as on a node, in its own process, beside a simulated kubelet, plays the events of a node, and checks
and prints the result of each step. A wrong result ends it with exit code 1.
"""

from __future__ import annotations

import asyncio
import signal
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import click

from dpgateway.cli.control_client import asked
from dpgateway.cli.demo_stage import BOARD, LOG, NODE, PROGRAMMING, SENSOR, Stage, Unexpected, expect, stage_in
from dpgateway.cli.output import print_line
from dpgateway.drivers.discovery import installed
from dpgateway.errors import GatewayError

BACKENDS = ("simulated", "fpga", "chardev")
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
    held = next(id_ for pod, _, id_ in stage.held if pod == "weather")
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
    for pod, _, _ in stage.held:
        stage.kubelet.remove(pod)
    stage.held.clear()
    await stage.kubelet.upgrade("1.37")
    await stage.offered(ALL, "all resources allocatable again")
    await stage.pod("video-2", BOARD)
    await stage.pod("weather-2", SENSOR)


async def both(stage: Stage) -> None:
    if find_spec("lightkube") is None:  # of the extra dra
        stage.say("(a step that needs the package lightkube is left out: pip install 'dpgateway[dra]')")
        return
    stage.step("The sensors go to DRA, by `front: dra` and a DeviceClass; the boards stay on the device plugin")
    held = next(id_ for pod, _, id_ in stage.held if pod == "weather-2")
    await stage.to_dra(SENSOR)
    expect(f"{held} is published", held in stage.cluster.devices(), False)
    stage.say(f"{held} isn't: weather-2 has it from the device plugin")
    await stage.pod_by_both("camera", SENSOR, BOARD)
    stage.table()


async def ask(stage: Stage) -> None:
    stage.step("The gateway is asked who holds what, as `dpgateway status --watch` asks it")
    expected = sorted((f"default/{pod}", resource, id_) for pod, resource, id_ in stage.held)
    async with asyncio.timeout(30):
        found = await asyncio.to_thread(_told, stage.folder / "control.sock", len(expected))
    expect("who holds what", found, expected)
    for holder, resource, id_ in found:
        stage.say(f"{holder} holds {id_} of {resource}")


def _told(socket: Path, count: int) -> list[tuple[str, str, str]]:
    """Pod, resource and id of each device that is held, once there are ``count``."""
    with asked(socket, "watch") as answers:
        for answer in answers:
            found = [
                (f"{holder['namespace']}/{holder['pod']}", resource["name"], device["id"])
                for resource in answer["resources"]
                for device in resource["devices"]
                for holder in device["holders"]
                if holder["pod"]
            ]
            if len(found) >= count:
                return sorted(found)
    raise Unexpected("the gateway ended before it knew who holds what")


async def end(stage: Stage) -> None:
    stage.step("SIGTERM ends the gateway")
    began = time.monotonic()
    stage.process.send_signal(signal.SIGTERM)
    expect("its exit code", await stage.process.wait(), 0)
    stage.say(f"ended after {(time.monotonic() - began) * 1000:.0f} ms, exit code 0")
    expect("files it left", list((stage.folder / "device-plugins/dpgateway").iterdir()), [])


STEPS = (legacy, upgrade, restart, unplug, newest, both, ask, end)


async def play(folder: Path) -> None:
    async with stage_in(folder) as stage:
        for act in STEPS:
            await act(stage)


@click.command()
def demo() -> None:
    """Show the gateway with simulated devices and a simulated kubelet.

    Serves simulated sensors, simulated FPGA boards and three of this machine's own device nodes to a kubelet that
    speaks the API of 1.9, through an upgrade to v1beta1, restarts, an unplugged device and its return; at last the
    sensors by DRA. Uses a temporary directory only, takes about five seconds, and exits with 1 if a step's result is
    wrong.
    """
    if missing := [name for name in BACKENDS if name not in installed()]:
        packages = " ".join(f"dpgateway-{name}" for name in missing)
        raise Unexpected(f"the demonstration needs the drivers {', '.join(missing)} too: install {packages}")
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="dpgateway-demo-") as name:
        folder = Path(name)
        print_line("One gateway process serves three resources of three drivers to a simulated kubelet.")
        try:
            asyncio.run(play(folder))
        except (GatewayError, TimeoutError) as error:
            # The gateway may be the cause, and its log vanishes with the folder.
            log = folder / LOG
            click.echo()
            print_line("the gateway's log:", "red")
            click.echo(log.read_text() if log.exists() else "(none)")
            if isinstance(error, TimeoutError):
                raise Unexpected(str(error)) from error
            raise
    click.echo()
    print_line(f"All as expected, in {time.monotonic() - began:.1f} s.", "green")
