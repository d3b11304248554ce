"""A log that remembers."""

import logging

from dpgateway.kit.complaint import Complaint
from dpgateway.kit.log import Bound, bind


class Records(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def texts(self, least: int = logging.INFO) -> list[str]:
        return [record.getMessage() for record in self.records if record.levelno >= least]

    def bound(self, **fields: object) -> Bound:
        logger = logging.Logger("test", logging.DEBUG)  # noqa: LOG001  not shared with another test
        logger.addHandler(self)
        return bind(logger, **fields)


def complaint(texts: list[str]) -> Complaint:
    """One that says to ``texts`` what it would log."""
    return Complaint(_Texts(texts).bound())


class _Texts(Records):
    def __init__(self, texts: list[str]) -> None:
        super().__init__()
        self._texts = texts

    def emit(self, record: logging.LogRecord) -> None:
        self._texts.append(record.getMessage())
