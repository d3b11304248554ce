import io
import logging
import sys
import threading

import pytest

from dpgateway.kit import log


class Slow(io.StringIO):
    """What is written waits for the gate, which is open at first."""

    def __init__(self):
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()

    def write(self, text):
        assert self.gate.wait(20)
        return super().write(text)


class Logged:
    """Sets up the log into a string, of which the caller gets the lines. Nothing is written while the gate is shut."""

    def __init__(self):
        self._stream = Slow()
        self.gate = self._stream.gate

    def __call__(self, log_format="json", log_level="info"):
        logging.getLogger().handlers.clear()  # pytest's own would raise for a wrong format
        log.setup(log_format, log_level, self._stream)
        return lambda: self._stream.getvalue().splitlines()


@pytest.fixture
def logged(monkeypatch):
    """Puts everything back afterwards."""
    for owner, hook in ((sys, "excepthook"), (threading, "excepthook"), (sys, "unraisablehook")):
        monkeypatch.setattr(owner, hook, getattr(owner, hook))
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    logged = Logged()
    yield logged
    logged.gate.set()
    logging.captureWarnings(capture=False)
    root.handlers[:] = handlers
    root.setLevel(level)
