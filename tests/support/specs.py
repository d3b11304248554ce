"""CDI specs in a directory of the test's own."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dpgateway.cdi.directories import SpecDirectories
from dpgateway.cdi.own import OwnSpecs
from dpgateway.config.values import CdiKind
from dpgateway.deviceplugin.cdi import PATIENCE, Asks, CdiDelivery, Recipient
from dpgateway.kit.threads import Threads
from dpgateway.node.runtime import CdiSupport
from tests.support.logs import complaint


def cdi(
    *directories: Path, runtime: bool | None = None, read: Iterable[Path] = (), patience: float = PATIENCE
) -> CdiDelivery:
    """On a node with these directories of specs, and a runtime that does or doesn't know CDI. ``read``: those that the
    runtime says it reads. ``patience``: for the disk.
    """
    specs = SpecDirectories(directories, complaint([]))
    return CdiDelivery(specs, own(*directories), Threads(), known(runtime, *read), patience)


def own(*directories: Path) -> OwnSpecs:
    """The gateway's own specs in the last of these directories, where it remembers them, too; none can be written
    without one.
    """
    last = directories[-1] if directories else Path("/dev/null/nowhere")
    return OwnSpecs(last / "state", last, Path("/dp"), complaint([]))


def asked(wanted: CdiKind, *, kubelet: bool | None) -> Recipient:
    return Recipient("example.com/thing", ("a",), wanted, kubelet)


def known(value: bool | None, *read: Path) -> Asks:
    async def known() -> CdiSupport:
        return CdiSupport(value, tuple(map(str, read)))

    return known


def spec(kind: str = "vendor.example/gpu", version: str = "1.0.0", common: Any = None, **devices: Any) -> Any:
    """What a file says: of each device, what changes in its container."""
    return of(devices, cdiVersion=version, kind=kind, containerEdits=common or {})


def of(devices: Mapping[str, Any], **more: Any) -> Any:
    """The same for devices of any name."""
    inner = [{"name": name, "containerEdits": edits} for name, edits in devices.items()]
    return {"cdiVersion": "1.0.0", "kind": "vendor.example/gpu", "devices": inner, **more}


def write(file: Path, content: Any) -> Path:
    file.parent.mkdir(exist_ok=True)
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return file
