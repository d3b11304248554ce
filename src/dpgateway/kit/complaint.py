"""Says in the log what is wrong: once, until it changes or is over."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from dpgateway.errors import encodable


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
