"""Where one resource stands with the kubelet, as one value for all who show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dpgateway.deviceplugin.registration.lifecycle import State

_REGISTERED = frozenset({State.EXPECTING, State.SERVING})


@dataclass(frozen=True, slots=True)
class Standing:
    """It begins as that of a resource that nobody serves yet."""

    state: State = State.UNREADY
    since: float | None = None
    """In seconds of the monotonic clock."""
    streaming: bool = False
    """A stream of this kubelet is open."""
    listed: bool = False
    """The list was sent on such a stream."""
    tried: str = ""
    """The name of the API in which Register was sent last."""
    complaint: str = ""
    """Why no stream of this kubelet is open, as far as that is known; empty while one is."""
    attempts: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """How often Register was sent so far, by API and outcome."""

    @property
    def api(self) -> str | None:
        """The name of the API in which this kubelet accepted it; None if it hasn't."""
        return self.tried if self.state in _REGISTERED else None
