"""A unix socket that several processes want at one path: whoever claims it last has it.

Each binds a name of its own and renames it, so there is always somebody's socket at the path. A lock on the directory
keeps two processes from doing that at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from dpgateway.kit import locks, unix


class OneSocket:
    """Used from the event loop."""

    def __init__(self, path: Path, patience: float) -> None:
        """``patience``: seconds that somebody who listens there has to accept."""
        self.path = path
        self._patience = patience
        self._server: asyncio.Server | None = None
        self._bound: os.stat_result | None = None

    def is_ours(self) -> bool:
        with contextlib.suppress(OSError):
            return self._bound is not None and os.path.samestat(self._bound, self.path.lstat())
        return False

    async def is_answered(self) -> bool:
        """Whether somebody listens there."""
        address = unix.Address(self.path)
        try:
            async with asyncio.timeout(self._patience):
                _, writer = await asyncio.open_unix_connection(address.path)
        except TimeoutError:  # whoever it is, is there
            return True
        except OSError:
            return False
        finally:
            address.close()
        writer.close()
        return True

    async def claim(
        self, connected: Callable[[asyncio.StreamReader, asyncio.StreamWriter], None], longest: int
    ) -> bool:
        """Whether it is ours now: another process may be about to claim it. Raises OSError if it can't be had.

        ``connected`` is called with each client; ``longest``: bytes of a line that a client may send.
        """
        with self._alone() as alone:
            if not alone:
                return False
            self._close()
            new = self.path.with_name(f"{self.path.name}.{os.getpid()}-{time.time_ns()}")
            listener = _bind(new)
            try:
                self._server = await asyncio.start_unix_server(connected, sock=listener, limit=longest)
                self._bound = new.lstat()
                new.rename(self.path)
            except BaseException:
                new.unlink(missing_ok=True)
                self._close()  # the server first: it has a reader for the listener
                listener.close()
                raise
        return True

    @contextlib.contextmanager
    def _alone(self) -> Iterator[bool]:
        """Whether no other process renames or removes the socket meanwhile."""
        directory = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield locks.take(directory)
        finally:
            os.close(directory)

    def end(self) -> None:
        """Removes the socket, unless it is another process's by now. If that can't be known, it stays: a socket at
        which nobody listens does no harm.
        """
        with contextlib.suppress(OSError), self._alone() as alone:
            if alone and self.is_ours():
                self.path.unlink()
        self._close()

    def _close(self) -> None:
        if self._server is not None:
            self._server.close()
        self._server = self._bound = None


def _bind(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    address = unix.Address(path)
    try:
        listener.bind(address.path)
        path.chmod(0o600)
    except OSError:
        listener.close()
        raise
    finally:
        address.close()
    return listener
