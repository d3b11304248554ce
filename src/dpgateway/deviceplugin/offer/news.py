"""What the log says of devices: which turned Unhealthy and why, or Healthy again, are new, or left the list.

Changes are gathered for a moment, because a device that flaps, or a hundred that vanish together, must not fill the
log. A device that is as the log said last is no news, and devices of the same fate share a line.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from dpgateway.deviceplugin.offer.shares import device_id
from dpgateway.model import Offer, Offers
from dpgateway.process.observable import Observable

GATHERING = 0.5
"""Seconds."""
MOST_NAMED, MOST_LINES = 10, 10
"""Devices named in a line, and lines about one change."""


@dataclass(frozen=True, slots=True)
class Fate:
    """What several devices have in common."""

    level: int
    text: str


RECOVERED = Fate(logging.INFO, "Healthy again")
NEW = Fate(logging.INFO, "new")
LEFT = Fate(logging.INFO, "not listed any more")


class News:
    """Follows one resource's list. ``quiet``: true while something else says what is wrong with all of it."""

    def __init__(
        self,
        listed: Observable[Offers | None],
        log: logging.LoggerAdapter[logging.Logger],
        quiet: Callable[[], bool],
        gathering: float = GATHERING,
    ) -> None:
        self._list, self._log, self._quiet, self._gathering = listed, log, quiet, gathering
        self._logged: Offers | None = None

    async def follow(self) -> None:
        """Never returns."""
        version = 0
        while True:
            await self._list.newer(version)
            await asyncio.sleep(self._gathering)
            version = self._list.version
            if self._list.value is not None and not self._quiet():
                self._log_changes(self._list.value)

    def _log_changes(self, now: Offers) -> None:
        fates: dict[Fate, list[str]] = defaultdict(list)
        for device, fate in changes(self._logged, now):
            fates[fate].append(device)
        self._logged = now
        lines = list(fates.items())
        for fate, devices in lines[:MOST_LINES]:
            subject = "the device is" if len(devices) == 1 else f"{len(devices)} devices are"
            self._log.log(fate.level, "%s %s", subject, fate.text, extra={"device": _names(devices)})
        if rest := sum(len(devices) for _, devices in lines[MOST_LINES:]):
            self._log.warning("%d more devices changed, each in a way of its own", rest)


def changes(logged: Offers | None, now: Offers) -> Iterator[tuple[str, Fate]]:
    """Each device that changed, not each share of it, with its fate; of a first list only the Unhealthy devices.

    Share 0 has the device's own id and stands for all of them.
    """
    before = logged or {}
    changed = [i for i, offer in now.items() if before.get(i) is not offer]  # what didn't change is the same value
    changed += [i for i in before if i not in now]
    for device in dict.fromkeys(map(device_id, changed)):
        fate = _fate(before.get(device), now.get(device))
        if fate is not None and not (fate is NEW and logged is None):
            yield device, fate


def _fate(old: Offer | None, new: Offer | None) -> Fate | None:
    if new is None:
        return LEFT if old is not None else None
    if not new.health.ok:
        known = old is not None and old.health == new.health
        return None if known else Fate(logging.WARNING, f"Unhealthy: {new.health.reason}")
    if old is None:
        return NEW
    return None if old.health.ok else RECOVERED


def _names(devices: Sequence[str]) -> str:
    more = len(devices) - MOST_NAMED
    return ", ".join(devices[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
