"""Logs a problem once, and again only if it had ended in between."""

from __future__ import annotations

import logging
from collections.abc import Iterable


class Notices:
    """Problems of one kind, at one level of the log."""

    def __init__(self, log: logging.LoggerAdapter[logging.Logger], level: int = logging.WARNING) -> None:
        self._log = log
        self._level = level
        self._told: frozenset[str] = frozenset()

    def tell(self, now: Iterable[str]) -> None:
        """``now``: all problems that there are at this moment."""
        texts = dict.fromkeys(now)
        for text in texts:
            if text not in self._told:
                self._log.log(self._level, text)
        self._told = frozenset(texts)
