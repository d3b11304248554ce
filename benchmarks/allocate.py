"""Allocate: from the kubelet's call to its answer, one device per call, each of 100 in turn."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks import messages, processes
from benchmarks.budgets import Figures
from benchmarks.numbers import Turns, percentile
from benchmarks.stub import Plugin, Stub

DEVICES, CALLS = 100, 200
OPTIONS = {
    "count": DEVICES,
    "env_prefix": "DEVICE",
    "annotation_prefix": "example.com/device",
    "device_file_prefix": "d",
}


async def measure(folder: Path, effort: float) -> Figures:
    """Microseconds. The bare handler answers with the gateway's bytes.

    A third handler does so on a thread: a lower bound for any gateway whose drivers may block.
    """
    rounds = max(3, round(40 * effort))
    answer = folder / "answer"
    with ExitStack() as stack:
        plugin = _connected(stack, processes.gateway(folder / "gateway", 1, OPTIONS))
        answer.write_bytes(plugin.allocate(messages.allocate_request("node-0")))
        other = _connected(stack, processes.bare(folder / "bare", 1, DEVICES, "--answer", str(answer)))
        third = _connected(
            stack, processes.bare(folder / "threaded", 1, DEVICES, "--answer", str(answer), "--threaded")
        )
        turns = Turns(rounds, {"gateway": _round(plugin), "bare": _round(other), "threaded": _round(third)})
    return {
        "allocate.gateway.us": turns.p50("gateway"),
        "allocate.gateway_p99.us": percentile(turns.samples["gateway"], 99),
        "allocate.bare.us": turns.p50("bare"),
        "allocate.bare_p99.us": percentile(turns.samples["bare"], 99),
        "allocate.threaded.us": turns.p50("threaded"),
        "allocate.threaded_over.us": turns.difference("threaded", "bare"),
        "allocate.over.us": turns.difference("gateway", "bare"),
        "allocate.over_threaded.us": turns.difference("gateway", "threaded"),
        "allocate.ratio.x": turns.ratio("gateway", "bare"),
    }


def _connected(stack: ExitStack, process: processes.Process) -> Plugin:
    """The process's only plugin, warmed up, with an open stream as under a kubelet."""
    stub = Stub(process.directory)
    stub.start()
    stack.callback(stub.stop)
    stack.enter_context(process)
    (plugin,) = stub.plugins(1)
    next(plugin.lists())
    for _ in range(CALLS):
        plugin.allocate(messages.allocate_request("node-0"))
    return plugin


def _round(plugin: Plugin) -> Callable[[], Sequence[float]]:
    requests = itertools.cycle([messages.allocate_request(f"node-{number}") for number in range(DEVICES)])

    def run() -> Sequence[float]:
        samples = []
        for request in itertools.islice(requests, CALLS):
            began = time.perf_counter_ns()
            plugin.allocate(request)
            samples.append((time.perf_counter_ns() - began) / 1000)
        return samples

    return run
