"""Where one resource stands with the kubelet, as the rest of the gateway sees it: status, metrics, readiness."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime

from dpgateway.deviceplugin.registration.lifecycle import State


@dataclass(frozen=True, slots=True)
class Standing:
    """The default is that of a resource that isn't served yet. docs/reference/status.md describes each field."""

    state: State = State.UNREADY
    since: str | None = None
    """When the state was entered, in RFC 3339, UTC, to the second."""
    registered: bool = False
    """The present kubelet has accepted Register, or has opened a stream."""
    streaming: bool = False
    """A stream of the present kubelet is open."""
    listed: bool = False
    """The list was sent on such a stream."""
    api: str | None = None
    """The name of the API in which the present kubelet accepted Register; None if it hasn't."""
    failure: str | None = None
    """Why no stream of the present kubelet is open, as far as that is known; None while one is."""


def timestamp() -> str:
    """The current time, as :attr:`Standing.since` has it."""
    return datetime.fromtimestamp(int(time.time()), UTC).isoformat().replace("+00:00", "Z")
