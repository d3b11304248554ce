"""The log: text for people, JSON lines for machines, and nothing else on standard error.

lines    formats a line
queued   a thread that writes the lines
events   the last important lines, as values
printed  turns drivers' prints into lines
setup    stream, format and level of the log
"""

from dpgateway.kit.log.events import LogEvent
from dpgateway.kit.log.lines import Format
from dpgateway.kit.log.queued import MOST_WAITING
from dpgateway.kit.log.setup import Bound, bind, captured, finish, in_background, lost, of_driver, recent, setup

__all__ = [
    "MOST_WAITING",
    "Bound",
    "Format",
    "LogEvent",
    "bind",
    "captured",
    "finish",
    "in_background",
    "lost",
    "of_driver",
    "recent",
    "setup",
]
