"""Detects another device plugin that registers the name of one of our resources.

A kubelet silently replaces a resource's plugin by the last one that registers. But its checkpoint lists the ids
(``RegisteredDevices``, 1.9 and later), so ids that aren't in our list reveal a rival.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Collection, Mapping
from typing import NamedTuple

from dpgateway.deviceplugin.registration.record import RegistrationRecord
from dpgateway.kit.observable import Observable
from dpgateway.resource.inventory import Inventory

LISTED_WITHIN = 1.0
"""Seconds from our list to a checkpoint that must contain it. An earlier one may have the list before it."""
SETTLED = 10.0
"""Seconds after which also an earlier checkpoint counts, if it is still the newest: when a kubelet starts, all plugins
register within moments, and then it writes nothing until the next Allocate."""
_MOST_NAMED = 3


class Listed(NamedTuple):
    """A list's ids, and the time of the list in seconds of the monotonic clock."""

    ids: Collection[str]
    since: float


class Rival:
    """The rival of one resource. Used from the event loop."""

    def __init__(self, resource: str, log: logging.LoggerAdapter[logging.Logger]) -> None:
        self._resource, self._log = resource, log
        self.complaint = Observable("")
        """The warning about a rival; empty while none is known."""
        self._registered: float | None = None

    async def follow(
        self,
        checkpoints: Observable[tuple[Mapping[str, Collection[str]], float]],
        inventory: Inventory,
        record: RegistrationRecord,
    ) -> None:
        """Checks each checkpoint when it is written, and once more after SETTLED; never returns. ``checkpoints``: the
        registered ids by resource, and the time of writing.
        """
        seen, again = 0, None
        while True:
            before = seen
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(again):
                    seen = await checkpoints.wait(seen)
            again = SETTLED + 1.0 if seen != before else None  # once per checkpoint
            ids, written = checkpoints.value
            theirs = Listed(ids.get(self._resource, ()), written)
            ours = Listed((inventory.list.value or {}).keys(), inventory.list.since)
            self.look(theirs, ours, record.listed_since, time.monotonic())

    def look(self, theirs: Listed, ours: Listed, registered: float | None, now: float) -> None:
        """Compares the ids in the kubelet's checkpoint with our list.

        ``registered``: the start of our registration, None until the kubelet has our list; ``now``: both in seconds of
        the monotonic clock.
        """
        text = self.complaint.value
        if registered != self._registered:  # each registration of ours replaces another plugin's
            text, self._registered = "", registered
        # Only a checkpoint written after the kubelet had our list can reveal a rival.
        if registered is not None:
            listed = max(registered, ours.since)
            if theirs.since > listed + LISTED_WITHIN or (theirs.since > listed and now > listed + SETTLED):
                strange = sorted(set(theirs.ids).difference(ours.ids))
                more = f" and {len(strange) - _MOST_NAMED} more" if len(strange) > _MOST_NAMED else ""
                text = (
                    f"another device plugin has registered {self._resource}: the kubelet lists ids that this gateway "
                    f"never offered: {', '.join(strange[:_MOST_NAMED])}{more}; stop it, or rename the resource of one "
                    "of the two"
                )
                text = text if strange else ""
        if self.complaint.set(text) and text:
            self._log.warning("%s", text, extra={"reason": text})
