"""Parses the configuration and discovers installed drivers in a short-lived child process.

A YAML parser and ``importlib.metadata`` take 5 MB, which the gateway would never free. And parsing blocks the process:
0.1 ms per value, at each reload.

If the child can't be started, or fails, the gateway parses by itself. A child that doesn't answer means a hanging disk,
which would hang the gateway, too.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
from pathlib import Path

from dpgateway.config import InvalidConfiguration, Place, Problem
from dpgateway.config.files import read_all
from dpgateway.daemon.config_child import ConfigInputs
from dpgateway.drivers.points import look
from dpgateway.errors import describe
from dpgateway.kit.log import bind

SLOW, PATIENCE = 10.0, 60.0
"""Seconds until the log reports a silent child, and further seconds until it is killed."""
_CHILD = "import sys; sys.path[:] = {path!r}; from dpgateway.daemon import config_child; config_child.main()"
"""The child's code. It imports from this process's path."""

_log = bind(__name__)


class ConfigReader:
    """The child process. It starts at once, while the gateway still imports its modules."""

    def __init__(self, config: Path, slow: float = SLOW, patience: float = PATIENCE) -> None:
        self._config, self._slow, self._patience = config, slow, patience
        self._process: subprocess.Popen[bytes] | None = None
        # -P: without the working directory in the path
        command = [sys.executable, "-P", "-c", _CHILD.format(path=sys.path), str(config), str(os.getpid())]
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        except OSError as error:
            self._warn(error)

    def result(self) -> ConfigInputs:
        """Waits for the child's result. Raises InvalidConfiguration if it doesn't answer in time."""
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
        return ConfigInputs(read_all(self._config), look())

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
