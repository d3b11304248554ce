"""The state of one resource's registration, as status, metrics, log and handover see it."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping

from dpgateway.deviceplugin.registration.lifecycle import State
from dpgateway.deviceplugin.values import FRONT
from dpgateway.kit.complaint import Complaint
from dpgateway.kit.observable import Observable
from dpgateway.kit.timestamp import timestamp
from dpgateway.resource.standing import Standing

_REGISTERED = frozenset({State.EXPECTING, State.SERVING})


class RegistrationRecord:
    """Used from the event loop. Only the registrar writes it."""

    def __init__(self, log: logging.LoggerAdapter[logging.Logger]) -> None:
        self._log = log
        self.standing = Observable(Standing(FRONT, State.UNREADY, timestamp()))
        self.attempts: Mapping[tuple[str, str], int] = {}
        """Number of Registers so far, by API and outcome."""
        self._since = time.monotonic()
        """The time at which the state was entered."""
        self._complaint = Complaint(log)

    @property
    def listed_since(self) -> float | None:
        """The start of the registration whose stream has the list, in seconds of the monotonic clock; None without."""
        return self._since if self.standing.value.listed else None

    def note(self, state: State, tried: str, streams: Collection[bool]) -> None:
        """Publishes the standing, if it has changed.

        ``tried``: the API of the last Register; ``streams``: for each open stream of this kubelet, whether its first
        list was sent.
        """
        before, registered = self.standing.value, state in _REGISTERED
        since = before.since
        if state is not before.state:
            self._since, since = time.monotonic(), timestamp()
        api = tried if registered else None
        failure = self._complaint.text or None
        now = Standing(FRONT, state, since, registered, bool(streams), any(streams), api, failure)
        if now != before:
            self.standing.set(now)

    def count(self, api: str, outcome: str) -> None:
        """Counts a Register in this API by its outcome."""
        self.attempts = {**self.attempts, (api, outcome): self.attempts.get((api, outcome), 0) + 1}
        self.standing.notify()

    def complain(self, text: str, api: str, *, starting: bool) -> None:
        """Warns, once until a stream opens or the text changes, because a stale kubelet.sock may refuse for days.

        ``starting``: the kubelet may just be starting, so this is no problem yet.
        """
        fields = {"api": api, "reason": text}
        if starting:
            self._log.debug("%s", text, extra=fields)
        else:
            self._complaint.say(text, extra=fields)

    def complaint_over(self) -> None:
        """Ends the complaint, because a stream is open."""
        self._complaint.over()
