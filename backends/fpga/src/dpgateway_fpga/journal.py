"""The record of what each board was programmed with, on disk, and a lock for each board against other processes.

A board has one small file, written before the board is touched and again afterwards, and a lock file beside it. A file
that can't be read, or is from another boot, counts as missing: then the board is programmed again.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from dpgateway import Busy, DriverError, from_plain
from dpgateway_fpga.trusted import read_file, trusted_directory, write_file

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_LARGEST = 64 * 1024
_LONGEST = 2000
"""Limit of characters of a reason, each of which takes at most 12 bytes."""
_ENTRY = 4096
"""Bytes of the disk that an entry takes."""


@dataclass(frozen=True, slots=True)
class BoardRecord:
    """The outcome of the last attempt to program a board."""

    state: Literal["programming", "loaded", "faulted"]
    """The outcome; ``programming``: under way, or interrupted by the end of the process."""
    bitstream: str
    """The bitstream's id."""
    sha256: str
    resource: str
    """The resource for which the board was programmed."""
    since: int
    """The time of this state, in seconds since 1970."""
    boot: str
    """The boot id: a board's image and fault may be gone after a power cut."""
    identity: str | None = None
    """The board's identity, read back once it was loaded."""
    reason: str = ""
    """Why the board is faulted; for a fallback image, why the wanted one failed."""
    again: bool = False
    """Whether the same attempt may succeed later."""
    touched: bool = True
    """Whether a failed attempt may have changed the board; if not, the board isn't at fault."""
    life: int | None = None
    """The board's life (``Located.life``); None: unknown, as in earlier releases."""

    def __str__(self) -> str:
        at = datetime.fromtimestamp(self.since, UTC).isoformat().replace("+00:00", "Z")
        return f"{self.state} {self.bitstream} as {self.resource} since {at}"


class BoardJournal:
    """The records and locks of all boards, in a directory that no other user can write. Blocks on the disk."""

    def __init__(self, state_dir: Path) -> None:
        self.state_dir = state_dir
        self.boot = _BOOT_ID.read_text().strip()
        """The boot id (Documentation/admin-guide/sysctl/kernel.rst)."""

    def read(self, board: str, life: int | None = None) -> BoardRecord | None:
        """The entry of this boot, and of this life unless either life is None; None: unknown."""
        try:
            with trusted_directory(self.state_dir) as directory:
                entry = from_plain(json.loads(read_file(f"{board}.json", _LARGEST, directory)), BoardRecord)
        except (DriverError, OSError, ValueError, RecursionError):
            return None
        same = None in {life, entry.life} or life == entry.life
        return entry if same and entry.boot == self.boot else None

    def write(self, board: str, entry: BoardRecord) -> None:
        """Writes an entry durably. Raises DriverError, OSError, which leave the old entry in place."""
        # an entry that is too long isn't read again, and its fault would be forgotten
        content = json.dumps(asdict(replace(entry, reason=entry.reason[:_LONGEST]))).encode()
        with self._directory() as directory:
            write_file(f"{board}.json", content, 0o600, directory)

    def forget(self, board: str) -> None:
        """Makes the board's image unknown. The caller has the lock. Raises DriverError, OSError."""
        with self._directory() as directory, suppress(FileNotFoundError):
            os.unlink(f"{board}.json", dir_fd=directory)

    def trouble(self, board: str) -> str:
        """Why no entry can be written, without which the board isn't programmed; empty if one can be. Leaves nothing
        behind, because commands that change nothing ask, too.
        """
        name = f".{board}.trial"
        try:
            there = next(one for one in (self.state_dir, *self.state_dir.parents) if one.exists())
            with trusted_directory(there) as directory:
                file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=directory)
                try:
                    os.write(file, bytes(_ENTRY))
                finally:
                    os.close(file)
                    with suppress(FileNotFoundError):  # another resource with this board has tried it, too
                        os.unlink(name, dir_fd=directory)
        except (DriverError, OSError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            return f"no image can be recorded in {self.state_dir}: {why}"
        return ""

    @contextmanager
    def locked(self, *names: str) -> Iterator[Sequence[int]]:
        """Locks a board under each of its names, against other threads and processes, and yields the descriptors.
        Raises Busy at once if a lock is taken; DriverError, OSError.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with ExitStack() as closed:
            locks: list[int] = []
            for name in names:
                with self._directory() as directory:
                    locks.append(os.open(f"{name}.lock", flags, 0o600, dir_fd=directory))
                # released with its last descriptor, so a process that dies leaves no lock behind (flock(2))
                closed.callback(os.close, locks[-1])
                try:
                    fcntl.flock(locks[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError as error:
                    found = self.read(name) or "it has no entry in the journal"
                    path = self.state_dir / f"{name}.lock"
                    raise Busy(f"another process is programming it, and has locked {path}: {found}") from error
            yield locks

    @contextmanager
    def _directory(self) -> Iterator[int]:
        self.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        with trusted_directory(self.state_dir) as directory:
            yield directory
