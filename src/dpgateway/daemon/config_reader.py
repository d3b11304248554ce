"""Parses the configuration and finds the installed drivers in a child process that ends when it has.

A YAML parser and ``importlib.metadata`` take 5 MB, which would stay in the gateway for good. And while a process
parses, nothing else of it runs: 0.1 ms for each value, at each reload.

If the child can't be started, or fails, the gateway does the work itself. If the child doesn't answer, a disk hangs,
and would hang the gateway as well.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from dpgateway.config import InvalidConfiguration, Place, Problem
from dpgateway.config.files import Files, read_all
from dpgateway.drivers.points import Points, look
from dpgateway.errors import describe
from dpgateway.kit.log import bind

SLOW, PATIENCE = 10.0, 60.0
"""Seconds until the log says that the child hasn't answered, and further seconds until it is killed."""
_PR_SET_PDEATHSIG = 1
"""prctl(2)"""
_CHILD = "import sys; sys.path[:] = {path!r}; from dpgateway.daemon import config_reader; config_reader.child()"
"""The child imports what this process would import, from the same path."""

_log = bind(__name__)


@dataclass(frozen=True, slots=True)
class ConfigInputs:
    """What a configuration is made of."""

    files: Files
    installed: Points


class ConfigReader:
    """The child, which starts at once: the gateway's modules can be imported meanwhile."""

    def __init__(self, config: Path, slow: float = SLOW, patience: float = PATIENCE) -> None:
        self._config, self._slow, self._patience = config, slow, patience
        self._process: subprocess.Popen[bytes] | None = None
        # -P: the working directory has nothing to do with it
        command = [sys.executable, "-P", "-c", _CHILD.format(path=sys.path), str(config), str(os.getpid())]
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        except OSError as error:
            self._warn(error)

    def result(self) -> ConfigInputs:
        """Waits for the child. Raises InvalidConfiguration if it doesn't answer."""
        if self._process is not None:
            try:
                inputs: ConfigInputs = pickle.loads(self._answer(self._process))  # noqa: S301  from our own program
            except subprocess.TimeoutExpired as error:
                found = f"what hasn't been read for {self._slow + self._patience:g} s"
                raise InvalidConfiguration([Problem(Place(str(self._config)), found, "files that answer")]) from error
            except Exception as error:
                self._warn(error)
            else:
                return inputs
        return _read(self._config)

    def _answer(self, process: subprocess.Popen[bytes]) -> bytes:
        try:
            try:
                answer = process.communicate(timeout=self._slow)[0]
            except subprocess.TimeoutExpired:
                _log.warning("%s, or what is installed, hasn't been read for %g s", self._config, self._slow)
                answer = process.communicate(timeout=self._patience)[0]
        finally:
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):  # it can't be killed while a disk holds it
                process.wait(1)
            if process.stdout is not None:
                process.stdout.close()
        if process.returncode:
            raise OSError(f"it ended with {process.returncode}")
        return answer

    def _warn(self, error: Exception) -> None:
        _log.warning(
            "the configuration is read by the gateway itself, because a process for it failed: %s", describe(error)
        )


def child() -> None:
    """The child's program. The kernel ends it with its parent."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == int(sys.argv[2]):  # else the parent ended before prctl
        sys.stdout.buffer.write(pickle.dumps(_read(Path(sys.argv[1]))))


def _read(config: Path) -> ConfigInputs:
    return ConfigInputs(read_all(config), look())
