"""The page /metrics: the gateway in numbers, as Prometheus reads them. Which numbers these are is in ``rows``.

This module imports prometheus_client and no other does, so a gateway without pages doesn't load it.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from prometheus_client import ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from dpgateway.process.tally import BOUNDS, Calls
from dpgateway.status import Figures
from dpgateway.web.answers import Answer
from dpgateway.web.rows import GATEWAY, RESOURCE, Row, Sample

MOMENT = 0.001
"""Seconds after which others have their turn: a container that wants its devices comes first."""

_UP_TO = (*map(str, BOUNDS), "+Inf")


class Metrics:
    """The page. It keeps the lines of numbers that stay the same, because to make a line takes longer than all else
    that is done for it, and there are thousands.
    """

    def __init__(self, look: Callable[[], Figures]) -> None:
        self._look = look
        self._process = ProcessCollector(registry=None)
        self._heads = {row.name: _text(row, ()) for row in RESOURCE}
        self._kept: dict[tuple[str, str], tuple[Sequence[Sample], bytes]] = {}
        """By metric and resource: what the lines were made of, and the lines."""

    async def answer(self) -> Answer:
        made, since = [], time.monotonic()
        for piece in self._pieces(self._look()):
            made.append(piece)
            if time.monotonic() - since > MOMENT:
                await asyncio.sleep(0)
                since = time.monotonic()
        return Answer(CONTENT_TYPE_PLAIN_0_0_4, b"".join(made))

    def _pieces(self, figures: Figures) -> Iterator[bytes]:
        kept: dict[tuple[str, str], tuple[Sequence[Sample], bytes]] = {}
        for row in GATEWAY:
            yield _text(row, row.samples(figures))
        for of_resource in RESOURCE:
            head = self._heads[of_resource.name]
            yield head
            for one in figures.resources:
                key, samples = (of_resource.name, one.name), tuple(of_resource.samples(one))
                before, lines = self._kept.get(key, (None, b""))
                if samples != before:
                    lines = _text(of_resource, samples, one.name).removeprefix(head)
                kept[key] = samples, lines
                yield lines
        yield generate_latest(self._process)
        self._kept = kept


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
