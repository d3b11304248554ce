"""Brings one board from any state to a verified bitstream, in steps, under its lock.

Theory. The steps are: compare journal and board; read and check the bitstream; write ``programming`` into the journal;
program; read the board back; write ``loaded`` or ``faulted``. A board is left alone if the journal says that it runs
the bitstream and the board doesn't deny it. From before the first byte until the board was read back, its image counts
as unknown, so after a crash at any step the next attempt programs it again.

An entry is filed under the board's key, which depends on its place in /sys. Earlier releases and tools knew only its
address. Theirs are removed whenever the board is programmed, so one that exists is later than ours: ``entry`` believes
it if it says ``faulted``, and counts the board as unknown otherwise.
"""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from dpgateway import Busy, DeviceUnavailable, DriverError
from dpgateway_fpga.bitstream import Image, read_image
from dpgateway_fpga.boards import Bitstream, Board
from dpgateway_fpga.journal import BoardJournal, BoardRecord
from dpgateway_fpga.programmers import Locks, Programmer, Progress, Verification, verify

_PASSING = frozenset({errno.EBUSY, errno.EAGAIN, errno.EINTR})
"""Errors of a kernel that was busy (drivers/fpga/fpga-mgr.c)."""


class Refused(DriverError):
    """The bitstream can't be programmed onto this board. The board wasn't touched."""


class Meanwhile(DriverError):
    """Another resource or tool has programmed the board since. This attempt didn't touch it."""


@dataclass(frozen=True, slots=True)
class Work:
    """Programs one board for one resource."""

    board: Board
    programmer: Programmer
    journal: BoardJournal
    resource: str
    log: logging.LoggerAdapter[logging.Logger]

    def ensure(self, bitstream: Bitstream, tell: Progress, fallback: Bitstream | None = None) -> None:
        """Returns when the board runs the bitstream; at once if it does already. ``tell`` gets each step.

        Raises Busy (another process programs the board), or Refused. After any other error the board is faulted, or
        runs the ``fallback``, which is tried once unless the error may pass.
        """
        with self.journal.locked(*self.board.keys) as locks:
            try:
                self._ensure(bitstream, tell, locks)
            except Exception as error:
                # under the same lock, so that no other attempt comes in between
                if fallback is not None and not isinstance(error, Refused) and not may_pass(error):
                    reason = f"programming {bitstream.id} failed: {error}"
                    try:
                        self._program(fallback, self.check(fallback), tell, locks, reason=reason)
                    except (DriverError, OSError) as second:
                        text = "board %s can't be programmed with the fallback either: %s"
                        self.log.warning(text, self.board.id, second)
                raise

    def ensure_again(self, bitstream: Bitstream, tell: Progress) -> None:
        """Retries after a failure. Raises Meanwhile if the board was programmed since: a container may have it."""
        with self.journal.locked(*self.board.keys) as locks:
            entry = self.entry()
            if entry is None or entry.state != "faulted" or entry.resource != self.resource:
                raise Meanwhile(f"it is {entry or 'unknown'}")
            self._ensure(bitstream, tell, locks)

    def blank(self, bitstream: Bitstream, tell: Progress) -> None:
        """Programs the blank image onto a free board. Raises Meanwhile if another resource has programmed it since."""
        with self.journal.locked(*self.board.keys) as locks:
            entry = self.entry()
            if entry is not None and entry.resource != self.resource:
                raise Meanwhile(f"it is {entry}")
            self._ensure(bitstream, tell, locks)

    def _ensure(self, bitstream: Bitstream, tell: Progress, locks: Locks) -> None:
        tell("looking at the board")
        # with a pinned digest a board that runs it needs no file, which may be gone by now
        if bitstream.sha256 is not None and self.runs(bitstream.sha256):
            self._take_over(bitstream)
            return
        tell("reading the bitstream")
        image = self.check(bitstream)
        if self.runs(image.sha256):
            self._take_over(bitstream)
        else:
            self._program(bitstream, image, tell, locks)

    def _take_over(self, bitstream: Bitstream) -> None:
        """Records that another resource's image is this resource's now, which blanks the board when it is free."""
        entry = self.entry()
        if entry is not None and entry.resource != self.resource:
            # the reason is why the other resource's own bitstream failed
            ours = replace(entry, bitstream=bitstream.id, resource=self.resource, reason="")
            self.journal.write(self.board.key, ours)

    def gone(self) -> None:
        """Forgets an absent board: it may have lost power, so its image and its fault are unknown if it comes back."""
        with suppress(DriverError, OSError), self.journal.locked(*self.board.keys):
            if self.entry() is not None:
                self.forget()

    def forget(self) -> None:
        """Makes the board's image unknown. The caller has the lock. Raises DriverError, OSError."""
        for key in self.board.keys:
            self.journal.forget(key)

    def entry(self) -> BoardRecord | None:
        """The journal's entry for the board in its present life; None: unknown."""
        board = self.board
        found = self.journal.read(board.key, board.life)
        # programming removes entries under the address, so one that exists is later: a tool's, for example
        if later := self._by_address(board.keys[1:]):
            return later if later.state == "faulted" else None
        # earlier releases filed one board under each of its addresses, so a later entry may be under another one
        old = found is not None and found.life is None
        return None if old and self._by_address(board.above) else found

    def _by_address(self, keys: Sequence[str]) -> BoardRecord | None:
        """The first entry of a writer that knew only the address."""
        found = (self.journal.read(key) for key in keys)
        return next((one for one in found if one is not None and one.life is None), None)

    def runs(self, sha256: str) -> bool:
        """Whether the board runs this image: the journal says so, and the board doesn't deny it."""
        entry = self.entry()
        if entry is None or entry.state != "loaded" or entry.sha256 != sha256:
            return False
        found = self.programmer.read(self.board)
        denied = found.fault is not None
        if self.programmer.verification is Verification.IDENTITY:
            denied = denied or found.identity is None or found.identity != entry.identity
        if self.programmer.verification is Verification.STATE:
            denied = denied or not found.operating
        return not denied

    def check(self, bitstream: Bitstream) -> Image:
        """The bitstream's bytes. Raises Refused if they mustn't be programmed onto this board."""
        try:
            image = read_image(bitstream)
            self.programmer.expected(self.board, image)
        except (DriverError, OSError) as error:
            raise Refused(str(error)) from error
        return image

    def _program(self, bitstream: Bitstream, image: Image, tell: Progress, locks: Locks, *, reason: str = "") -> None:
        entry = BoardRecord(
            "programming",
            bitstream.id,
            image.sha256,
            self.resource,
            int(time.time()),
            self.journal.boot,
            life=self.board.life,
        )
        # before the first byte: a process that dies from here on leaves `programming` behind
        tell("writing the journal")
        self.journal.write(self.board.key, entry)
        for key in self.board.keys[1:]:
            self.journal.forget(key)
        self.log.info("programming board %s with %s", self.board.id, bitstream.id)
        try:
            tell("programming")
            self.programmer.program(self.board, image, tell, locks)
            tell("reading the board back")
            found = verify(self.programmer, self.board, image)
        except KeyboardInterrupt:  # as if this process was killed: a child goes on, and has the lock until its end
            raise
        except BaseException as error:  # after any error the board's image is in doubt
            text = str(error) or repr(error)
            why = f"{reason}; so did programming {bitstream.id}: {text}" if reason else text
            again, touched = may_pass(error), bool(getattr(error, "touched", True))
            fault = replace(entry, state="faulted", since=int(time.time()), reason=why, again=again, touched=touched)
            self.journal.write(self.board.key, fault)
            raise
        tell("writing the journal")
        loaded = replace(entry, state="loaded", since=int(time.time()), identity=found.identity, reason=reason)
        self.journal.write(self.board.key, loaded)
        self.log.info("board %s runs %s", self.board.id, bitstream.id)


def may_pass(error: BaseException) -> bool:
    """Whether the same attempt may succeed later."""
    if isinstance(error, OSError):
        return error.errno in _PASSING
    return isinstance(error, Busy | DeviceUnavailable) or bool(getattr(error, "again", False))
