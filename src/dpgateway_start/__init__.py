"""The entry point: handles signals while ``dpgateway`` is being imported.

The import takes some tenths of a second, in which signals may come. So this package imports only signal handling. And
it chooses how much is imported: a plain ``dpgateway status`` runs in the gateway's own container, in little memory.
"""

import os
import signal
import sys
from types import FrameType


def main() -> object:
    """The command line. For `run`, installs signal handlers, which ``dpgateway.daemon.signals`` later replaces."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if ignored, each child would seem to have ended with 0
    if sys.argv[1:2] == ["run"]:
        for number in range(3):  # missing standard streams, before another file gets their descriptors
            try:
                os.fstat(number)
            except OSError:
                os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _end_at_once)  # nothing needs an orderly shutdown yet
        for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, signal.SIG_IGN)
    python = signal.getsignal(signal.SIGINT)
    if python is signal.default_int_handler:  # Ctrl+C would print a traceback of the import
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.argv[1:2] == ["status"]:
        from dpgateway.cli import plain_status  # noqa: PLC0415

        if (code := plain_status.main(sys.argv[2:], os.environ)) is not None:
            return code
    from dpgateway.cli.group import main as command_line  # noqa: PLC0415  takes some tenths of a second

    if python is signal.default_int_handler:
        signal.signal(signal.SIGINT, python)
    return command_line()


def _end_at_once(number: int, frame: FrameType | None) -> None:
    os._exit(0)
