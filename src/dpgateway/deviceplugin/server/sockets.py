"""The names of one resource's socket, beside the lock of its owner (``resource.ownership``).

    <device-plugins>/dpgateway/<hash>.sock      the socket of the newest server
                              /<hash>-<n>.sock  a hard link to it, registered as endpoint; a new n for each registration
                              /<hash>-<n>.new   a socket that is being bound, and is renamed to <hash>.sock then
                              /<hash>.next      where the next gateway asks for the resource

A kubelet touches no sub-directory, so sockets outlive its restarts; and 1.37 refuses a name that it is connected to.
The owner of the resource owns all of its names, and may remove every ``<hash>-*``. When a gRPC server stops, it unlinks
the path that it bound, whatever is there by then, so no two servers ever bind the same path.

A gateway that was killed leaves its names behind. Those of resources that aren't configured any more are removed, too,
once no gateway owns them.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from dpgateway.kit.unix import LONGEST
from dpgateway.resource.ownership import FOLDER, Ownership, hash_of, is_ours

MOST_LINKS = 8
"""For some seconds a kubelet may still dial what an earlier Register named. But a kubelet that refuses for months must
not use up the links that a file can have (65,000 on ext4)."""

_NAME = re.compile(r"([0-9a-f]{16})(?:\.lock|\.sock|\.next|-[0-9]+\.sock|-[0-9]+\.new)")
"""A file of a resource in the folder, and the hash in it."""

LONGEST_ENDPOINT = "/dpgateway/0123456789abcdef-1234567890123.sock"
"""As long as those that we register."""


def too_deep(device_plugins: Path) -> str:
    """Why a kubelet can't reach sockets below ``device_plugins``; empty if it can."""
    most = LONGEST - len(LONGEST_ENDPOINT)
    length = len(os.fsencode(device_plugins))
    if length <= most:
        return ""
    return (
        f"the device-plugins directory: found a path of {length} bytes, expected at most {most}: a kubelet can't dial "
        f"our sockets below {device_plugins}, because a socket's path has at most {LONGEST}"
    )


def left_behind(device_plugins: Path, resources: Iterable[str]) -> Iterator[SocketNames]:
    """The names of other resources than these, if there are any and the folder is ours."""
    folder, found = device_plugins / FOLDER, set()
    with contextlib.suppress(OSError):  # whoever serves from the folder tells what is wrong with it
        if is_ours(folder):
            found = {match[1] for path in folder.iterdir() if (match := _NAME.fullmatch(path.name))}
    for hash_ in sorted(found.difference(map(hash_of, resources))):
        yield SocketNames(Ownership(device_plugins, f"the resource {hash_}", hash_=hash_))


class SocketNames:
    """One resource's. Only its owner changes them."""

    def __init__(self, ownership: Ownership) -> None:
        self.ownership = ownership
        self._folder, self._hash = ownership.folder, ownership.hash
        self.base = self._folder / f"{self._hash}.sock"
        """The socket, for links to be made to it, and for people."""
        self.next = self._folder / f"{self._hash}.next"
        """Where the next gateway asks for the resource."""
        # Never a number that an earlier gateway used: the kubelet may still be connected to it.
        self._numbers = itertools.count(time.time_ns() // 1_000_000)
        self._links: list[Path] = []

    def to_bind(self) -> Path:
        """A path at which no server was ever bound. The socket is ``base`` once it has that name."""
        return self._folder / f"{self._hash}-{next(self._numbers)}.new"

    def link(self) -> str:
        """A new name for the bound socket, relative to the device-plugins directory; the oldest ones go."""
        self._keep(MOST_LINKS - 1)
        path = self._folder / f"{self._hash}-{next(self._numbers)}.sock"
        os.link(self.base, path)
        self._links.append(path)
        return f"{FOLDER}/{path.name}"

    def keep_newest(self) -> None:
        """Removes all links but the last."""
        self._keep(1)

    def _keep(self, count: int) -> None:
        for path in self._links[:-count]:
            with contextlib.suppress(OSError):  # the next sweep removes it
                path.unlink()
        del self._links[:-count]

    def sweep(self) -> None:
        """Removes what a gateway before us left behind."""
        self._links.clear()
        # no glob: a pattern for each resource would be compiled and kept
        links = [path for path in self._folder.iterdir() if path.name.startswith(f"{self._hash}-")]
        for path in [self.base, *links]:
            path.unlink(missing_ok=True)

    def remove(self) -> None:
        """Removes every name, unless another gateway is the owner, too."""
        if self.ownership.undivided:
            for path in [*self._links, self.base, self.next]:
                with contextlib.suppress(OSError):
                    path.unlink()
        self._links.clear()

    def remove_unowned(self) -> bool:
        """Removes every name unless a gateway owns the resource. Returns whether it did. Raises KubeletError or
        OSError.
        """
        if not self.ownership.try_to_acquire():
            return False
        try:
            self.sweep()
            self.remove()
        finally:
            self.ownership.end()
        return True
