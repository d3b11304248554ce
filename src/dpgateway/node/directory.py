"""The kubelet's device-plugins directory: its paths, the checkpoint file, and reasons for a missing kubelet."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dpgateway.kit.files import Contents, read
from dpgateway.kit.log import bind
from dpgateway.node import checkpoint
from dpgateway.node.cgroups import ROOTS

SOCKET = "kubelet.sock"
LARGEST_CHECKPOINT = 24 * 1024 * 1024
"""Most bytes of a checkpoint. It has an id once as registered, once as held, and once more in the answer, in base64, if
the plugin repeats it there. A list of 4 MiB, the longest that a kubelet accepts, has 76,000 ids of 40 bytes, with 15
more for each: if pods hold them all, that is 3.3 + 3.3 + 4.2 = 10.8 MB, for one resource. 250 pods of four containers
add 0.4 MB. So two such resources fit. Parsing takes up to eight times as much memory: 192 of 512 MiB."""
PATIENCE = 10.0
"""Seconds without a kubelet until a warning: a restart takes less."""

_log = bind(__name__)


@dataclass(frozen=True, slots=True)
class Places:
    """Paths of one kubelet."""

    device_plugins: Path
    """The directory of ``kubelet.sock`` and of the checkpoint."""
    pod_resources: Path
    """The socket of its PodResources API."""
    runtimes: Sequence[Path] = ()
    """Candidates for the socket of its container runtime."""
    cgroups: Sequence[Path] = ROOTS
    """Candidates for the root of the node's cgroups."""

    @classmethod
    def of(cls, device_plugins: Path, pod_resources: Path | None = None, runtimes: Sequence[Path] = ()) -> Places:
        """``pod_resources`` is in the same ``--root-dir`` by default."""
        return cls(device_plugins, pod_resources or device_plugins.parent / "pod-resources" / SOCKET, runtimes)

    @property
    def pods(self) -> Path:
        """The parent of the pods' directories."""
        return self.pod_resources.parent.parent / "pods"


def read_checkpoint(directory: Path) -> Contents:
    """The checkpoint file. Blocks. Raises OSError."""
    return read(directory / checkpoint.NAME, LARGEST_CHECKPOINT, follow=True)


def stamped(stamp: float) -> float:
    """Converts a file's time stamp to the monotonic clock; a stamp in the future becomes now.

    The system clock may be set, so stamps from before and after that can't be compared.
    """
    return time.monotonic() - max(0.0, time.time() - stamp)


def is_there(directory: Path) -> bool:
    """Whether it is a directory; False also without permission, where Path.is_dir() raises."""
    try:
        return directory.is_dir()
    except OSError:
        return False


def misplaced(directory: Path) -> str:
    """Why this can't be a kubelet's directory; empty if it can."""
    what = "the device-plugins directory: found"
    if directory.name == SOCKET:
        return f"{what} {directory}, which is a kubelet's socket, expected its directory: {directory.parent}"
    try:
        is_file = directory.exists() and not directory.is_dir()
    except OSError:  # forbidden() says why
        return ""
    return f"{what} {directory}, which is a file, expected the kubelet's directory" if is_file else ""


def forbidden(directory: Path) -> str:
    """Why this user can't serve in the directory; empty if it can, if it is missing, and for root."""
    uid = os.geteuid()
    if uid == 0 or os.access(directory, os.W_OK | os.X_OK):
        return ""
    try:
        directory.stat()  # which tells whether it is missing or hidden
    except OSError as error:
        if not isinstance(error, PermissionError):
            return ""
    return f"the device-plugins directory: uid {uid} may not make sockets in {directory}; run as root"


class Absence:
    """Warns once when no kubelet has been there for a while. Used from the event loop."""

    def __init__(self, directory: Path, patience: float = PATIENCE) -> None:
        self._directory, self._patience = directory, patience
        self._timer: asyncio.TimerHandle | None = None
        self._there = True

    def look(self, *, there: bool) -> None:
        """``there``: whether there is a kubelet.sock now."""
        if there != self._there and self._timer is not None:
            self._timer.cancel()
        if not there and self._there:
            self._timer = asyncio.get_running_loop().call_later(self._patience, self._tell)
        self._there = there

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _tell(self) -> None:
        reason = why_none(self._directory)
        fields = {"seconds": self._patience, "reason": reason}
        _log.warning("no kubelet for %g s: %s", self._patience, reason, extra=fields)


def why_none(directory: Path) -> str:
    """Describes why there is no kubelet's socket, and the remedy."""
    try:
        (directory / SOCKET).stat()
    except FileNotFoundError:
        pass
    except OSError as error:
        hint = f"; run as root, not as uid {os.geteuid()}" if isinstance(error, PermissionError) else ""
        return f"can't look at {directory / SOCKET}: {error.strerror}{hint}"
    if is_there(directory):
        return (
            f"{directory} has no {SOCKET}; expected a running kubelet whose directory this is "
            "(1.8 and 1.9 want --feature-gates=DevicePlugins=true)"
        )
    return f"{directory} doesn't exist; expected the directory that a kubelet makes when it starts"
