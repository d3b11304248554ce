"""The page /metrics: the gateway in numbers, as Prometheus reads them. Which numbers these are is in ``rows``.

This module imports prometheus_client and no other does, so a gateway without pages doesn't load it. Each scrape makes
the page anew, one metric at a time: Prometheus scrapes every 15 s or less often.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client import ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from dpgateway.kit.call_stats import BOUNDS, Calls
from dpgateway.status.figures import Figures
from dpgateway.web.answers import Response
from dpgateway.web.rows import GATEWAY, RESOURCE, Row, Sample

_UP_TO = (*map(str, BOUNDS), "+Inf")


class Metrics:
    """The page."""

    def __init__(self, look: Callable[[], Figures]) -> None:
        self._look = look
        self._process = ProcessCollector(registry=None)

    async def answer(self) -> Response:
        figures = self._look()
        parts = [_text(row, row.samples(figures)) for row in GATEWAY]
        for row in RESOURCE:
            samples = (((one.name, *labels), value) for one in figures.resources for labels, value in row.samples(one))
            parts.append(_text(row, samples))
            await asyncio.sleep(0)  # a container that wants its devices comes first
        parts.append(generate_latest(self._process))
        return Response(CONTENT_TYPE_PLAIN_0_0_4, b"".join(parts))


class _OneMetric:
    """One metric, where prometheus_client asks for a collector."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        return (self._metric,)


def _text(row: Row[Any], samples: Iterable[Sample]) -> bytes:
    """The lines of one metric: its help and type, then its samples."""
    metric = _FAMILIES[row.kind](row.name, row.help, labels=row.labels)
    for labels, value in samples:
        if isinstance(value, Calls):
            reached = map(float, itertools.accumulate(value.durations))
            metric.add_metric(labels, [*zip(_UP_TO, reached, strict=True)], value.seconds)
        else:
            metric.add_metric(labels, float(value))
    return generate_latest(_OneMetric(metric))


_FAMILIES: dict[str, Any] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}
