"""Logs what is wrong once, until it changes or is over; and repeats now and then what is still wrong."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from dpgateway.errors import encodable

EVERY = 600.0
"""Seconds until what is still wrong is repeated, because the line that said it first may be days old."""


class Complaint:
    """One problem, or all problems of one kind. Used from one thread at a time."""

    def __init__(
        self,
        log: logging.LoggerAdapter[logging.Logger],
        message: str = "%s",
        recovered: str = "",
        level: int = logging.WARNING,
    ) -> None:
        """``message``: with a ``%s`` for the text; ``recovered``: what the log says when it is over."""
        self._log, self._message, self._recovered, self._level = log, message, recovered, level
        self.texts: tuple[str, ...] = ()
        """All that is wrong now."""

    @property
    def text(self) -> str:
        """What is wrong now; empty if nothing is."""
        return "; ".join(self.texts)

    def say(
        self,
        *texts: str,
        message: str = "",
        error: BaseException | None = None,
        extra: Mapping[str, object] | None = None,
    ) -> None:
        """``texts``: all that is wrong at this moment. ``message``: another one, for these. ``error``: is logged with
        its traceback; ``extra``: fields.
        """
        if not texts:
            self.over()
            return
        before, self.texts = self.texts, tuple(dict.fromkeys(texts))
        for text in self.texts:
            if text not in before:  # a name in it needn't be UTF-8
                self._log.log(self._level, message or self._message, encodable(text), exc_info=error, extra=extra)

    def over(self) -> None:
        """Nothing is wrong any more."""
        if self.texts and self._recovered:
            self._log.info(self._recovered)
        self.texts = ()


class Reminder:
    """Repeats what is still wrong. Used from the event loop; there is a timer only while something is."""

    def __init__(self, say: Callable[[str, float], object]) -> None:
        """``say(text, seconds)``: what is wrong, and for how long something has been."""
        self._say = say
        self._text = ""
        self.since: float | None = None
        """When something went wrong, by the event loop's clock; None while nothing is."""
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def hear(self, text: str) -> None:
        """``text``: what is wrong now; empty if nothing is. When it changes, its age goes on."""
        self._text = "" if self._closed else text
        if not self._text:
            self._stop()
        elif self._timer is None:
            loop = asyncio.get_running_loop()
            self.since, self._timer = loop.time(), loop.call_later(EVERY, self._repeat)

    def close(self) -> None:
        """Nothing is repeated any more."""
        self._closed = True
        self._stop()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.since = self._timer = None

    def _repeat(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(EVERY, self._repeat)
        self._say(self._text, loop.time() - (self.since or loop.time()))
