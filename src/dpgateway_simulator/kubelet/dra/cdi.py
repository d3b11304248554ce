"""The container runtime's part: from CDI names to what a container has.

A runtime reads the specs when it creates a container, and refuses one whose names no spec has. containerd 1.6 knows no
CDI names and drops them in silence (seen).
"""

import contextlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dpgateway_simulator.kubelet.errors import AllocationError

Edits = Mapping[str, Any]


def injected(options: dict[str, Any], directories: Iterable[Path]) -> dict[str, Any]:
    """The container's options with the `containerEdits` of its CDI devices and of their specs. A later directory has
    priority. Raises AllocationError.
    """
    known: dict[str, tuple[Edits, Edits]] = {}
    for directory in directories:
        for path in sorted(directory.glob("*.json")) if directory.is_dir() else ():
            with contextlib.suppress(OSError, ValueError):  # a runtime leaves out what it can't read
                spec = json.loads(path.read_text())
                for one in spec.get("devices", ()):
                    both = spec.get("containerEdits", {}), one.get("containerEdits", {})
                    known[f"{spec['kind']}={one['name']}"] = both
    if missing := [name for name in options["cdi_devices"] if name not in known]:
        text = f"unresolvable CDI devices {', '.join(missing)}"
        raise AllocationError(f"failed to create containerd container: CDI device injection failed: {text}")

    # In the order of the names, the edits of a device's spec before its own.
    envs = dict(options["envs"])
    mounts, devices = list(options["mounts"]), list(options["devices"])
    for edit in (one for name in options["cdi_devices"] for one in known[name] if one):
        envs |= dict(one.split("=", 1) for one in edit.get("env", ()))
        for one in edit.get("mounts", ()):
            paths = {"container_path": one["containerPath"], "host_path": one["hostPath"]}
            mounts.append({**paths, "read_only": "ro" in one.get("options", ())})
        for one in edit.get("deviceNodes", ()):
            paths = {"container_path": one["path"], "host_path": one.get("hostPath") or one["path"]}
            devices.append({**paths, "permissions": one.get("permissions") or "rwm"})
    return {**options, "envs": envs, "mounts": mounts, "devices": devices}
