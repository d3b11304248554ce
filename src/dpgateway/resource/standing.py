"""The registration of a resource by one front, as a value for the status."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure, and its beginning."""

    reason: str
    since: str | None
    """In RFC 3339, UTC, to the second."""


@dataclass(frozen=True, slots=True)
class Standing:
    """The registration of one resource, by one front. docs/reference/status.md describes each field."""

    front: str
    """The front's name: ``deviceplugin`` or ``dra``."""
    state: str
    """The state, in the front's words."""
    since: str | None = None
    """When the state was entered, in RFC 3339, UTC, to the second; None if the resource isn't served yet."""
    registered: bool = False
    """The present kubelet has accepted the registration, or has opened a stream."""
    streaming: bool = False
    """A stream of the present kubelet is open. A front without streams: the kubelet has accepted the registration."""
    listed: bool = False
    """The list was sent on such a stream. A front without streams: the same as ``streaming``, because a kubelet gets no
    list."""
    api: str | None = None
    """The name of the API in which the present kubelet accepted the registration; None if it hasn't."""
    failure: str | None = None
    """Why no stream of the present kubelet is open, if known; None while one is."""
