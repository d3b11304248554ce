"""What the gateway may cost. The measurements are in the modules of the same name as a figure's first word."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Figures = dict[str, float]
"""What was measured, by name: ``measurement.what.unit``, with ``@size`` at its end where it depends on one."""


@dataclass(frozen=True)
class Budget:
    """One limit."""

    what: str
    figure: str
    unit: str
    limit: float
    against: str = ""
    """The figure of the bare handlers, if that says something."""
    why: str = ""
    """What it is spent on, for the page, should it be missed; with figures by ``%(name)``."""

    def met(self, figures: Mapping[str, float]) -> bool | None:
        """None: it wasn't measured."""
        return figures[self.figure] <= self.limit if self.figure in figures else None


ALLOCATE = (
    "each call goes to a thread of the driver's and back, for a driver may block. Bare handlers that do only that "
    "take %(allocate.threaded_over.us).0f µs more, too: it wakes a sleeping core twice. The rest is the checks of what "
    "the kubelet asks and of what the driver answers, none of them large, in a process whose caches are cold. "
    "A kubelet admits one pod at a time, and takes longer for that"
)
RESTART = (
    "the kubelet itself, which writes its checkpoint once for each resource, shares two cores with the gateway; the "
    "bare handlers' figure is beside it, and the median is %(restart.gateway.ms@64).0f ms to their "
    "%(restart.bare.ms@64).0f ms with 64 resources"
)
MEMORY = (
    "with one resource it is already %(memory.over.mb@1).1f MB more than the bare handlers take: protobuf's messages, "
    "reflection, the configuration's parser, the finding of drivers, our own code. With 64 it is "
    "%(memory.over.mb@64).1f MB more, for each resource has a thread that lists its devices, and each device an id, a "
    "health and its bytes"
)
FIRST = "a list is handed out in one piece, but by an asynchronous generator that can be ended, not by one write"

BUDGETS = (
    Budget("Allocate, p50, more than bare", "allocate.over.us", "µs", 150, why=ALLOCATE),
    Budget("Allocate, p50, times bare", "allocate.ratio.x", "x", 1.6, why=ALLOCATE),
    Budget("first list of 10,000 devices, p50, times bare", "first_list.ratio.x@10000", "x", 1.5, why=FIRST),
    Budget("the same from a gateway that has just started", "first_list.cold_ratio.x@10000", "x", 1.5, why=FIRST),
    Budget("a health flip among 100 devices, p50", "flip.gateway.ms@100", "ms", 2, "flip.bare.ms@100"),
    Budget("a health flip among 1,000 devices, p50", "flip.gateway.ms@1000", "ms", 5, "flip.bare.ms@1000"),
    Budget("a health flip among 10,000 devices, p50", "flip.gateway.ms@10000", "ms", 40, "flip.bare.ms@10000"),
    Budget(
        "new kubelet to lists, 8 resources, p99", "restart.gateway_p99.ms@8", "ms", 20, "restart.bare_p99.ms@8", RESTART
    ),
    Budget(
        "new kubelet to lists, 64 resources, p99",
        "restart.gateway_p99.ms@64",
        "ms",
        100,
        "restart.bare_p99.ms@64",
        RESTART,
    ),
    Budget("process start to 64 resources listed, p50", "start.gateway.s", "s", 1, "start.bare.s"),
    Budget("resident, 64 resources of 100 devices", "memory.gateway.mb@64", "MB", 60, "memory.bare.mb@64", MEMORY),
    Budget("growth over 1,000 kubelet restarts", "growth.gateway.mb", "MB", 1),
    Budget("idle, 64 resources of 100 devices", "idle.gateway.percent", "% of a core", 0.2, "idle.bare.percent"),
)
