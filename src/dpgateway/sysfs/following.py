"""A survey that is taken again whenever something changes, and reads only what has changed."""

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
"""Seconds without a look at everything, after which a change leads to one."""


class Proof:
    """When everything is looked at, though events say what has changed: then an event that was lost does no harm."""

    def __init__(self) -> None:
        self.wanted = True
        """Whether everything is looked at the next time. Any thread may want that."""
        self._last = 0.0

    def due(self, news: ChangedPlaces | None, now: float) -> ChangedPlaces | None:
        """The places for the next look; None: everything. ``now``: seconds. News comes before a due proof, because a
        look at news is quick.
        """
        if news is None or self.wanted:
            self._last, self.wanted = now, False
            return None
        self.wanted = now - self._last > PROOF
        return news


class FollowedSurvey(Generic[D]):
    """Calls ``changed`` from a thread of its own, soon after something changed that a device may depend on."""

    def __init__(
        self,
        name: str,
        survey: Survey[D],
        changed: Callable[[], None],
        log: logging.LoggerAdapter[logging.Logger],
    ) -> None:
        """``name``: of the thread. ``log``: is told what matches and can't be offered, and what can't be watched."""
        self._survey, self._changed = survey, changed
        self._notices, self._proof = Complaint(log, level=logging.INFO), Proof()
        self._listens = False
        self._watcher = Watcher(name, changed, Complaint(log), survey.concerns)

    def find(self) -> Mapping[str, D]:
        """The devices by their ids. Raises OSError, if a directory of sysfs can't be listed."""
        if not self._listens:  # before the look, so that no uevent is missed in between
            self._watcher.watch()
            self._listens = True
        found = self._survey.find(self._proof.due(self._watcher.news(), time.monotonic()))
        if self._watcher.watch(self._survey.directories):
            self.doubt()  # a change may have come just before the new watch
        elif self._proof.wanted:
            self._changed()
        self._notices.say(*self._survey.notices)
        return found

    def again(self, id_: str, parts: Iterable[Part]) -> D:
        """A device that was found before, as it is now, for the moment before a container gets it. From any thread.
        Raises ChangedError, unless it is what it was; then everything is looked at. Raises OSError.
        """
        try:
            return self._survey.again(id_, parts)
        except ChangedError:
            self.doubt()
            raise

    def doubt(self) -> None:
        """Has everything looked at."""
        self._proof.wanted = True
        self._changed()

    def close(self) -> None:
        self._watcher.close()
