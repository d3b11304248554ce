"""The page /metrics: the table of metrics, and their samples in Prometheus' text format.

docs/reference/metrics.md describes each metric. Cardinality is bounded: resources and drivers are configured, a
container is a label value only while it holds a device, and no error's text is a label.

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
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, Literal, TypeVar

from prometheus_client import ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from dpgateway.kit.call_stats import BOUNDS, SLOW, Calls
from dpgateway.resource.published import DraFigures, DraStatus
from dpgateway.status.figures import Figures, ResourceFigures
from dpgateway.web.answers import Response

Labels = tuple[str, ...]
Sample = tuple[Labels, float | Calls]
"""The labels' values, and a number or, for a histogram, the calls."""
T = TypeVar("T", Figures, ResourceFigures, DraFigures)
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
    brief: Literal["all", "events", "none"] = "all"
    """A resource's samples on the brief page; ``events``: those that aren't 0."""
    summed: Callable[[Labels], bool] = lambda _: False
    """Whether the brief page has the sum over all resources instead of a sample with these labels."""

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
    Row("dpgateway_cluster_up", "gauge", "Whether the API server answered the last request.", lambda it: it.cluster.up),
    Row(
        "dpgateway_cluster_requests_total",
        "counter",
        "Requests to the API server.",
        lambda it: it.cluster.requests.items(),
        ("verb", "kind", "code"),
    ),
    Row(
        "dpgateway_kubernetes_events_total",
        "counter",
        "Kubernetes events of devices and resources.",
        lambda it: [((outcome,), count) for outcome, count in it.cluster.events.items()],
        ("outcome",),
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
        brief="none",
    ),
    Row(
        "dpgateway_resource_streaming",
        "gauge",
        "Whether the present kubelet listens to the resource's list.",
        lambda it: it.streaming,
    ),
    Row(
        "dpgateway_resource_failed",
        "gauge",
        "Whether the resource has nothing that could be given away.",
        lambda it: it.failed,
        brief="events",
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
        brief="events",
    ),
    Row(
        "dpgateway_holdings",
        "gauge",
        "Ids that a container holds.",
        lambda it: list(it.holders.items()),
        ("namespace", "pod", "container"),
        brief="none",
    ),
    Row("dpgateway_list_updates_total", "counter", "Changes of the resource's list.", lambda it: it.updates),
    Row(
        "dpgateway_device_losses_total",
        "counter",
        "Ids whose device or share vanished.",
        lambda it: it.losses,
        brief="events",
    ),
    Row(
        "dpgateway_device_returns_total",
        "counter",
        "Ids that were lost and came back.",
        lambda it: it.returns,
        brief="events",
    ),
    Row(
        "dpgateway_registrations_total",
        "counter",
        "Registrations that were tried.",
        lambda it: list(it.attempts.items()),
        ("api", "outcome"),
        summed=lambda labels: labels[-1] == "accepted",
    ),
    Row(
        "dpgateway_rpcs_total",
        "counter",
        "RPCs that were answered.",
        lambda it: _outcomes(it.rpcs),
        ("rpc", "code"),
        summed=lambda labels: labels[-1] == "OK",
    ),
    Row(
        "dpgateway_rpcs_slow_total",
        "counter",
        f"RPCs that took longer than {SLOW:g} s.",
        lambda it: [((name,), one.slow) for name, one in it.rpcs.items()],
        ("rpc",),
        brief="events",
    ),
    Row(
        "dpgateway_rpc_duration_seconds",
        "histogram",
        "How long RPCs took.",
        lambda it: _calls(it.rpcs),
        ("rpc",),
        summed=lambda _: True,
    ),
    Row(
        "dpgateway_driver_calls_total",
        "counter",
        "Calls of the driver.",
        lambda it: _outcomes(it.calls, it.driver),
        ("driver", "method", "outcome"),
        summed=lambda labels: labels[-1] == "success",
    ),
    Row(
        "dpgateway_driver_call_duration_seconds",
        "histogram",
        "How long calls of the driver took, with the time until their turn.",
        lambda it: _calls(it.calls, it.driver),
        ("driver", "method"),
        summed=lambda _: True,
    ),
    Row(
        "dpgateway_driver_last_list_timestamp_seconds",
        "gauge",
        "When the driver last listed its devices.",
        lambda it: it.listed,
        brief="none",
    ),
    Row(
        "dpgateway_preparations_running",
        "gauge",
        "Preparations that are under way, or wait for their turn.",
        lambda it: it.preparing,
        brief="events",
    ),
    Row(
        "dpgateway_devices_outdated",
        "gauge",
        "Held ids whose container can't be started again: what its kubelet repeats is other hardware by now.",
        lambda it: it.outdated,
        brief="events",
    ),
)

DRA: tuple[Row[DraFigures], ...] = (
    Row(
        "dpgateway_dra_registered",
        "gauge",
        "Whether the present kubelet has registered the DRA driver.",
        lambda it: it.status.registration.registered,
    ),
    Row("dpgateway_dra_slices", "gauge", "Slices at the API server.", lambda it: it.status.slices.count),
    Row(
        "dpgateway_dra_slices_right",
        "gauge",
        "Whether the slices at the API server are as they should be.",
        lambda it: it.status.slices.right,
    ),
    Row(
        "dpgateway_dra_devices",
        "gauge",
        "Devices in slices.",
        lambda it: [((name,), number) for name, number in it.devices.items()],
        ("resource",),
    ),
    Row(
        "dpgateway_dra_claims",
        "gauge",
        "Claims that have devices.",
        lambda it: _phases(it.status),
        ("resource", "phase"),
    ),
    Row(
        "dpgateway_dra_in_doubt",
        "gauge",
        "Whether no claim gets devices, because it isn't known which claims have what.",
        lambda it: it.status.doubt is not None,
    ),
    Row(
        "dpgateway_dra_publish_total",
        "counter",
        "Attempts to write slices.",
        lambda it: [((result,), it.writes.get(result, 0)) for result in ("success", "conflict", "refused", "away")],
        ("result",),
    ),
    Row(
        "dpgateway_dra_slices_deleted_total",
        "counter",
        "Deletions of slices by others, a kubelet's at its start among them.",
        lambda it: it.status.slices.deleted,
    ),
    Row(
        "dpgateway_dra_calls_total",
        "counter",
        "Calls of the kubelet, a claim each.",
        lambda it: _outcomes(it.calls),
        ("method", "outcome"),
    ),
    Row(
        "dpgateway_dra_call_duration_seconds",
        "histogram",
        "How long the kubelet's calls took.",
        lambda it: _calls(it.calls),
        ("method",),
    ),
)
"""Of a gateway with a front for DRA; other gateways have none of these."""


def _phases(status: DraStatus) -> list[Sample]:
    """A claim with devices of several resources counts for each of them."""
    found = Counter((given, one.phase) for one in status.claims for given in {part.resource for part in one.given})
    return list(found.items())


class Sums:
    """Counters of all resources together. They never fall, which Prometheus would take for a restart: what a resource
    has counted stays when it is removed, or begins again at nothing.
    """

    def __init__(self) -> None:
        self._sums: dict[tuple[str, Labels], _Parts] = {}
        self._last: dict[tuple[str, Labels, str], _Parts] = {}
        """The last value of each resource, by metric, labels and resource."""
        self._seen: set[tuple[str, Labels, str]] = set()

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
