"""What the API server makes of an object before it stores it: limits, gates that drop fields, values that it adds.

Each limit was met, and each dropped field seen by a dry run, on an API server 1.37.
"""

from __future__ import annotations

import copy
import re
from datetime import UTC, datetime
from typing import Any

Object = dict[str, Any]

FIELDS = {
    "DRAConsumableCapacity": ("allowMultipleAllocations",),
    "DRADeviceTaints": ("taints",),
    "DRAPartitionableDevices": ("consumesCounters",),
}
"""The fields of a device that the server drops while a gate is off."""
MOST_DEVICES, MOST_WITH_TAINTS, MOST_ATTRIBUTES, MOST_SETS = 128, 64, 32, 2
LONGEST_STRING = 64
"""Bytes of an attribute."""
MOST_REQUESTS = 32
"""Requests of a claim."""

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class ApiRefusal(Exception):
    """The server refuses a request, with a status of HTTP and a reason of Kubernetes."""

    def __init__(self, code: int, reason: str, text: str, name: str = "") -> None:
        """``name``: of the object that isn't there."""
        super().__init__(text)
        self.code, self.reason, self.name = code, reason, name


def admitted(plural: str, given: Object, off: set[str]) -> Object:
    """A copy as the server keeps it: validated, without the fields of the gates that are ``off``. Raises ApiRefusal."""
    one = copy.deepcopy(given)
    one.setdefault("metadata", {})
    if plural == "resourceslices":
        _slice(one["spec"], off)
    elif plural == "resourceclaims":
        requests = one.get("spec", {}).get("devices", {}).get("requests", ())
        if len(requests) > MOST_REQUESTS:
            raise _invalid("spec.devices.requests", f"Too many: {len(requests)}: must have at most 32 items")
    elif plural == "pods":
        one.setdefault("status", {}).setdefault("phase", "Pending")
    return one


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _slice(spec: Object, off: set[str]) -> None:
    if "DRAPartitionableDevices" in off:
        spec.pop("sharedCounters", None)
    devices = spec.get("devices") or []
    if devices and spec.get("sharedCounters"):
        raise ApiRefusal(422, "Invalid", "spec: only one of `sharedCounters` or `devices` is allowed")
    for device in devices:
        for gate in off & FIELDS.keys():
            for field in FIELDS[gate]:
                device.pop(field, None)
        for capacity in device.get("capacity", {}).values() if "DRAConsumableCapacity" in off else ():
            capacity.pop("requestPolicy", None)
    few = any("taints" in device or "consumesCounters" in device for device in devices)
    most = MOST_WITH_TAINTS if few else MOST_DEVICES
    if len(devices) > most:
        raise _invalid("spec.devices", f"Too many: {len(devices)}: must have at most {most} items")
    for index, device in enumerate(devices):
        _device(f"spec.devices[{index}]", device)
        for taint in device.get("taints", ()):
            taint.setdefault("timeAdded", now())
    if not devices:
        spec.pop("devices", None)


def _device(where: str, device: Object) -> None:
    """The limits of one device (validateDevice in pkg/apis/resource/validation)."""
    if not _LABEL.fullmatch(device["name"]):
        raise _invalid(f"{where}.name", f'Invalid value: "{device["name"]}": a lowercase RFC 1123 label')
    said = len(device.get("attributes", ())) + len(device.get("capacity", ()))
    if said > MOST_ATTRIBUTES:
        raise _invalid(where, f"Too many: {said}: attributes and capacities together must have at most 32 items")
    for name, value in device.get("attributes", {}).items():
        if len(str(value.get("string", "")).encode()) > LONGEST_STRING:
            raise _invalid(f"{where}.attributes[{name}].string", "Too long: may not be more than 64 bytes")
    if len(device.get("consumesCounters", ())) > MOST_SETS:
        raise _invalid(f"{where}.consumesCounters", "Too many: must have at most 2 items")


def _invalid(where: str, text: str) -> ApiRefusal:
    return ApiRefusal(422, "Invalid", f"{where}: {text}")
