"""JSON lines to and from a child process: requests side by side, each reply under its request's id."""

import asyncio
import json
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

LINE = 64 << 20  # bytes; the devices of a large resource are one line
LOG_END = 3000  # characters of the log that an error shows


class Died(RuntimeError):
    """The process ended, by its own code's panic for one; the text has its exit status and the end of its log."""


class Link:
    """One process. Events (lines that answer nothing) go to a callback; the first, "ready", to `ready` too."""

    def __init__(self, process: Process, log: Path, event: Callable[[dict[str, Any]], None]) -> None:
        self.process, self._log, self._event = process, log, event
        self._log_begins = log.stat().st_size
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._last = 0
        self._reader = asyncio.create_task(self._read(), name=f"replies of {process.pid}")

    @classmethod
    async def open(cls, command: Sequence[str], log: Path, event: Callable[[dict[str, Any]], None]) -> Self:
        with log.open("ab") as stderr:
            process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=stderr, limit=LINE)
        return cls(process, log, event)

    async def call(self, request: dict[str, Any]) -> dict[str, Any]:
        """One request's reply; raises Died."""
        if self._reader.done():
            raise self._died()
        self._last += 1
        reply: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[self._last] = reply
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"id": self._last, **request}).encode() + b"\n")
        return await reply

    async def close(self) -> int:
        """Waits for the process's end; its exit status, negative for a signal."""
        await asyncio.shield(self._reader)  # who is cancelled meanwhile may close it again
        status = await self.process.wait()
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.ready.cancel()
        return status

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self._take(json.loads(line))
        await self.process.wait()
        pending: list[asyncio.Future[Any]] = [self.ready, *self._waiting.values()]
        for future in pending:
            if not future.done():
                future.set_exception(self._died())
                future.exception()  # it is no news when nobody waits for it any more

    def _take(self, message: dict[str, Any]) -> None:
        if "event" in message:
            self._event(message)
            if message["event"] == "ready":
                self.ready.set_result(None)
            return
        reply = self._waiting.pop(message.pop("id"))
        if not reply.done():  # given up by a timeout
            reply.set_result(message)

    def _died(self) -> Died:
        log = self._log.read_bytes()[self._log_begins :].decode(errors="replace")
        panic = log.find("\npanic:")
        end = log[panic:][:LOG_END] if panic >= 0 else log[-LOG_END:]
        return Died(f"exit status {self.process.returncode}; {self._log}: {end}")
