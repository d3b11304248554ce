"""The child process of ``config_reader``. It imports no more than it takes to read files, and to look for drivers."""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from dpgateway.config.files import Files, read_all
from dpgateway.drivers.points import Points, look

_PR_SET_PDEATHSIG = 1
"""prctl(2)"""


@dataclass(frozen=True, slots=True)
class ConfigInputs:
    """The inputs of a configuration."""

    files: Files
    installed: Points


def main() -> None:
    """Writes the inputs to standard output. The kernel kills the child with its parent."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == int(sys.argv[2]):  # else the parent ended before prctl
        sys.stdout.buffer.write(pickle.dumps(ConfigInputs(read_all(Path(sys.argv[1])), look())))
