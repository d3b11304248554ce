"""The lock of one resource: who holds it serves the resource, and its file says who that is, in three lines:

    pid 7 in pod kube-system/dpgateway-x2v9k, since 2026-01-31T12:00:00Z
    example.com/thing
    pool boards

A pid alone says little, because each container counts its own. Gateways of the first releases wrote ``pid 7``.

A gateway that waits for it gets it when the other one ends, or hands the resource over (``taking``): then both have it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

from dpgateway.errors import KubeletError, naming
from dpgateway.kit import locks

_POOL = "pool "
MOST_READ = 1000
"""Bytes of the file."""

Ask = Callable[[], Awaitable[int]]
"""Returns the descriptor of the lock, once the gateway that serves has passed it."""


class Holder(NamedTuple):
    """Another gateway that serves a resource."""

    text: str
    """Which one, and which resource."""
    pool: str | None
    """Of the resource; empty if it is in none, None if the gateway doesn't say it."""
    gateway: str
    """Which gateway it is, in all of its locks."""


class Lock:
    """Used from the event loop."""

    def __init__(self, path: Path, resource: str) -> None:
        self.path = path
        self._resource = resource
        self._descriptor: int | None = None
        self.pool = ""
        """Of the resource; to be signed."""
        self.passed = False
        """Whether another gateway has the lock, too: then the resource's names are that one's."""

    async def take(self, tell: Callable[[str], None], ask: Ask | None = None) -> None:
        """Returns when no other gateway serves the resource. ``tell`` gets a text that says which one does.
        With ``ask`` that one may hand the resource over.

        Raises KubeletError or OSError.
        """
        while not self.is_ours():
            self.free()
            descriptor = self._open()
            try:
                self._descriptor = await self._flock(descriptor, tell, ask)
            finally:
                if self._descriptor != descriptor:
                    os.close(descriptor)
        self.sign()

    def try_to_take(self) -> bool:
        """Takes it if no gateway serves the resource. Raises KubeletError or OSError."""
        self._descriptor = self._open()
        return locks.take(self._descriptor) and self.is_ours()

    def sign(self) -> None:
        """Writes into the file who holds the lock."""
        if self._descriptor is None:
            return
        with contextlib.suppress(OSError):  # a full disk: whoever waits for us isn't told who we are
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{_signature()}\n{self._resource}\n{_POOL}{self.pool}\n".encode(), 0)

    def is_ours(self) -> bool:
        """Whether the lock that we hold is the one that others would find."""
        if self._descriptor is None:
            return False
        with contextlib.suppress(OSError):
            return os.path.samestat(os.fstat(self._descriptor), self.path.stat())
        return False

    def is_it(self, descriptor: int) -> bool:
        """Whether this is the lock that others would find, and is held by whoever has a copy of this descriptor."""
        try:
            return os.path.samestat(os.fstat(descriptor), self.path.stat()) and locks.take(descriptor)
        except OSError:
            return False

    @property
    def descriptor(self) -> int:
        """For the gateway that takes over."""
        assert self._descriptor is not None  # noqa: S101  whoever serves has it
        return self._descriptor

    def free(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def held(self) -> Holder | None:
        """Which gateway serves the resource, if any does. Nobody is kept out by the look."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:  # nobody has ever served it, or whoever serves from the folder tells what is wrong
            return None
        try:
            return None if locks.is_free(descriptor) else self._holder(descriptor)
        except OSError:
            return None
        finally:
            os.close(descriptor)

    async def unserved(self) -> None:
        """Returns when no gateway serves the resource. Raises KubeletError or OSError."""
        if self.path.exists():
            descriptor = self._open()
            try:
                await locks.wait(descriptor)
            finally:
                os.close(descriptor)

    def _open(self) -> int:
        """Nobody else can put a file here, so what is found now is what is opened."""
        with contextlib.suppress(FileNotFoundError):
            found = self.path.lstat()
            if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
                what = f"{stat.filemode(found.st_mode)} with {found.st_nlink} links"
                expected = f"expected a lock, a file without another name, found {what}; remove it"
                raise KubeletError(f"{self.path}: {expected}")
        return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    async def _flock(self, descriptor: int, tell: Callable[[str], None], ask: Ask | None) -> int:
        """The descriptor that is locked: this one, or the other gateway's."""
        with naming(self.path):
            if locks.take(descriptor):
                return descriptor
            when = "this one takes over when that one ends" if ask is None else "this one takes over once it is ready"
            tell(f"waiting because {self._holder(descriptor).text}; {when}")
            return await self._freed_or_given(descriptor, ask)

    @staticmethod
    async def _freed_or_given(descriptor: int, ask: Ask | None) -> int:
        waiting = asyncio.ensure_future(locks.wait(descriptor))
        asking = {asyncio.ensure_future(ask())} if ask is not None else set()
        try:
            await asyncio.wait({waiting, *asking}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            for asked in asking:
                asked.add_done_callback(_close_given)
            raise
        else:
            for asked in asking:
                if asked.done():
                    return asked.result()
            await waiting
            return descriptor
        finally:
            for task in (waiting, *asking):
                task.cancel()
            await asyncio.wait({waiting, *asking})

    def _holder(self, descriptor: int) -> Holder:
        text = ""
        with contextlib.suppress(OSError):
            text = os.pread(descriptor, MOST_READ, 0).decode(errors="replace")
        name, resource, pool, *_ = (*text.split("\n"), "", "", "")
        who = f"another gateway serves {resource or self._resource}: {name or 'it left no name'}"
        return Holder(who, pool.removeprefix(_POOL) if pool.startswith(_POOL) else None, name.partition(", since")[0])


def this_gateway() -> str:
    """This process, as somebody finds it who has only the log of another one."""
    pod = "/".join(filter(None, (os.environ.get("POD_NAMESPACE"), os.environ.get("POD_NAME"))))
    where = f"in pod {pod}" if os.environ.get("POD_NAME") else f"on {socket.gethostname()}"
    return f"pid {os.getpid()} {where}"


def _signature() -> str:
    return f"{this_gateway()}, since {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())}"


def _close_given(asked: asyncio.Future[int]) -> None:
    """Nobody will let go of the lock that was given."""
    if not asked.cancelled() and asked.exception() is None:
        os.close(asked.result())
