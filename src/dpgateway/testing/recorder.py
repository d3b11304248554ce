"""A context for a driver under test, which records its messages and changes."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection
from typing import Literal

from dpgateway.drivers.contract import Context


class Recorder:
    """The gateway's end of a driver's context."""

    def __init__(self) -> None:
        self.changed = threading.Event()
        """Set by each ``context.changed()``; a test may clear it."""
        self.changes = 0
        """The number of calls of ``context.changed()``."""
        self.messages: list[str] = []
        """The driver's log messages of all levels."""
        self._news = threading.Event()
        self._lock = threading.Lock()

    def context(
        self, resource: str = "example.com/device", node_name: str = "node-a", held: Collection[str] = ()
    ) -> Context:
        """``held``: the ids of the devices that containers hold, as after a restart."""
        logger = logging.Logger(resource)  # noqa: LOG001  not shared with the next recorder
        logger.setLevel(logging.DEBUG)
        logger.parent = logging.getLogger()  # pytest's caplog listens there
        logger.addHandler(_Keep(self._note_message))
        adapter = logging.LoggerAdapter(logger, {"resource": resource})
        known = frozenset(held)
        return Context(resource, node_name, log=adapter, changed=self._note_change, held=lambda: known)

    def until(self, condition: Callable[[], object], seconds: float = 20.0) -> Literal[True]:
        """Waits until ``condition`` is true; evaluates it now, and after each ``changed()`` and each message. For
        drivers that notice changes on a thread of their own::

            recorder = Recorder()
            driver = MyDriver(MyOptions(), recorder.context())
            unplug("board-1")
            assert recorder.until(lambda: [device.id for device in driver.devices()] == ["board-2"])

        Returns True. Raises AssertionError after ``seconds``.
        """
        deadline = time.monotonic() + seconds
        while True:
            # Cleared before the check, so that news during it end the wait.
            self._news.clear()
            if condition():
                return True
            if not self._news.wait(deadline - time.monotonic()):
                raise AssertionError(
                    f"the condition wasn't met within {seconds:g} s, found {self.changes} changes and the "
                    f"messages {self.messages}"
                )

    def _note_change(self) -> None:
        with self._lock:
            self.changes += 1
        self.changed.set()
        self._news.set()

    def _note_message(self, message: str) -> None:
        self.messages.append(message)
        self._news.set()


class _Keep(logging.Handler):
    def __init__(self, note: Callable[[str], None]) -> None:
        super().__init__()
        self._note = note

    def emit(self, record: logging.LogRecord) -> None:
        self._note(record.getMessage())
