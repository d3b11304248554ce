"""The stage of the demonstration: the gateway's process as on a node, a simulated kubelet, and their files.

``demo`` contains the steps.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
from ruamel.yaml import YAML

from dpgateway.cli.output import print_line, print_table
from dpgateway.errors import GatewayError
from dpgateway_simulator import Kubelet
from dpgateway_simulator.cluster import PodEndedError, SimulatedCluster

SENSOR, BOARD, NODE = "demo.example/sensor", "demo.example/fpga-board", "demo.example/memory-node"
DEVICE_NODES = ("/dev/full", "/dev/null", "/dev/zero")
DRIVER = "dra.demo.example"
"""The gateway's name at the kubelet, for DRA."""
LOG = "gateway.log"
"""The gateway's log, in the folder of the stage."""
PROGRAMMING = 1.0
"""Seconds to program a simulated board."""


class Unexpected(GatewayError):
    """A step's result is wrong."""


def expect(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise Unexpected(f"{what}: expected {expected}, found {found}")


@dataclass
class Stage:
    """A gateway and a kubelet of a cluster, with the actions of the steps. ``held``: pod, resource and id."""

    folder: Path
    cluster: SimulatedCluster
    kubelet: Kubelet
    process: asyncio.subprocess.Process
    steps: int = 0
    held: list[tuple[str, str, str]] = field(default_factory=list)

    def step(self, title: str) -> None:
        self.steps += 1
        click.echo()
        print_line(f"{self.steps}. {title}", "cyan")

    def say(self, text: str) -> None:
        print_line(f"   {text}")

    async def offered(self, counts: Mapping[str, tuple[int, int]], why: str) -> None:
        """Waits until the kubelet counts this: (capacity, allocatable) by resource."""
        began = time.monotonic()

        def all_there() -> bool:
            return all(self.kubelet.counts(name) == pair for name, pair in counts.items())

        try:
            await self.kubelet.wait_for(all_there, 30)
        except TimeoutError as error:
            now = {name: self.kubelet.counts(name) for name in counts}
            raise Unexpected(f"{why}: expected {dict(counts)}, found {now} after 30 s: {error}") from error
        self.say(f"{why}: seen by the kubelet after {(time.monotonic() - began) * 1000:.0f} ms")

    def table(self) -> None:
        rows = []
        for name in (SENSOR, BOARD, NODE):
            capacity, allocatable = self.kubelet.counts(name)
            holders = ", ".join(f"{id_} by {pod}" for pod, resource, id_ in self.held if resource == name)
            rows.append([f"   {name}", str(capacity), str(allocatable), holders or "-"])
        print_table(["   resource", "capacity", "allocatable", "held"], rows)

    async def pod(self, name: str, resource: str) -> None:
        """Runs a pod with one device, and prints its container's options."""
        began = time.monotonic()
        before = len(self.kubelet.events)
        reply = await self.kubelet.admit(name, {"main": {resource: 1}})
        if not reply["ok"]:
            raise Unexpected(f"pod {name}: {reply['error']}")
        given = [e for e in self.kubelet.events[before:] if e.kind == "allocate"]
        ids = ", ".join(str(i) for e in given for i in e.fields["devices"])
        self.held.append((name, resource, ids))
        options = reply["containers"][0]["options"]
        self.say(f"pod {name} got {ids} after {time.monotonic() - began:.2f} s: {_summary(options)}")

    async def to_dra(self, resource: str) -> None:
        """Has the gateway offer a resource by DRA, and waits until its devices are published, and the Node has none by
        the device plugin: until then the scheduler sends pods that way.
        """
        began, content = time.monotonic(), configuration(self.folder)
        for one in content["resources"]:
            if one["name"] == resource:
                one["front"] = "dra"
        new = self.folder / "config.new"
        YAML().dump({**content, "dra": {"driver": DRIVER}, "cluster": self.cluster.account(self.folder)}, new)
        new.rename(self.folder / "config.yaml")
        self.cluster.device_class("sensor", DRIVER, resource=resource, attributes={"resource": resource})
        async with asyncio.timeout(30):
            while not (devices := self.cluster.devices(DRIVER)) or self.cluster.allocatable("demo", resource):
                await self.cluster.server.store.changed()
        self.say(f"{', '.join(devices)} are in a ResourceSlice after {(time.monotonic() - began) * 1000:.0f} ms")

    async def pod_by_both(self, name: str, claimed: str, allocated: str) -> None:
        """Runs a pod with a device of each front: the scheduler makes a claim for one of them. Raises Unexpected."""
        began, before = time.monotonic(), len(self.kubelet.events)
        try:
            await self.cluster.run(name, {"main": {claimed: 1, allocated: 1}})
        except (PodEndedError, TimeoutError) as error:
            raise Unexpected(str(error)) from error
        (by_plugin,) = (
            id_ for e in self.kubelet.events[before:] if e.kind == "allocate" for id_ in e.fields["devices"]
        )
        (by_claim,) = self.cluster.allocated(name)
        self.held += [(name, claimed, by_claim), (name, allocated, by_plugin)]
        (options,) = self.cluster.given(name).values()
        seconds = time.monotonic() - began
        self.say(f"pod {name} got {by_claim} by a claim and {by_plugin} by Allocate after {seconds:.2f} s:")
        self.say(_summary(options))

    async def refused(self, name: str, resource: str, count: int) -> None:
        reply = await self.kubelet.admit(name, {"main": {resource: count}})
        expect(f"pod {name} is admitted", reply["ok"], False)
        self.say(f"pod {name}, which wants {count}, is refused: {reply['error']}")

    def faults(self, *faults: Mapping[str, Any]) -> None:
        """Replaces the faults of the simulated sensors."""
        new = self.folder / "sensors.new"
        new.write_text(json.dumps({"faults": list(faults)}))
        new.rename(self.folder / "sensors.json")


def _summary(options: Mapping[str, Any]) -> str:
    parts = [f"{name}={value}" for name, value in sorted(options["envs"].items())]
    parts += [f"{d['host_path']} ({d['permissions']})" for d in options["devices"]]
    return ", ".join(parts) or "nothing but the device"


def configuration(folder: Path) -> dict[str, Any]:
    """An operator's configuration, with simulated hardware."""
    boards = [{"id": f"board-{n}"} for n in (1, 2)]
    bitstream = folder / "filter.bin"
    bitstream.write_bytes(os.urandom(4096))
    bitstream.chmod(0o600)  # the driver refuses a bitstream that others can write
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
        "runtime": {"cdi_dirs": [str(folder / "cdi")]},
        "resources": [
            {"name": SENSOR, "driver": "simulated", "options": sensors, "preference": "packed"},
            {"name": BOARD, "driver": "fpga", "options": fpga},
            {"name": NODE, "driver": "chardev", "options": {"paths": list(DEVICE_NODES)}},
        ],
    }


@contextlib.asynccontextmanager
async def gateway_in(
    folder: Path, plugins: Path, node: str, content: object
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Starts the gateway as on a node, with its files in ``folder``; ``content``: its configuration."""
    config = folder / "config.yaml"
    YAML().dump(content, config)
    command = [sys.executable, "-m", "dpgateway", "run", "--config", str(config)]
    command += ["--device-plugins-dir", str(plugins), "--node-name", node, "--log-format", "text"]
    command += ["--control-socket", str(folder / "control.sock")]
    with (folder / LOG).open("wb") as log:
        process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.DEVNULL, stderr=log)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@contextlib.asynccontextmanager
async def stage_in(folder: Path) -> AsyncIterator[Stage]:
    """Starts a cluster, the gateway, then a kubelet 1.9."""
    plugins = folder / "device-plugins"
    plugins.mkdir()
    async with (
        SimulatedCluster() as cluster,
        gateway_in(folder, plugins, "demo", configuration(folder)) as process,
        cluster.node("1.9", root=folder, name="demo") as kubelet,
    ):
        yield Stage(folder, cluster, kubelet, process)
