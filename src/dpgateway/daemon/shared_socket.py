"""A socket path that several gateways of a node share: the last one to claim it owns it.

Each binds a name of its own and renames it over the path, so a client always finds a socket there. A lock on the
directory serializes renames and removals. A gateway that has lost the path still serves its connected clients, and
claims the path again once no gateway answers there.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from dpgateway.kit import locks, unix
from dpgateway.kit.files import make_private
from dpgateway.kit.tasks import aligned

Connected = Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]
"""Called with each new client."""


class SharedSocket:
    """Used from the event loop."""

    def __init__(self, path: Path, patience: float, longest: int, kept: Callable[[], object]) -> None:
        """``patience``: timeout in seconds for another owner to accept. ``longest``: bytes of a request. ``kept``:
        called after each check of the path that finds no fault.
        """
        self.path, self._kept = path, kept
        self._patience, self._longest = patience, longest
        self._server: asyncio.Server | None = None
        self._bound: os.stat_result | None = None
        """The stat of our socket's file: this gateway owns the path while it leads to this file."""

    async def keep(self, connected: Connected, serves: Callable[[], bool], lost: float, owned: float) -> None:
        """Claims the path once ``serves()``, and whenever no gateway answers there, until cancelled.

        ``lost``, ``owned``: seconds between two checks while another gateway, or this one, owns the path. Raises
        OSError if the path can't be bound or has another file, or if others may write into its directory.
        """
        claimed = False
        try:
            while True:
                make_private(self.path.parent)
                if not self._owns():
                    # A gateway claims a path in use only once, so two gateways never compete for it for ever.
                    newest = serves() and not claimed
                    if newest or not await self._is_answered():
                        claimed = await self._claim(connected)
                self._kept()
                await asyncio.sleep(aligned(owned if self._owns() else lost))
        finally:
            # If the owner is uncertain the file stays: a socket without a listener does no harm.
            with contextlib.suppress(OSError), self._locked() as locked:
                if locked and self._owns():
                    self.path.unlink()
            self._close()

    def _owns(self) -> bool:
        with contextlib.suppress(OSError):
            return self._bound is not None and os.path.samestat(self._bound, self.path.lstat())
        return False

    async def _is_answered(self) -> bool:
        try:
            with unix.Address(self.path) as address:
                async with asyncio.timeout(self._patience):
                    _, writer = await asyncio.open_unix_connection(address.path)
        except TimeoutError:  # the listener is there, and busy
            return True
        except OSError:
            return False
        writer.close()
        return True

    async def _claim(self, connected: Connected) -> bool:
        """Binds the path. Returns False if another gateway is claiming it."""
        with self._locked() as locked:
            if not locked:
                return False
            # What isn't a gateway's stays: the option may name a file of somebody else's.
            with contextlib.suppress(FileNotFoundError):
                if not stat.S_ISSOCK(self.path.lstat().st_mode):
                    raise OSError("found a file that is no socket, expected a gateway's socket, or nothing")
            # An older listener is at no path any more; its connected clients stay.
            self._close()
            unix.sweep(self.path)
            listener = unix.listen(self.path)
            try:
                self._bound = self.path.lstat()
                self._server = await asyncio.start_unix_server(connected, sock=listener, limit=self._longest)
            except BaseException:
                self._bound = None
                listener.close()
                raise
        return True

    @contextlib.contextmanager
    def _locked(self) -> Iterator[bool]:
        """Yields False if another gateway has the directory's lock."""
        directory = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield locks.take(directory)
        finally:
            os.close(directory)

    def _close(self) -> None:
        if self._server is not None:
            self._server.close()
        self._server = self._bound = None
