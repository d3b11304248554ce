"""The limits of this process: descriptors, threads, address space."""

from __future__ import annotations

import contextlib
import os
import resource
import threading
from pathlib import Path

_OWN, _FOR_EACH = 48, 8
"""Descriptors of the process, and of each resource: lock, socket, streams, and its driver's."""
_OWN_TASKS = 20
"""Processes and threads, besides one per resource. With fewer gRPC aborts, or hangs silently."""
_OWN_SPACE, _SPACE_FOR_EACH = 256, 16
"""MiB of address space, mostly for thread stacks. With less gRPC aborts, or hangs silently."""
_MIB = 1024 * 1024


def too_few(resources: int) -> str:
    """Describes the limit that is too low for so many resources, and its remedy; empty if none is."""
    return too_few_descriptors(resources) or _too_few_tasks(resources) or _too_little_space(resources)


def _too_few_tasks(resources: int) -> str:
    needed = _OWN_TASKS + resources
    with contextlib.suppress(OSError):
        found = _pids_max()
        if found.isdecimal() and int(found) < needed:
            return (
                f"the limit of processes and threads (pids.max of the cgroup): found {found}, expected at least "
                f"{needed} for {resources} resources; raise it: TasksMax= of the service, or the kubelet's podPidsLimit"
            )
    return ""


def _too_little_space(resources: int) -> str:
    needed = _OWN_SPACE + _SPACE_FOR_EACH * resources
    found, _ = resource.getrlimit(resource.RLIMIT_AS)
    if found == resource.RLIM_INFINITY or found >= needed * _MIB:
        return ""
    return (
        f"the limit of the address space (RLIMIT_AS): found {found // _MIB} MiB, expected at least {needed} MiB for "
        f"{resources} resources; raise it: LimitAS= of the service, or ulimit -v"
    )


def too_few_descriptors(resources: int) -> str:
    """The same for descriptors. Raises the soft limit as far as needed."""
    needed = _OWN + _FOR_EACH * resources
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        if hard != resource.RLIM_INFINITY and hard < needed:
            return (
                f"the limit of open files (RLIMIT_NOFILE): found {hard}, expected at least {needed} for {resources} "
                "resources; raise it: LimitNOFILE= of the service, or ulimit -n"
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    return ""


def on_threads() -> str:
    """The number of threads, and their limits."""
    limits = [f"RLIMIT_NPROC of uid {os.getuid()}: {_shown(resource.getrlimit(resource.RLIMIT_NPROC)[0])}"]
    with contextlib.suppress(OSError):
        limits.append(f"pids.max of the cgroup: {_pids_max()}")
    return f"{threading.active_count()} threads of Python; {', '.join(limits)}"


def _shown(limit: int) -> str:
    return "none" if limit == resource.RLIM_INFINITY else str(limit)


def _pids_max() -> str:
    """The limit of this process's cgroup (v1 or v2), which in a container may be the visible root. Raises OSError."""
    limits = []
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers in {"", "pids"}:
            for file in (f"/sys/fs/cgroup/{controllers}{path}/pids.max", f"/sys/fs/cgroup/{controllers}/pids.max"):
                with contextlib.suppress(OSError):
                    limits.append(Path(file).read_text().strip())
    return min(filter(str.isdecimal, limits), key=int, default="none")
