"""Messages, with descriptors, between two processes of one user on this node (unix(7): SOCK_SEQPACKET, SCM_RIGHTS).

A message arrives whole or not at all, and the end of the peer's process is noticed at once. The connections of one
process are known by the address that each binds, because in another pid namespace the process has no pid.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import secrets
import socket
from collections.abc import Callable
from pathlib import Path

from dpgateway.kit import unix

LONGEST = 1024
"""Bytes of a message."""
EXHAUSTED = 0.1
"""Seconds until the next accept(2) after one failed for lack of descriptors or memory."""
MOST_DESCRIPTORS = 253
"""Most descriptors of one message (SCM_MAX_FD, include/net/scm.h)."""
_PROCESS, _dialled = f"dpgateway-{secrets.token_hex(8)}", itertools.count()
_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
"""Errors of accept(2) for lack of descriptors or memory."""


class Gone(OSError):
    """The other process has closed the connection, or ended."""


class Peer:
    """The other end of a connection. Used from the event loop."""

    def __init__(self, connected: socket.socket, most_descriptors: int = MOST_DESCRIPTORS, process: str = "") -> None:
        """``most_descriptors``: accepted per message; the kernel closes further ones."""
        self._socket, self._most = connected, most_descriptors
        self.process = process
        """The same for all connections that one process has dialled; empty if it doesn't say."""
        self._descriptors: list[int] = []
        self._readable = asyncio.Event()
        self._closed = False

    @classmethod
    def dial(cls, path: Path, process: str = _PROCESS) -> Peer:
        """Raises OSError without a listener. ``process``: what the listener knows this process by."""
        return cls(unix.connect(path, socket.SOCK_SEQPACKET, name=f"{process}/{next(_dialled)}"))

    def send(self, text: str, *descriptors: int) -> None:
        """Sends a message; the peer gets duplicates of the descriptors. Raises OSError."""
        socket.send_fds(self._socket, [text.encode()], descriptors)

    @property
    def gone(self) -> bool:
        """Whether the peer has closed the connection, and everything was received."""
        try:
            return not self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    async def receive(self) -> str:
        """The next message, also one sent before the peer closed the connection. Raises OSError; Gone if no message is
        left, because either side has closed the connection.
        """
        loop = asyncio.get_running_loop()
        while not self._closed:
            try:
                raw, descriptors, _, _ = socket.recv_fds(self._socket, LONGEST, self._most)
            except ConnectionResetError:  # the peer hasn't received everything; what it sent comes next
                continue
            except BlockingIOError:
                self._readable.clear()
                loop.add_reader(self._socket, self._readable.set)
                try:
                    await self._readable.wait()
                finally:
                    if not self._closed:
                        loop.remove_reader(self._socket)
                continue

            for descriptor in descriptors:
                os.set_inheritable(descriptor, False)  # recv_fds ignores MSG_CMSG_CLOEXEC
                self._descriptors.append(descriptor)
            if not raw:
                raise Gone("the other process has ended, or closed the connection")
            return raw.decode(errors="replace")
        raise Gone("this process has closed the connection")

    def take_descriptors(self) -> list[int]:
        """The descriptors of received messages, which the caller closes."""
        taken, self._descriptors = self._descriptors, []
        return taken

    def close(self) -> None:
        for descriptor in self.take_descriptors():
            os.close(descriptor)
        if not self._closed:
            self._closed = True
            asyncio.get_running_loop().remove_reader(self._socket)
            self._readable.set()
            self._socket.close()


class Listener:
    """Accepts connections at a path; descriptors sent over them are refused. Used from the event loop."""

    def __init__(self, path: Path, accepted: Callable[[Peer], None]) -> None:
        """Replaces another listener at the path, if any. Raises OSError."""
        self._accepted = accepted
        self._socket = unix.listen(path, socket.SOCK_SEQPACKET)
        self._again: asyncio.TimerHandle | None = None
        asyncio.get_running_loop().add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        try:
            accepted, address = self._socket.accept()
        except OSError as error:
            if error.errno in _EXHAUSTED:  # the caller stays in the queue, so the socket would stay readable
                loop = asyncio.get_running_loop()
                loop.remove_reader(self._socket)
                self._again = loop.call_later(EXHAUSTED, loop.add_reader, self._socket, self._accept)
            return  # otherwise the caller has gone
        accepted.setblocking(False)
        named = address.decode(errors="replace").removeprefix("\0") if isinstance(address, bytes) else ""
        self._accepted(Peer(accepted, most_descriptors=0, process=named.partition("/")[0]))

    def close(self) -> None:
        """Leaves the path, which may be another listener's by now."""
        if self._again is not None:
            self._again.cancel()
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()
