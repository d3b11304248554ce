"""Processes in a mount and a process namespace of their own, where the node's folders stand in for the machine's.

When the first process of a process namespace ends, the kernel kills all others in it, and their mounts go with the last
of them. Here the first one ends with its stdin, so nothing stays behind, not even when the tests are killed.
"""

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

# The shell waits for cat, and meanwhile for every orphan that the kernel gives to the first process of the namespace.
HOLD = "echo held; exec 3<&0; cat <&3 >/dev/null & wait"


class NodeError(RuntimeError):
    """Something on the node isn't as it was asked to be."""


@dataclass(frozen=True)
class Finished:
    status: int
    output: str
    errors: str


class Namespaces:
    """`binds` are (our path, the path where it is to be seen); `mounts` further shell commands to run there."""

    def __init__(self, log_folder: Path) -> None:
        self._logs = log_folder
        self._holder: Process | None = None
        self._first = 0

    async def open(self, binds: Mapping[Path, str], mounts: Iterable[str] = ()) -> None:
        bind = [f"mount --bind {source} {target}" for source, target in binds.items()]
        script = "\n".join(["set -e", "mount --make-rshared /", *bind, *mounts, HOLD])
        unshare = ["unshare", "--mount", "--propagation", "slave", "--pid", "--fork", "--kill-child", "--mount-proc"]
        with (self._logs / "namespaces.log").open("ab") as log:
            self._holder = await asyncio.create_subprocess_exec(
                *unshare, "sh", "-c", script, stdin=PIPE, stdout=PIPE, stderr=log, start_new_session=True
            )
        assert self._holder.stdout is not None
        if await self._holder.stdout.readline() != b"held\n":
            raise NodeError(f"no namespaces: {(self._logs / 'namespaces.log').read_text()}")
        self._first = _child(self._holder.pid)

    async def close(self) -> None:
        """Ends everything in the namespaces; returns when the kernel has."""
        if self._holder is None:
            return
        assert self._holder.stdin is not None
        self._holder.stdin.close()
        await self._holder.wait()

    def command(self, argv: Iterable[str | Path]) -> list[str]:
        return ["nsenter", "--mount", "--pid", "--target", str(self._first), "--", *map(str, argv)]

    async def run(self, argv: Iterable[str | Path], timeout: float = 60) -> Finished:  # noqa: ASYNC109
        process = await asyncio.create_subprocess_exec(*self.command(argv), stdin=DEVNULL, stdout=PIPE, stderr=PIPE)
        async with asyncio.timeout(timeout):
            output, errors = (text.decode(errors="replace") for text in await process.communicate())
        return Finished(process.returncode or 0, output, errors)

    async def spawn(self, name: str, argv: Iterable[str | Path], environment: Mapping[str, str]) -> "Service":
        with (self._logs / f"{name}.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *self.command(argv), stdin=DEVNULL, stdout=log, stderr=log, env={**os.environ, **environment}, cwd="/"
            )
        return Service(name, process)


class Service:
    """A long-running process in the namespaces. nsenter, our child, waits for it and the last of its threads."""

    def __init__(self, name: str, process: Process) -> None:
        self.name, self._process = name, process

    @property
    def running(self) -> bool:
        return self._process.returncode is None

    async def end(self, number: signal.Signals = signal.SIGTERM, timeout: float = 15) -> None:  # noqa: ASYNC109
        """Sends the signal, and SIGKILL when that doesn't end it in time."""
        for one in (number, signal.SIGKILL):
            if self.running:
                os.kill(_child(self._process.pid), one)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await self._process.wait()
            if not self.running:
                return
        raise NodeError(f"{self.name} did not end within {timeout} s of SIGKILL")


def _child(pid: int) -> int:
    """The only child of unshare or nsenter, which fork to enter a process namespace."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    if not found:
        raise NodeError(f"process {pid} has no child")
    return int(found[0])
