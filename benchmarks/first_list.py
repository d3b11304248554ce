"""The first list: from the kubelet's ListAndWatch to the whole list at the kubelet."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks import processes
from benchmarks.budgets import Figures
from benchmarks.numbers import Turns
from benchmarks.stub import Plugin, Stub

SIZES = (1, 10, 100, 1000, 10_000)
FRESH = 16
"""Resources of one process. The first stream of each is one sample."""
_OPENINGS = 10


async def measure(folder: Path, effort: float) -> Figures:
    """Milliseconds, by the number of devices: after a kubelet's restart, and right after the process's start."""
    figures: Figures = {}
    for size in SIZES:
        figures |= _restarted(folder / str(size), size, max(3, round(12 * effort)))
    return figures | _fresh(folder / "fresh", SIZES[-1])


def _restarted(folder: Path, size: int, rounds: int) -> Figures:
    with ExitStack() as stack:
        plugins = {process.name: _plugins(stack, process, 1)[0] for process in _pair(folder, size, 1)}
        for plugin in plugins.values():
            _open(plugin)
        turns = Turns(rounds, {name: _round(plugin) for name, plugin in plugins.items()})
    return {
        f"first_list.gateway.ms@{size}": turns.p50("gateway"),
        f"first_list.bare.ms@{size}": turns.p50("bare"),
        f"first_list.ratio.x@{size}": turns.ratio("gateway", "bare"),
    }


def _fresh(folder: Path, size: int) -> Figures:
    """Each sample is the first stream of its resource; a round is one resource."""
    with ExitStack() as stack:
        plugins = {process.name: iter(_plugins(stack, process, FRESH)) for process in _pair(folder, size, FRESH)}

        def once(which: Iterator[Plugin]) -> Callable[[], Sequence[float]]:
            return lambda: [_open(next(which))]

        turns = Turns(FRESH, {name: once(which) for name, which in plugins.items()})
    return {
        f"first_list.cold.ms@{size}": turns.p50("gateway"),
        f"first_list.bare_cold.ms@{size}": turns.p50("bare"),
        f"first_list.cold_ratio.x@{size}": turns.ratio("gateway", "bare"),
    }


def _pair(folder: Path, size: int, resources: int) -> tuple[processes.Process, processes.Process]:
    return (
        processes.gateway(folder / "gateway", resources, {"count": size}),
        processes.bare(folder / "bare", resources, size),
    )


def _plugins(stack: ExitStack, process: processes.Process, count: int) -> Sequence[Plugin]:
    stub = Stub(process.directory)
    stub.start()
    stack.callback(stub.stop)
    stack.enter_context(process)
    plugins = stub.plugins(count)
    for plugin in plugins:
        plugin.connect()
    return plugins


def _open(plugin: Plugin) -> float:
    """Milliseconds."""
    began = time.perf_counter_ns()
    lists = plugin.lists()
    next(lists)
    took = time.perf_counter_ns() - began
    lists.cancel()
    return took / 1e6


def _round(plugin: Plugin) -> Callable[[], Sequence[float]]:
    return lambda: [_open(plugin) for _ in range(_OPENINGS)]
