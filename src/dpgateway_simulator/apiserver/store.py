"""Objects, their versions, and the changes that watches tell (apiserver, 1.37).

One counter gives every write of the server its version, as etcd's revision does. ``changes`` are the writes that a
watch may still ask for; :meth:`Store.compact` forgets them, and an older watch is told 410.

An object with finalizers, and a pod that is bound to a node, is only marked when it is deleted: it goes once its last
finalizer has gone, and once its kubelet deletes it with a grace period of 0.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
import secrets
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dpgateway_simulator.apiserver.admitting import ApiRefusal, Object, admitted, now

Key = tuple[str, str, str]
"""Plural, namespace and name."""
GRACE = 30
"""Seconds that a pod has to end, unless it or its deletion says otherwise."""


@dataclass(frozen=True)
class StoredChange:
    """One write."""

    version: int
    what: str
    """``ADDED``, ``MODIFIED`` or ``DELETED``."""
    key: Key
    found: Object


class Store:
    """Used from the event loop. What it returns is the stored object: it is changed by `update` only."""

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
            raise ApiRefusal(404, "NotFound", f'{key[0]} "{key[2]}" not found', key[2])
        return self.objects[key]

    def list(self, plural: str, namespace: str = "", fields: Mapping[str, str] | None = None) -> list[Object]:
        """In the order of their names, of one namespace; empty: of all."""
        found = [(key, one) for key, one in sorted(self.objects.items()) if key[0] == plural]
        return [one for key, one in found if namespace in ("", key[1]) and _has(one, fields or {})]

    def create(self, plural: str, namespace: str, given: Object, *, dry_run: bool = False) -> Object:
        one = admitted(plural, given, self.off)
        metadata = one["metadata"]
        name = metadata.get("name")
        if not name:  # one that no object has; from 1.30 on a server tries eight times (KEP-4420)
            names = (metadata["generateName"] + secrets.token_hex(3)[:5] for _ in itertools.count())
            name = next(one for one in names if (plural, namespace, one) not in self.objects)
        if (key := (plural, namespace, name)) in self.objects:
            raise ApiRefusal(409, "AlreadyExists", f'{plural} "{name}" already exists')
        metadata |= {"name": name, "uid": str(uuid.uuid4()), "creationTimestamp": now(), "generation": 1}
        if namespace:
            metadata["namespace"] = namespace
        return one if dry_run else self._write("ADDED", key, one)

    def replace(self, key: Key, given: Object, *, part: str = "", dry_run: bool = False) -> Object:
        """``part``: ``status`` replaces only that, ``but status`` all else, nothing the whole object."""
        before, one = self.get(key), admitted(key[0], given, self.off)
        asked = one["metadata"].get("resourceVersion")
        if asked not in (None, "", before["metadata"]["resourceVersion"]):
            raise ApiRefusal(409, "Conflict", f'the object "{key[2]}" has been modified; apply your changes to it')
        if (uid := one["metadata"].get("uid")) not in (None, "", before["metadata"]["uid"]):
            raise ApiRefusal(409, "Conflict", f"uid in precondition: {uid}, in object: {before['metadata']['uid']}")
        for field in ("driver", "nodeName"):
            if key[0] == "resourceslices" and one["spec"].get(field) != before["spec"].get(field):
                raise ApiRefusal(422, "Invalid", f"spec.{field}: field is immutable")
        if part == "status":
            one = {**copy.deepcopy(before), "status": one.get("status", {})}
        elif part:
            one.pop("status", None)
            one |= {"status": copy.deepcopy(before["status"])} if "status" in before else {}
        fixed = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "generation")
        kept = {field: before["metadata"][field] for field in fixed if field in before["metadata"]}
        one["metadata"] = {**one["metadata"], **kept}
        return one if dry_run else self._put(key, one)

    def update(self, key: Key, change: Callable[[Object], object]) -> Object:
        """Applies ``change`` to the object, as somebody who reads and writes at once. Writes nothing if it is equal."""
        one = copy.deepcopy(self.get(key))
        change(one)
        return self.objects[key] if one == self.objects[key] else self._put(key, one)

    def delete(self, key: Key, *, grace: int | None = None, uid: str = "", version: str = "") -> Object:
        """``grace``: a pod's, in seconds. ``uid``, ``version``: preconditions. Raises ApiRefusal."""
        one = copy.deepcopy(self.get(key))
        metadata = one["metadata"]
        for asked, found in ((uid, metadata["uid"]), (version, metadata["resourceVersion"])):
            if asked and asked != found:
                raise ApiRefusal(409, "Conflict", f"the precondition {asked} isn't met, the object has {found}")
        running = key[0] == "pods" and one["spec"].get("nodeName") and grace != 0
        if running or metadata.get("finalizers"):
            metadata.setdefault("deletionTimestamp", now())
            metadata.setdefault("deletionGracePeriodSeconds", GRACE if grace is None else grace)
            return self.objects[key] if one == self.objects[key] else self._write("MODIFIED", key, one)
        return self._write("DELETED", key, one)

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

    def wake(self) -> None:
        """Has everybody who waits for a write look again."""
        self._changed.set()
        self._changed = asyncio.Event()

    def _put(self, key: Key, one: Object) -> Object:
        """Stores a change, or removes what was only waiting for its last finalizer."""
        if "deletionTimestamp" in one["metadata"] and not one["metadata"].get("finalizers") and key[0] != "pods":
            return self._write("DELETED", key, one)
        if one.get("spec") != self.objects[key].get("spec"):
            one["metadata"]["generation"] = one["metadata"].get("generation", 1) + 1
        return self._write("MODIFIED", key, one)

    def _write(self, what: str, key: Key, one: Object) -> Object:
        if what == "DELETED":
            del self.objects[key]
        else:
            self.objects[key] = one
        self.version += 1
        one["metadata"]["resourceVersion"] = str(self.version)
        self.changes.append(StoredChange(self.version, what, key, copy.deepcopy(one)))
        self.wake()
        return one


def _has(one: Object, fields: Mapping[str, str]) -> bool:
    """Whether the object has these fields: dotted paths, as of a field selector."""
    for path, wanted in fields.items():
        found: Any = one
        for part in path.split("."):
            found = found.get(part, "") if isinstance(found, dict) else ""
        if found != wanted:
            return False
    return True
