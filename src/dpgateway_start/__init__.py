"""The program's first moments, before the package ``dpgateway`` is imported.

Importing takes some tenths of a second, in which signals come, too. This imports nothing but what they need.
"""

import os
import signal
import sys
from types import FrameType

from dpgateway_start import init

_END = (signal.SIGTERM, signal.SIGINT)
_OTHERS = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def main() -> object:
    """The command line. `run` is a process that others send signals to, and may be a container's first one."""
    if sys.argv[1:2] == ["run"]:
        _open_standard_streams()
        init.stay_behind((*_END, *_OTHERS))
        for number in _END:
            signal.signal(number, _end_at_once)  # there is nothing yet to end in order
        for number in _OTHERS:
            signal.signal(number, signal.SIG_IGN)  # dpgateway.daemon.signals will answer
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
