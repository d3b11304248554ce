"""One board: programs it with the bitstream, and after a failure tries again by itself."""

from __future__ import annotations

import contextlib
import random
import threading
from dataclasses import replace

from dpgateway import Context, Device, DriverError, Health
from dpgateway_fpga.bitstream import read_image
from dpgateway_fpga.options import Board, FpgaOptions
from dpgateway_fpga.programmers import Programmer, verify


class Slot:
    """A board is healthy until programming it fails, and again once it succeeds."""

    def __init__(self, board: Board, options: FpgaOptions, programmer: Programmer, context: Context) -> None:
        self.board, self._options, self._programmer, self._context = board, options, programmer, context
        self._device = board.device()
        self._programming = threading.Lock()
        """Held while the board is looked at and programmed."""
        self._state = threading.Lock()
        """Guards the fields below. Only a thread that holds ``_programming`` changes them, and ``close``."""
        self._health = Health.healthy()
        self._failures = 0
        self._retry: threading.Timer | None = None
        self._closed = False

    def device(self) -> Device:
        return replace(self._device, health=self._health)

    def ensure(self) -> None:
        """Returns when the board runs the bitstream; at once if it does already. Raises DriverError."""
        with self._programming:
            try:
                self._program()
            except BaseException as error:  # after any error, what the board runs is in doubt
                self._failed(str(error) or repr(error))
                raise DriverError(f"board {self.board.id!r} can't be programmed: {error}") from error
            self._settle(Health.healthy(), failures=0)

    def close(self) -> None:
        with self._state:
            self._closed = True
            self._cancel()

    def _program(self) -> None:
        programmer, name, pinned = self._programmer, self._options.bitstream.id, self._options.bitstream.sha256
        if pinned and programmer.read(self.board).identity == pinned:
            return
        image = read_image(self._options.bitstream)
        if programmer.read(self.board).identity == programmer.expected(self.board, image):
            return
        self._context.log.info("programming board %s with %s", self.board.id, name)
        programmer.program(self.board, image, lambda _: None)
        verify(programmer, self.board, image)
        self._context.log.info("board %s runs %s", self.board.id, name)

    def _failed(self, why: str) -> None:
        failures = self._failures + 1
        self._context.log.warning("board %s can't be programmed (failure %d): %s", self.board.id, failures, why)
        self._settle(Health.unhealthy(f"programming failed: {why}"), failures)

    def _settle(self, health: Health, failures: int) -> None:
        with self._state:
            changed = health != self._health
            self._health, self._failures = health, failures
            self._cancel()
            if failures and not self._closed:
                self._retry = threading.Timer(pause(failures, self._options), self._try_again)
                self._retry.daemon = True
                try:
                    self._retry.start()
                except RuntimeError as error:  # no thread can be started
                    self._context.log.warning(
                        "board %s isn't tried again until a container's start: %s", self.board.id, error
                    )
        if changed:
            self._context.changed()

    def _try_again(self) -> None:
        with contextlib.suppress(DriverError):  # logged already, and the next attempt is planned
            self.ensure()

    def _cancel(self) -> None:
        if self._retry:
            self._retry.cancel()
            self._retry = None


def pause(failures: int, options: FpgaOptions) -> float:
    """Seconds to wait after this many failures. The jitter separates boards that failed at the same time."""
    first, limit = options.retry_first.total_seconds(), options.retry_limit.total_seconds()
    return min(limit, first * 2.0 ** min(failures - 1, 30)) * random.uniform(0.8, 1.0)  # noqa: S311  no secret
