"""The budgets of the gateway's costs. A figure's name begins with the name of the module that measures it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Figures = dict[str, float]
"""Figures by name: ``measurement.what.unit``, followed by ``@size`` if the figure depends on a size."""


@dataclass(frozen=True)
class Budget:
    """One limit."""

    what: str
    figure: str
    unit: str
    limit: float
    against: str = ""
    """The name of the bare handlers' figure to compare with, if any."""
    why: str = ""
    """The reason for the page if the budget is missed, a format string over the figures."""
    times: float = 0
    """The limit is at least the bare handlers' figure times this: a slow machine slows them down, too."""

    def limit_of(self, figures: Mapping[str, float]) -> float:
        """The limit in the run that measured ``figures``."""
        return max(self.limit, self.times * figures.get(self.against, 0))

    def met(self, figures: Mapping[str, float]) -> bool | None:
        """Whether the figure is within the limit; None if it wasn't measured."""
        return figures[self.figure] <= self.limit_of(figures) if self.figure in figures else None


ALLOCATE = (
    "each call goes to a thread and back, because a driver may block. Bare handlers that do only that take "
    "%(allocate.threaded_over.us).0f µs more than others, because the hop wakes a sleeping core twice. The rest goes "
    "into checks of the kubelet's request and of the driver's answer. Each check is small, but the process's caches "
    "are cold. A kubelet admits one pod at a time, and takes longer for that"
)
RESTART = (
    "the kubelet shares two cores with the gateway, and writes its checkpoint once for each resource. The bare "
    "handlers' figure is in the table. With 64 resources the gateway's median is %(restart.gateway.ms@64).0f ms, the "
    "bare handlers' is %(restart.bare.ms@64).0f ms"
)
MEMORY = (
    "with one resource the gateway takes %(memory.over.mb@1).1f MB more than the bare handlers: for protobuf's "
    "messages, the command line's parser, and our own code. With 64 resources it "
    "takes %(memory.over.mb@64).1f MB more, because each resource has tasks and tables of its own, and each device has "
    "an id, a health and its bytes"
)
FLIP = (
    "the driver says that something changed, not what: so the driver is asked on a thread for all its devices, and the "
    "list is checked and compared device by device before it is sent"
)
MATCHED = (
    "several changes in a row are one, so that the driver waits for some milliseconds; then it looks at what the "
    "change may have touched, and all of the list is compared"
)
IDLE = (
    "each 30 s all 64 drivers are asked for their lists. The rest is looks each few seconds at what sends no events, "
    "and gRPC's own threads: the bare handlers take "
    "%(idle.bare.percent).2g %% in the same run"
)
DRA = (
    "each 10 s all devices are told to the kubelet, which takes their health for unknown after 30 s. The rest is as "
    "without DRA"
)
SCRAPES = (
    "each scrape makes some hundred lines anew, for which an idle process's caches are cold. Prometheus scrapes every "
    "15 s or less often, so nothing is kept from one scrape to the next"
)
KEPT = (
    "of each device is kept what a container gets with it, what it is, and on which files that depended, so that a "
    "change leads to a look at few of them. The first look needs as much again for a moment, of which some stays with "
    "the process"
)
FIRST = "a list is sent in one piece, but by an asynchronous generator that can be ended, not by one write"

NAIVE = (
    "10,000 checked values are made before anything can be compared, in the driver's own code; a driver that returns "
    "the same objects while nothing changes has them for nothing"
)

BY_DEVICES = {
    "first_list.gateway.ms": "first list after a kubelet's restart, p50 (ms)",
    "first_list.bare.ms": "the same, bare",
    "first_list.ratio.x": "the same, times bare",
    "first_list.cold.ms": "first list of a gateway that has just started, p50 (ms)",
    "first_list.bare_cold.ms": "the same, bare",
    "first_list.cold_ratio.x": "the same, times bare",
    "flip.gateway.ms": "health flip, p50 (ms)",
    "flip.gateway_p99.ms": "health flip, p99 (ms)",
    "flip.bare.ms": "health flip, bare, p50 (ms)",
    "flip.naive.ms": "health flip by a driver that makes all its values anew, p50 (ms)",
    "flip.bare_naive.ms": "the same, bare",
}
"""Measurements by the number of devices of one resource, in words."""

BY_RESOURCES = {
    "restart.gateway.ms": "new kubelet to all lists, p50 (ms)",
    "restart.bare.ms": "the same, bare",
    "restart.gateway_p99.ms": "new kubelet to all lists, p99 (ms)",
    "restart.bare_p99.ms": "the same, bare",
    "memory.gateway.mb": "resident under the first kubelet (MB)",
    "memory.bare.mb": "the same, bare",
    "memory.over.mb": "the same, more than bare",
    "memory.gateway_later.mb": "resident after the measured restarts (MB)",
    "memory.bare_later.mb": "the same, bare",
}
"""Measurements by the number of resources, in words."""

BUDGETS = (
    Budget("Allocate, p50, more than bare with a thread", "allocate.over_threaded.us", "µs", 150, why=ALLOCATE),
    Budget("Allocate, p50, times bare", "allocate.ratio.x", "x", 1.6, why=ALLOCATE),
    Budget("first list of 10,000 devices, p50, times bare", "first_list.ratio.x@10000", "x", 1.5, why=FIRST),
    Budget("the same from a gateway that has just started", "first_list.cold_ratio.x@10000", "x", 1.5, why=FIRST),
    Budget("a health flip among 100 devices, p50", "flip.gateway.ms@100", "ms", 0.6, "flip.bare.ms@100", FLIP),
    Budget("a health flip among 1,000 devices, p50", "flip.gateway.ms@1000", "ms", 2.5, "flip.bare.ms@1000", FLIP),
    Budget("a health flip among 10,000 devices, p50", "flip.gateway.ms@10000", "ms", 12, "flip.bare.ms@10000", FLIP),
    Budget(
        "the same by a driver that makes all its values anew, p50",
        "flip.naive.ms@10000",
        "ms",
        12,
        "flip.bare_naive.ms@10000",
        NAIVE,
        times=1,
    ),
    *(
        Budget(
            f"new kubelet to lists, {resources} resources, p99",
            f"restart.gateway_p99.ms@{resources}",
            "ms",
            limit,
            f"restart.bare_p99.ms@{resources}",
            RESTART,
            times=1.2,
        )
        for resources, limit in ((8, 20), (64, 100))
    ),
    Budget("process start to 64 resources listed, p50", "start.gateway.s", "s", 1, "start.bare.s"),
    Budget("resident, 64 resources of 100 devices", "memory.gateway.mb@64", "MB", 60, "memory.bare.mb@64", MEMORY),
    Budget("growth over 1,000 kubelet restarts", "growth.gateway.mb", "MB", 1),
    Budget("idle, 64 resources of 100 devices", "idle.gateway.percent", "% of a core", 0.2, "idle.bare.percent", IDLE),
    Budget(
        "the same with the pages on and a scrape every 15 s", "pages.gateway.percent", "% of a core", 0.3, why=SCRAPES
    ),
    Budget("resident with the pages on and a scrape every 15 s", "pages.gateway.mb", "MB", 75),
    Budget("resident, 64 resources of 100 devices by DRA, with events", "dra.gateway.mb", "MB", 95),
    Budget("the same, idle", "dra.gateway.percent", "% of a core", 0.3, why=DRA),
    Budget("requests of the same to the API server in 30 s of idling", "dra.idle.requests", "requests", 0),
    Budget("a scrape, p50", "pages.scrape.ms", "ms", 20),
    Budget("`dpgateway status` of the same, at its peak", "asking.table.mb", "MB", 15),
    Budget("the same, CPU, p50", "asking.table.s", "s", 0.15),
    Budget("its JSON, at its peak", "asking.json.mb", "MB", 15),
    Budget("the same, CPU, p50", "asking.json.s", "s", 0.15),
    Budget("first look at 1,000 matched functions, p50, CPU", "matched.first_look.ms", "ms", 200),
    Budget("one change among them, p50", "matched.change.ms", "ms", 15, why=MATCHED),
    Budget("resident, more than with one of them", "matched.memory.mb", "MB", 4, why=KEPT),
    Budget("their files opened between two slow looks", "matched.opened.files", "files", 0),
)
