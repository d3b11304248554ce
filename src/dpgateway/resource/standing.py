"""The state of a front's registration of a resource, for status, metrics and readiness."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Standing:
    """The registration of one resource, by one front. docs/reference/status.md describes each field."""

    front: str
    """The front's name: ``deviceplugin``."""
    state: str
    """The state, in the front's words."""
    since: str | None = None
    """When the state was entered, in RFC 3339, UTC, to the second; None if the resource isn't served yet."""
    registered: bool = False
    """The present kubelet has accepted the registration, or has opened a stream."""
    streaming: bool = False
    """A stream of the present kubelet is open."""
    listed: bool = False
    """The list was sent on such a stream."""
    api: str | None = None
    """The name of the API in which the present kubelet accepted the registration; None if it hasn't."""
    failure: str | None = None
    """Why no stream of the present kubelet is open, if known; None while one is."""
