"""The table of metrics: for each its name, its help and how to read its samples from the figures.

docs/reference/metrics.md says what each one means. The number of label values is bounded: resources and drivers are
configured, a container is named while it holds something, and no error's text is a label.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, Literal, TypeVar

from dpgateway.kit.call_stats import Calls
from dpgateway.status.figures import Figures, ResourceFigures

Labels = tuple[str, ...]
Sample = tuple[Labels, float | Calls]
"""The labels' values and a number, or the calls for a histogram."""
T = TypeVar("T", Figures, ResourceFigures)


@dataclass(frozen=True, slots=True)
class Row(Generic[T]):
    """One metric."""

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    help: str
    labels: Labels
    samples: Callable[[T], Iterable[Sample]]
    """For a resource without its name, which is the first label."""


def _outcomes(calls: Mapping[str, Calls], *before: str) -> Iterator[Sample]:
    for name, one in calls.items():
        for outcome, count in one.outcomes.items():
            yield (*before, name, outcome), count


def _calls(calls: Mapping[str, Calls], *before: str) -> Iterator[Sample]:
    for name, one in calls.items():
        yield (*before, name), one


def _known(value: float | None) -> Iterator[Sample]:
    if value is not None:
        yield (), value


GATEWAY: tuple[Row[Figures], ...] = (
    Row(
        "dpgateway_build_info",
        "gauge",
        "The gateway's version.",
        ("version",),
        lambda figures: [((figures.version,), 1)],
    ),
    Row(
        "dpgateway_kubelet_up",
        "gauge",
        "Whether there is a kubelet.sock.",
        (),
        lambda figures: [((), figures.kubelet.there)],
    ),
    Row(
        "dpgateway_kubelet_incarnations_total",
        "counter",
        "Kubelets that appeared.",
        (),
        lambda figures: [((), figures.kubelet.appearances)],
    ),
    Row(
        "dpgateway_pod_resources_requests_total",
        "counter",
        "Questions to the kubelet which pods have what.",
        ("outcome",),
        lambda figures: [((outcome,), figures.kubelet.asked.get(outcome, 0)) for outcome in ("success", "failure")],
    ),
    Row(
        "dpgateway_pod_resources_last_success_timestamp_seconds",
        "gauge",
        "When the kubelet last said which pods have what.",
        (),
        lambda figures: _known(figures.kubelet.answered),
    ),
    Row(
        "dpgateway_config_reloads_total",
        "counter",
        "Configurations that were read again.",
        ("outcome",),
        lambda figures: [(("success",), figures.reloads.succeeded), (("refused",), figures.reloads.refused)],
    ),
    Row(
        "dpgateway_config_last_reload_successful",
        "gauge",
        "Whether the last configuration that was read is the one that is served.",
        (),
        lambda figures: [((), figures.reloads.refusal is None)],
    ),
    Row(
        "dpgateway_config_last_reload_success_timestamp_seconds",
        "gauge",
        "When a configuration was last taken over.",
        (),
        lambda figures: [((), datetime.fromisoformat(figures.reloads.read).timestamp())],
    ),
    Row(
        "dpgateway_log_lines_lost_total",
        "counter",
        "Lines of the log that nobody read in time.",
        (),
        lambda figures: [((), figures.lost_lines)],
    ),
)

RESOURCE: tuple[Row[ResourceFigures], ...] = (
    Row(
        "dpgateway_resource_info",
        "gauge",
        "The resource's driver, and the API in which the present kubelet accepted it.",
        ("resource", "driver", "api"),
        lambda one: [((one.driver, registration.api or ""), 1) for registration in one.registrations],
    ),
    Row(
        "dpgateway_resource_registered",
        "gauge",
        "Whether the present kubelet accepted the resource.",
        ("resource",),
        lambda one: [((), any(registration.registered for registration in one.registrations))],
    ),
    Row(
        "dpgateway_resource_streaming",
        "gauge",
        "Whether the present kubelet listens to the resource's list.",
        ("resource",),
        lambda one: [((), any(registration.streaming for registration in one.registrations))],
    ),
    Row(
        "dpgateway_resource_failed",
        "gauge",
        "Whether the resource has nothing that could be given away.",
        ("resource",),
        lambda one: [((), one.failed)],
    ),
    Row(
        "dpgateway_devices",
        "gauge",
        "Ids on the resource's list.",
        ("resource", "health"),
        lambda one: [(("healthy",), one.counts.healthy), (("unhealthy",), one.counts.unhealthy)],
    ),
    Row(
        "dpgateway_devices_held",
        "gauge",
        "Ids that containers may use.",
        ("resource",),
        lambda one: [((), one.counts.held)],
    ),
    Row(
        "dpgateway_devices_free",
        "gauge",
        "Ids that are healthy and not held.",
        ("resource",),
        lambda one: [((), one.counts.free)],
    ),
    Row(
        "dpgateway_devices_lost",
        "gauge",
        "Ids that are listed though their device or share is gone.",
        ("resource",),
        lambda one: [((), one.counts.lost)],
    ),
    Row(
        "dpgateway_holdings",
        "gauge",
        "Ids that a container holds.",
        ("resource", "namespace", "pod", "container"),
        lambda one: list(one.holders.items()),
    ),
    Row(
        "dpgateway_list_updates_total",
        "counter",
        "Changes of the resource's list.",
        ("resource",),
        lambda one: [((), one.updates)],
    ),
    Row(
        "dpgateway_device_losses_total",
        "counter",
        "Ids whose device or share vanished.",
        ("resource",),
        lambda one: [((), one.losses)],
    ),
    Row(
        "dpgateway_device_returns_total",
        "counter",
        "Ids that were lost and came back.",
        ("resource",),
        lambda one: [((), one.returns)],
    ),
    Row(
        "dpgateway_registrations_total",
        "counter",
        "Registrations that were tried.",
        ("resource", "api", "outcome"),
        lambda one: list(one.attempts.items()),
    ),
    Row(
        "dpgateway_rpcs_total",
        "counter",
        "RPCs that were answered.",
        ("resource", "rpc", "code"),
        lambda one: _outcomes(one.rpcs),
    ),
    Row(
        "dpgateway_rpc_duration_seconds",
        "histogram",
        "How long RPCs took.",
        ("resource", "rpc"),
        lambda one: _calls(one.rpcs),
    ),
    Row(
        "dpgateway_driver_calls_total",
        "counter",
        "Calls of the driver.",
        ("resource", "driver", "method", "outcome"),
        lambda one: _outcomes(one.calls, one.driver),
    ),
    Row(
        "dpgateway_driver_call_duration_seconds",
        "histogram",
        "How long calls of the driver took, with the time until their turn.",
        ("resource", "driver", "method"),
        lambda one: _calls(one.calls, one.driver),
    ),
    Row(
        "dpgateway_driver_last_list_timestamp_seconds",
        "gauge",
        "When the driver last listed its devices.",
        ("resource",),
        lambda one: _known(one.listed),
    ),
    Row(
        "dpgateway_preparations_running",
        "gauge",
        "Preparations that are under way, or wait for their turn.",
        ("resource",),
        lambda one: [((), one.preparing)],
    ),
    Row(
        "dpgateway_devices_outdated",
        "gauge",
        "Held ids whose container can't be started again: what its kubelet repeats is other hardware by now.",
        ("resource",),
        lambda one: [((), one.outdated)],
    ),
)
