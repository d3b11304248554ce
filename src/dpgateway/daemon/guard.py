"""The guard: a small process beside the gateway, which kills it when it hangs after a signal that is to end it.

While a driver's C code, or a regular expression, holds the interpreter's lock, no Python code of the process runs: no
handler of a signal, no thread, no timer. Only the interpreter's C code still writes the signal's number into a socket.
So another process looks at that socket: a number of ``signals.END`` that lies there unread for ``SECONDS`` ends the
gateway. A gateway that lingers has read it, and puts one there when it ends. Nothing else wakes the guard, and it ends
with the gateway.

It runs as a script, in an interpreter without ``site`` and without this package, because it is on every node: 4 MB.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time

SECONDS = 1.9
"""From a signal to the end of the gateway, whatever hangs; its own last word comes before."""
_PAUSE = 0.1
"""Seconds between two looks while a number lies there that doesn't end the gateway."""
_END = {signal.SIGTERM, signal.SIGINT}
_GONE = select.POLLRDHUP | select.POLLHUP


def start(inbox: socket.socket, log_format: str) -> None:
    """Starts the guard of this process. ``log_format``: of ``--log-format``. Raises OSError."""
    import subprocess  # noqa: PLC0415  the script doesn't need it, and it takes memory

    command = [sys.executable, "-I", "-S", __file__, log_format]
    subprocess.Popen(command, stdin=inbox.fileno(), stdout=subprocess.DEVNULL, cwd="/")


def _main(log_format: str) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)  # the terminal, or systemd, sends them to every process
    gateway = os.getppid()
    if _hangs() and os.getppid() == gateway:
        os.kill(gateway, signal.SIGKILL)
        _say(log_format, f"the gateway was killed, because it hung for {SECONDS:g} s after the signal to end")


def _hangs() -> bool:
    """Returns once a signal to end has lain unread for SECONDS; False if the gateway has gone."""
    since = None
    with socket.socket(fileno=os.dup(0)) as inbox:
        while not _wait(select.POLLIN | select.POLLRDHUP, None if since is None else 0) & _GONE:
            try:
                unread = inbox.recv(4096, socket.MSG_PEEK)
            except BlockingIOError:  # the gateway has read it meanwhile
                unread = b""
            if not _END & set(unread):
                since = None
            elif since is None:
                since = time.monotonic()
            elif time.monotonic() - since >= SECONDS:
                return True
            if unread and _wait(select.POLLRDHUP, _PAUSE):
                break
    return False


def _wait(events: int, seconds: float | None = None) -> int:
    """What has happened at the socket; 0 if nothing has within ``seconds``."""
    poll = select.poll()
    poll.register(0, events)
    return sum(found for _, found in poll.poll(None if seconds is None else seconds * 1000))


def _say(log_format: str, message: str) -> None:
    """A line like those of the gateway's log, which this script doesn't import."""
    import json  # noqa: PLC0415  needed at the end only, and it takes memory

    now = time.time()
    ts = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03}Z"
    entry = {"ts": ts, "level": "error", "logger": "dpgateway.daemon.guard", "message": message}
    text = log_format == "text" or (log_format == "auto" and sys.stderr.isatty())
    sys.stderr.write(f"{ts} ERROR   {message}\n" if text else f"{json.dumps(entry)}\n")


if __name__ == "__main__":
    _main(sys.argv[1])
