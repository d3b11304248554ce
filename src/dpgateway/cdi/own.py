"""Stores the gateway's own specs. Blocks, so it is used on a thread.

A record of what was granted is written to ``state_dir`` first, and the spec is produced from the record. So a missing
spec, after a reboot for example, is produced again, and only specs with a record are ever removed. Both files are
replaced whole, under a lock that all gateways of the directory share: during an upgrade there are two.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from dpgateway.cdi.directories import LARGEST, check_owner, look
from dpgateway.cdi.expansion import HostNode
from dpgateway.cdi.producer import OWN_NAME, Granted, Record, recorded, sayable, text_of
from dpgateway.errors import CdiError
from dpgateway.kit.complaint import Complaint
from dpgateway.kit.files import NotAFileError, TooLongError, make_private, read, write
from dpgateway.model import Allocation

PATIENCE = 5.0
"""Seconds that a thread waits for another one that writes."""
TEMPORARY = ".dpgateway-"
"""The beginning of the name of a file that isn't whole yet; runtimes read only what ends in .json or .yaml."""
OVER = 60.0
"""Seconds. A temporary file that is older was left by a gateway that died."""


_Real = tuple[str, HostNode | None]


@dataclass(frozen=True, slots=True)
class OwnSpec:
    """One of the gateway's own specs."""

    given: Granted
    record: Path
    """The record's file."""
    date: float
    """When it was granted last, in seconds since 1970: the record's mtime."""
    now: Granted | None
    """As in :class:`Record`."""

    @property
    def spec(self) -> Path:
        return Path(self.given.directory) / self.record.name


class OwnSpecs:
    """May be used from several threads, and beside another gateway."""

    def __init__(self, state_dir: Path, directory: Path, device_plugins_dir: Path, complaint: Complaint) -> None:
        """``directory``: where new specs go, so that runtimes find them. ``complaint`` gets what stays undone."""
        self._records = state_dir / "cdi"
        self.directory, self._device_plugins_dir = directory, device_plugins_dir
        self._complaint = complaint
        self._lock = threading.Lock()
        self._known: dict[Path, tuple[str, Record]] = {}
        """Each record's last text, parsed: parsing takes half a millisecond."""
        self._texts: dict[Path, tuple[dict[str, _Real], Granted, str]] = {}
        """Of each record: its device nodes' real paths, its content, and the spec's text made of both, which takes half
        a millisecond."""

    def write(self, resource: str, ids: tuple[str, ...], allocation: Allocation) -> Allocation:
        """The allocation with a name in place of everything that a spec can express. Raises CdiError; then there is no
        spec.
        """
        said = sayable(allocation)
        if not any(said.values()):
            return allocation
        held = tuple(sorted(ids))  # a kubelet names them in any order
        what = Granted(str(self.directory), str(self._device_plugins_dir), resource, held, **said)
        text, record = text_of(what.name, what, _real), what.to_json()
        if max(len(text), len(record)) > LARGEST:
            raise CdiError(f"the CDI spec {what.file} would have more than {LARGEST} bytes; give the container less")
        try:
            with self._alone():
                one = OwnSpec(what, self._records / what.file, 0.0, what)
                write(one.record, record.encode())
                _update(one.spec, text)
        except OSError as error:
            where = f"{self.directory / what.file}, from {self._records}"
            raise CdiError(f"the CDI spec {where}, can't be written: {error.strerror or error}") from error
        return replace(allocation, **sayable(Allocation()), cdi_devices=(what.name, *allocation.cdi_devices))

    def all(self) -> tuple[OwnSpec, ...]:
        """All specs that gateways of this kubelet wrote and didn't remove. Raises OSError."""
        found = []
        wrong = set()
        before, self._known = self._known, {}
        for record in sorted(self._records.glob("dpgateway-*.json")):
            try:
                what = self._recorded(record, before)
                if what.given.device_plugins_dir == str(self._device_plugins_dir):
                    found.append(OwnSpec(what.given, record, record.stat().st_mtime, what.now))
            except FileNotFoundError:
                continue
            except (OSError, ValueError) as error:
                wrong.add(f"{record}: not a record that a gateway wrote, so its spec stays: {error}")
        self._complaint.say(*sorted(wrong))
        return tuple(found)

    def _recorded(self, record: Path, known: Mapping[Path, tuple[str, Record]]) -> Record:
        """The parsed record. ``known``: as it was read before. Raises OSError or ValueError."""
        text = _read(record)
        said, what = known.get(record, ("", None))
        if what is None or said != text:
            what = recorded(text, record.name)
        self._known[record] = text, what
        return what

    def keep(self, written: Iterable[OwnSpec]) -> None:
        """Repairs these specs: each is to be what its record says. Raises CdiError or OSError."""
        wrong = []
        for one in written:
            try:
                with self._alone(), contextlib.suppress(FileNotFoundError):  # another gateway has removed it
                    self._follow_record(replace(one, now=self._recorded(one.record, self._known).now))
            except (CdiError, OSError, ValueError) as error:
                wrong.append(f"{one.spec}: {error}")
        if wrong:
            raise CdiError("; ".join(wrong[:3]))

    def _follow_record(self, one: OwnSpec) -> None:
        """Writes the spec as its record has it. Raises CdiError or OSError."""
        if one.now is None:
            one.spec.unlink(missing_ok=True)
            return
        real = {node.host_path: _real(node.host_path) for node in one.now.device_nodes}
        made = self._texts.get(one.record)
        if made is None or made[0] != real or made[1] != one.now:
            made = self._texts[one.record] = real, one.now, text_of(one.given.name, one.now, real.__getitem__)
        _update(one.spec, made[2])

    def renew(self, names: Iterable[str], allocation: Allocation | None) -> int:
        """Rewrites the specs of these names with what their ids give now, because a kubelet repeats the names at each
        start of a container. None: removes them, because the hardware is away. Names of other specs are ignored.
        Returns how many changed. Raises CdiError or OSError.
        """
        changed = 0
        for name in names:
            if (match := OWN_NAME.fullmatch(name)) is None:
                continue
            record = self._records / f"dpgateway-{match[1]}.json"
            with self._alone():
                try:
                    said = self._recorded(record, self._known)
                except FileNotFoundError:
                    raise CdiError(f"the CDI device {name} was removed: there is no {record}") from None
                except ValueError as error:
                    raise CdiError(f"{record}: not a record that a gateway wrote: {error}") from error
                now = None if allocation is None else replace(said.given, **sayable(allocation))
                one = OwnSpec(said.given, record, record.stat().st_mtime, now)
                if now != said.now:
                    write(record, Record(said.given, now).to_json().encode())
                    os.utime(record, (one.date, one.date))  # it wasn't granted anew
                    changed += 1
                self._follow_record(one)
        return changed

    def remove(self, written: Iterable[OwnSpec]) -> int:
        """Removes these specs, except those that were granted again meanwhile; returns how many. Raises OSError."""
        removed = 0
        for one in written:
            with self._alone(), contextlib.suppress(FileNotFoundError):  # another gateway removed it
                if one.record.stat().st_mtime == one.date:
                    one.spec.unlink(missing_ok=True)
                    one.record.unlink()
                    self._texts.pop(one.record, None)
                    removed += 1
        return removed

    def sweep(self) -> None:
        """Removes the temporary files of gateways that died while they wrote."""
        now = time.time()
        for directory in (self._records, self.directory):
            for path in directory.glob(f"{TEMPORARY}*"):
                if now - path.lstat().st_mtime > OVER:
                    path.unlink(missing_ok=True)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if not self._lock.acquire(timeout=PATIENCE):  # a disk that hangs blocks one thread only
            raise CdiError("the CDI specs can't be written, because a disk hangs")
        try:
            make_private(self._records)
            with (self._records / "lock").open("wb") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                yield
        finally:
            self._lock.release()


def _real(path: str) -> _Real:
    return os.path.realpath(path), look(path)


def _read(path: Path) -> str:
    return read(path, LARGEST).content.decode()


def _update(path: Path, text: str) -> None:
    """Writes the file unless it has this text, because a change makes runtimes read all specs again."""
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    check_owner(path.parent, path.parent.stat())
    try:
        if _read(path) == text:
            return
    except (FileNotFoundError, NotAFileError, TooLongError, UnicodeDecodeError):
        pass
    write(path, text.encode())
