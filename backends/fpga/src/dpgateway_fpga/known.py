"""The node's boards for the command line: configuration, journal, and the boards' own state, put together."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from dpgateway import DriverError
from dpgateway.sysfs import Look
from dpgateway_fpga.boards import Board
from dpgateway_fpga.discovery import LOOKING, find
from dpgateway_fpga.ensuring import Work
from dpgateway_fpga.journal import BoardJournal
from dpgateway_fpga.options import FpgaOptions
from dpgateway_fpga.programmers import PROGRAMMERS, BoardState, Progress, Verification, said, verify
from dpgateway_fpga.reader import PatientReader
from dpgateway_fpga.slot import unknown

_log = logging.getLogger("dpgateway.fpga")


@dataclass(frozen=True, slots=True)
class Function:
    """One resource's function on one board."""

    resource: str
    options: FpgaOptions
    work: Work

    def verify(self) -> BoardState:
        """The board's state. Raises DriverError or OSError unless it runs the resource's bitstream, as far as board and
        journal can tell.
        """
        work, bitstream = self.work, self.options.chosen
        image = work.check(bitstream)
        found = verify(work.programmer, work.board, image)
        if work.programmer.verification is not Verification.IDENTITY and not work.runs(image.sha256):
            entry = work.entry()
            raise DriverError(f"expected the journal to say that it runs {bitstream.id}, found {entry or 'nothing'}")
        return found

    def program(self, tell: Progress) -> None:
        """Returns when the board runs the resource's bitstream. Raises Busy, DriverError, OSError."""
        self._check_known()
        self.work.ensure(self.options.chosen, tell, self.options.fallback)

    def reset(self) -> None:
        """Resets the board and forgets its image, so that it is programmed again before a container gets it. Raises
        Busy, DriverError, OSError.
        """
        self._check_known()
        with self.work.journal.locked(*self.work.board.keys):
            self.work.programmer.reset(self.work.board)
            self.work.forget()

    def _check_known(self) -> None:
        if why := unknown(self.work.board, self.options):
            raise DriverError(reading(self.work).fault or why)


@dataclass(frozen=True, slots=True)
class Known:
    """One board, and its functions in all resources."""

    board: Board
    functions: Sequence[Function]

    def function(self, resource: str) -> Function:
        """The function of a resource; with an empty name the only one. Raises DriverError."""
        found = [one for one in self.functions if resource in {"", one.resource}]
        if len(found) == 1:
            return found[0]
        names = ", ".join(one.resource for one in self.functions)
        if resource:
            raise DriverError(f"board {self.board.id!r} isn't one of {resource}; it is one of {names}")
        raise DriverError(f"board {self.board.id!r} is one of several resources, say which one: {names}")


def reading(work: Work) -> BoardState:
    return said(PatientReader("its state", partial(work.programmer.read, work.board)))


def boards(options: Mapping[str, FpgaOptions]) -> Mapping[str, Known]:
    """The boards, keyed by id, from each resource's ``options``. A board with several ids is listed under each, with
    all its functions. Raises OSError; DriverError if a look for boards hangs, or if the journal can't be read.
    """
    functions: dict[str, list[Function]] = {}
    """Functions, keyed by each key of their board."""
    keys: dict[str, Sequence[str]] = {}

    # two resources may list one board under different ids, which a common key reveals
    for resource, one in options.items():
        # an unreadable journal would make programmed boards look blank
        try:
            os.scandir(one.state_dir).close()
        except FileNotFoundError:
            pass  # nothing was programmed yet
        except OSError as error:
            raise DriverError(
                f"the boards' journal is in state_dir {one.state_dir}, which user {os.geteuid()} can't "
                f"read: {error.strerror}; run as root"
            ) from error
        programmer, journal = PROGRAMMERS[one.programmer](one), BoardJournal(one.state_dir)
        log = logging.LoggerAdapter(_log, {"resource": resource})
        look = partial(find, Look(one.roots), one)
        for board in PatientReader(f"{one.sysfs} for boards of {resource}", look, patience=LOOKING).read().boards:
            work = Work(board, programmer, journal, resource, log)
            function = Function(resource, one, work)
            for key in board.keys:
                functions.setdefault(key, []).append(function)
            keys[board.id] = (*keys.get(board.id, ()), *board.keys)
    found: dict[str, Known] = {}
    for id_, of_it in sorted(keys.items()):
        each = list({id(one): one for key in of_it for one in functions[key]}.values())  # once, by identity
        found[id_] = Known(next(one.work.board for one in each if one.work.board.id == id_), each)
    return found
