"""How many descriptors and threads the system allows this process."""

from __future__ import annotations

import contextlib
import os
import resource
import threading
from pathlib import Path

_OWN, _FOR_EACH = 48, 8
"""Descriptors: of the process, and of a resource with its lock, socket, streams and what its driver opens."""


def too_few_descriptors(resources: int) -> str:
    """Why that many resources can't be served; empty if they can. Raises the soft limit as far as that takes."""
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
    """How many threads there are, and which limits the system has for them."""
    limits = [f"RLIMIT_NPROC of uid {os.getuid()}: {_shown(resource.getrlimit(resource.RLIMIT_NPROC)[0])}"]
    with contextlib.suppress(OSError):
        limits.append(f"pids.max of the cgroup: {_pids_max()}")
    return f"{threading.active_count()} threads of Python; {', '.join(limits)}"


def _shown(limit: int) -> str:
    return "none" if limit == resource.RLIM_INFINITY else str(limit)


def _pids_max() -> str:
    """Of both versions of cgroups. Raises OSError where there is no limit to read."""
    found = "none"
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers in {"", "pids"}:
            found = Path(f"/sys/fs/cgroup/{controllers}{path}/pids.max").read_text().strip()
    return found
