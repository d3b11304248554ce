"""Stores the gateway's own specs. Blocks, so it is used on a thread.

Theory of operation. Each grant's record is written to ``state_dir`` first, and the spec is produced from the record. So
a missing spec, after a reboot for example, is produced again, and only specs with a record are ever removed. Both files
are replaced atomically, under a file lock that all gateways of the directory share: during an upgrade there are two.

A record that is being renewed is made read-only first, and then replaced. So if that fails, as with a full disk, no
gateway produces a spec from it, not even after a restart, before it is renewed, or its content is right again.
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
from dpgateway.kit.files import make_private, read, write
from dpgateway.model import Allocation

PATIENCE = 5.0
"""Timeout in seconds of a thread that waits for another writer."""
TEMPORARY = ".dpgateway-"
"""Name prefix of incomplete files; their suffix isn't .json or .yaml, so runtimes ignore them."""
STALE, VALID = 0o400, 0o600
"""The modes of a record."""
OVER = 60.0
"""Seconds after which a temporary file was certainly left by a dead gateway."""


_Real = tuple[str, HostNode | None]


@dataclass(frozen=True, slots=True)
class OwnSpec:
    """One of the gateway's own specs."""

    given: Granted
    record: Path
    """The record's file."""
    date: float
    """The time of the last grant, in seconds since 1970: the record's mtime."""
    now: Granted | None
    """The present content, as in :class:`Record`."""

    @property
    def spec(self) -> Path:
        return Path(self.given.directory) / self.record.name


class OwnSpecs:
    """May be used from several threads, and by two gateways at once."""

    def __init__(self, state_dir: Path, directory: Path, device_plugins_dir: Path, complaint: Complaint) -> None:
        """``directory``: for new specs; runtimes must read it. ``complaint`` gets the records that can't be used."""
        self._records = state_dir / "cdi"
        self.directory, self._device_plugins_dir = directory, device_plugins_dir
        self._complaint = complaint
        self._lock = threading.Lock()
        self._known: dict[Path, tuple[str, Record]] = {}
        """Cache of parsed records, with their texts: parsing takes half a millisecond."""
        self._texts: dict[Path, tuple[dict[str, _Real], Granted, str]] = {}
        """Cache of spec texts, by record, with the device nodes' real paths and the content that each was produced
        from: producing one takes a tenth of a millisecond."""
        self._stale: dict[Path, Granted | None] = {}
        """The content of records that couldn't be made STALE, as on a read-only disk: no spec is produced from it."""

    def write(self, resource: str, ids: tuple[str, ...], allocation: Allocation, *, lasting: bool = True) -> Allocation:
        """Writes a spec with everything that it can express, and returns the allocation with the spec's name in its
        place. ``lasting``: the kubelet may repeat the name after a power cut. Raises CdiError; then there is no spec.
        """
        said = sayable(allocation)
        if not any(said.values()):
            return allocation
        held = tuple(sorted(ids))  # a kubelet's order is arbitrary
        what = Granted(str(self.directory), str(self._device_plugins_dir), resource, held, **said)
        name, file, record = what.name, what.file, what.to_json()  # each name is a hash of it all
        text = text_of(name, what, _real)
        if max(len(text), len(record)) > LARGEST:
            raise CdiError(f"the CDI spec {file} would have more than {LARGEST} bytes; give the container less")
        try:
            with self._alone():
                one = OwnSpec(what, self._records / file, 0.0, what)
                # The record first: a spec without one would never be removed.
                write(one.record, record.encode(), lasting=lasting)
                self._stale.pop(one.record, None)
                _update(one.spec, text)
        except OSError as error:
            where = f"{self.directory / file}, from {self._records}"
            raise CdiError(f"the CDI spec {where}, can't be written: {error.strerror or error}") from error
        return replace(allocation, **sayable(Allocation()), cdi_devices=(name, *allocation.cdi_devices))

    def all(self) -> tuple[OwnSpec, ...]:
        """The present specs of all gateways of this kubelet. Raises OSError."""
        found = []
        wrong = set()
        before, self._known = self._known, {}
        for record in sorted(self._records.glob("dpgateway-*.json")):
            try:
                what = self._recorded(record, before)
                # The gateway of another kubelet may use the same state_dir.
                if what.given.device_plugins_dir == str(self._device_plugins_dir):
                    found.append(OwnSpec(what.given, record, record.stat().st_mtime, what.now))
            except FileNotFoundError:  # another gateway has just removed it
                continue
            except (OSError, ValueError) as error:
                wrong.add(f"{record}: not a record that a gateway wrote, so its spec stays: {error}")
        self._complaint.say(*sorted(wrong))
        return tuple(found)

    def _recorded(self, record: Path, known: Mapping[Path, tuple[str, Record]]) -> Record:
        """The parsed record; one that is STALE has no present content. ``known``: the cache. Raises OSError or
        ValueError.
        """
        there, valid = self._parsed(record, known)
        return there if valid else replace(there, now=None)

    def _parsed(self, record: Path, known: Mapping[Path, tuple[str, Record]]) -> tuple[Record, bool]:
        """What the record says, and whether it isn't STALE."""
        content, status = read(record, LARGEST)
        text = content.decode()
        said, what = known.get(record, ("", None))
        if what is None or said != text:
            what = recorded(text, record.name)
        self._known[record] = text, what
        return what, bool(status.st_mode & 0o200)

    def keep(self, written: Iterable[OwnSpec]) -> None:
        """Repairs these specs from their records. Raises CdiError, which names up to three that failed, or OSError."""
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
        """Writes the spec from its record, or removes it. Raises CdiError or OSError."""
        if one.now is None or self._stale.get(one.record) == one.now:
            one.spec.unlink(missing_ok=True)
            return
        real = {node.host_path: _real(node.host_path) for node in one.now.device_nodes}
        made = self._texts.get(one.record)
        if made is None or made[0] != real or made[1] != one.now:
            made = self._texts[one.record] = real, one.now, text_of(one.given.name, one.now, real.__getitem__)
        _update(one.spec, made[2])

    def renew(self, names: Iterable[str], allocation: Allocation | None) -> int:
        """Rewrites the specs of these names with the present ``allocation`` of their ids, because a kubelet repeats the
        names at each start of a container. None: removes them, because the hardware is away. Names of other specs are
        ignored. Returns the number of changes. Raises CdiError or OSError; then a changed spec is removed.
        """
        changed = 0
        for name in names:
            if (match := OWN_NAME.fullmatch(name)) is None:
                continue
            record = self._records / f"dpgateway-{match[1]}.json"
            with self._alone():
                try:
                    there, valid = self._parsed(record, self._known)
                except FileNotFoundError:
                    raise CdiError(f"the CDI device {name} was removed: there is no {record}") from None
                except ValueError as error:
                    raise CdiError(f"{record}: not a record that a gateway wrote: {error}") from error
                now = None if allocation is None else replace(there.given, **sayable(allocation))
                one = OwnSpec(there.given, record, record.stat().st_mtime, now)
                changes = now != there.now or not valid
                try:
                    if changes:
                        if now == there.now:  # needs no room on the disk
                            record.chmod(VALID)
                        else:
                            try:
                                record.chmod(STALE)
                            except OSError:
                                self._stale[record] = there.now
                            write(record, Record(there.given, now).to_json().encode())
                            os.utime(record, (one.date, one.date))  # keeps the date of the grant
                        changed += 1
                    self._stale.pop(record, None)
                    self._follow_record(one)
                except (CdiError, OSError):
                    if changes:  # the spec may lead to another device by now
                        one.spec.unlink(missing_ok=True)
                    raise
        return changed

    def remove(self, written: Iterable[OwnSpec]) -> int:
        """Removes these specs, except those granted again meanwhile; returns their number. Raises OSError."""
        removed = 0
        for one in written:
            with self._alone(), contextlib.suppress(FileNotFoundError):  # another gateway removed it
                if one.record.stat().st_mtime == one.date:
                    # The record last, for the same reason as in write().
                    one.spec.unlink(missing_ok=True)
                    one.record.unlink()
                    self._forget(one.record)
                    removed += 1
        return removed

    def withdraw(self, names: Iterable[str]) -> None:
        """Removes the specs of these names, which no container gets any more. Names of other specs, and of removed
        ones, are ignored. Raises CdiError or OSError.
        """
        for name in names:
            if (match := OWN_NAME.fullmatch(name)) is None:
                continue
            record = self._records / f"dpgateway-{match[1]}.json"
            with self._alone(), contextlib.suppress(FileNotFoundError):
                try:
                    what = self._recorded(record, self._known)
                except ValueError as error:
                    raise CdiError(f"{record}: not a record that a gateway wrote: {error}") from error
                # The record last, for the same reason as in write().
                OwnSpec(what.given, record, 0.0, what.now).spec.unlink(missing_ok=True)
                record.unlink()
                self._forget(record)

    def _forget(self, record: Path) -> None:
        self._texts.pop(record, None)
        self._stale.pop(record, None)

    def sweep(self) -> None:
        """Removes the temporary files of gateways that died while writing."""
        now = time.time()
        for directory in (self._records, self.directory):
            for path in directory.glob(f"{TEMPORARY}*"):
                # Another gateway may have renamed it by now, and what is no file isn't ours: neither keeps specs away.
                with contextlib.suppress(OSError):
                    if now - path.lstat().st_mtime > OVER:
                        path.unlink()

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


def _update(path: Path, text: str) -> None:
    """Writes the file unless its text is the same, because a change makes runtimes read all specs again."""
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    check_owner(path.parent, path.parent.stat())
    try:
        if read(path, LARGEST).content.decode() == text:
            return
    except (OSError, UnicodeDecodeError):  # also a link, or a damaged block of the disk
        pass
    write(path, text.encode())
