"""The table of metrics of a gateway with DRA; other gateways have none of these.

The metrics of a resource, on either front, are in ``series``.
"""

from __future__ import annotations

from collections import Counter

from dpgateway.resource.published import DraFigures
from dpgateway.web.series import Row, durations, outcomes

DRA: tuple[Row[DraFigures], ...] = (
    Row(
        "dpgateway_dra_registered",
        "gauge",
        "Whether the present kubelet has registered the DRA driver, if a resource needs it.",
        lambda it: it.status.registration.registered if it.status.needed else None,
    ),
    Row(
        "dpgateway_front_state",
        "gauge",
        "The state of a resource that changes its front by itself.",
        lambda it: [((name, one.state), 1) for one in it.status.switches for name in one.resources],
        ("resource", "state"),
    ),
    Row(
        "dpgateway_front_obstacles",
        "gauge",
        "What keeps such a resource off DRA.",
        lambda it: [((name,), len(one.obstacles)) for one in it.status.switches for name in one.resources],
        ("resource",),
    ),
    Row(
        "dpgateway_front_claims_at_risk",
        "gauge",
        "Claims whose containers would start again without their devices.",
        lambda it: [
            ((name,), sum(any(given.resource == name for given in one.given) for one in it.status.claims))
            for name in it.status.at_risk
        ],
        ("resource",),
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
        # A claim with devices of several resources counts for each of them.
        lambda it: Counter(
            (name, one.phase) for one in it.status.claims for name in {part.resource for part in one.given}
        ).items(),
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
        lambda it: outcomes(it.calls),
        ("method", "outcome"),
    ),
    Row(
        "dpgateway_dra_call_duration_seconds",
        "histogram",
        "How long the kubelet's calls took.",
        lambda it: durations(it.calls),
        ("method",),
    ),
)
