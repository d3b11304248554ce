"""The names of one resource's socket.

    <device-plugins>/dpgateway/<hash>.lock      held by the gateway that serves the resource
                              /<hash>.sock      the socket of the newest server
                              /<hash>-<n>.sock  a hard link to it, registered as endpoint; a new n for each registration
                              /<hash>.next      where the next gateway asks for the resource

A kubelet touches no sub-directory, so sockets outlive its restarts; and 1.37 refuses a name that it is connected to.
The name is a hash, because a resource's name may be longer than a socket's path. Under the lock, every ``<hash>-*`` is
ours to remove. The server is ``endpoint``'s. It binds a ``<hash>-<n>.new``, which is then renamed: when a gRPC server
stops, it unlinks the path that it bound, whoever is there by then, so no two servers may ever bind the same.

A gateway that was killed leaves its names behind. Those of resources that aren't configured any more are removed, too,
once nobody holds their lock.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from dpgateway.errors import KubeletError
from dpgateway.kit.unix import LONGEST
from dpgateway.resource.lock import Lock

FOLDER = "dpgateway"
LAST = "no-gateway-follows"
"""A file in the folder: a gateway that lingers ends at once. The chart's clean-up writes it."""
MOST_LINKS = 8
"""For some seconds a kubelet may still dial what an earlier Register named. But a kubelet that refuses for months must
not use up the links that a file can have (65,000 on ext4)."""

_NAME = re.compile(r"([0-9a-f]{16})(?:\.lock|\.sock|\.next|-[0-9]+\.sock|-[0-9]+\.new)")
"""What may be in the folder, and the hash in it."""

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
        if _is_ours(folder):
            found = {match[1] for path in folder.iterdir() if (match := _NAME.fullmatch(path.name))}
    for hash_ in sorted(found.difference(map(hash_of, resources))):
        yield SocketNames(device_plugins, f"the resource {hash_}", hash_)


def hash_of(resource: str) -> str:
    """What its files are called."""
    return hashlib.sha256(resource.encode()).hexdigest()[:16]


def _is_ours(folder: Path) -> bool:
    found = folder.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


class SocketNames:
    """One resource's names in one directory."""

    def __init__(self, device_plugins: Path, resource: str, hash_: str | None = None) -> None:
        """``hash_``: of a resource whose name isn't known."""
        self.folder = device_plugins / FOLDER
        self.hash = hash_ or hash_of(resource)
        self.base = self.folder / f"{self.hash}.sock"
        """The socket, for links to be made to it, and for people."""
        self.next = self.folder / f"{self.hash}.next"
        """Where the next gateway asks for the resource."""
        self.lock = Lock(self.folder / f"{self.hash}.lock", resource)
        # Never a number that an earlier gateway used: the kubelet may still be connected to it.
        self._numbers = itertools.count(time.time_ns() // 1_000_000)
        self._links: list[Path] = []

    def make_folder(self) -> None:
        """Raises KubeletError if the folder isn't ours alone."""
        try:
            self.folder.mkdir(mode=0o700, exist_ok=True)
            ours = _is_ours(self.folder)
        except PermissionError as error:
            raise KubeletError(f"uid {os.geteuid()} may not make {self.folder}; run as root") from error
        except OSError as error:
            raise KubeletError(f"can't make {self.folder}: {error.strerror}") from error
        if not ours:
            raise KubeletError(f"{self.folder} must be a directory that belongs to uid {os.geteuid()}; remove it")
        self.folder.chmod(0o700)

    def sweep(self) -> None:
        """Removes what a gateway before us left behind. Only under the lock."""
        self._links.clear()
        # no glob: a pattern for each resource would be compiled and kept
        links = [path for path in self.folder.iterdir() if path.name.startswith(f"{self.hash}-")]
        for path in [self.base, *links]:
            path.unlink(missing_ok=True)

    async def unserved(self) -> None:
        """Returns when no gateway serves the resource. Raises KubeletError or OSError."""
        await self.lock.unserved()

    def remove_unserved(self) -> bool:
        """Removes every name unless a gateway serves the resource. Returns whether it did. Raises KubeletError or
        OSError.
        """
        try:
            if not self.lock.try_to_take():
                return False
            self.sweep()
            self.remove()
            return True
        finally:
            self.lock.free()

    def link(self) -> str:
        """A new name for the bound socket, relative to the device-plugins directory; the oldest ones go."""
        self._keep(MOST_LINKS - 1)
        path = self._new("sock")
        os.link(self.base, path)
        self._links.append(path)
        return f"{FOLDER}/{path.name}"

    def to_bind(self) -> Path:
        """A path at which no server was ever bound. The socket is ``base`` once it has that name."""
        return self._new("new")

    def _new(self, kind: str) -> Path:
        return self.folder / f"{self.hash}-{next(self._numbers)}.{kind}"

    def keep_newest(self) -> None:
        """Removes all links but the last."""
        self._keep(1)

    def _keep(self, count: int) -> None:
        for path in self._links[:-count]:
            with contextlib.suppress(OSError):  # the next sweep removes it
                path.unlink()
        del self._links[:-count]

    def remove(self) -> None:
        """Removes every name, if they are still ours, and lets the lock go."""
        if self.lock.is_ours() and not self.lock.passed:
            for path in [*self._links, self.base, self.next, self.lock.path]:
                with contextlib.suppress(OSError):
                    path.unlink()
        self._links.clear()
        self.lock.free()
