"""What was programmed onto each board, on disk: so that the next gateway knows it, and a second one keeps off.

One small file for each board, written before a board is touched and again afterwards, and a lock beside it. A file that
can't be read, or is of another boot, says nothing: then the board is programmed again.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from dpgateway import Busy, DriverError, from_plain
from dpgateway_fpga.trusted import read_file, trusted_directory, write_file

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_LARGEST = 64 * 1024


@dataclass(frozen=True, slots=True)
class BoardRecord:
    """What became of a board when it was programmed last."""

    state: Literal["programming", "loaded", "faulted"]
    """``programming``: under way, or broken off by the end of the process."""
    bitstream: str
    """Its id."""
    sha256: str
    resource: str
    """For which resource."""
    since: int
    """When this became so, in seconds since 1970."""
    boot: str
    """The boot: a board's image and fault may be gone after a power cut."""
    identity: str | None = None
    """What the board said of itself once it was loaded."""
    reason: str = ""
    """Why it is faulted; or, of a fallback image, why it isn't the one that was wanted."""
    again: bool = False
    """Whether the same attempt may succeed later."""
    touched: bool = True
    """Whether a failed attempt may have changed the board; if not, it is no fault of the board."""
    life: int | None = None
    """In which life of what programs it; None: that wasn't known, as in earlier releases."""

    def __str__(self) -> str:
        at = datetime.fromtimestamp(self.since, UTC).isoformat().replace("+00:00", "Z")
        return f"{self.state} {self.bitstream} as {self.resource} since {at}"


class BoardJournal:
    """Of all boards, in a directory that is ours alone. Blocks on the disk."""

    def __init__(self, state_dir: Path) -> None:
        self.state_dir = state_dir
        self.boot = _BOOT_ID.read_text().strip()
        """Which boot this is (Documentation/admin-guide/sysctl/kernel.rst)."""

    def read(self, board: str, life: int | None = None) -> BoardRecord | None:
        """What was written in this boot, and in this life of what programs it; None: unknown."""
        try:
            with trusted_directory(self.state_dir) as directory:
                entry = from_plain(json.loads(read_file(f"{board}.json", _LARGEST, directory)), BoardRecord)
        except (DriverError, OSError, ValueError, RecursionError):
            return None
        same = None in {life, entry.life} or life == entry.life
        return entry if same and entry.boot == self.boot else None

    def write(self, board: str, entry: BoardRecord) -> None:
        """Returns once a power cut can't undo it. Raises DriverError, OSError; then the file is as it was before."""
        content = json.dumps(asdict(entry)).encode()
        with self._directory() as directory:
            write_file(f"{board}.json", content, 0o600, directory)

    def forget(self, board: str) -> None:
        """Makes the board's image unknown. The caller has the lock. Raises DriverError, OSError."""
        with self._directory() as directory, suppress(FileNotFoundError):
            os.unlink(f"{board}.json", dir_fd=directory)

    @contextmanager
    def locked(self, *names: str) -> Iterator[Sequence[int]]:
        """Descriptors of the locks of a board, under each of its names, exclusive in this process and among others.
        Raises Busy at once if a lock is taken; DriverError, OSError.
        """
        with ExitStack() as locks:
            yield [locks.enter_context(self._locked(name)) for name in names]

    @contextmanager
    def _locked(self, board: str) -> Iterator[int]:
        with self._directory() as directory:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            lock = os.open(f"{board}.lock", flags, 0o600, dir_fd=directory)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                found = self.read(board) or "nothing is written down of it"
                path = self.state_dir / f"{board}.lock"
                raise Busy(f"another process is programming it, and has locked {path}: {found}") from error
            yield lock
        finally:
            os.close(lock)

    @contextmanager
    def _directory(self) -> Iterator[int]:
        self.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        with trusted_directory(self.state_dir) as directory:
            yield directory
