"""Two processes of one user on this node that tell each other short texts, and pass descriptors (unix(7), SCM_RIGHTS).

A text is a packet: it arrives whole or not at all, and an end of the other process is noticed at once.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path

from dpgateway.kit import unix

LONGEST = 1024
"""Bytes of a text."""
EXHAUSTED = 0.1
"""Seconds until the next caller is accepted, if there was no descriptor left, or no memory."""
MOST_DESCRIPTORS = 253
"""With one text (SCM_MAX_FD, include/net/scm.h)."""
_NOTHING_LEFT = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
"""accept(2)"""


class Gone(OSError):
    """The other process has closed the connection, or ended."""


class Peer:
    """The other process. Used from the event loop."""

    def __init__(self, connected: socket.socket, most_descriptors: int = MOST_DESCRIPTORS) -> None:
        """``most_descriptors`` are taken with one text; the kernel closes the others."""
        self._socket, self._most = connected, most_descriptors
        self._passed: list[int] = []
        self._readable = asyncio.Event()
        self._closed = False

    @classmethod
    def dial(cls, path: Path) -> Peer:
        """Raises OSError if nobody listens there."""
        return cls(unix.connect(path, socket.SOCK_SEQPACKET))

    def send(self, text: str, *descriptors: int) -> None:
        """The other process gets copies of the descriptors. Raises OSError."""
        socket.send_fds(self._socket, [text.encode()], descriptors)

    @property
    def gone(self) -> bool:
        """Whether the other process has closed the connection, and everything was heard."""
        try:
            return not self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    async def hear(self) -> str:
        """The next text, also of a process that has closed the connection since. Raises Gone if none will come, also
        when this process closes the connection meanwhile, or OSError.
        """
        while not self._closed:
            try:
                return self._received()
            except BlockingIOError:
                await self._wait()
            except ConnectionResetError:  # the other one didn't hear all of ours; what it said comes next
                continue
        raise Gone("this process has closed the connection")

    def _received(self) -> str:
        raw, descriptors, _, _ = socket.recv_fds(self._socket, LONGEST, self._most)
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)  # recv_fds ignores MSG_CMSG_CLOEXEC
            self._passed.append(descriptor)
        if not raw:
            raise Gone("the other process has ended, or closed the connection")
        return raw.decode(errors="replace")

    async def _wait(self) -> None:
        """Returns when there is something to hear, or the connection is closed."""
        loop = asyncio.get_running_loop()
        self._readable.clear()
        loop.add_reader(self._socket, self._readable.set)
        try:
            await self._readable.wait()
        finally:
            if not self._closed:
                loop.remove_reader(self._socket)

    def passed(self) -> list[int]:
        """The descriptors that came with what was heard. Close them with ``os.close``."""
        passed, self._passed = self._passed, []
        return passed

    def close(self) -> None:
        for descriptor in self.passed():
            os.close(descriptor)
        if not self._closed:
            self._closed = True
            asyncio.get_running_loop().remove_reader(self._socket)
            self._readable.set()
            self._socket.close()


class Listener:
    """Waits for other processes at a path, and takes no descriptors from them. Used from the event loop."""

    def __init__(self, path: Path, met: Callable[[Peer], None]) -> None:
        """Takes the path over, whoever had it. Raises OSError."""
        self._met = met
        self._socket = unix.listen(path, socket.SOCK_SEQPACKET)
        self._again: asyncio.TimerHandle | None = None
        self._listen()

    def _listen(self) -> None:
        asyncio.get_running_loop().add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        try:
            accepted, _ = self._socket.accept()
        except OSError as error:
            if error.errno in _NOTHING_LEFT:  # whoever dialled stays in the queue, so the loop would never rest
                loop = asyncio.get_running_loop()
                loop.remove_reader(self._socket)
                self._again = loop.call_later(EXHAUSTED, self._listen)
            return  # whoever dialled has gone
        accepted.setblocking(False)
        self._met(Peer(accepted, most_descriptors=0))

    def close(self) -> None:
        """The path stays: it may be another's by now."""
        if self._again is not None:
            self._again.cancel()
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()
