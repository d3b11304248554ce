"""The page /metrics: the gateway in numbers, as Prometheus reads them. Which numbers these are is in ``rows``.

This module imports prometheus_client and no other does, so a gateway without pages doesn't load it.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from dpgateway.process.tally import BOUNDS, Calls
from dpgateway.status.counting import Figures, ResourceFigures
from dpgateway.web.answers import Answer
from dpgateway.web.rows import GATEWAY, RESOURCE, Row, Sample

MOMENT = 0.001
"""Seconds after which others have their turn: a container that wants its devices comes first."""

_UP_TO = (*map(str, BOUNDS), "+Inf")


class Metrics:
    """The page. It keeps the lines of numbers that stay the same, because making a line takes longer than all else
    that is done for it, and there are thousands.
    """

    def __init__(self, look: Callable[[], Figures]) -> None:
        self._look = look
        self._process = ProcessCollector(registry=None)
        self._heads = {row.name: _text(row, ()) for row in RESOURCE}
        self._kept: dict[str, _Lines] = {}
        """By resource."""

    async def answer(self) -> Answer:
        made, since = [], time.monotonic()
        for piece in self._pieces(self._look()):
            made.append(piece)
            if time.monotonic() - since > MOMENT:
                await asyncio.sleep(0)
                since = time.monotonic()
        return Answer(CONTENT_TYPE_PLAIN_0_0_4, b"".join(made))

    def _pieces(self, figures: Figures) -> Iterator[bytes]:
        for row in GATEWAY:
            yield _text(row, row.samples(figures))
        kept: dict[str, _Lines] = {}
        for one in figures.resources:
            kept[one.name] = lines = self._kept.get(one.name) or _Lines(self._heads)
            lines.hear(one)
            yield b""
        self._kept = kept
        for of_resource in RESOURCE:
            yield self._heads[of_resource.name]
            yield b"".join([lines.lines[of_resource.name] for lines in kept.values()])
        yield generate_latest(self._process)


class _Lines:
    """The lines of one resource, by metric."""

    def __init__(self, heads: Mapping[str, bytes]) -> None:
        self.lines: dict[str, bytes] = {}
        self._heads = heads
        self._figures: ResourceFigures | None = None
        self._samples: dict[str, Sequence[Sample]] = {}

    def hear(self, figures: ResourceFigures) -> None:
        if figures == self._figures:
            return
        self._figures = figures
        for row in RESOURCE:
            samples = tuple(row.samples(figures))
            if samples != self._samples.get(row.name):
                self._samples[row.name] = samples
                self.lines[row.name] = _text(row, samples, figures.name).removeprefix(self._heads[row.name])


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
