"""Pods with a running process, by their cgroups, for nodes whose container runtime can't be asked.

A kubelet with ``cgroupsPerQOS``, its default, makes a cgroup for each pod, in which the runtime makes those of the
containers, and removes it once they have ended (pkg/kubelet/cm/pod_container_manager_linux.go, every version). Its
path depends on the kubelet's ``cgroupDriver`` and ``cgroupRoot``, so it is looked for; guaranteed pods have no QoS:

    cgroupfs  ROOT/kubepods/[burstable/]podUID
    systemd   ROOT.slice/ROOT-kubepods.slice/[ROOT-kubepods-burstable.slice/]ROOT-kubepods-burstable-podUID.slice,
              with "_" for each "-" of the uid

In version 2 ``cgroup.events`` says whether processes are in a cgroup or below it (Documentation/admin-guide/
cgroup-v2.rst). In version 1 each cgroup has its own, in ``cgroup.procs``, and each controller has a hierarchy.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ROOTS = (Path("/node/sys/fs/cgroup"), Path("/sys/fs/cgroup"))
"""Where the node's cgroups may be: the first one that exists. In a container its own are at the second path."""
DEPTH = 4
"""The most levels from a root down to ``kubepods``: a controller's hierarchy, and a kubelet in a container."""

_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""The uid of a pod of the API server."""
_ANY = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]*")
"""The uid of a static pod, which its manifest may set."""
_UNITS = ".service", ".scope", ".socket", ".mount", ".swap", "system.slice", "user.slice"
"""The ends of names of systemd's units that no kubelet's cgroups are in."""
_CLASSES = "burstable", "besteffort"
_GONE = {errno.ENOENT, errno.ENODEV}


@dataclass(frozen=True, slots=True)
class PodCgroups:
    """The cgroups of the node's pods. Blocks."""

    roots: Sequence[Path] = ROOTS

    def running(self, pods: Collection[str], *, static: bool = False) -> frozenset[str] | None:
        """The uids of the API server's pods with a running process; None if the node's cgroups can't be seen, or no
        kubelet makes any for its pods. ``static``: also static pods.
        """
        root = next(filter(Path.is_dir, self.roots), None)
        parents: list[Path] = []
        for top in _kubepods(root, DEPTH) if root else ():
            # The pods beside the cgroups of QoS classes are guaranteed ones.
            classes = (one for one in _subdirectories(top) if one.name.removesuffix(".slice").endswith(_CLASSES))
            parents += [top, *classes]
        if not parents:
            return None
        running = []
        for uid in [uid for uid in pods if (_ANY if static else _UID).fullmatch(uid)]:
            cgroupfs = [one / f"pod{uid}" for one in parents]
            unit = f"-pod{uid.replace('-', '_')}.slice"
            systemd = [one / f"{one.name.removesuffix('.slice')}{unit}" for one in parents]
            if any(map(_populated, cgroupfs + systemd)):
                running.append(uid)
        return frozenset(running)


def _kubepods(folder: Path, depth: int) -> Iterator[Path]:
    """The cgroups at or above those of all QoS classes."""
    for one in _subdirectories(folder):
        if one.name == "kubepods" or one.name.endswith("kubepods.slice"):
            yield one
        elif depth > 1 and not one.name.endswith(_UNITS):
            yield from _kubepods(one, depth - 1)


def _subdirectories(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as found:
            return [Path(one.path) for one in found if one.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _populated(cgroup: Path) -> bool:
    """Whether it has a process. One that can't be read may have."""
    try:
        with suppress(FileNotFoundError):  # of version 1
            return "populated 1" in (cgroup / "cgroup.events").read_text()
    except OSError as error:
        return error.errno not in _GONE
    for folder in [Path(folder) for folder, _, _ in os.walk(cgroup)]:
        try:
            with (folder / "cgroup.procs").open("rb") as file:
                populated = file.read(1) != b""
        except OSError as error:
            populated = error.errno not in _GONE  # it was removed, because it had none
        if populated:
            return True
    return False
