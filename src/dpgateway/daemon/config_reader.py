"""Has another process read the configuration's files, and look which drivers are installed; it ends when it has.

What that needs, a parser of YAML and the standard library's ``importlib.metadata``, takes 5 MB, which the gateway would
keep as long as it runs. And nothing else of a process runs while it parses: 0.1 ms for each value, at each reload.
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
"""Seconds after which the log says that the other process hasn't answered, and that it has after that."""
_PR_SET_PDEATHSIG = 1
"""prctl(2)"""
_log = bind(__name__)


@dataclass(frozen=True, slots=True)
class ConfigInputs:
    """What there is to configure the gateway with."""

    files: Files
    installed: Points


class ConfigReader:
    """Begins at once, so that the gateway's modules can be imported meanwhile."""

    def __init__(self, config: Path, slow: float = SLOW, patience: float = PATIENCE) -> None:
        self._config, self._slow, self._patience = config, slow, patience
        self._process: subprocess.Popen[bytes] | None = None
        # what this process would import: -P, because the working directory has nothing to do with it
        program = (
            f"import sys; sys.path[:] = {sys.path!r}; from dpgateway.daemon import config_reader; config_reader.tell()"
        )
        command = [sys.executable, "-P", "-c", program, str(config), str(os.getpid())]
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        except OSError as error:
            self._warn(error)

    def result(self) -> ConfigInputs:
        """Waits for it. What the other process can't do, this one does.

        Raises InvalidConfiguration if the other process hasn't answered, because this one would hang as well.
        """
        if self._process is not None:
            try:
                seen: ConfigInputs = pickle.loads(self._answer(self._process))  # noqa: S301  it comes from our own program
            except subprocess.TimeoutExpired as error:
                found = f"what hasn't been read for {self._slow + self._patience:g} s"
                raise InvalidConfiguration([Problem(Place(str(self._config)), found, "files that answer")]) from error
            except Exception as error:
                self._warn(error)
            else:
                return seen
        return _see(self._config)

    def _answer(self, process: subprocess.Popen[bytes]) -> bytes:
        try:
            answer = self._wait(process)
        finally:
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):  # it can't be killed while a disk holds it
                process.wait(1)
            if process.stdout is not None:
                process.stdout.close()
        if process.returncode:
            raise OSError(f"it ended with {process.returncode}")
        return answer

    def _wait(self, process: subprocess.Popen[bytes]) -> bytes:
        try:
            return process.communicate(timeout=self._slow)[0]
        except subprocess.TimeoutExpired:
            _log.warning("%s, or what is installed, hasn't been read for %g s", self._config, self._slow)
            return process.communicate(timeout=self._patience)[0]

    def _warn(self, error: Exception) -> None:
        _log.warning(
            "the configuration is read by the gateway itself, because a process for it failed: %s", describe(error)
        )


def tell() -> None:
    """What the other process does. It ends with the one that waits for it."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(sys.argv[2]):  # it has ended meanwhile
        return
    sys.stdout.buffer.write(pickle.dumps(_see(Path(sys.argv[1]))))


def _see(config: Path) -> ConfigInputs:
    return ConfigInputs(read_all(config), look())
