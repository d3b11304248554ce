"""`kubelet_internal_checkpoint`: its four formats and the releases that use each. Pure: text in, text out.

"per device", of 1.8: {"Entries": [...]}. "per container", of 1.9 and 1.10: {"PodDeviceEntries", "RegisteredDevices"}.
"with checksum", of 1.11 to 1.19: both under "Data". "by NUMA node", since 1.20: the same, with ids keyed by node.
The checksum is FNV-1a over the text that davecgh/go-spew prints of the Go struct
(pkg/kubelet/checkpointmanager/checksum, pkg/util/hash).
"""

import base64
import binascii
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpgateway_simulator.kubelet.behaviour import Layout
from dpgateway_simulator.kubelet.ledger import Holding
from dpgateway_simulator.wire.dialects import Answer

Registered = Mapping[str, Sequence[str]]
Entry = dict[str, Any]


class CorruptError(ValueError):
    """A checkpoint that this release can't read; the kubelet then starts without any allocation."""


@dataclass(frozen=True)
class Checkpoint:
    """A file's content: holdings, and the names of registered resources."""

    holdings: tuple[Holding, ...] = ()
    registered: tuple[str, ...] = ()


def write(layout: Layout, holdings: Iterable[Holding], registered: Registered) -> str:
    """The file's text."""
    if layout == "per device":
        entries = [
            {"PodUID": one.pod, "ContainerName": one.container, "ResourceName": one.resource, "DeviceID": device}
            for one in holdings
            for device in sorted(one.ids)
        ]
        return _json({"Entries": entries or None})
    data = {"PodDeviceEntries": _entries(layout, holdings) or None, "RegisteredDevices": dict(registered)}
    if layout == "per container":
        return _json(data)
    return _json({"Data": data, "Checksum": checksum(data)})


def _json(data: object) -> str:
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False)


def _entries(layout: Layout, holdings: Iterable[Holding]) -> list[Entry]:
    entries: list[Entry] = []
    for one in holdings:
        # Go's encoding/json writes the keys of a map as strings, sorted as strings.
        by_node = {str(node): ids for node, ids in sorted(one.by_node.items(), key=lambda item: str(item[0]))}
        if one.answer is not None:
            entries.append(
                {
                    "PodUID": one.pod,
                    "ContainerName": one.container,
                    "ResourceName": one.resource,
                    "DeviceIDs": by_node if layout == "by NUMA node" else sorted(one.ids),
                    "AllocResp": base64.b64encode(bytes(one.answer)).decode(),
                }
            )
    return entries


def read(layouts: Sequence[Layout], text: str) -> Checkpoint:
    """A file's content, in the first of `layouts` that fits. CorruptError if none fits."""
    problems = []
    for layout in layouts:
        try:
            return _read(layout, json.loads(text))
        except (ValueError, KeyError, TypeError, AttributeError, binascii.Error) as error:
            problems.append(error)
    raise CorruptError(str(problems[0])) from problems[0]


def _read(layout: Layout, content: object) -> Checkpoint:
    """Go's encoding/json ignores unknown keys: 1.9 reads a file of 1.8 as empty, and 1.8 a file of 1.9."""
    if not isinstance(content, dict):
        raise CorruptError("not an object")
    if layout == "per device":
        return _read_devices(content.get("Entries") or [])
    data = content
    if layout != "per container":
        data = content.get("Data") or {"PodDeviceEntries": None, "RegisteredDevices": None}
        _shape(layout, data)  # Go decodes, and fails on a wrong type, before it verifies the checksum
        if content.get("Checksum") != checksum(data):
            raise CorruptError("checkpoint is corrupted")
    _shape(layout, data)
    holdings = tuple(_holding(entry) for entry in data.get("PodDeviceEntries") or [])
    return Checkpoint(holdings, tuple(data.get("RegisteredDevices") or ()))


def _shape(layout: Layout, data: Entry) -> None:
    for entry in data.get("PodDeviceEntries") or []:
        if not isinstance(entry["DeviceIDs"], dict if layout == "by NUMA node" else list):
            kind = type(entry["DeviceIDs"]).__name__
            raise CorruptError(f"json: cannot unmarshal {kind} into Go struct field PodDevicesEntry.DeviceIDs")


def _read_devices(entries: list[Entry]) -> Checkpoint:
    held: dict[tuple[str, str, str], list[str]] = {}
    for entry in entries:
        key = (entry["PodUID"], entry["ContainerName"], entry["ResourceName"])
        held.setdefault(key, []).append(entry["DeviceID"])
    return Checkpoint(tuple(Holding(*key, {0: ids}, None) for key, ids in held.items()))


def _holding(entry: Entry) -> Holding:
    ids = entry["DeviceIDs"]
    by_node = {int(node): list(some) for node, some in ids.items()} if isinstance(ids, dict) else {0: list(ids)}
    answer = Answer().parse(base64.b64decode(entry["AllocResp"] or ""))
    return Holding(entry["PodUID"], entry["ContainerName"], entry["ResourceName"], by_node, answer)


def checksum(data: Entry) -> int:
    """FNV-1a, 32 bits, of the struct's spew text."""
    value = 0x811C9DC5
    for byte in spew(data).encode():
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return value


def spew(data: Entry) -> str:
    """checkpoint.checkpointData as spew's `%#v` prints it with sorted keys; the checksum is over this text."""
    entries, registered = data.get("PodDeviceEntries"), data.get("RegisteredDevices")
    rows = "<nil>" if entries is None else "[" + " ".join(map(_entry, entries)) + "]"
    table = "<nil>" if registered is None else _map(registered)
    return (
        f"(checkpoint.checkpointData){{PodDeviceEntries:([]checkpoint.PodDevicesEntry){rows} "
        f"RegisteredDevices:(map[string][]string){table}}}"
    )


def _entry(entry: Entry) -> str:
    ids = entry["DeviceIDs"]
    if isinstance(ids, dict):
        devices = "(checkpoint.DevicesPerNUMA)" + _map({int(node): some for node, some in ids.items()})
    else:
        devices = "([]string)" + _strings(ids)
    response = entry["AllocResp"]
    octets = "<nil>" if response is None else "[" + " ".join(str(byte) for byte in base64.b64decode(response)) + "]"
    return (
        f"{{PodUID:(string){entry['PodUID']} ContainerName:(string){entry['ContainerName']} "
        f"ResourceName:(string){entry['ResourceName']} DeviceIDs:{devices} AllocResp:([]uint8){octets}}}"
    )


def _map(table: Mapping[Any, Sequence[str] | None]) -> str:
    return "map[" + " ".join(f"{key}:{_strings(table[key])}" for key in sorted(table)) + "]"


def _strings(items: Sequence[str] | None) -> str:
    return "<nil>" if items is None else "[" + " ".join(items) + "]"
