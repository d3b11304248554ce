"""The page /metrics: the table of metrics, and their samples in Prometheus' text format.

docs/reference/metrics.md describes each metric. Cardinality is bounded: resources and drivers are configured, a
container is a label value only while it holds a device, and no error's text is a label.

Only this module imports prometheus_client, so a gateway without pages doesn't load it. Each scrape makes the page anew,
in short turns: Prometheus scrapes every 15 s or less often.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, Literal, TypeVar

from prometheus_client import ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from dpgateway.kit.call_stats import BOUNDS, Calls
from dpgateway.status.figures import Figures, ResourceFigures
from dpgateway.web.answers import Response

Labels = tuple[str, ...]
Sample = tuple[Labels, float | Calls]
"""The labels' values, and a number or, for a histogram, the calls."""
T = TypeVar("T", Figures, ResourceFigures)

AT_ONCE = 16
"""Resources whose samples of one metric are made in one turn of the event loop, some milliseconds."""

_FAMILIES: dict[str, Any] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}
_UP_TO = (*map(str, BOUNDS), "+Inf")


@dataclass(frozen=True, slots=True)
class Row(Generic[T]):
    """One metric."""

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    help: str
    read: Callable[[T], float | Iterable[Sample] | None]
    """Reads the figures: returns a single number, None if it is unknown, or samples."""
    labels: Labels = ()
    """A resource's metrics have the label ``resource`` before these."""

    def samples(self, figures: T) -> Iterable[Sample]:
        found = self.read(figures)
        if found is None:
            return ()
        return [((), found)] if isinstance(found, int | float) else found


def _outcomes(calls: Mapping[str, Calls], *before: str) -> Iterator[Sample]:
    for name, one in calls.items():
        for outcome, count in one.outcomes.items():
            yield (*before, name, outcome), count


def _calls(calls: Mapping[str, Calls], *before: str) -> Iterator[Sample]:
    for name, one in calls.items():
        yield (*before, name), one


GATEWAY: tuple[Row[Figures], ...] = (
    Row("dpgateway_build_info", "gauge", "The gateway's version.", lambda it: [((it.version,), 1)], ("version",)),
    Row("dpgateway_kubelet_up", "gauge", "Whether there is a kubelet.sock.", lambda it: it.kubelet.there),
    Row(
        "dpgateway_kubelet_incarnations_total", "counter", "Kubelets that appeared.", lambda it: it.kubelet.appearances
    ),
    Row(
        "dpgateway_pod_resources_requests_total",
        "counter",
        "Questions to the kubelet which pods have what.",
        lambda it: [((outcome,), it.kubelet.asked.get(outcome, 0)) for outcome in ("success", "failure")],
        ("outcome",),
    ),
    Row(
        "dpgateway_pod_resources_last_success_timestamp_seconds",
        "gauge",
        "When the kubelet last said which pods have what.",
        lambda it: it.kubelet.answered,
    ),
    Row(
        "dpgateway_config_reloads_total",
        "counter",
        "Configurations that were read again.",
        lambda it: [(("success",), it.reloads.succeeded), (("refused",), it.reloads.refused)],
        ("outcome",),
    ),
    Row(
        "dpgateway_config_last_reload_successful",
        "gauge",
        "Whether the last configuration that was read is the one that is served.",
        lambda it: it.reloads.refusal is None,
    ),
    Row(
        "dpgateway_config_last_good",
        "gauge",
        "Whether the last good configuration is served, because the one of the start was refused.",
        lambda it: it.reloads.kept is not None,
    ),
    Row(
        "dpgateway_config_last_reload_success_timestamp_seconds",
        "gauge",
        "When a configuration was last taken over.",
        lambda it: datetime.fromisoformat(it.reloads.read).timestamp(),
    ),
    Row(
        "dpgateway_log_lines_lost_total",
        "counter",
        "Lines of the log that nobody read in time.",
        lambda it: it.lost_lines,
    ),
)

RESOURCE: tuple[Row[ResourceFigures], ...] = (
    Row(
        "dpgateway_resource_info",
        "gauge",
        "The resource's driver, and the API in which the present kubelet accepted it.",
        lambda it: [((it.driver, registration.api or ""), 1) for registration in it.registrations],
        ("driver", "api"),
    ),
    Row(
        "dpgateway_resource_registered",
        "gauge",
        "Whether the present kubelet accepted the resource.",
        lambda it: any(registration.registered for registration in it.registrations),
    ),
    Row(
        "dpgateway_resource_streaming",
        "gauge",
        "Whether the present kubelet listens to the resource's list.",
        lambda it: any(registration.streaming for registration in it.registrations),
    ),
    Row(
        "dpgateway_resource_failed",
        "gauge",
        "Whether the resource has nothing that could be given away.",
        lambda it: it.failed,
    ),
    Row(
        "dpgateway_devices",
        "gauge",
        "Ids on the resource's list.",
        lambda it: [(("healthy",), it.counts.healthy), (("unhealthy",), it.counts.unhealthy)],
        ("health",),
    ),
    Row("dpgateway_devices_held", "gauge", "Ids that containers may use.", lambda it: it.counts.held),
    Row("dpgateway_devices_free", "gauge", "Ids that are healthy and not held.", lambda it: it.counts.free),
    Row(
        "dpgateway_devices_lost",
        "gauge",
        "Ids that are listed though their device or share is gone.",
        lambda it: it.counts.lost,
    ),
    Row(
        "dpgateway_holdings",
        "gauge",
        "Ids that a container holds.",
        lambda it: list(it.holders.items()),
        ("namespace", "pod", "container"),
    ),
    Row("dpgateway_list_updates_total", "counter", "Changes of the resource's list.", lambda it: it.updates),
    Row("dpgateway_device_losses_total", "counter", "Ids whose device or share vanished.", lambda it: it.losses),
    Row("dpgateway_device_returns_total", "counter", "Ids that were lost and came back.", lambda it: it.returns),
    Row(
        "dpgateway_registrations_total",
        "counter",
        "Registrations that were tried.",
        lambda it: list(it.attempts.items()),
        ("api", "outcome"),
    ),
    Row("dpgateway_rpcs_total", "counter", "RPCs that were answered.", lambda it: _outcomes(it.rpcs), ("rpc", "code")),
    Row("dpgateway_rpc_duration_seconds", "histogram", "How long RPCs took.", lambda it: _calls(it.rpcs), ("rpc",)),
    Row(
        "dpgateway_driver_calls_total",
        "counter",
        "Calls of the driver.",
        lambda it: _outcomes(it.calls, it.driver),
        ("driver", "method", "outcome"),
    ),
    Row(
        "dpgateway_driver_call_duration_seconds",
        "histogram",
        "How long calls of the driver took, with the time until their turn.",
        lambda it: _calls(it.calls, it.driver),
        ("driver", "method"),
    ),
    Row(
        "dpgateway_driver_last_list_timestamp_seconds",
        "gauge",
        "When the driver last listed its devices.",
        lambda it: it.listed,
    ),
    Row(
        "dpgateway_preparations_running",
        "gauge",
        "Preparations that are under way, or wait for their turn.",
        lambda it: it.preparing,
    ),
    Row(
        "dpgateway_devices_outdated",
        "gauge",
        "Held ids whose container can't be started again: what its kubelet repeats is other hardware by now.",
        lambda it: it.outdated,
    ),
)


class Metrics:
    """The page."""

    def __init__(self, look: Callable[[], Figures]) -> None:
        self._look = look
        self._process = ProcessCollector(registry=None)

    async def answer(self) -> Response:
        figures = self._look()
        parts = [_text(row, row.labels, row.samples(figures)) for row in GATEWAY]
        for row, start in itertools.product(RESOURCE, range(0, max(1, len(figures.resources)), AT_ONCE)):
            some = figures.resources[start : start + AT_ONCE]
            samples = (((one.name, *labels), value) for one in some for labels, value in row.samples(one))
            text = _text(row, ("resource", *row.labels), samples)
            parts.append(text.split(b"\n", 2)[2] if start else text)  # HELP and TYPE once per metric
            await asyncio.sleep(0)  # a pending Allocate comes first
        parts.append(generate_latest(self._process))
        return Response(CONTENT_TYPE_PLAIN_0_0_4, b"".join(parts))


class _OneMetric:
    """A collector of one metric, because generate_latest takes collectors."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        return (self._metric,)


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
