"""Events as the API server has them: events.k8s.io/v1 (pkg/apis/core/validation/events.go, v1.37).

Of an event only its series may change, so an event that is repeated has the name of the first one: a hash of all that
can't change. A restarted gateway, or its successor, finds it there. The server drops events after an hour.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from dpgateway.errors import encodable
from dpgateway.events.conditions import Condition, Reason, Subject

CONTROLLER = "dpgateway"
LONGEST_NOTE = 1024
"""Bytes (NoteLengthLimit)."""
LONGEST_INSTANCE = 128
"""Bytes (ReportingInstanceLengthLimit)."""
LONGEST_NAME = 200
"""Characters of the object's name in the event's, of 253 in all."""
ACTIONS: Mapping[Reason, str] = {
    "DeviceUnhealthy": "WatchDevice",
    "DeviceGone": "WatchDevice",
    "DeviceAtRisk": "WatchDevice",
    "DeviceHealthy": "WatchDevice",
    "ResourceFailed": "ServeResource",
    "ResourceUnregistered": "ServeResource",
    "ResourceServed": "ServeResource",
}


def namespace(subject: Subject) -> str:
    """The event's; those of a Node are in ``default``."""
    return subject.namespace or "default"


def name(subject: Subject, condition: Condition, node: str) -> str:
    parts = json.dumps([*subject, *condition, node]).encode()
    return f"{subject.name[:LONGEST_NAME].rstrip('.-')}.{hashlib.sha256(parts).hexdigest()[:16]}"


def event(subject: Subject, condition: Condition, node: str, now: float) -> dict[str, Any]:
    """The event. ``node``: its name; ``now``: in seconds since 1970."""
    if subject.namespace:
        regarding = {"apiVersion": "v1", "kind": "Pod", "namespace": subject.namespace, "name": subject.name}
    else:
        regarding = {"apiVersion": "v1", "kind": "Node", "name": subject.name}
    if subject.uid:
        regarding["uid"] = subject.uid
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name(subject, condition, node), "namespace": namespace(subject)},
        "eventTime": micro_time(now),
        "reportingController": CONTROLLER,
        "reportingInstance": _cut(node, LONGEST_INSTANCE),
        "action": ACTIONS[condition.reason],
        "reason": condition.reason,
        "regarding": regarding,
        "note": _cut(condition.note, LONGEST_NOTE),
        "type": "Normal" if condition.good else "Warning",
    }


def repeated(before: Mapping[str, Any], now: float) -> dict[str, Any]:
    """The event, seen once more. ``before``: as the server has it."""
    series = before.get("series")
    count = series.get("count") if isinstance(series, Mapping) else None
    new = {"count": (count if type(count) is int else 1) + 1, "lastObservedTime": micro_time(now)}
    return {**before, "series": new}


def micro_time(seconds: float) -> str:
    """A MicroTime: RFC 3339, to the microsecond."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _cut(text: str, most: int) -> str:
    return encodable(text).encode()[:most].decode(errors="ignore")
