"""Problems of devices that no container could get: a configured mount, or the driver's answer, is unfit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from dpgateway.cli.ask_drivers import DriverAnswer
from dpgateway.config import Document, Problem, ResourceConfig
from dpgateway.config.source import Written
from dpgateway.drivers.listing import UNFIT

_MOUNT = re.compile(rf"{UNFIT}: mounts\[(\d+)\]")


def problems(answers: Iterable[DriverAnswer], document: Document) -> Iterator[Problem]:
    """One problem per reason and resource, with the devices that share it."""
    entries = {entry.written.place: entry.written for entry in document.entries}
    for answer in answers:
        ids: dict[str, list[str]] = {}
        for device in answer.devices:
            if (reason := device.health.reason or "").startswith(UNFIT):
                ids.setdefault(reason.replace(device.id, "{id}"), []).append(device.id)
        for reason, them in ids.items():
            first = reason.replace("{id}", them[0])
            more = f" and {len(them) - 1} more" if len(them) > 1 else ""
            text = f"{answer.resource.name}: device {them[0]}{more}: {first}"
            yield Problem(_key(entries[answer.resource.where], answer.resource, first).place, hint=text)


def _key(written: Written, resource: ResourceConfig, reason: str) -> Written:
    """The part of the configuration to blame: the resource's mount that the reason names, else the driver's options."""
    found = _MOUNT.match(reason)
    if found and int(found[1]) < len(resource.mounts):
        return written.part("mounts", int(found[1]))
    return written.part("options")
