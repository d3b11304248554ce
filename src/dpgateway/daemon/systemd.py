"""sd_notify(3): reports the service's state to systemd, in datagrams of ``KEY=value`` lines to ``$NOTIFY_SOCKET``.

Without that variable systemd doesn't listen.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Awaitable, Callable, Iterator, MutableMapping

from dpgateway.errors import describe
from dpgateway.kit.log import bind
from dpgateway.kit.observable import Signal
from dpgateway.kit.tasks import aligned
from dpgateway.status import Report

STARTING = 0.02
"""Seconds between two reports before READY, which may depend on time alone."""
GATHERING = 1.0
"""Seconds from a change to the next report, after READY."""
SLOW = 30.0
"""Seconds between two reports without a change."""

_log = bind(__name__)


class Notifier:
    """Sends the messages. A failure to send is only logged."""

    def __init__(self, address: str, watchdog: float | None = None) -> None:
        """``watchdog``: systemd's timeout in seconds for our next message; None without a watchdog."""
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._watchdog = watchdog
        self._ready = False
        """Whether systemd has heard READY=1."""
        self._owed = False
        """Whether READY=1 is still to be sent: its queue was full."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)

    @classmethod
    def take(cls, environment: MutableMapping[str, str]) -> Notifier | None:
        """From ``environment``; None if systemd doesn't listen. Removes the variables, which child processes mustn't
        inherit.
        """
        address = environment.pop("NOTIFY_SOCKET", "")
        microseconds = environment.pop("WATCHDOG_USEC", "")
        ours = environment.pop("WATCHDOG_PID", "") in {"", str(os.getpid())}
        if not address.startswith(("/", "@")):
            return None
        return cls(address, int(microseconds) / 1e6 if ours and microseconds.isdecimal() else None)

    def send(self, *lines: str) -> bool:
        """Returns False if systemd's queue is full, as it may be while a machine starts: then trying again helps."""
        try:
            self._socket.sendto("\n".join(lines).encode(), self._address)
        except BlockingIOError:
            return False
        except OSError as error:
            _log.debug("systemd can't be told: %s", error)
        return True

    async def follow(self, look: Callable[[], Report], changed: Signal) -> None:
        """Sends the result of ``look`` whenever it has changed. ``changed``: notified when it may have."""
        status = ""
        while True:
            seen, now = changed.version, look()
            if now.text != status and self.send(f"STATUS={now.text}"):
                status = now.text
            self._owed |= now.ready and not self._ready
            if self._owed and self.send("READY=1"):
                self._ready, self._owed = True, False
            if not self._ready:
                await asyncio.sleep(STARTING)
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(aligned(SLOW)):
                    await changed.wait(seen)
                    await asyncio.sleep(GATHERING)

    async def reassure(self, works: Callable[[], Awaitable[object]]) -> None:
        """Feeds the watchdog, if any, while this event loop runs and ``works`` returns in time."""
        while self._watchdog is not None:
            try:
                async with asyncio.timeout(self._watchdog / 4):
                    await works()
                self.send("WATCHDOG=1")
            except Exception as error:
                _log.error("systemd isn't told that the gateway works, because it may not: %s", describe(error))
            await asyncio.sleep(self._watchdog / 2)

    @contextlib.contextmanager
    def reloading(self) -> Iterator[None]:
        """Reports a reload while inside; not before the first READY."""
        told = self._ready
        if told:
            self.send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")
        try:
            yield
        finally:
            if told:
                self._owed = not self.send("READY=1")

    def close(self) -> None:
        self._socket.close()
