"""The program's first moments, before the package ``dpgateway`` is imported.

Importing takes some tenths of a second, in which signals come, too. This imports nothing but what they need.
"""

import os
import signal
import sys
from types import FrameType


def main() -> object:
    """The command line. `run` takes signals from the start; ``dpgateway.daemon.signals`` follows."""
    if sys.argv[1:2] == ["run"]:
        _open_standard_streams()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _end_at_once)  # there is nothing yet to end in order
        for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, signal.SIG_IGN)
    python = signal.getsignal(signal.SIGINT)
    if python is signal.default_int_handler:  # it would print a traceback of what is being imported
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from dpgateway.cli import main as command_line  # noqa: PLC0415  this is what takes a while

    if python is signal.default_int_handler:
        signal.signal(signal.SIGINT, python)
    return command_line()


def _open_standard_streams() -> None:
    """Opens those that the process was started without, before another file gets their numbers."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def _end_at_once(number: int, frame: FrameType | None) -> None:
    os._exit(0)
