"""The child process of a probe: started, killed, and asked for its message."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress

from dpgateway import await_program

LEAVE = 0.5
"""Seconds in which killed children usually end."""
_LONGEST = 200
"""Limit of characters of a command's message."""
_READ = 65536
"""Bytes read from the end of a command's output, for its last line."""


class ProbeChild:
    """A running command. Until it is over, its owner keeps it."""

    def __init__(self, command: Sequence[str]) -> None:
        """Waits until the program is loaded. Raises OSError; ValueError if an argument has a zero byte, say."""
        # a file for its messages, because an unread pipe would block it; a session, so that kill() reaches its children
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  it lives as long as the child
        self.pidfd = -1
        environment = {"PATH": os.environ.get("PATH", os.defpath)}
        await_program(command[0])
        try:
            self._process = subprocess.Popen(
                command, env=environment, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=self._said, start_new_session=True,
            )  # fmt: skip
        except (OSError, ValueError):
            self._said.close()
            raise
        try:
            self.pidfd = os.pidfd_open(self._process.pid)
        except OSError:
            self.kill()
            self.leave(time.monotonic() + LEAVE)
            raise

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def end(self) -> str | None:
        """Takes the result of a child that has ended: why it failed, or None."""
        code = self._process.returncode
        self._said.seek(max(0, self._said.seek(0, os.SEEK_END) - _READ))
        lines = self._said.read(_READ).decode(errors="replace").strip().splitlines()
        self._close()
        if code == 0:
            return None
        signals = {one.value: one.name for one in signal.Signals}  # without most real-time signals
        ending = f"exit code {code}" if code > 0 else f"ended by {signals.get(-code, f'signal {-code}')}"
        return lines[-1][:_LONGEST] if lines else ending

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def leave(self, until: float) -> None:
        """Waits for a killed child until then, and abandons one that hangs in the kernel."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, until - time.monotonic()))
        self._close()

    def _close(self) -> None:
        self._said.close()
        if self.pidfd >= 0:
            os.close(self.pidfd)
