"""Which NUMA node a device is near, from sysfs."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from dpgateway.sysfs.nodes import DevNode
from dpgateway.sysfs.objects import Look, Object
from dpgateway.sysfs.values import as_number


def numa_of(look: Look, thing: Object) -> tuple[int, ...]:
    """The same of an object, for one look at sysfs."""
    for ancestor in thing.line:
        if isinstance(number := look.value(ancestor, "numa_node"), str):
            node = as_number(number) if number.isdecimal() else None  # -1: it is unknown
            return () if node is None else (node,)
    return ()


def numa_nodes(node: DevNode, sysfs: str = "/sys") -> tuple[int, ...]:
    """The NUMA node of the nearest ancestor that has one; empty if none has one, and for -1, which means unknown.

    Source: Documentation/ABI/stable/sysfs-devices, numa_node; Documentation/ABI/testing/sysfs-dev.
    """
    link = Path(sysfs, "dev", node.type, f"{node.major}:{node.minor}")
    try:
        return _nearest(sysfs, str(link.readlink()), node.type)
    except (OSError, ValueError):
        return ()


@lru_cache(maxsize=4096)
def _nearest(sysfs: str, link: str, node_type: str) -> tuple[int, ...]:
    """Cached, because a path in sysfs is a fixed place in the machine, and a dozen files on the way up don't exist."""
    directory = Path(sysfs, "dev", node_type, link).resolve(strict=True)
    for ancestor in (directory, *directory.parents):
        if ancestor.name == "devices":
            break
        try:
            number = int((ancestor / "numa_node").read_text())
        except FileNotFoundError:
            continue
        return (number,) if number >= 0 else ()
    return ()
