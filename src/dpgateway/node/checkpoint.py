"""Parses the kubelet's checkpoint, ``kubelet_internal_checkpoint``: which container holds which ids.

Four formats (pkg/kubelet/deviceplugin, later cm/devicemanager/checkpoint):

    1.8         {"Entries": [{ResourceName, DeviceID, ...}]}
    1.9, 1.10   {"PodDeviceEntries": [{ResourceName, DeviceIDs: [...], ...}], ...}
    1.11-1.19   {"Data": {the same}, "Checksum": n}
    1.20-       {"Data": {the same, but DeviceIDs: {NUMA node: [...]}}, "Checksum": n}

The checksum isn't verified: a kubelet that finds it wrong forgets the pods, but their containers still run.

Parsing runs on a thread. A long file is decoded in Python, ten times slower than in C, because the C decoder blocks all
other threads until it returns.
"""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from json import scanner
from typing import Any, NamedTuple

from dpgateway.errors import KubeletError
from dpgateway.node.holders import Container, Note, Noted
from dpgateway.node.versions import Layout

NAME = "kubelet_internal_checkpoint"

WRITING = 1.0
"""Longest duration of a write, in seconds. A file that is damaged for longer stays damaged until the next write, and a
kubelet that has started from it has forgotten its content."""

SHORT = 128 * 1024
"""Bytes that the C decoder takes a millisecond or two for."""

_LAST_NODE = 2**31 - 1
"""The largest number of a NUMA node; -1 means none (nodeWithoutTopology, pkg/kubelet/cm/devicemanager)."""


class Content(NamedTuple):
    """A parsed checkpoint, by resource."""

    notes: Mapping[str, Note]
    """The ids that containers hold. An id has no NUMA nodes if the kubelet knew none, or is older than 1.20."""
    registered: Mapping[str, frozenset[str]]
    """The healthy ids of the plugin that registered last; empty for 1.8."""


def parse(raw: bytes) -> Content:
    """Raises KubeletError if it is in none of the four formats."""
    with _parsing():
        document = _document(raw)
        held: dict[str, dict[str, Noted]] = defaultdict(dict)
        for entry in _entries(document):
            ids = held[_text(entry["ResourceName"])]
            # Without pod uid and name nothing could tell that a container has ended.
            uid, name, containers = entry.get("PodUID"), entry.get("ContainerName"), frozenset[Container]()
            if isinstance(uid, str) and uid and isinstance(name, str):
                containers = frozenset([Container(_text(uid), name, _answer(entry))])
            near: dict[int, Noted] = {}  # shared between ids: there may be millions
            for id_, node in _ids(entry):
                nodes = (node,) if 0 <= node <= _LAST_NODE else ()
                noted = near.get(node) or near.setdefault(node, Noted(nodes, containers))
                ids[id_] = ids[id_].joined(noted) if id_ in ids else noted
        registered = document.get("Data", document).get("RegisteredDevices") or {}
        return Content(held, {_text(name): frozenset(map(_text, _list(ids))) for name, ids in registered.items()})


def layouts(raw: bytes) -> frozenset[Layout]:
    """The possible formats; several if no entry tells them apart. Raises KubeletError."""
    with _parsing():
        document = _document(raw)
        entries = _entries(document)
        if "Data" not in document:
            return frozenset({Layout.PER_CONTAINER if "PodDeviceEntries" in document else Layout.PER_DEVICE})
        kinds = {type(entry["DeviceIDs"]) for entry in entries}
        found = {Layout.BY_NODE} if dict in kinds else {Layout.CHECKED} if list in kinds else set()
        return frozenset(found or {Layout.CHECKED, Layout.BY_NODE})


def answers(raw: bytes) -> Mapping[str, tuple[bytes, ...]]:
    """The plugins' answers to Allocate, by resource, which the kubelet repeats when a container restarts; empty for
    1.8. Raises KubeletError.
    """
    with _parsing():
        found: dict[str, list[bytes]] = defaultdict(list)
        for entry in _entries(_document(raw)):
            found[_text(entry["ResourceName"])].append(_answer(entry))
    return {resource: tuple(some) for resource, some in found.items()}


@contextmanager
def _parsing() -> Iterator[None]:
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise KubeletError(f"{NAME}: not in a format of any kubelet from 1.8 to 1.37: {error!r}") from error


def _document(raw: bytes) -> dict[str, Any]:
    decoder = json.JSONDecoder()
    if len(raw) > SHORT:
        decoder.scan_once = scanner.py_make_scanner(decoder)  # type: ignore[attr-defined]
    document: dict[str, Any] = decoder.decode(raw.decode())
    return document


def _entries(document: dict[str, Any]) -> list[dict[str, Any]]:
    data = document.get("Data", document)
    return _list(data["PodDeviceEntries"] if "PodDeviceEntries" in data else data["Entries"])


def _ids(entry: dict[str, Any]) -> Iterator[tuple[str, int]]:
    if "DeviceID" in entry:
        yield _text(entry["DeviceID"]), -1
        return
    ids = entry["DeviceIDs"]
    for node, some in ids.items() if isinstance(ids, dict) else [("-1", ids)]:
        number = int(node)
        for id_ in _list(some):
            yield _text(id_), number


def _answer(entry: dict[str, Any]) -> bytes:
    return base64.b64decode(entry.get("AllocResp") or "", validate=True)


def _list(value: object) -> list[Any]:
    """A list; Go writes an empty one as null."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise TypeError(f"expected a list, found {value!r:.100}")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a string, found {value!r:.100}")
    value.encode()  # JSON can contain a lone surrogate, which can't be listed
    return value
