"""The tables of metrics: the name, kind and help of each, and how it is read from the figures.

``dra_series`` has those of a gateway with DRA. docs/reference/metrics.md describes each metric. Cardinality is bounded:
resources and drivers are configured, a container is a label value only while it holds a device, and the text of an
error is no label.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, Literal, TypeVar

from dpgateway.kit.call_stats import SLOW, Calls
from dpgateway.resource.published import DraFigures
from dpgateway.status.figures import Figures, ResourceFigures

Labels = tuple[str, ...]
Sample = tuple[Labels, float | Calls]
"""The labels' values, and a number or, for a histogram, the calls."""
T = TypeVar("T", Figures, ResourceFigures, DraFigures)


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


def outcomes(calls: Mapping[str, Calls], *before: str) -> Iterator[Sample]:
    """A number for each name and outcome; ``before``: the labels' values in front of these."""
    for name, one in calls.items():
        for outcome, count in one.outcomes.items():
            yield (*before, name, outcome), count


def durations(calls: Mapping[str, Calls], *before: str) -> Iterator[Sample]:
    """A histogram for each name of ``calls``; ``before``: the labels' values in front of it."""
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
        lambda it: [
            (("healthy",), it.counts.healthy),
            (("unhealthy",), it.counts.unhealthy - it.taken),
            *([(("taken",), it.taken)] if it.taken else []),
        ],
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
        "Ids that a container or a claim holds.",
        lambda it: list(it.holders.items()),
        ("namespace", "pod", "container", "claim"),
        brief="none",
    ),
    Row("dpgateway_list_updates_total", "counter", "Changes of the resource's list.", lambda it: it.updates),
    Row(
        "dpgateway_device_falls_total",
        "counter",
        "Changes of devices from Healthy to Unhealthy, but for those in use under another name.",
        lambda it: it.falls,
        brief="events",
    ),
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
        lambda it: outcomes(it.rpcs),
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
        lambda it: durations(it.rpcs),
        ("rpc",),
        summed=lambda _: True,
    ),
    Row(
        "dpgateway_driver_calls_total",
        "counter",
        "Calls of the driver.",
        lambda it: outcomes(it.calls, it.driver),
        ("driver", "method", "outcome"),
        summed=lambda labels: labels[-1] == "success",
    ),
    Row(
        "dpgateway_driver_call_duration_seconds",
        "histogram",
        "How long calls of the driver took, with the time until their turn.",
        lambda it: durations(it.calls, it.driver),
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
