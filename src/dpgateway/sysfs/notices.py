"""Logs a problem once, and again only if it had ended in between."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from dpgateway.errors import encodable


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
                self._log.log(self._level, encodable(text))  # a name in it needn't be UTF-8
        self._told = frozenset(texts)
