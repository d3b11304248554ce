"""The socket on which the running gateway says how it is: ``/run/dpgateway/control.sock``, for root alone.

A client sends one line, ``status`` or ``watch``, which may be followed by a space and a resource's name, or
``readiness`` or ``configuration``. The answer is one line of JSON; ``watch`` goes on with another line after each
change, until the client has gone. Nothing can be changed here, and slow clients cost nobody anything: there are few of
them, and their time is limited. Those who watch are counted apart, because they stay.

Of several gateways the newest that serves has the socket (``onesocket``). The next one takes over when nobody answers
there any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from dpgateway.daemon.shared_socket import OneSocket
from dpgateway.kit.accepted import credentials
from dpgateway.kit.directories import make_private
from dpgateway.kit.observable import Signal
from dpgateway.kit.tasks import aligned, first
from dpgateway.status import Status, pieces, to_json

MOST_CLIENTS = 8
MOST_WATCHERS = 8
"""One more has one answer, and the end."""
LONGEST_REQUEST = 1024
"""Bytes."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What there is to say of a gateway."""

    status: Callable[[str], Status]
    """Of one resource, or of all of them if there is no name."""
    changed: Signal
    """Rings when the status is another one."""
    readiness: Callable[[], object]
    """Whether the kubelet has every resource, for JSON."""
    configuration: Callable[[], object]
    """What it serves, for JSON."""
    serves: Callable[[], bool]
    """Whether it serves a resource."""


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds."""

    patience: float = 5.0
    """A client has so long to send its line, and to take each answer."""
    gathering: float = 0.2
    """Between two lines for one who watches."""
    look: float = 1.0
    """Between two looks at whether somebody answers, while another gateway has the socket."""
    hold: float = 5.0
    """Between two looks at whether it is still ours."""


class Control:
    """Used from the event loop."""

    def __init__(self, path: Path, gateway: Subject, times: Times | None = None) -> None:
        self._gateway, self._times = gateway, times or Times()
        self._socket = OneSocket(path, self._times.patience)
        self._clients = self._watchers = 0

    async def run(self) -> None:
        """Answers until it is cancelled. Raises OSError if the socket can't be had, or its directory is somebody
        else's by now.
        """
        try:
            await self._run()
        except ExceptionGroup as several:
            of_system, bugs = several.split(OSError)
            if bugs is not None or of_system is None:
                raise
            raise of_system.exceptions[0] from None

    async def _run(self) -> None:
        claimed = False
        async with asyncio.TaskGroup() as group:
            try:
                while True:
                    make_private(self._socket.path.parent)
                    if not self._socket.is_ours() and (
                        (self._gateway.serves() and not claimed) or not await self._socket.is_answered()
                    ):
                        claimed = await self._socket.claim(lambda *who: self._connected(group, *who), LONGEST_REQUEST)
                    pause = self._times.hold if self._socket.is_ours() else self._times.look
                    await asyncio.sleep(aligned(pause))
            finally:
                self._socket.end()

    def _connected(self, group: asyncio.TaskGroup, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._clients >= MOST_CLIENTS or not _may_ask(writer):
            writer.transport.abort()
            return
        self._clients += 1
        group.create_task(self._serve(reader, writer), name="say how the gateway is")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.set_write_buffer_limits(0)  # a piece is written before the next one is made
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
        if verb == "status":
            await self._send(writer, pieces(self._gateway.status(name)))
        elif verb == "watch":
            await self._admit(reader, writer, name)
        elif look := {"readiness": self._gateway.readiness, "configuration": self._gateway.configuration}.get(verb):
            await self._send(writer, [f"{to_json(look())}\n"])

    async def _admit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, name: str) -> None:
        if self._watchers >= MOST_WATCHERS:
            await self._send(writer, pieces(self._gateway.status(name)))
            return
        self._watchers += 1
        self._clients -= 1
        try:
            await first(_end_of(reader), self._watch(writer, name))
        finally:
            self._watchers -= 1
            self._clients += 1

    async def _watch(self, writer: asyncio.StreamWriter, name: str) -> None:
        seen, last = self._gateway.changed.version, self._gateway.status(name)
        await self._send(writer, pieces(last))
        while True:
            await self._gateway.changed.wait(seen)
            await asyncio.sleep(self._times.gathering)
            seen = self._gateway.changed.version
            if (now := self._gateway.status(name)) != last:
                await self._send(writer, pieces(last := now))

    async def _send(self, writer: asyncio.StreamWriter, text: Iterable[str]) -> None:
        async with asyncio.timeout(self._times.patience):
            for piece in text:
                writer.write(piece.encode())
                await writer.drain()
                await asyncio.sleep(0)  # a container that wants its devices comes first


async def _end_of(reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(OSError):
        await reader.read(1)


def _may_ask(writer: asyncio.StreamWriter) -> bool:
    """Root and our own user may: the file's mode says it already, this holds wherever the file is."""
    return credentials(writer.get_extra_info("socket")).uid in {0, os.geteuid()}
