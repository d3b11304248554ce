"""The log: text for people, JSON lines for machines, and nothing else on standard error.

lines    what a line looks like
queued   a thread that writes the lines
events   the last lines that matter, as values
printed  makes lines of what drivers print
setup    where the log goes, in which format, and from which level on
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
