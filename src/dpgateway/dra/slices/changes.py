"""Slices wanted against slices seen: what to create, update and delete.

Theory of operation. The scheduler reads a pool only if it has all slices of its highest generation
(``resourceSliceCount`` of them). So:

- a single slice that changes in place is updated with the generation that it has;
- else every slice gets the next generation. Obsolete slices are deleted first, then the others are updated, then new
  ones are created: a pool is never complete with a device in two of its slices.

The number of a slice is the beginning of its name, because the scheduler takes devices from slices in the order of
their names (seen on 1.37). Slices are compared by what they say, not by a flag "changed", so that a change by anybody
else is undone, and a restart writes nothing. What the server adds, the time of a taint, doesn't count.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from dpgateway.dra.slices.layout import Content

API_VERSION = "resource.k8s.io/v1"
_NUMBER = re.compile(r"([0-9]{4})-")

Object = Mapping[str, Any]
"""An object of the API server, as JSON."""


class Identity(NamedTuple):
    """What all slices of a pool have in common."""

    driver: str
    node: str
    node_uid: str
    """The owner's: the server deletes the slices with their Node."""
    pool: str


class SliceChanges(NamedTuple):
    """To be done in this order."""

    delete: tuple[Object, ...] = ()
    """Slices as seen."""
    update: tuple[Object, ...] = ()
    create: tuple[Object, ...] = ()


def changes(wanted: Sequence[Content], seen: Iterable[Object], identity: Identity) -> SliceChanges:
    """The changes that make the slices of a pool say ``wanted``. ``seen``: the pool's slices at the API server."""
    # Two publishers, or a creation whose answer was lost, leave two slices of one number: the older one stays.
    seen = sorted(seen, key=lambda one: (one["metadata"].get("creationTimestamp") or "", one["metadata"]["name"]))
    ours = identity.driver, identity.node, [identity.node_uid], identity.pool
    numbered: dict[int, Object] = {}
    obsolete: list[Object] = []
    for one in seen:
        # A slice without a number isn't of this front. Driver, node and pool are immutable; a new Node has another uid.
        match, spec = _NUMBER.match(one["metadata"]["name"]), one["spec"]
        number = int(match[1]) if match else len(wanted)
        owners = [owner["uid"] for owner in one["metadata"].get("ownerReferences") or ()]
        fixed = spec.get("driver"), spec.get("nodeName"), owners, spec["pool"]["name"]
        if number >= len(wanted) or number in numbered or fixed != ours:
            obsolete.append(one)
        else:
            numbered[number] = one

    # The generation of a pool is that of its newest slice; slices left behind by an interrupted change have an older.
    newest = max((int(one["spec"]["pool"].get("generation") or 0) for one in seen), default=0)
    at_once = _specs(wanted, identity, newest)
    different = [number for number, one in numbered.items() if _says(one) != at_once[number]]
    if not obsolete and len(numbered) == len(wanted) and len(different) <= 1:
        return SliceChanges(update=tuple(_updated(numbered[number], at_once[number], identity) for number in different))

    specs = _specs(wanted, identity, newest + 1)
    updated = tuple(_updated(one, specs[number], identity) for number, one in sorted(numbered.items()))
    created = tuple(_created(number, spec, identity) for number, spec in enumerate(specs) if number not in numbered)
    return SliceChanges(tuple(obsolete), updated, created)


def is_as_written(kept: Object, sent: Object) -> bool:
    """Whether the server keeps a slice as it was sent: else it would be written again and again."""
    return _says(kept) == _says(sent)


FEATURES = {"sharedCounters", "consumesCounters", "allowMultipleAllocations", "capacity", "taints"}
"""The fields of features that a server may have off: it drops them silently (seen on 1.37)."""


def specimen(content: Content, identity: Identity) -> tuple[str, Object]:
    """The features that a slice uses, as text, and a slice to try them with as a dry run; an empty text if it uses
    none.

    The slice has one device for each combination of features: whether the server keeps a field doesn't depend on the
    others.
    """
    used: dict[str, Mapping[str, Any]] = {}
    for device in content.get("devices") or ():  # type: ignore[attr-defined]
        used.setdefault(", ".join(sorted(FEATURES & device.keys())), device)
    devices = [device for features, device in used.items() if features]
    features = sorted(FEATURES & content.keys() | {features for features in used if features})
    tried = {"sharedCounters": content["sharedCounters"]} if "sharedCounters" in content else {"devices": devices}
    return "; ".join(features), _created(0, _specs([tried], identity, 1)[0], identity)


def dropped(sent: Object, kept: Object) -> str:
    """The fields that the server didn't keep; empty if it kept all."""
    was, is_ = sent["spec"], _says(kept)
    lost = {name for name in FEATURES & was.keys() if name not in is_}
    for before, after in zip(was.get("devices") or (), is_.get("devices") or (), strict=False):
        lost |= {name for name in FEATURES & before.keys() if _lost(before[name], after.get(name))}
    return ", ".join(sorted(lost))


def _lost(before: Any, after: Any) -> bool:  # noqa: ANN401  as JSON has it
    """Whether anything of a field is missing; the server may have added to it."""
    if isinstance(before, Mapping):
        return not isinstance(after, Mapping) or any(_lost(value, after.get(key)) for key, value in before.items())
    return bool(before != after)


def _specs(wanted: Sequence[Content], identity: Identity, generation: int) -> list[dict[str, Any]]:
    pool = {"name": identity.pool, "generation": generation, "resourceSliceCount": len(wanted)}
    return [{"driver": identity.driver, "nodeName": identity.node, "pool": pool, **content} for content in wanted]


def _says(seen: Object) -> Mapping[str, Any]:
    """The spec without what the server adds, and with the empty list that it omits."""
    spec = {key: value for key, value in seen["spec"].items() if value not in (None, [])}
    if "sharedCounters" not in spec:
        spec["devices"] = devices = list(spec.get("devices", ()))
        for number, device in enumerate(devices):
            if device.get("taints"):
                taints = [{name: it for name, it in taint.items() if name != "timeAdded"} for taint in device["taints"]]
                devices[number] = {**device, "taints": taints}
    return spec


def _updated(seen: Object, spec: Mapping[str, Any], identity: Identity) -> Object:
    metadata = {key: seen["metadata"].get(key) for key in ("name", "uid", "resourceVersion")}
    return _object(metadata, spec, identity)


def _created(number: int, spec: Mapping[str, Any], identity: Identity) -> Object:
    # generateName adds five characters; the server cuts what is over 58 (names.maxGeneratedNameLength). A part of the
    # name that ended in a dot or a dash would be refused.
    name = f"{number:04}-{identity.node}-{identity.driver}"[:57].rstrip(".-") + "-"
    return _object({"generateName": name}, spec, identity)


def _object(metadata: Mapping[str, Any], spec: Mapping[str, Any], identity: Identity) -> Object:
    owner = {"apiVersion": "v1", "kind": "Node", "name": identity.node, "uid": identity.node_uid, "controller": True}
    metadata = {**metadata, "ownerReferences": [owner]}
    return {"apiVersion": API_VERSION, "kind": "ResourceSlice", "metadata": metadata, "spec": spec}
