"""The journal: one resource's grants, kept on disk until their release.

One small JSON file per resource in ``state_dir``, written by the owner of the resource's lock. It exists only while an
id is unreleased. Without it the kubelet is the only source of holdings, as if no gateway had run here before.

Theory of operation. The file is read once, before the first grant, and written after each change: one write for many
Allocates, none of which waits for it. Reads and writes run on threads, one at a time. ``_saved`` is the content of the
disk, as far as known; a failed write is retried. A journal that couldn't be read at the start (``_unread``) is read
before the first write, because that write would destroy it. While another gateway serves the resource, this gateway
doesn't write (``_rests``).

A disk may hang, and a write that nobody waits for any more may end late. So a resource's calls, on whichever front,
share a lane: a writer that follows another one, after a restart of the driver for example, waits for that one's last
call. Other gateways wait for the lock, which stays until then (``Ownership.writing``).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import json
import logging
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from dpgateway.errors import GatewayError, KubeletError, describe
from dpgateway.kit.clock import Clock
from dpgateway.kit.complaint import Complaint
from dpgateway.kit.files import NotAFileError, TooLongError, make_private, read, write
from dpgateway.kit.tasks import KeyedLanes
from dpgateway.kit.threads import Threads
from dpgateway.resource.front import NOTED_WITHIN, Unreleased, Usage

T = TypeVar("T")

VERSION = 1
LARGEST = 32 * 1024 * 1024
"""Bytes of a journal that is read."""
LATEST = 2**36
"""The latest valid time, in seconds since 1970: the year 4147, within the range of ``datetime``."""

GATHERING = 0.05
"""Seconds from a change until its write, to gather further ones. A kubelet writes its checkpoint sooner."""
PATIENCE = 2.0
"""Seconds that the disk has to answer."""
UNWRITTEN = "after a restart nobody will remember what is given away now: %s"
KUBELET_ALONE = "what was given away before this start is known from the kubelet alone"
LAST_PATIENCE = 0.45
"""Seconds that the disk has to answer at the end: with the grace of the last calls, less than the process has."""

Entries = Mapping[str, Unreleased]
"""The records of unreleased ids, keyed by id."""


class Journal:
    """The file. Its methods block, so they are called on a thread."""

    def __init__(self, state_dir: Path, device_plugins_dir: Path, resource: str, front: str = "") -> None:
        """``front``: its name, if several fronts may offer the resource; empty for that of the first gateways."""
        key = f"{device_plugins_dir}\0{resource}" + (f"\0{front}" if front else "")
        name = hashlib.sha256(key.encode()).hexdigest()[:16]
        self.path = state_dir / f"{name}.json"
        self.resource = resource

    def load(self) -> Entries:
        """The file's content; empty without one. Raises OSError, and KubeletError for a wrong content, or no file."""
        try:
            raw = read(self.path, LARGEST).content
        except FileNotFoundError:
            return {}
        except OSError as error:
            if isinstance(error, TooLongError | NotAFileError) or error.errno == errno.ELOOP:  # a symbolic link
                raise KubeletError(str(error)) from error
            raise
        return from_json(raw, self.resource, str(self.path))

    def save(self, unreleased: Entries, *, sync: bool = True, ours: Callable[[], bool] = lambda: True) -> bool:
        """Writes the file. Raises OSError; then the file is unchanged. ``sync``: survives a power cut. ``ours``:
        whether the file is this gateway's, asked last, and returned; else it stays as it is.
        """
        if unreleased:
            make_private(self.path.parent)  # the content decides who gets a device
            return write(self.path, to_json(unreleased, self.resource), sync=sync, still=ours)
        if still := ours():
            self.path.unlink(missing_ok=True)
        return still

    def put_aside(self) -> Path:
        """Renames a damaged file, over an earlier one, so that people can examine it. Raises OSError."""
        aside = self.path.with_suffix(".damaged")
        try:
            return self.path.rename(aside)
        except OSError:  # only one of the two is a directory, or the earlier one isn't empty
            return self.path.rename(f"{aside}-{time.time_ns()}")


def to_json(unreleased: Entries, resource: str) -> bytes:
    ids = {id_: entry._asdict() for id_, entry in unreleased.items()}
    return json.dumps({"version": VERSION, "resource": resource, "claims": ids}, default=sorted).encode()


def from_json(raw: bytes, resource: str, path: str) -> Entries:
    """Raises KubeletError for anything that :func:`to_json` doesn't write."""
    try:
        document = json.loads(raw)
        if (document["version"], document["resource"]) != (VERSION, resource):
            raise ValueError(f"expected version {VERSION} of {resource}")
        return {_text(id_): _entry(given) for id_, given in document["claims"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise KubeletError(f"{path}: not a journal that this gateway wrote: {error!r:.300}") from error


def _entry(given: Mapping[str, Any]) -> Unreleased:
    # The first gateways wrote neither time, device, driver nor boot.
    since = given.get("since")
    if since is not None and not (type(since) is int and 0 <= since < LATEST):
        raise ValueError(f"expected seconds since 1970, found {since!r:.100}")
    device, driver, boot = given.get("device", ""), given.get("driver"), given.get("boot", "")
    for text in (given["kubelet"], device, driver or "", boot):
        if not isinstance(text, str):
            raise TypeError(f"expected a text, found {text!r:.100}")
    return Unreleased(given["kubelet"], _texts(given["pods"]), _texts(given["hardware"]), since, device, driver, boot)


def _texts(value: object) -> frozenset[str]:
    if not isinstance(value, list):
        raise TypeError(f"expected a list, found {value!r:.100}")
    return frozenset(map(_text, value))


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError(f"expected a text, found {value!r:.100}")
    value.encode()  # a lone surrogate can't be sent
    return value


def entries_of_others(
    state_dir: Path, device_plugins_dir: Path, resources: Collection[str]
) -> tuple[dict[str, Entries], list[str]]:
    """The journals of all resources but these, keyed by resource, and complaints about unreadable files. Drivers have
    files of other names there.
    """
    found: dict[str, Entries] = {}
    complaints = []
    ours = {Journal(state_dir, device_plugins_dir, resource).path for resource in resources}
    for path in sorted(set(state_dir.glob(f"{'[0-9a-f]' * 16}.json")) - ours):
        try:
            # A file's name is a hash, so its content names the resource.
            resource = json.loads(read(path, LARGEST).content)["resource"]
            journal = Journal(state_dir, device_plugins_dir, resource)
            if journal.path == path:  # else it belongs to another kubelet
                found[resource] = journal.load()
        except (KubeletError, OSError, ValueError, LookupError, TypeError, RecursionError) as error:
            complaints.append(f"{path}: {describe(error):.300}")
    return found, complaints


class JournalWriter:
    """Writes one resource's journal. Used from the event loop. Errors of the disk are logged, and stop nothing."""

    again = 10.0
    """Seconds until a failed write is retried, if nothing else changes."""

    def __init__(
        self,
        journal: Journal,
        usage: Usage,
        threads: Threads,
        log: logging.LoggerAdapter[logging.Logger],
        clock: Clock = time,
    ) -> None:
        self._journal, self._usage, self._threads, self._log = journal, usage, threads, log
        self._saved: Entries | None = {}
        """The content of the disk; None if it is unknown, as during a write."""
        self._writes = 0
        """The writes that have begun: each ends after those before it."""
        self._unread = False
        """Whether the disk may have an earlier gateway's journal that hasn't been read."""
        self._clock = clock
        self._complaint = Complaint(log, UNWRITTEN, "what is given away is written down again")
        self.lanes = KeyedLanes("journal of")
        """The calls of all writers, by resource."""
        self._rests = True
        self._left = 0
        """How often another gateway has got the journal by :meth:`leave`: no write from before replaces that one's."""

    @property
    def complaint(self) -> str:
        """Why the last change isn't on disk; empty if it is."""
        return self._complaint.text

    def under_way(self) -> Collection[asyncio.Future[Any]]:
        """The call under way, if any, also of an earlier writer, and although nobody may wait for it any more."""
        last = self.lanes.last(self._journal.resource)
        return () if last is None else (last,)

    async def load(self, *, rests: bool = False) -> None:
        """Reads and publishes an earlier gateway's journal; no grant may come before. ``rests``: that gateway may still
        write it; :meth:`go_on` follows.
        """
        self._rests, self._unread = rests, True
        try:
            await self._read(PATIENCE)
        except (GatewayError, OSError) as error:  # GatewayError also for want of a thread
            self._complaint.say(f"{self._journal.path} can't be read: {error}", message=f"{KUBELET_ALONE} for now: %s")
            self._saved = None
            self._usage.set(self._usage.value.remembered({}))
            self._usage.notify()  # wakes follow(), which reads again and writes

    async def _read(self, seconds: float) -> None:
        """Reads and publishes the disk's content. Raises OSError, GatewayError; a damaged file is put aside instead."""
        unreleased: Entries = {}
        try:
            unreleased = await self._on_disk(self._journal.load, seconds)
        except KubeletError as error:
            aside = await self._on_disk(self._journal.put_aside, seconds)
            self._log.warning("%s, and the file is %s now: %s", KUBELET_ALONE, aside, error)
        self._saved, self._unread = unreleased, False
        # The times of grants that the last checkpoint may lack, on the monotonic clock.
        now, date = self._clock.monotonic(), self._clock.time()
        ages = {id_: max(0.0, date - entry.since) for id_, entry in unreleased.items() if entry.since is not None}
        recent = {id_: now - age for id_, age in ages.items() if age < NOTED_WITHIN}
        self._usage.set(self._usage.value.remembered(unreleased, recent))

    async def follow(self) -> None:
        """Writes each change; never returns."""
        seen = 0
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.again if self.complaint else None):
                    await self._usage.wait(seen)
            await asyncio.sleep(GATHERING)  # one write for many Allocates
            # Read after the pause, so that changes during it cause no second write.
            seen = self._usage.version
            await self._save(PATIENCE)

    async def record(self) -> bool:
        """Writes the last change now. Returns whether the disk has it."""
        await self._save(PATIENCE)
        return not self._rests and not self.complaint

    async def finish(self, seconds: float = LAST_PATIENCE) -> None:
        """Writes the last change, without a sync: the kernel may write to the disk after the end. A disk that hangs is
        waited for once, and gets what is in use when it answers.
        """
        if not (self.complaint and self.under_way()):
            await self._save(seconds, sync=False)
        if self.complaint and self.under_way() and not (self._rests or self._unread):
            last = partial(self._write, self._left, sync=False)
            self.lanes.call(self._journal.resource, lambda: self._threads.call("journal", last()))

    async def rest(self) -> None:
        """Writes the last change and stops: from now on the journal is another gateway's. Raises OSError while a write
        hangs, which could come after that one's, and if the disk hasn't the last change, which that one would miss.
        """
        await self._save(LAST_PATIENCE, sync=False)
        self._rests = True
        if self.under_way():
            raise OSError(f"{self._journal.path} is still being written")
        if self.complaint:
            raise OSError(f"what was given last isn't written down: {self.complaint}")
        self._saved = None  # that one may write, and be taken back from

    def leave(self) -> None:
        """Stops at once: another gateway writes the journal already. A write that hangs replaces nothing."""
        self._rests = True
        self._left += 1

    def go_on(self) -> None:
        """Resumes writing: the journal is ours, perhaps again."""
        self._rests = False
        self._usage.notify()  # wakes follow(): what has changed meanwhile isn't written

    async def _save(self, seconds: float, *, sync: bool = True) -> None:
        if self._rests or self._usage.value.unreleased == self._saved:
            return
        try:
            # An earlier gateway's journal mustn't be overwritten unread; reading it changes the holdings.
            if self._unread:
                await self._read(seconds)
            holdings, self._saved = self._usage.value, None
            self._writes = this = self._writes + 1
            written = await self._on_disk(self._write(self._left, sync=sync), seconds)
        except (GatewayError, OSError) as error:
            self._complaint.say(f"{self._journal.path}: {error}")
            self._saved = None
        else:
            self._complaint.over()
            if written and this == self._writes:
                self._saved = holdings.unreleased

    def _write(self, left: int, *, sync: bool) -> Callable[[], bool]:
        """A call that writes what is in use now, unless another gateway has got the journal since ``left``."""
        save = partial(self._journal.save, self._usage.value.unreleased, sync=sync)
        return lambda: save(ours=lambda: not self._rests and self._left == left)

    async def _on_disk(self, function: Callable[[], T], seconds: float) -> T:
        """Runs one function at a time: a call that timed out may still be using the file."""
        work = partial(self._threads.call, "journal", function)
        return await self.lanes.in_turn(self._journal.resource, work, seconds, "the disk")
