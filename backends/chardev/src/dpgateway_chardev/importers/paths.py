"""Classifies paths in /dev: directory, char device or block device."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from dpgateway.sysfs import is_glob

DIRECTORIES: Mapping[str, str] = {
    "/dev/accel": "accel",
    "/dev/bus/usb": "usb",
    "/dev/dma_heap": "dma_heap",
    "/dev/dri": "drm",
    "/dev/dvb": "dvb",
    "/dev/input": "input",
    "/dev/snd": "sound",
    "/dev/usb": "usbmisc",
    # nodes of several subsystems, which their directory tells from others
    "/dev/infiniband": "*",
    "/dev/net": "*",
    "/dev/vfio": "*",
}
"""The kernel's directories, with the subsystems of their nodes. For a directory a container runtime gives all nodes
in it, and no links.
"""
_LINKS = re.compile(r"/dev/(disk|serial|v4l|mapper|char|block)|/dev/.*/by-[a-z-]+")
"""The directories of udev's links."""
_BLOCK = re.compile(
    r"(sd[a-z*?[]|hd[a-z*?[]|x?vd[a-z*?[]|nbd|loop|dm-|mmcblk|sr[0-9*?[]|md[0-9/*?[]|zram|zd[0-9*?[]|ram[0-9*?[]"
    r"|rbd|drbd|bcache|nvme[0-9*?[\]^-]+n|mapper/|disk/).*"
)
"""The kernel's and udev's names for disks (Documentation/admin-guide/devices.txt)."""
_CHAR = re.compile(r"loop-control|mapper/control|.*/bsg/.*")


def in_dev(path: str) -> bool:
    parts = path.strip().split("/")
    return path.strip().startswith("/dev/") and not {"", ".", ".."} & set(parts[1:])


def directory_of(path: str) -> str:
    """The kernel's directory that the path is or is in; empty if there is none."""
    return next((one for one in DIRECTORIES if path == one or path.startswith(f"{one}/")), "")


def is_directory(path: str, dev: Path) -> bool:
    """Whether it is a directory: a known one, or one on this node."""
    path = path.strip().rstrip("/")
    if path in DIRECTORIES or _LINKS.fullmatch(path):
        return True
    # os.path's, because pathlib's raises what forbids it
    return not is_glob(path) and in_dev(path) and os.path.isdir(dev / path.removeprefix("/dev/"))  # noqa: PTH112


def why_no_directory(path: str) -> str:
    """Why no match can offer a directory's content; empty if one can."""
    path = path.strip().rstrip("/")
    if _LINKS.fullmatch(path):
        return "it contains links, and a container runtime gives only a directory's nodes"
    return "" if directory_of(path) else "its devices' subsystem isn't known: write a match of them"


def is_block(path: str, dev: Path) -> bool:
    """Whether it is a block device: as on this node, else by its name."""
    name = path.strip().removeprefix("/dev/")
    if not is_glob(name):
        with suppress(OSError):
            if (dev / name).exists():
                return (dev / name).is_block_device()
    return _BLOCK.fullmatch(name) is not None and _CHAR.fullmatch(name) is None
