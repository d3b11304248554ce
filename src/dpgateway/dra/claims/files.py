"""The records on disk: ``state_dir/dra/claims/<uid>.json``, one file for each claim.

A file is replaced atomically, and its content is on the disk before its name (fsync): a record is never half written. A
file that can't be read keeps its place: nothing that it may stand for is given away before a person has looked.

:class:`ClaimFiles` blocks, so it is used on a thread. :class:`ClaimDisk` does that for the event loop: a call fails
after DISK, but what it has begun goes on. So the changes of one file wait for one another, even for those that nobody
waits for any more: a change that took too long must not come after a later one.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from dpgateway.dra.claims.records import ClaimRecord, Damaged, record
from dpgateway.kit.files import make_private, read, sweep, write
from dpgateway.kit.tasks import KeyedLanes
from dpgateway.kit.threads import Threads

T = TypeVar("T")

DISK = 5.0
"""Seconds that the disk has to answer."""
LARGEST = 1024 * 1024
"""Bytes of a record."""

_UID = re.compile(r"[0-9a-zA-Z-]{1,64}")
"""A claim's uid: what the kubelet sends becomes a file name."""


class ClaimFiles:
    """The records of all claims."""

    def __init__(self, state_dir: Path) -> None:
        self.folder = state_dir / "dra" / "claims"
        self._complete = state_dir / "dra" / "complete"

    def all(self) -> tuple[tuple[ClaimRecord, ...], tuple[Damaged, ...]]:
        """The records, and the files that are none. Removes what killed gateways have left. Raises OSError."""
        if not self.folder.exists():  # lost, with the records that were compared
            self._complete.unlink(missing_ok=True)
        for folder in (self.folder.parent, self.folder):
            make_private(folder)
            with contextlib.suppress(OSError):  # it harms nobody
                sweep(folder)
        return self.look()

    def look(self) -> tuple[tuple[ClaimRecord, ...], tuple[Damaged, ...]]:
        """The same, and makes nothing; no files without the folder. Raises OSError if it can't be read."""
        found, damaged, paths = [], [], list[Path]()
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            paths = sorted(self.folder.iterdir())  # glob() takes a folder that it mustn't read for an empty one
        for path in [one for one in paths if one.suffix == ".json"]:
            try:
                found.append(record(read(path, LARGEST).content.decode(), path.name))
            except (OSError, ValueError, TypeError, KeyError) as error:
                damaged.append(Damaged(path.name, str(error)))
        return tuple(found), tuple(damaged)

    def driver(self) -> str:
        """The driver of the claims that have records; empty if there is none, or no record says it. Makes nothing."""
        for path in sorted(self.folder.glob("*.json")):
            with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
                if driver := record(read(path, LARGEST).content.decode(), path.name).driver:
                    return driver
        return ""

    @property
    def complete(self) -> bool:
        """Whether the records were compared with the kubelet once, so that none was lost before that."""
        return self._complete.exists() and self.folder.exists()

    def completed(self) -> None:
        """The records are those of all claims that the kubelet has. Raises OSError."""
        write(self._complete, b"")

    def write(self, one: ClaimRecord) -> None:
        """Raises OSError."""
        # After a power cut the kubelet prepares its claims anew, so an older record, or none, is as good as this one.
        write(self._path(one.uid), one.to_json().encode(), lasting=False)

    def remove(self, uid: str) -> None:
        """Raises OSError."""
        self._path(uid).unlink(missing_ok=True)

    def set_aside(self, one: Damaged) -> None:
        """Renames a damaged file to ``<file>.damaged``: its claim has ended, but a person may want to see it. Raises
        OSError.
        """
        with contextlib.suppress(FileNotFoundError):  # a person has removed it
            (self.folder / one.file).rename(self.folder / f"{one.file}.damaged")

    def gone(self, damaged: Iterable[Damaged]) -> tuple[Damaged, ...]:
        """The damaged files that aren't there any more."""
        return tuple([one for one in damaged if not (self.folder / one.file).exists()])

    def _path(self, uid: str) -> Path:
        if not _UID.fullmatch(uid):
            raise OSError(f"expected a claim's uid of letters, digits and '-', found {uid!r}")
        return self.folder / f"{uid}.json"


class ClaimDisk:
    """The files as the event loop changes them."""

    def __init__(self, files: ClaimFiles, threads: Threads) -> None:
        self.files, self._threads, self._changes = files, threads, KeyedLanes("files of claim")

    @property
    def changing(self) -> frozenset[asyncio.Future[Any]]:
        """The changes of files under way, also those that nobody waits for any more."""
        return self._changes.running

    async def change(self, uid: str, work: Callable[[], T]) -> T:
        """What ``work`` returns, on a thread: it changes the claim's record or specs, after what is under way there.
        Raises GatewayError, OSError; after a TimeoutError it may be done yet.
        """
        return await self._changes.within(uid, lambda: self._threads.call("claims", work, DISK), DISK, "the disk")

    async def run(self, work: Callable[[], T]) -> T:
        """What ``work`` returns, on a thread. Raises GatewayError, and what it raises."""
        return await self._threads.call_within("claims", work, DISK)
