"""One simulated kubelet in the foreground, until a signal or until its script or prompt ends."""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any

import click

from dpgateway_simulator.cluster.cluster import SimulatedCluster
from dpgateway_simulator.kubelet.kubelet import Kubelet
from dpgateway_simulator.prompt.printing import Printer
from dpgateway_simulator.prompt.session import Session

Work = Callable[[Session], Coroutine[Any, Any, int]]
"""Drives a session's kubelet and returns the exit code."""

ENDING = (signal.SIGINT, signal.SIGTERM)


@dataclass
class Stand:
    """What runs: a kubelet, and its cluster if it has an API server."""

    kubelet: Kubelet
    cluster: SimulatedCluster | None = None


async def run(
    stand: Stand, patience: float, printer: Printer, work: Work, signals: Iterable[signal.Signals] = ENDING
) -> int:
    """Runs a kubelet until a signal, or until `work` returns; returns the exit code. `patience`: of a step, in seconds.

    Raises ClickException if the kubelet can't start, OSError if the printer can't write.
    """
    kubelet = stand.kubelet
    kubelet.journal.listen(printer.event)
    ended = asyncio.Event()
    printer.gave_up = ended.set
    for number in signals:
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    async with contextlib.AsyncExitStack() as stack:
        try:
            if stand.cluster is not None:
                await stack.enter_async_context(stand.cluster)
                kubelet.journal.emit("api server", url=stand.cluster.server.url)
            await kubelet.start()
        except OSError as error:
            text = f"the kubelet of {kubelet.directory} can't start: {error.strerror or error}"
            raise click.ClickException(text) from error
        if stand.cluster is not None:
            stand.cluster.create("kube-proxy", {"c": {}})  # as every node has: a kubelet without a pod is a new one

        # The first of signal and work cancels the other. The kubelet ends after both, in order, and before its
        # cluster, whose end would kill it.
        waiting = asyncio.create_task(ended.wait(), name="until a signal")
        session = Session(kubelet, printer.answer, patience, stand.cluster)
        working = asyncio.create_task(work(session), name="work")
        await asyncio.wait({waiting, working}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        working.cancel("" if printer.broken else "interrupted")  # the script reports a reason if there is one
        await asyncio.wait({waiting, working})
        await (kubelet.stop() if kubelet.running else kubelet.kill())
    if printer.broken:
        raise printer.broken
    return 0 if working.cancelled() else working.result()


async def forever(_: Session) -> int:
    """The work of a kubelet without a script or prompt: it never returns."""
    return await asyncio.Future[int]()
