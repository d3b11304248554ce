"""Devices that no container could get. If a configured mount or the driver's answer is unfit, that is a problem; any
other reason why a device is Unhealthy is a warning, because it may be gone tomorrow, or the hardware be plugged in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from dpgateway.cdi.directories import SpecDirectories
from dpgateway.cli.ask_drivers import DriverAnswer
from dpgateway.cli.pools import few
from dpgateway.config import Document, Place, Problem
from dpgateway.drivers.listing import UNFIT
from dpgateway.errors import CdiError
from dpgateway.kit import log
from dpgateway.kit.complaint import Complaint

_log = log.bind(__name__)

MOST = 5
"""Limit of warnings about Unhealthy devices of one resource."""
_MOUNT = re.compile(rf"{UNFIT}: mounts\[(\d+)\]")


def problems(answers: Iterable[DriverAnswer], document: Document) -> Iterator[Problem]:
    """One problem per reason and resource, with the devices that share it."""
    entries = {entry.written.place: entry.written for entry in document.entries}
    for answer in answers:
        for reason, them in _reasons(answer):
            if not reason.startswith(UNFIT):
                continue
            more = f" and {len(them) - 1} more" if len(them) > 1 else ""
            text = f"{answer.resource.name}: device {them[0]}{more}: {reason}"
            # To blame is the resource's mount that the reason names, else the driver's options.
            found, written = _MOUNT.match(reason), entries[answer.resource.where]
            part = written.part("options")
            if found and int(found[1]) < len(answer.resource.mounts):
                part = written.part("mounts", int(found[1]))
            yield Problem(part.place, hint=text)


def warnings(answers: Iterable[DriverAnswer]) -> Iterator[Problem]:
    """One warning per reason and resource, but not about the devices of :func:`problems`."""
    for answer in answers:
        told = [(reason, them) for reason, them in _reasons(answer) if not reason.startswith(UNFIT)]
        texts = [f"{few(them)} would be Unhealthy: {reason}" for reason, them in told[:MOST]]
        if rest := sum(len(them) for _, them in told[MOST:]):
            texts.append(f"{rest} more devices would be Unhealthy; `dpgateway devices` has the reasons")
        where = answer.resource.where
        yield from (Problem(Place(where.file, where.line), hint=f"{answer.resource.name}: {text}") for text in texts)


def without_spec(answers: Iterable[DriverAnswer], directories: Sequence[Path]) -> Iterator[Problem]:
    """A warning for each resource with CDI devices that no spec has: the vendor's tool may write it later."""
    specs = SpecDirectories(directories, Complaint(_log, "a CDI spec doesn't count: %s"))
    for answer in answers:
        try:
            specs.resolve(answer.cdi_devices)
        except CdiError as error:
            where, text = answer.resource.where, f"its devices would be Unhealthy: {error}"
            yield Problem(Place(where.file, where.line), hint=f"{answer.resource.name}: {text}")


def _reasons(answer: DriverAnswer) -> list[tuple[str, list[str]]]:
    """The reasons of Unhealthy devices, in the first device's words, each with all devices that share it."""
    ids: dict[str, list[str]] = {}
    for device in answer.devices:
        if device.health.reason is not None:
            ids.setdefault(device.health.reason.replace(device.id, "{id}"), []).append(device.id)
    return [(reason.replace("{id}", them[0]), them) for reason, them in ids.items()]
