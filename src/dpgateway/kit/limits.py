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
    """Describes the limit that is too low for so many resources, and its remedy; empty if none is.

    Raises the soft limit of descriptors as far as needed.
    """
    too_low = "the limit of {}: found {}, expected at least {} for " + f"{resources} resources; raise it: {{}}"

    files = _OWN + _FOR_EACH * resources
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < files:
        if hard != resource.RLIM_INFINITY and hard < files:
            remedy = "LimitNOFILE= of the service, or ulimit -n"
            return too_low.format("open files (RLIMIT_NOFILE)", hard, files, remedy)
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))

    # Not the user's limit (RLIMIT_NPROC), which doesn't hold for root: that of the service, or of the container.
    tasks = _OWN_TASKS + resources
    with contextlib.suppress(OSError):
        if (limit := _pids_max()).isdecimal() and int(limit) < tasks:
            remedy = "TasksMax= of the service, or the kubelet's podPidsLimit"
            return too_low.format("processes and threads (pids.max of the cgroup)", limit, tasks, remedy)

    space = _OWN_SPACE + _SPACE_FOR_EACH * resources
    found, _ = resource.getrlimit(resource.RLIMIT_AS)
    if found != resource.RLIM_INFINITY and found < space * _MIB:
        mib, remedy = f"{found // _MIB} MiB", "LimitAS= of the service, or ulimit -v"
        return too_low.format("the address space (RLIMIT_AS)", mib, f"{space} MiB", remedy)
    return ""


def on_threads() -> str:
    """The number of threads, and their limits."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    limits = [f"RLIMIT_NPROC of uid {os.getuid()}: {'none' if soft == resource.RLIM_INFINITY else soft}"]
    with contextlib.suppress(OSError):
        limits.append(f"pids.max of the cgroup: {_pids_max()}")
    return f"{threading.active_count()} threads of Python; {', '.join(limits)}"


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
