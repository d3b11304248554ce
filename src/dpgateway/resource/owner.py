"""The content of a lock's file, which describes the owner::

    pid 7 in pod kube-system/dpgateway-x2v9k, since 2026-01-31T12:00:00Z
    example.com/thing
    pool boards
    after pid 7 in pod kube-system/dpgateway-5k2wp

A pid alone is ambiguous, because each container has its own pid namespace, and containers in the node's network also
share its hostname. Gateways of the first releases wrote only ``pid 7``. There is an ``after`` line for each older
gateway where the resource may have another name (``elsewhere``).
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from dpgateway.kit.timestamp import timestamp

_POOL, _AFTER = "pool ", "after "
_MOST_READ = 64 * 1024
"""Bytes read of a lock file."""
_NODES = "pid:[4026531836]"
"""The node's own pid namespace has the same number on each (Linux, include/linux/proc_ns.h, PROC_PID_INIT_INO)."""


class Owner(NamedTuple):
    """Another gateway that serves a resource."""

    text: str
    """A sentence that names the gateway and the resource."""
    pool: str | None
    """The resource's pool; empty if it is in none, None if the lock doesn't say."""
    gateway: str
    """The gateway's identity, the same in all of its locks."""
    after: frozenset[str] = frozenset()
    """The gateways at which the resource may have another name."""


def this_gateway() -> str:
    """The identity of this process, enough to find it from another gateway's log."""
    who = f"pid {os.getpid()}"
    if name := os.environ.get("POD_NAME"):
        return f"{who} in pod {'/'.join(filter(None, (os.environ.get('POD_NAMESPACE'), name)))}"
    namespace = _NODES
    with contextlib.suppress(OSError):
        namespace = str(Path("/proc/self/ns/pid").readlink())
    return f"{who} {'' if namespace == _NODES else f'in {namespace} '}on {socket.gethostname()}"


def signature(resource: str, pool: str, after: Iterable[str]) -> str:
    """The text by which this gateway is the owner from now on. ``pool``: empty for none; ``after``: see
    :class:`Owner`.
    """
    lines = f"{this_gateway()}, since {timestamp()}", resource, f"{_POOL}{pool}"
    return "".join(f"{line}\n" for line in (*lines, *(_AFTER + gateway for gateway in sorted(after))))


def read_owner(descriptor: int, resource: str) -> Owner:
    """The owner that a lock's file describes. ``resource``: its name, if the file doesn't say."""
    text = ""
    with contextlib.suppress(OSError):
        text = os.pread(descriptor, _MOST_READ, 0).decode(errors="replace")
    # The first releases wrote one short line.
    name, found, pool, *more = (*text.split("\n"), "", "", "")
    who = f"another gateway serves {found or resource}: {name or 'it left no name'}"
    after = frozenset(line.removeprefix(_AFTER) for line in more if line.startswith(_AFTER))
    in_pool = pool.removeprefix(_POOL) if pool.startswith(_POOL) else None
    return Owner(who, in_pool, name.partition(", since")[0], after)
