"""Log lines about devices: Unhealthy and why, Healthy again, new, or off the list.

Theory of operation. Changes are gathered for a moment (GATHERING), because a flapping device, or a hundred that vanish
together, must not fill the log. A device in its last logged state (``_logged``) is no news, nor is a reason in which a
number alone has changed, such as a temperature. Devices with the same fate share a line. A device that goes on changing
is summed up once a minute (``_falls``).

A line about a device that became worse names the pods that hold it, because users with access to a namespace alone see
the log, but no status.

A device that is Unhealthy to the kubelet because its hardware is in use under another name is no fault: no warning, and
no fall.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from dpgateway.kit.observable import Observable, Signal
from dpgateway.model import changed
from dpgateway.resource.shares import Offer, Offers, device_id

GATHERING = 0.5
"""Seconds from a change until it is logged."""
LATER = 0.01
"""Seconds from a change until it is counted, because the kubelet's streams come first."""
MOST_LINES = 10
"""Lines about one change."""
MOST_HOLDERS = 3
"""Holders that a message names; the line's field has all."""

_NUMBER = re.compile(r"(?<![^\s(=])[-+]?\d+(\.\d+)?(?=[a-zA-Z%°]{0,3}(?![\w:/-]|\.\d))")
"""A measured value, with or without a unit; a number in a name is none."""

MINUTE = 60.0
"""Seconds over which falls are counted."""
FEW = 3
"""Falls in a minute up to which a device doesn't count as flapping."""


@dataclass(frozen=True, slots=True)
class Fate:
    """A change that several devices may have in common: one log line."""

    level: int
    text: str
    reason: str | None = None
    count: int | None = None


RECOVERED = Fate(logging.INFO, "Healthy again")
NEW = Fate(logging.INFO, "new")
LEFT = Fate(logging.INFO, "not listed any more")
FREE = Fate(logging.INFO, "free again")

Fates = dict[Fate, list[str]]
"""The devices of each fate."""

Holders = Mapping[str, Collection[str]]
"""The holders of each id."""


class ListLog:
    """Follows one resource's list. ``quiet``: returns true while another line explains the state of all devices."""

    def __init__(
        self,
        listed: Observable[Offers | None],
        log: logging.LoggerAdapter[logging.Logger],
        quiet: Callable[[], bool],
        gathering: float = GATHERING,
        holders: Callable[[], Holders] = dict,
    ) -> None:
        self._list, self._log, self._quiet, self._gathering = listed, log, quiet, gathering
        self._holders = holders
        self._changed = Signal()
        """Unlike the list's own version it also counts other reasons, which the kubelet isn't told."""
        listed.subscribe(self._changed.notify)
        self._logged: Offers | None = None
        self.falls = 0
        """How often a Healthy device became Unhealthy; not those whose hardware is in use under another name."""
        self._falls: Counter[str] = Counter()
        """The falls of each device in this minute: its changes to Unhealthy, or to another reason."""
        self._flapping: Mapping[str, int] = {}
        """The falls of the devices that flapped in the last minute."""
        self._gathered = self._minute = math.inf
        """When changes are logged, and falls summed up, by the event loop's clock; infinity: nothing is due."""

    async def follow(self) -> None:
        """Never returns."""
        version, before, loop = 0, None, asyncio.get_running_loop()
        while True:
            # Wakes for a change or a due line, whichever is first. A change whose LATER is cut short by a due line is
            # still unseen, and counted next.
            due = min(self._gathered, self._minute)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(due if due < math.inf else None):
                    await self._changed.wait(version)
                    await asyncio.sleep(LATER)
                    version, now = self._changed.version, self._list.value
                    self._gathered = min(self._gathered, loop.time() + self._gathering)
                    # A fall counts even if the device has recovered before the line is logged.
                    if before is not None and now is not None and not self._quiet():
                        for device, was_healthy in falls(before, now).items():
                            self.falls += was_healthy
                            self._falls[device] += 1
                            self._minute = min(self._minute, loop.time() + MINUTE)
                    before = now
            if loop.time() >= self._gathered:
                self._tell_changes()
            if loop.time() >= self._minute:
                self._sum_up(loop.time())

    def _tell_changes(self) -> None:
        self._gathered = math.inf
        now = self._list.value
        if now is None or self._quiet():
            return
        fates: Fates = defaultdict(list)
        for device, fate in changes(self._logged, now):
            if not self._flaps(device):
                fates[fate].append(device)
        before, self._logged = self._logged or {}, now
        self._tell(fates, {**before, **now} if fates else now)

    def _sum_up(self, time: float) -> None:
        """Logs the flapping devices of the last minute, with their present state."""
        self._flapping = {device: count for device, count in self._falls.items() if self._flaps(device)}
        self._falls.clear()
        self._minute = time + MINUTE if self._flapping else math.inf
        fates: Fates = defaultdict(list)
        for device, count in self._flapping.items():
            offer = (self._logged or {}).get(device)
            reason = None if offer is None else offer.health.reason
            state = "not listed" if offer is None else "Healthy" if offer.health.ok else "Unhealthy"
            times = f"{count} time{'s' if count != 1 else ''}"
            text = f"flapping: Unhealthy {times} in the last minute, {state} now{f': {reason}' if reason else ''}"
            fates[Fate(logging.WARNING, text, reason, count)].append(device)
        self._tell(fates, self._logged or {})

    def _flaps(self, device: str) -> bool:
        """Whether the device's changes are only counted. After a flapping minute one fall suffices."""
        return self._falls[device] > (0 if device in self._flapping else FEW)

    def _tell(self, fates: Fates, offers: Offers) -> None:
        """``offers``: the old and the new offers of these devices."""
        # The holders of each device's shares.
        lines, holders = list(fates.items()), defaultdict[str, list[str]](list)
        for id_, who in self._holders().items() if fates else ():
            offer = offers.get(id_)
            holders[device_id(id_) if offer is None else _first(offer)] += who

        for fate, devices in lines[:MOST_LINES]:
            subject = "the device is" if len(devices) == 1 else f"{len(devices)} devices are"
            held = _together(holders, devices) if fate not in {RECOVERED, NEW, FREE} else []
            fields = {"devices": devices, "holders": held or None, "count": fate.count, "reason": fate.reason}
            self._log.log(fate.level, "%s %s%s", subject, fate.text, _held_by(held, holders, devices), extra=fields)

        # Many different changes at once must not fill the log, so the rest share a line.
        if rest := [device for _, devices in lines[MOST_LINES:] for device in devices]:
            held = _together(holders, rest)
            text = "%d more devices changed, each in a way of its own%s"
            level = max(fate.level for fate, _ in lines[MOST_LINES:])
            fields = {"devices": rest, "holders": held or None}
            self._log.log(level, text, len(rest), _held_by(held, holders, rest), extra=fields)


def _together(holders: Holders, devices: Collection[str]) -> list[str]:
    return list(dict.fromkeys(who for device in devices for who in holders.get(device, ())))


def _held_by(names: list[str], holders: Holders, devices: Collection[str]) -> str:
    """``names``: of those of ``holders`` that hold one of these ``devices``, or none if they don't matter."""
    held = sum(bool(holders.get(device)) for device in devices)
    some = "" if held == len(devices) else f"{held} of them "
    more = len(names) - MOST_HOLDERS
    text = ", ".join(names[:MOST_HOLDERS]) + (f" and {more} more" if more > 0 else "")
    return f"; {some}held by {text}" if names else ""


def falls(before: Offers, now: Offers) -> dict[str, bool]:
    """The devices that were Healthy, which the value says, or Unhealthy for another reason, and are listed Unhealthy;
    each once, whatever its shares; without those in use.
    """
    found = {}
    for id_ in changed(before, now):
        was, is_ = before.get(id_), now[id_]
        if was is not None and not (is_.health.ok or is_.taken or _same(was, is_)) and _first(is_) == id_:
            found[id_] = was.health.ok
    return found


def changes(logged: Offers | None, now: Offers) -> Iterator[tuple[str, Fate]]:
    """The changed devices with their fates, one entry for all shares; of a first list only Unhealthy devices.

    Share 0, usually with the device's own id, stands for all shares.
    """
    before = logged or {}
    others = [now[i] for i in changed(before, now)]
    others += [offer for i, offer in before.items() if i not in now]
    for device in dict.fromkeys(map(_first, others)):
        old, new = before.get(device), now.get(device)
        if new is None:
            if old is not None:
                yield device, LEFT
        elif old is not None and _same(old, new):
            continue
        elif (reason := new.health.reason) is not None:
            level, word = (logging.INFO, "withheld") if new.taken else (logging.WARNING, "Unhealthy")
            yield device, Fate(level, f"{word}: {reason}", reason)
        elif old is not None:
            yield device, FREE if old.taken else RECOVERED
        elif logged is not None:
            yield device, NEW


def _same(old: Offer, new: Offer) -> bool:
    """Whether the new state is no news."""
    was, is_ = old.health.reason, new.health.reason
    return was == is_ or (None not in {was, is_} and _NUMBER.sub("", was or "") == _NUMBER.sub("", is_ or ""))


def _first(offer: Offer) -> str:
    return offer.first or (device_id(offer.id) if "::" in offer.id else offer.id)
