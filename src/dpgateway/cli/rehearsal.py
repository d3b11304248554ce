"""Rehearses the upgrade of a node's kubelet: a simulated kubelet reads a copy of the node's checkpoint and admits the
pods again, beside a gateway that serves simulated devices with the node's ids.

The node's gateway, kubelet, drivers and hardware aren't touched.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from dpgateway.cli.ask_drivers import DriverAnswer
from dpgateway.cli.demo_stage import LOG, Unexpected, gateway_in
from dpgateway.drivers.discovery import installed
from dpgateway.node import checkpoint
from dpgateway.node.holders import Note
from dpgateway.preflight import Rehearsal
from dpgateway.preflight.rehearsed import Again, Id
from dpgateway_simulator import Crashed, Kubelet

PATIENCE = 30.0
"""Seconds until the kubelet has all resources; it takes one second on an idle machine."""
NODE = "rehearsal"
KEPT = "shares", "preference"
"""Keys that the rehearsal takes from the node's configuration: they change the offered ids, or the kubelet's choice."""


def rehearse(version: str, directory: Path, answers: Sequence[DriverAnswer], notes: Mapping[str, Note]) -> Rehearsal:
    """Runs the rehearsal. ``directory``: the kubelet's, with the checkpoint if there is one. Resources with a failed
    driver are left out. Raises Unexpected if the rehearsal itself fails.
    """
    if "simulated" not in installed():
        raise Unexpected("a rehearsal needs the driver simulated: install dpgateway-simulated")
    served = [answer for answer in answers if answer.failure is None]
    names = {answer.resource.name for answer in served}
    notes = {name: note for name, note in notes.items() if name in names}
    with tempfile.TemporaryDirectory(prefix="dpgateway-") as name:
        folder = Path(name)
        (folder / "dp").mkdir()
        with contextlib.suppress(FileNotFoundError):
            shutil.copyfile(directory / checkpoint.NAME, folder / "dp" / checkpoint.NAME)
        return asyncio.run(_play(folder, version, served, notes))


async def _play(folder: Path, version: str, served: Sequence[DriverAnswer], notes: Mapping[str, Note]) -> Rehearsal:
    # Numbers of held devices, by pod, container and resource.
    pods: dict[str, dict[str, dict[str, int]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(int)))
    for name, note in notes.items():
        for one in chain.from_iterable(noted.containers for noted in note.values()):
            pods[one.pod_uid][one.name][name] += 1
    kubelet, again = Kubelet(version, folder / "dp"), []
    running = [f"{pod}/{container}" for pod, containers in pods.items() for container in containers]
    configuration = {"state_dir": str(folder / "state"), "resources": [_resource(answer) for answer in served]}

    # As after an upgrade in place: the containers run, and no device is freed before all pods are admitted again.
    async with gateway_in(folder, folder / "dp", NODE, configuration):
        try:
            await kubelet.start(sources_ready=not pods, running=running)
            await _registered(kubelet, folder, served)
            for pod, containers in pods.items():
                before = len(kubelet.events)
                reply = await kubelet.admit(pod, containers, start=False)
                given = [event for event in kubelet.events[before:] if event.kind == "allocate"]
                allocated = sum(len(event.fields["devices"]) for event in given)
                again.append(Again(pod, admitted=reply["ok"], reason=reply.get("error") or "", allocated=allocated))
            kubelet.sources_ready()
            return Rehearsal(kubelet.version, tuple(again), tuple(_ids(kubelet, notes)))
        except Crashed as crash:
            return Rehearsal(kubelet.version, crashed=str(crash))
        finally:
            await kubelet.kill()


def _resource(answer: DriverAnswer) -> dict[str, Any]:
    ill: dict[str, list[str]] = defaultdict(list)
    for device in answer.devices:
        if not device.health.ok:
            ill[device.health.reason or "no reason"].append(device.id)
    options = {
        "ids": [device.id for device in answer.devices],
        "count": len(answer.devices),
        "prepare": "prepare" in answer.abilities,
        "faults": [{"unhealthy": reason, "devices": ids} for reason, ids in ill.items()],
    }
    kept = {key: answer.resource.written[key] for key in KEPT if key in answer.resource.written}
    return {"name": answer.resource.name, "driver": "simulated", "options": options, **kept}


async def _registered(kubelet: Kubelet, folder: Path, served: Sequence[DriverAnswer]) -> None:
    """Waits until the kubelet has each resource's list.

    Without that a pod would be refused because its plugin is late, which says nothing about the upgrade.
    """
    healthy = {
        answer.resource.name: sum(device.health.ok for device in answer.devices) * answer.resource.shares.count
        for answer in served
    }

    def all_there() -> bool:
        seen = kubelet.resources()
        return all(
            name in seen and seen[name]["plugin"] == "connected" and seen[name]["allocatable"] == count
            for name, count in healthy.items()
        )

    try:
        await kubelet.wait_for(all_there, PATIENCE)
    except TimeoutError as error:
        log = (folder / LOG).read_text()
        raise Unexpected(f"the rehearsal's gateway isn't with its kubelet: {error}; its log:\n{log}") from error


def _ids(kubelet: Kubelet, notes: Mapping[str, Note]) -> Iterator[Id]:
    seen = kubelet.resources()
    after: dict[tuple[str, str], tuple[str, ...]] = {
        (name, device["id"]): tuple(sorted(device["holders"]))
        for name in notes
        for device in seen.get(name, {"devices": []})["devices"]
    }
    before = {
        (name, id_): tuple(sorted(f"{one.pod_uid}/{one.name}" for one in noted.containers))
        for name, note in notes.items()
        for id_, noted in note.items()
    }
    for name, id_ in sorted(before.keys() | {key for key, holders in after.items() if holders}):
        yield Id(name, id_, before.get((name, id_), ()), after.get((name, id_), ()))
