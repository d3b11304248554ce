"""The names of one resource's socket, beside the lock of its owner (``resource.ownership``).

    <device-plugins>/dpgateway/<hash>.sock      the socket of the newest server
                              /<hash>-<n>.sock  a hard link to it, registered as endpoint; a new n for each registration
                              /<hash>-<n>.new   a socket being bound, then renamed to <hash>.sock
                              /<hash>.next      where the next gateway asks for the resource (``Ownership.next``)
                              /<hash>.next.<pid>-<n>  the same while it is being bound (``unix.listen``)

A starting kubelet cleans its directory (CleanupPluginDirectory, pkg/kubelet/cm/devicemanager), but no sub-directory, so
these sockets survive; and 1.37 refuses a name that it is connected to (kubernetes #135437). The owner of the resource
owns all of its names, and may remove every ``<hash>-*``. When a gRPC server stops, it unlinks its bound path, even if
another file is there by then, so no two servers ever bind the same path.

A killed gateway leaves its names behind. Those of resources that are no longer configured are removed, too, once no
gateway owns them.
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
from dpgateway.resource.ownership import FOLDER, LockState, Ownership, hash_of, is_ours

MOST_LINKS = 8
"""A kubelet may still dial the endpoint of an earlier Register for some seconds. But a kubelet that refuses for months
must not exhaust a file's hard links (65,000 on ext4)."""

_NAME = re.compile(r"([0-9a-f]{16})(?:\.lock|\.sock|\.next(?:\.[0-9]+-[0-9]+)?|-[0-9]+\.sock|-[0-9]+\.new)")
"""The name of a resource's file in the folder; its group is the hash."""

LONGEST_ENDPOINT = "/dpgateway/0123456789abcdef-1234567890123.sock"
"""A sample of the longest endpoint that is ever registered."""


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
    """The names of all resources but these, if the folder is ours."""
    folder, found = device_plugins / FOLDER, set()
    with contextlib.suppress(OSError):  # a plugin that serves from the folder reports its faults
        if is_ours(folder):
            found = {match[1] for path in folder.iterdir() if (match := _NAME.fullmatch(path.name))}
    for hash_ in sorted(found.difference(map(hash_of, resources))):
        yield SocketNames(Ownership(device_plugins, f"the resource {hash_}", hash_=hash_))


class SocketNames:
    """The names of one resource. Only its owner changes them."""

    def __init__(self, ownership: Ownership) -> None:
        self.ownership = ownership
        self._folder, self._hash = ownership.folder, ownership.hash
        self.base = self._folder / f"{self._hash}.sock"
        """The newest server's socket: the target of the links, and a fixed path for people."""
        # The clock gives numbers that no earlier gateway used: a kubelet may still be connected to one of its names.
        self._numbers = itertools.count(time.time_ns() // 1_000_000)
        self._links: list[Path] = []

    def to_bind(self) -> Path:
        """A path that no server was ever bound to. The bound socket is then renamed to ``base``."""
        return self._folder / f"{self._hash}-{next(self._numbers)}.new"

    def link(self) -> str:
        """Links the bound socket under a new name, relative to the device-plugins directory; drops the oldest links."""
        self.keep(MOST_LINKS - 1)
        path = self._folder / f"{self._hash}-{next(self._numbers)}.sock"
        os.link(self.base, path)
        self._links.append(path)
        return f"{FOLDER}/{path.name}"

    def keep(self, count: int) -> None:
        """Removes all links but the last ones."""
        for path in self._links[:-count]:
            with contextlib.suppress(OSError):  # the next sweep removes it
                path.unlink()
        del self._links[:-count]

    def sweep(self) -> None:
        """Removes the sockets and links that an earlier gateway left behind."""
        self.base.unlink(missing_ok=True)
        self.sweep_links()

    def sweep_links(self) -> None:
        """The same, but for ``base``, which may be this gateway's by now."""
        self._links.clear()
        # no glob: a pattern for each resource would be compiled and kept
        links = [path for path in self._folder.iterdir() if path.name.startswith(f"{self._hash}-")]
        for path in links:
            path.unlink(missing_ok=True)

    def remove(self) -> None:
        """Removes every name, unless they are those of a gateway that shares the ownership."""
        if self.ownership.undivided:
            # Who borrows the lock doesn't listen: the lender does, and may take the resource back.
            listened = () if self.ownership.state is LockState.BORROWED else (self.ownership.next,)
            for path in [*self._links, self.base, *listened]:
                with contextlib.suppress(OSError):
                    path.unlink()
        self._links.clear()

    def remove_unowned(self) -> bool:
        """Removes every name, unless a gateway owns the resource; then False. Raises KubeletError or OSError."""
        if not self.ownership.try_to_acquire():
            return False
        try:
            self.sweep()
            self.remove()
        finally:
            self.ownership.end()
        return True
