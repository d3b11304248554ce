"""A survey that looks again after each change, and reads only what changed.

Theory. The order in ``find`` loses no change: the uevent socket exists before the first look, the news is taken before
each look, and directories that the look found are watched after it. If that is a larger set than before, a change may
have come between look and watch, so another look follows, at everything. So does one after a uevent during the look
which concerns only what that look has found.

An event, a doubt and a due proof all call ``changed``, which has the gateway call ``find`` again. A *proof* is a look
at everything: it ends the harm that a lost event does.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Generic

from dpgateway.kit.complaint import Complaint
from dpgateway.sysfs.changes import ChangedPlaces
from dpgateway.sysfs.grouping import ChangedError, Part
from dpgateway.sysfs.memory import D
from dpgateway.sysfs.survey import Survey
from dpgateway.sysfs.watching import Watcher

PROOF = 30.0
"""Seconds since the last look at everything, after which the next change leads to one."""


class Proof:
    """Decides when to look at everything although events name the changes, in case an event was lost."""

    def __init__(self) -> None:
        self.wanted = True
        """Whether the next look is at everything. Set from any thread."""
        self._last = 0.0

    def due(self, news: ChangedPlaces | None, now: float) -> ChangedPlaces | None:
        """The places for the next look; None: everything. ``now``: seconds. A due proof is left to the look after this
        one, because a look at news is quick, and the news shouldn't wait.
        """
        if news is None or self.wanted:
            self._last, self.wanted = now, False
            return None
        self.wanted = now - self._last > PROOF
        return news


class FollowedSurvey(Generic[D]):
    """Calls ``changed`` from its own thread soon after a change that may affect a device."""

    def __init__(
        self,
        name: str,
        survey: Survey[D],
        changed: Callable[[], None],
        log: logging.LoggerAdapter[logging.Logger],
    ) -> None:
        """``name``: the thread's. ``log`` gets the objects that match and can't be offered, and failures to watch."""
        self._survey, self._changed = survey, changed
        self._notices, self._proof = Complaint(log, level=logging.INFO), Proof()
        self._listens = False
        """Whether the uevent socket is open, which is before the first look."""
        self._watcher = Watcher(name, changed, Complaint(log), survey.concerns)

    def find(self) -> Mapping[str, D]:
        """The devices, keyed by id. Raises OSError if a directory of sysfs can't be listed."""
        if not self._listens:  # before the look, so that no uevent is missed in between
            self._watcher.watch()
            self._listens = True
        found = self._survey.find(self._proof.due(self._watcher.news(), time.monotonic()))
        if self._watcher.watch(self._survey.directories) or self._survey.missed:
            self.doubt()  # a change may have come just before the new watch, or during the look
        elif self._proof.wanted:
            self._changed()
        self._notices.say(*self._survey.notices)
        return found

    def again(self, id_: str, parts: Iterable[Part]) -> D:
        """Reads a known device again, just before a container gets it. From any thread. Raises OSError; ChangedError if
        the device has changed, which also triggers a look at everything.
        """
        try:
            return self._survey.again(id_, parts)
        except ChangedError:
            self.doubt()
            raise

    def doubt(self) -> None:
        """Triggers a look at everything."""
        self._proof.wanted = True
        self._changed()

    def close(self) -> None:
        self._watcher.close()
