"""The page /metrics: the gateway in numbers, as Prometheus reads them. Which numbers these are is in ``rows``.

This module imports prometheus_client and no other does, so a gateway without pages doesn't load it.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Generic

from prometheus_client import ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from dpgateway.kit.call_stats import BOUNDS, Calls
from dpgateway.status.figures import Figures, ResourceFigures
from dpgateway.web.answers import Answer
from dpgateway.web.rows import GATEWAY, RESOURCE, Row, Sample, T

MOMENT = 0.001
"""Seconds after which others have their turn: a container that wants its devices comes first."""

OWN = 10.0
"""Seconds for which the process's own numbers count: the kernel takes longer to list its descriptors than all else
takes together.
"""

_UP_TO = (*map(str, BOUNDS), "+Inf")


class Metrics:
    """The page. It keeps the lines of numbers that stay the same, because making a line takes longer than all else
    that is done for it, and there are thousands.
    """

    def __init__(self, look: Callable[[], Figures]) -> None:
        self._look = look
        self._process = ProcessCollector(registry=None)
        self._own, self._own_until = b"", 0.0
        self._gateway: _Lines[Figures] = _Lines(GATEWAY)
        self._heads = {row.name: _text(row, ()) for row in RESOURCE}
        self._kept: dict[str, _Lines[ResourceFigures]] = {}
        """By resource."""
        self._joined = _joined(self._heads, ())
        """The lines of all resources."""
        self._resources: tuple[ResourceFigures, ...] = ()
        """What these lines say."""
        self._news = False
        """Whether they say something older than ``_kept``."""

    async def answer(self) -> Answer:
        figures = self._look()
        if figures.resources is not self._resources:
            await self._join(figures.resources)
        self._gateway.hear(figures)
        if (now := time.monotonic()) >= self._own_until:
            self._own, self._own_until = generate_latest(self._process), now + OWN
        return Answer(CONTENT_TYPE_PLAIN_0_0_4, b"".join([*self._gateway.lines.values(), self._joined, self._own]))

    async def _join(self, resources: tuple[ResourceFigures, ...]) -> None:
        kept, since = {}, time.monotonic()
        for one in resources:
            kept[one.name] = lines = self._kept.get(one.name) or _Lines(RESOURCE, self._heads, one.name)
            self._news |= lines.hear(one)
            if time.monotonic() - since > MOMENT:
                await asyncio.sleep(0)
                since = time.monotonic()
        if self._news or [*kept] != [*self._kept]:
            self._joined = _joined(self._heads, kept.values())
        self._kept, self._resources, self._news = kept, resources, False


class _Lines(Generic[T]):
    """The lines of the gateway, or of one resource, by metric."""

    def __init__(self, rows: Sequence[Row[T]], heads: Mapping[str, bytes] | None = None, *resource: str) -> None:
        """``heads``: the lines that aren't wanted, because others have them as well."""
        self.lines: dict[str, bytes] = {}
        self._rows: Sequence[Row[T]] = rows
        self._heads, self._resource = heads or {}, resource
        self._figures: T | None = None
        self._samples: dict[str, Sequence[Sample]] = {}

    def hear(self, figures: T) -> bool:
        """Returns whether there are other lines now."""
        if figures == self._figures:
            return False
        self._figures = figures
        news = False
        for row in self._rows:
            samples = tuple(row.samples(figures))
            if samples != self._samples.get(row.name):
                self._samples[row.name] = samples
                text = _text(row, samples, *self._resource)
                self.lines[row.name] = text.removeprefix(self._heads.get(row.name, b""))
                news = True
        return news


def _joined(heads: Mapping[str, bytes], resources: Collection[_Lines[ResourceFigures]]) -> bytes:
    """The lines of one metric stand together (https://prometheus.io/docs/instrumenting/exposition_formats/)."""
    return b"".join([part for name in heads for part in (heads[name], *(one.lines[name] for one in resources))])


class _Only:
    """One metric, where prometheus_client asks for a collector."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        return (self._metric,)


def _text(row: Row[Any], samples: Iterable[Sample], *resource: str) -> bytes:
    """Two lines about the metric, then those of the samples."""
    metric = _FAMILIES[row.kind](row.name, row.help, labels=row.labels)
    for labels, value in samples:
        if isinstance(value, Calls):
            reached = map(float, itertools.accumulate(value.durations))
            metric.add_metric((*resource, *labels), [*zip(_UP_TO, reached, strict=True)], value.seconds)
        else:
            metric.add_metric((*resource, *labels), float(value))
    return generate_latest(_Only(metric))


_FAMILIES: dict[str, Any] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}
