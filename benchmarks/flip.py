"""A health flip: from ``changed()`` in the driver to the new list at the kubelet."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks import flipping, processes
from benchmarks.budgets import Figures
from benchmarks.commands import Commander
from benchmarks.numbers import Turns, percentile
from benchmarks.stub import Stub

SIZES = (1, 10, 100, 1000, 10_000)
_FLIPS = 10


async def measure(folder: Path, effort: float) -> Figures:
    """Milliseconds, by the number of devices. In the bare process the same thread has a handler send ready bytes."""
    figures: Figures = {}
    for size in SIZES:
        rounds = max(3, round((20 if size < 10_000 else 8) * effort))
        figures |= _measure(folder / str(size), size, rounds)
    return figures


def _measure(folder: Path, size: int, rounds: int) -> Figures:
    """Figures for one size. A naive driver makes new values of all its devices for each list; so does naive bare."""
    with ExitStack() as stack:
        turns = Turns(
            rounds,
            {
                "gateway": _gateway(stack, folder / "gateway", size),
                "bare": _bare(stack, folder / "bare", size),
                "naive": _gateway(stack, folder / "naive", size, naive=True),
                "bare_naive": _bare(stack, folder / "bare_naive", size, "--naive"),
            },
        )
    return {
        f"flip.gateway.ms@{size}": turns.p50("gateway"),
        f"flip.gateway_p99.ms@{size}": percentile(turns.samples["gateway"], 99),
        f"flip.bare.ms@{size}": turns.p50("bare"),
        f"flip.naive.ms@{size}": turns.p50("naive"),
        f"flip.bare_naive.ms@{size}": turns.p50("bare_naive"),
    }


def _gateway(stack: ExitStack, folder: Path, size: int, *, naive: bool = False) -> Callable[[], Sequence[float]]:
    folder.mkdir(parents=True)
    flipping.install(folder)
    commander = Commander(folder)
    options = {"count": size, "commands": str(commander.commands), "stamps": str(commander.stamps), "naive": naive}
    environment = {"PYTHONPATH": f"{processes.ROOT}:{folder}"}
    process = processes.gateway(folder, 1, options, driver=flipping.ENTRY_POINT, environment=environment)
    return _flipping(stack, process, commander, size)


def _bare(stack: ExitStack, folder: Path, size: int, *flags: str) -> Callable[[], Sequence[float]]:
    folder.mkdir(parents=True)
    commander = Commander(folder)
    pipes = ("--commands", str(commander.commands), "--stamps", str(commander.stamps))
    return _flipping(stack, processes.bare(folder, 1, size, *pipes, *flags), commander, size)


def _flipping(
    stack: ExitStack, process: processes.Process, commander: Commander, size: int
) -> Callable[[], Sequence[float]]:
    """One round of flips, each of another device."""
    stub = Stub(process.directory)
    stub.start()
    stack.callback(stub.stop)
    stack.enter_context(process)
    stack.enter_context(commander)
    (plugin,) = stub.plugins(1)
    lists = plugin.lists()
    next(lists)
    indexes = itertools.cycle(range(0, size, max(1, size // 100)))
    return lambda: [_flip(commander, lists, index) for index in itertools.islice(indexes, _FLIPS)]


def _flip(commander: Commander, lists: Iterator[bytes], index: int) -> float:
    """Milliseconds."""
    commander.flip(index)
    next(lists)
    came = time.monotonic_ns()
    return (came - commander.stamp()) / 1e6
