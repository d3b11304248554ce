"""Warns of a kubelet that speaks none of our APIs: once for all resources, and again every ten minutes."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence

from dpgateway.kit.log import bind

GATHERING = 1.0
"""Seconds from the first refused resource to the warning about all of them."""
REMINDER = 600.0
"""Seconds between two warnings, while the kubelet goes on refusing."""

_log = bind(__name__)


class Refusals:
    """Collects one kubelet's refusals. Used from the event loop."""

    def __init__(self, apis: Sequence[str], gathering: float = GATHERING) -> None:
        """``apis``: the names of the offered APIs, newest first. ``gathering``: seconds."""
        self._apis, self._gathering = apis, gathering
        self._answers: dict[str, dict[str, str]] = defaultdict(dict)
        """The kubelet's answers since the last warning, by resource and API."""
        self._timer: asyncio.TimerHandle | None = None

    def refused(self, resource: str, api: str, answer: str) -> None:
        self._answers[resource][api] = answer
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._gathering, self._tell)

    def accepted(self, resource: str) -> None:
        self._answers.pop(resource, None)

    def forget(self) -> None:
        """Starts over, for another kubelet or at this gateway's end."""
        self._answers.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tell(self) -> None:
        """Warns of the resources refused in every API. The others have APIs left to try."""
        self._timer = None
        refused = {name: answers for name, answers in self._answers.items() if len(answers) == len(self._apis)}
        for name in refused:
            del self._answers[name]
        if not refused:
            return
        # One resource's answers stand for all, because they are one kubelet's.
        answers = next(iter(refused.values()))
        _log.warning(
            "the kubelet speaks none of the APIs that it was offered, so %d resource%s not registered; it answered %s; "
            "expected a kubelet from 1.8 to 1.37; it is asked again at least every 75 s",
            len(refused),
            "s are" if len(refused) > 1 else " is",
            ", ".join(f"{answers[api]!r} to {api}" for api in self._apis),
            extra={"resources": list(refused), "count": len(refused)},
        )
        self._timer = asyncio.get_running_loop().call_later(REMINDER, self._tell)
