"""The control socket, ``/run/dpgateway/control.sock``: root asks the running gateway for its status.

A client sends one line: ``status [RESOURCE]``, ``summary``, ``watch [RESOURCE]``, ``readiness`` or ``configuration``.
The answer is one line of JSON; a ``summary`` is the status without Healthy devices; ``watch`` sends another line after
each change, until the client disconnects. Requests change nothing.
Clients are limited in number and time, so a slow one delays no other; watchers are limited separately, because they
stay.

Of several gateways the newest that serves owns the socket (``shared_socket``).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from dpgateway.daemon.shared_socket import SharedSocket
from dpgateway.kit.observable import Signal
from dpgateway.kit.tasks import first
from dpgateway.kit.unix import credentials
from dpgateway.status import Status, pieces, to_json

MOST_CLIENTS = 8
MOST_WATCHERS = 8
"""Beyond this a ``watch`` is answered once, as ``status``."""
LONGEST_REQUEST = 1024
"""Bytes of a request."""


@dataclass(frozen=True, slots=True)
class ControlSubject:
    """The gateway, as clients can query it."""

    status: Callable[[str], Status]
    """The status of one resource by name, or of all for an empty name."""
    changed: Signal
    """Notified when the status may have changed."""
    readiness: Callable[[], object]
    """Whether the kubelet has every resource, for JSON."""
    configuration: Callable[[], object]
    """The served configuration, for JSON."""
    serves: Callable[[], bool]
    """Whether the gateway serves a resource."""


@dataclass(frozen=True, slots=True)
class Times:
    """Times in seconds."""

    patience: float = 5.0
    """Timeout for a client to send its line, and to read each answer."""
    gathering: float = 0.2
    """Between two lines to a watcher."""
    look: float = 1.0
    """Between two checks of a socket that another gateway owns."""
    hold: float = 5.0
    """Between two checks of a socket that this one owns."""


class Control:
    """Used from the event loop."""

    def __init__(
        self, path: Path, gateway: ControlSubject, times: Times | None = None, kept: Callable[[], object] = lambda: None
    ) -> None:
        """``kept``: called while this gateway, or another one, has the path without a fault."""
        self._gateway, self._times = gateway, times or Times()
        self._socket = SharedSocket(path, self._times.patience, LONGEST_REQUEST, kept)
        self._clients = self._watchers = 0

    async def run(self) -> None:
        """Serves until cancelled. Raises OSError if the path can't be bound, or others may write into its directory."""
        ending = False
        try:
            async with asyncio.TaskGroup() as group:

                def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                    # The file's mode admits only root and our own user; this check doesn't depend on the file.
                    uid = credentials(writer.get_extra_info("socket")).uid
                    if ending or self._clients >= MOST_CLIENTS or uid not in {0, os.geteuid()}:
                        writer.transport.abort()
                        return
                    self._clients += 1
                    group.create_task(self._serve(reader, writer), name="serve a client of the control socket")

                try:
                    await self._socket.keep(connected, self._gateway.serves, self._times.look, self._times.hold)
                finally:
                    ending = True  # a client that was accepted just before finds the group finished
        except ExceptionGroup as several:
            of_system, bugs = several.split(OSError)
            if bugs is not None or of_system is None:
                raise
            raise of_system.exceptions[0] from None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.set_write_buffer_limits(0)  # drain() then waits for each piece, so only one is in memory
        try:
            with contextlib.suppress(OSError, TimeoutError, ValueError):  # too slow, gone, or too long a line
                await self._answer(reader, writer)
        finally:
            self._clients -= 1
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(self._times.patience):
            line = await reader.readline()
        verb, _, name = line.decode(errors="replace").strip().partition(" ")
        if verb == "readiness":
            await self._send(writer, [f"{to_json(self._gateway.readiness())}\n"])
        elif verb == "configuration":
            await self._send(writer, [f"{to_json(self._gateway.configuration())}\n"])
        elif verb == "summary":
            # Without Healthy devices: thousands of them are megabytes, which most readers drop. No name is left for the
            # whole status, which a slow reader would hold.
            told = self._gateway.status("")
            few = [replace(one, devices=tuple([it for it in one.devices if not it.healthy])) for one in told.resources]
            told = replace(told, resources=tuple(few))
            await self._send(writer, pieces(told))
        elif verb == "status" or (verb == "watch" and self._watchers >= MOST_WATCHERS):
            await self._send(writer, pieces(self._gateway.status(name)))
        elif verb == "watch":
            # Watchers stay, so they mustn't use up the places of short-lived clients.
            self._watchers += 1
            self._clients -= 1
            try:
                await first(self._watch(writer, name), _gone(reader))
            finally:
                self._watchers -= 1
                self._clients += 1

    async def _watch(self, writer: asyncio.StreamWriter, name: str) -> None:
        seen, last = self._gateway.changed.version, self._gateway.status(name)
        await self._send(writer, pieces(last))
        while True:
            await self._gateway.changed.wait(seen)
            # One line for several changes.
            await asyncio.sleep(self._times.gathering)
            seen = self._gateway.changed.version
            if (now := self._gateway.status(name)) != last:
                await self._send(writer, pieces(last := now))

    async def _send(self, writer: asyncio.StreamWriter, text: Iterable[str]) -> None:
        async with asyncio.timeout(self._times.patience):
            for piece in text:
                writer.write(piece.encode())
                await writer.drain()
                await asyncio.sleep(0)  # lets a kubelet's call go first


async def _gone(reader: asyncio.StreamReader) -> None:
    """Returns when a watcher closes the connection, or sends anything, which is against the protocol."""
    with contextlib.suppress(OSError):
        await reader.read(1)
