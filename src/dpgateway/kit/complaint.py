"""Logs a problem once, until it changes or is over, and repeats one that persists."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from dpgateway.errors import encodable

EVERY = 600.0
"""Seconds until a problem that persists is logged again, because its first line may be days old."""


class Complaint:
    """The problem, or the problems, of one kind. Used from one thread at a time."""

    def __init__(
        self,
        log: logging.LoggerAdapter[logging.Logger],
        message: str = "%s",
        recovered: str = "",
        level: int = logging.WARNING,
    ) -> None:
        """``message``: with ``%s`` for a problem's text; ``recovered``: logged when all problems are over."""
        self._log, self._message, self._recovered, self._level = log, message, recovered, level
        self.texts: tuple[str, ...] = ()
        """The present problems."""

    @property
    def text(self) -> str:
        """All present problems; empty if there is none."""
        return "; ".join(self.texts)

    def say(
        self,
        *texts: str,
        message: str = "",
        error: BaseException | None = None,
        extra: Mapping[str, object] | None = None,
    ) -> None:
        """``texts``: all present problems. ``message``: in place of the usual one. ``error``: with its traceback.
        ``extra``: fields.
        """
        if not texts:
            self.over()
            return
        before, self.texts = self.texts, tuple(dict.fromkeys(texts))
        for text in self.texts:
            if text not in before:  # a name in it needn't be UTF-8
                self._log.log(self._level, message or self._message, encodable(text), exc_info=error, extra=extra)

    def over(self) -> None:
        """All problems are over."""
        if self.texts and self._recovered:
            self._log.info(self._recovered)
        self.texts = ()


class Reminder:
    """Repeats a problem that persists. Used from the event loop; it has a timer only while there is a problem."""

    def __init__(self, say: Callable[[str, float], object]) -> None:
        """``say(text, seconds)`` gets the problem, and how long there has been one."""
        self._say = say
        self._text = ""
        self.since: float | None = None
        """The beginning of the problem, by the event loop's clock; None without one."""
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def set(self, text: str) -> None:
        """``text``: the present problem; empty if there is none. A change of the text doesn't reset ``since``."""
        self._text = "" if self._closed else text
        if not self._text:
            if self._timer is not None:
                self._timer.cancel()
            self.since = self._timer = None
        elif self._timer is None:
            loop = asyncio.get_running_loop()
            self.since, self._timer = loop.time(), loop.call_later(EVERY, self._repeat)

    def close(self) -> None:
        """Stops repeating."""
        self._closed = True
        self.set("")

    def _repeat(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(EVERY, self._repeat)
        self._say(self._text, loop.time() - (self.since or loop.time()))
