"""Objects, their versions, and the changes that watches tell (apiserver, 1.37).

One counter gives every write of the server its version, as etcd's revision does. ``changes`` are the writes that a
watch may still ask for; :meth:`Store.compact` forgets them, and an older watch is told 410.
"""

from __future__ import annotations

import asyncio
import copy
import secrets
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

Object = dict[str, Any]
Key = tuple[str, str, str]
"""Plural, namespace and name."""

FIELDS = {
    "DRAConsumableCapacity": ("allowMultipleAllocations",),
    "DRADeviceTaints": ("taints",),
    "DRAPartitionableDevices": ("consumesCounters",),
}
"""The fields of a device that the server drops while a gate is off (seen by a dry run on 1.37)."""


class ApiRefusal(Exception):
    """The server refuses a request, with a status of HTTP and a reason of Kubernetes."""

    def __init__(self, code: int, reason: str, text: str) -> None:
        super().__init__(text)
        self.code, self.reason = code, reason


@dataclass(frozen=True)
class StoredChange:
    """One write."""

    version: int
    what: str
    """``ADDED``, ``MODIFIED`` or ``DELETED``."""
    key: Key
    found: Object


class Store:
    """Used from the event loop."""

    def __init__(self) -> None:
        self.objects: dict[Key, Object] = {}
        self.changes: list[StoredChange] = []
        self.version = 1
        self.forgotten = 0
        """A watch after an older version is refused."""
        self.off: set[str] = set()
        """The feature gates that are off."""
        self._changed = asyncio.Event()

    def get(self, key: Key) -> Object:
        if key not in self.objects:
            raise ApiRefusal(404, "NotFound", f'{key[0]} "{key[2]}" not found')
        return self.objects[key]

    def list(self, plural: str, namespace: str, fields: Mapping[str, str]) -> list[Object]:
        """In the order of their names, of one namespace; empty: of all."""
        found = [(key, one) for key, one in sorted(self.objects.items()) if key[0] == plural]
        return [one for key, one in found if namespace in ("", key[1]) and _has(one, fields)]

    def create(self, plural: str, namespace: str, given: Object, *, dry_run: bool = False) -> Object:
        one = self._admitted(plural, given)
        metadata = one["metadata"]
        name = metadata.get("name") or metadata["generateName"] + secrets.token_hex(3)[:5]
        if (key := (plural, namespace, name)) in self.objects:
            raise ApiRefusal(409, "AlreadyExists", f'{plural} "{name}" already exists')
        metadata |= {"name": name, "uid": str(uuid.uuid4()), "creationTimestamp": _now()}
        if namespace:
            metadata["namespace"] = namespace
        return one if dry_run else self._write("ADDED", key, one)

    def replace(self, key: Key, given: Object, *, dry_run: bool = False) -> Object:
        before, one = self.get(key), self._admitted(key[0], given)
        asked = one["metadata"].get("resourceVersion")
        if asked not in (None, "", before["metadata"]["resourceVersion"]):
            raise ApiRefusal(409, "Conflict", f'the object "{key[2]}" has been modified; apply your changes to it')
        for field in ("driver", "nodeName"):
            if key[0] == "resourceslices" and one["spec"].get(field) != before["spec"].get(field):
                raise ApiRefusal(422, "Invalid", f"spec.{field}: field is immutable")
        kept = {field: before["metadata"][field] for field in ("name", "uid", "creationTimestamp")}
        one["metadata"] = {**one["metadata"], **kept}
        return one if dry_run else self._write("MODIFIED", key, one)

    def delete(self, key: Key) -> Object:
        one = copy.deepcopy(self.get(key))
        del self.objects[key]
        self._tell("DELETED", key, one)
        return one

    def wipe(self, plural: str, fields: Mapping[str, str]) -> int:
        """Deletes all that have these fields, as a kubelet does with the slices of its node; returns their number."""
        found = [key for key, one in list(self.objects.items()) if key[0] == plural and _has(one, fields)]
        for key in found:
            self.delete(key)
        return len(found)

    def compact(self) -> None:
        """Forgets all changes: watches that aren't up to date are refused."""
        self.changes.clear()
        self.forgotten = self.version

    def since(self, version: int, plural: str, fields: Mapping[str, str]) -> Iterator[StoredChange]:
        """The changes after ``version``; raises ApiRefusal (410) if they are forgotten."""
        if version < self.forgotten:
            raise ApiRefusal(410, "Expired", f"too old resource version: {version} ({self.forgotten})")
        for one in self.changes:
            if one.version > version and one.key[0] == plural and _has(one.found, fields):
                yield one

    async def changed(self) -> None:
        """Returns after the next write."""
        await self._changed.wait()

    def _write(self, what: str, key: Key, one: Object) -> Object:
        self.objects[key] = one
        self._tell(what, key, one)
        return one

    def _tell(self, what: str, key: Key, one: Object) -> None:
        self.version += 1
        one["metadata"]["resourceVersion"] = str(self.version)
        self.changes.append(StoredChange(self.version, what, key, copy.deepcopy(one)))
        self._changed.set()
        self._changed = asyncio.Event()

    def _admitted(self, plural: str, given: Object) -> Object:
        """A copy as the server keeps it: validated, without the fields of gates that are off."""
        one = copy.deepcopy(given)
        if plural == "resourceslices":
            spec = one["spec"]
            if "DRAPartitionableDevices" in self.off:
                spec.pop("sharedCounters", None)
            _validate(spec)
            for device in spec.get("devices") or ():
                self._drop(device)
                for taint in device.get("taints", ()):
                    taint.setdefault("timeAdded", _now())
            if not spec.get("devices"):
                spec.pop("devices", None)
        return one

    def _drop(self, device: Object) -> None:
        """Drops the fields of gates that are off."""
        for gate in self.off & FIELDS.keys():
            for field in FIELDS[gate]:
                device.pop(field, None)
        if "DRAConsumableCapacity" in self.off:
            for capacity in device.get("capacity", {}).values():
                capacity.pop("requestPolicy", None)


def _validate(spec: Object) -> None:
    """Raises ApiRefusal for a slice that the server refuses (validation of ResourceSliceSpec, 1.37)."""
    devices = spec.get("devices") or []
    if devices and spec.get("sharedCounters"):
        raise ApiRefusal(422, "Invalid", "spec: only one of `sharedCounters` or `devices` is allowed")
    most = 64 if any("taints" in device or "consumesCounters" in device for device in devices) else 128
    if len(devices) > most:
        raise ApiRefusal(422, "Invalid", f"spec.devices: Too many: {len(devices)}: must have at most {most} items")


def _has(one: Object, fields: Mapping[str, str]) -> bool:
    """Whether the object has these fields: dotted paths, as of a field selector."""
    for path, wanted in fields.items():
        found: Any = one
        for part in path.split("."):
            found = found.get(part, "") if isinstance(found, dict) else ""
        if found != wanted:
            return False
    return True


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
