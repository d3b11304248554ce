"""A process of the gateway that begins with its modules imported: to import them is most of what a short test costs.

It is forked from a process of one thread, which has imported them and done nothing else. What comes then is as in a
process that the command started: arguments, environment, streams, signals, exit status, and PYTHONPATH. What else is
read from the environment while Python starts or a module is imported must be in the environment of the tests.
"""

import asyncio
import contextlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["dpgateway_start", "dpgateway.cli.run", "dpgateway.cli.agent", "dpgateway_simulated"])


class Forked:
    """Has what tests use of an asyncio.subprocess.Process. It ends with the process of the tests at the latest."""

    def __init__(self, process: ForkServerProcess, stderr: asyncio.StreamReader) -> None:
        assert process.pid is not None, "it was never started"
        self.pid, self.stderr = process.pid, stderr
        self.returncode: int | None = None
        self._process, self._ended = process, asyncio.Event()
        asyncio.get_running_loop().add_reader(process.sentinel, self._end)

    def _end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._process.sentinel)
        self._process.join()
        self.returncode = self._process.exitcode
        self._process.close()
        self._ended.set()

    async def wait(self) -> int:
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        if self.returncode is not None:
            raise ProcessLookupError
        with contextlib.suppress(ProcessLookupError):  # its parent, which forked it, knows of its end before we do
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


async def start(words: Sequence[str], environment: Mapping[str, str]) -> Forked:
    """``words``: those after ``dpgateway``. Standard output is thrown away."""
    reader, writer = _CONTEXT.Pipe(duplex=False)
    with reader, writer:
        arguments = list(words), dict(environment), writer
        process = _CONTEXT.Process(target=_run, args=arguments, name="dpgateway", daemon=True)
        process.start()
        said = os.fdopen(os.dup(reader.fileno()), "rb")
    stderr = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stderr), said)
    return Forked(process, stderr)


def _run(words: list[str], environment: dict[str, str], stderr: Connection) -> None:
    """What the command does, in the forked process."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(stderr.fileno(), 2)
    os.close(null)
    stderr.close()
    os.environ.update(environment)
    sys.path[:0] = environment.get("PYTHONPATH", "").split(os.pathsep) if environment.get("PYTHONPATH") else []
    sys.argv = ["dpgateway", *words]
    from dpgateway_start import main  # noqa: PLC0415  the process of the tests needs none of it

    sys.exit(main())  # type: ignore[arg-type]
