"""The page /metrics: the samples of all metrics (``series``) in Prometheus' text format.

A node has many resources, and a cluster many nodes. So the page is brief unless ``web.metrics`` is ``full``: a resource
has its own series for what alerts need, and for what has gone wrong. Its successes and durations are sums over all
resources, whose label ``resource`` is empty.

Only this module imports prometheus_client, so a gateway without pages doesn't load it. Each scrape makes the page anew,
in short turns: Prometheus scrapes every 15 s or less often.
"""

from __future__ import annotations

import asyncio
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from dpgateway.kit.call_stats import BOUNDS, Calls
from dpgateway.status.figures import Figures, ResourceFigures
from dpgateway.web.answers import Response
from dpgateway.web.dra_series import DRA
from dpgateway.web.series import GATEWAY, RESOURCE, Labels, Row, Sample

_Parts = tuple[float, ...]
"""A number; or a histogram's durations and its seconds."""

AT_ONCE = 16
"""Resources whose samples of one metric are made in one turn of the event loop, some milliseconds."""

_FAMILIES: dict[str, Any] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}
_UP_TO = (*map(str, BOUNDS), "+Inf")


@dataclass(slots=True)
class Sums:
    """Counters of all resources together. They never fall, which Prometheus would take for a restart: what a resource
    has counted stays when it is removed, or begins again at nothing.
    """

    _sums: dict[tuple[str, Labels], _Parts] = field(default_factory=dict)
    _last: dict[tuple[str, Labels, str], _Parts] = field(default_factory=dict)
    """The last value of each resource, by metric, labels and resource."""
    _seen: set[tuple[str, Labels, str]] = field(default_factory=set)

    def add(self, metric: str, labels: Labels, resource: str, value: float | Calls) -> None:
        """The present value of one resource."""
        now: _Parts = (*value.durations, value.seconds) if isinstance(value, Calls) else (value,)
        key = metric, labels, resource
        before = self._last.get(key, (0.0,) * len(now))
        if any(map(operator.lt, now, before)):  # it began again
            before = (0.0,) * len(now)
        whole = self._sums.get((metric, labels), (0.0,) * len(now))
        self._sums[metric, labels] = tuple(map(operator.add, whole, map(operator.sub, now, before)))
        self._last[key] = now
        self._seen.add(key)

    def samples(self, metric: str) -> Iterator[Sample]:
        for (name, labels), parts in self._sums.items():
            if name == metric:
                *durations, last = parts
                yield labels, Calls({}, tuple(map(int, durations)), last) if durations else last

    def forget(self) -> None:
        """Forgets the last values of resources that were removed since the last call."""
        self._last = {key: self._last[key] for key in self._seen}
        self._seen = set()


class Metrics:
    """The page."""

    def __init__(self, look: Callable[[], Figures], full: Callable[[], bool]) -> None:
        """``full``: whether each resource has all of its series now."""
        self._look, self._full = look, full
        self._process = ProcessCollector(registry=None)
        self._sums = Sums()

    async def answer(self) -> Response:
        figures, full = self._look(), self._full()
        parts = [_text(row, row.labels, row.samples(figures)) for row in GATEWAY]
        for row, start in itertools.product(RESOURCE, range(0, max(1, len(figures.resources)), AT_ONCE)):
            some = figures.resources[start : start + AT_ONCE]
            samples = [((one.name, *labels), value) for one in some for labels, value in self._own(row, one, full=full)]
            if not full and start + AT_ONCE >= len(figures.resources):
                samples += [(("", *labels), value) for labels, value in self._sums.samples(row.name)]
            if full or row.brief != "none":
                text = _text(row, ("resource", *row.labels), samples)
                parts.append(text.split(b"\n", 2)[2] if start else text)  # HELP and TYPE once per metric
            await asyncio.sleep(0)  # a pending Allocate comes first
        self._sums.forget()
        if (dra := figures.dra) is not None:
            parts += [_text(row, row.labels, row.samples(dra)) for row in DRA]
        parts.append(generate_latest(self._process))
        return Response(CONTENT_TYPE_PLAIN_0_0_4, b"".join(parts))

    def _own(self, row: Row[ResourceFigures], one: ResourceFigures, *, full: bool) -> Iterator[Sample]:
        """The samples of one resource that have its name. The others are added to the sums, on the full page, too, so
        that they miss nothing.
        """
        for labels, value in row.samples(one):
            summed = row.summed(labels)
            if summed:
                self._sums.add(row.name, labels, one.name, value)
            if full or not (summed or row.brief == "none" or (row.brief == "events" and not value)):
                yield labels, value


@dataclass(frozen=True, slots=True)
class _OneMetric:
    """A collector of one metric, because generate_latest takes collectors."""

    metric: Metric

    def collect(self) -> Iterable[Metric]:
        return (self.metric,)


def _text(row: Row[Any], labels: Labels, samples: Iterable[Sample]) -> bytes:
    """The lines of one metric: its help and type, then its samples."""
    metric = _FAMILIES[row.kind](row.name, row.help, labels=labels)
    for values, value in samples:
        if isinstance(value, Calls):
            reached = map(float, itertools.accumulate(value.durations))
            metric.add_metric(values, [*zip(_UP_TO, reached, strict=True)], value.seconds)
        else:
            metric.add_metric(values, float(value))
    return generate_latest(_OneMetric(metric))
