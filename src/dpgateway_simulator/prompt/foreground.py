"""One simulated kubelet in the foreground: until a signal, or until its script or other work ends."""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import click

from dpgateway_simulator.kubelet.kubelet import Kubelet
from dpgateway_simulator.prompt import script, steps, verbs
from dpgateway_simulator.prompt.printing import Printer
from dpgateway_simulator.prompt.session import Session, WordsError


@dataclass(frozen=True)
class Plan:
    """What to run. Without steps it runs until SIGINT or SIGTERM."""

    version: str
    directory: Path
    steps: list[script.Step] | None = None
    policy: str = "none"
    numa: int = 1
    patience: float = 30.0


def at_terminal() -> bool:
    """Whether there is somebody to type: terminals at both ends, and this process not in the background."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()


async def run(plan: Plan, printer: Printer, work: Callable[[Session], Awaitable[int]] | None = None) -> int:
    """Runs until a signal, the script's end, or that of the work that drives the kubelet instead; the exit code."""
    kubelet = Kubelet(plan.version, plan.directory, policy=plan.policy, numa=plan.numa)
    kubelet.journal.listen(printer.event)
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if work else [])):  # its terminal is closed
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    await kubelet.start()
    waiting = asyncio.create_task(ended.wait(), name="until SIGTERM")
    session = Session(kubelet, printer.answer, plan.patience)
    working = asyncio.create_task(_work(session, plan, work), name="work")
    await asyncio.wait({waiting, working}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    working.cancel()
    await asyncio.wait({waiting, working})
    await (kubelet.stop() if kubelet.running else kubelet.kill())
    return 0 if working.cancelled() else working.result()


async def _work(session: Session, plan: Plan, work: Callable[[Session], Awaitable[int]] | None) -> int:
    """Does what there is to do, nothing for ever if there is nothing; the exit code."""
    if work is not None:
        return await work(session)
    if plan.steps is not None:
        return await _steps(session, plan.steps)
    return await asyncio.Future[int]()


async def _steps(session: Session, todo: list[script.Step]) -> int:
    """Does the steps; the exit code."""
    for step in todo:
        try:
            await verbs.run(session, step.line)
        except WordsError as error:
            click.echo(f"{step.where}: {error}", err=True)
            return 2
        except steps.FAILURES as error:
            click.echo(f"{step.where}: {step.line}: {error}", err=True)
            return 1
    return 0
