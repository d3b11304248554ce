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
    entries: list[Entry] = []
    for one in holdings:
        about = {"PodUID": one.pod, "ContainerName": one.container, "ResourceName": one.resource}
        if layout == "per device":
            entries += [{**about, "DeviceID": device} for device in sorted(one.ids)]
        elif one.answer is not None:
            # Go's encoding/json writes the keys of a map as strings, sorted as strings.
            by_node = {str(node): ids for node, ids in sorted(one.by_node.items(), key=lambda item: str(item[0]))}
            ids = by_node if layout == "by NUMA node" else sorted(one.ids)
            entries.append({**about, "DeviceIDs": ids, "AllocResp": base64.b64encode(bytes(one.answer)).decode()})
    content: Entry = {"Entries": entries or None}
    if layout != "per device":
        content = {"PodDeviceEntries": entries or None, "RegisteredDevices": dict(registered)}
    if layout in {"with checksum", "by NUMA node"}:
        content = {"Data": content, "Checksum": checksum(content)}
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False)


def read(layouts: Sequence[Layout], text: str) -> Checkpoint:
    """A file's content, in the first of `layouts` that fits. CorruptError if none fits."""
    problems = []
    for layout in layouts:
        try:
            return _read(layout, json.loads(text))
        except (ValueError, binascii.Error) as error:
            problems.append(str(error))
        except (KeyError, TypeError, AttributeError):
            problems.append("json: a value is missing, or of another type")
    raise CorruptError(problems[0])


def _read(layout: Layout, content: object) -> Checkpoint:
    """Go's encoding/json ignores unknown keys: 1.9 reads a file of 1.8 as empty, and 1.8 a file of 1.9."""
    if not isinstance(content, dict):
        raise CorruptError("not an object")
    if layout == "per device":
        held: dict[tuple[str, str, str], list[str]] = {}
        for entry in content.get("Entries") or []:
            key = (entry["PodUID"], entry["ContainerName"], entry["ResourceName"])
            held.setdefault(key, []).append(entry["DeviceID"])
        return Checkpoint(tuple(Holding(*key, {0: ids}, None) for key, ids in held.items()))

    # Go decodes, and fails on a wrong type, before it verifies the checksum.
    data, holdings = content, []
    if layout != "per container":
        data = content.get("Data") or {"PodDeviceEntries": None, "RegisteredDevices": None}
    for entry in data.get("PodDeviceEntries") or []:
        ids = entry["DeviceIDs"]
        if not isinstance(ids, dict if layout == "by NUMA node" else list):
            found = next((kind for of, kind in ((dict, "object"), (list, "array")) if isinstance(ids, of)), "value")
            raise CorruptError(f"json: cannot unmarshal {found} into Go struct field PodDevicesEntry.DeviceIDs")
        by_node = {int(node): list(some) for node, some in ids.items()} if isinstance(ids, dict) else {0: list(ids)}
        answer = Answer().parse(base64.b64decode(entry["AllocResp"] or ""))
        holdings.append(Holding(entry["PodUID"], entry["ContainerName"], entry["ResourceName"], by_node, answer))
    if layout != "per container" and content.get("Checksum") != checksum(data):
        raise CorruptError("checkpoint is corrupted")
    return Checkpoint(tuple(holdings), tuple(data.get("RegisteredDevices") or ()))


def checksum(data: Entry) -> int:
    """FNV-1a, 32 bits, of the struct's spew text."""
    value = 0x811C9DC5
    for byte in spew(data).encode():
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return value


def spew(data: Entry) -> str:
    """checkpoint.checkpointData as spew's `%#v` prints it with sorted keys; the checksum is over this text."""
    entries, registered, rows = data.get("PodDeviceEntries"), data.get("RegisteredDevices"), []
    for entry in entries or ():
        ids = entry["DeviceIDs"]
        if isinstance(ids, dict):
            devices = "(checkpoint.DevicesPerNUMA)" + _go({int(node): some for node, some in ids.items()})
        else:
            devices = "([]string)" + _go(ids)
        response = entry["AllocResp"]
        octets = None if response is None else [str(byte) for byte in base64.b64decode(response)]
        rows.append(
            f"{{PodUID:(string){entry['PodUID']} ContainerName:(string){entry['ContainerName']} "
            f"ResourceName:(string){entry['ResourceName']} DeviceIDs:{devices} AllocResp:([]uint8){_go(octets)}}}"
        )
    return (
        f"(checkpoint.checkpointData){{PodDeviceEntries:([]checkpoint.PodDevicesEntry)"
        f"{_go(None if entries is None else rows)} RegisteredDevices:(map[string][]string){_go(registered)}}}"
    )


def _go(value: Mapping[Any, Sequence[str] | None] | Sequence[str] | None) -> str:
    """A Go map of lists, or a list, as spew prints it."""
    if value is None:
        return "<nil>"
    if isinstance(value, Mapping):
        return "map[" + " ".join(f"{key}:{_go(value[key])}" for key in sorted(value)) + "]"
    return "[" + " ".join(value) + "]"
