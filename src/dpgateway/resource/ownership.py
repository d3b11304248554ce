"""Ownership of a resource: one gateway of the node serves it, on all fronts, and holds the lock (flock(2)) on

    <device-plugins>/dpgateway/<hash>.lock

The file name is a hash, because a resource's name may be longer than a file's. The file describes the owner
(``owner``).

Theory of operation
    - The lock lives while any copy of its descriptor is open. A gateway that ends, however it ends, frees it, and one
      of the waiting gateways gets it.
    - A lock counts only on the file that others find at the path, because the folder may be replaced while a gateway
      serves. So :meth:`Ownership.acquire` locks first, compares then, and repeats on a mismatch.
    - Only an owner listens at ``next``, and a borrower or its lender. So what a killed one left there, bound and not
      renamed yet, is removed by the next one that gets the lock alone.
    - The last owner empties the file, and removes it. Somebody may have a copy of that lock still: a borrower that
      hangs, and from which the lender has taken the resource back. So who waits for an empty file without a name waits
      in vain. One with content was removed by somebody else, and its owner goes on.
    - A handover lends a copy of the descriptor. From then on both gateways hold the lock, and either may end without
      freeing it. The files beside the lock, and its lines, belong to the borrower.
    - While a gateway runs another driver for the resource, or moves it to another front, it keeps the lock: else a
      waiting gateway would serve the resource meanwhile. But not in the middle of a handover, because the other one
      goes on with the resource then.
    - A write of what the lock guards may hang, and end late. So :meth:`Ownership.end` leaves the lock where it is until
      all writes under way are over: a late one would destroy what the next owner has written by then. A process ends
      nonetheless: the kernel frees the lock once no thread of it is in a system call. Within the process such a lock
      (:attr:`Ownership.late`) blocks nobody: the resource's next ownership takes it over, and a search for other
      gateways' locks skips it.
    - The folder has mode 0700 and our uid, so no other user can put a file there between the check and the open.

The states of an ownership (:class:`LockState`), and the events that lead to others:

    state     who has the lock             event -> state                            :meth:`Ownership.end`
    NOT_THIS  not this gateway             acquire -> SOLE, or BORROWED by ``ask``   nothing
    SOLE      this gateway alone           lend -> LENT                              removes the files, unless kept
    BORROWED  it, and perhaps the lender   inherit -> SOLE; lend -> LENT             removes them if it is the last
    LENT      it, and perhaps the borrower take_back -> SOLE; release, end -> GIVEN  removes them if it is the last
    GIVEN     the borrower, or nobody      acquire, as from NOT_THIS                 nothing

From SOLE and BORROWED, release and end lead to NOT_THIS. What is kept is this gateway's intention, not a state: it
matters once the ownership ends as SOLE, whatever the state was at :meth:`Ownership.keep`. Only the kernel knows who is
the last of two: the one that gets the lock after it has let go of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import hashlib
import logging
import os
import re
import stat
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from dpgateway.errors import KubeletError, naming
from dpgateway.kit import locks, unix
from dpgateway.kit.log import bind
from dpgateway.kit.observable import Observable
from dpgateway.resource.owner import Owner, read_owner, signature, this_gateway

FOLDER = "dpgateway"
"""The folder below the kubelet's device-plugins directory, for locks and the fronts' sockets."""
LAST = "no-gateway-follows"
"""A file in the folder that makes a lingering gateway end at once. The chart's clean-up job writes it."""
_NAME = re.compile(r"[0-9a-f]{16}\.lock")

Ask = Callable[[], Awaitable[int]]
"""Asks the owner to hand over; returns the lock's descriptor once it is lent."""

_log = bind(__name__)


class LockState(enum.Enum):
    """Who has the lock: see the top of this file."""

    NOT_THIS = enum.auto()
    SOLE = enum.auto()
    BORROWED = enum.auto()
    LENT = enum.auto()
    GIVEN = enum.auto()


def hash_of(resource: str) -> str:
    """The stem of the resource's file names."""
    return hashlib.sha256(resource.encode()).hexdigest()[:16]


def is_ours(folder: Path) -> bool:
    """Whether ``folder`` is a directory with our uid. Raises OSError."""
    found = folder.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def others(device_plugins: Path, resources: Iterable[str]) -> Iterator[Ownership]:
    """The locks of all resources but these, owned or not; none if the folder isn't ours."""
    folder, known = device_plugins / FOLDER, set(map(hash_of, resources))
    with contextlib.suppress(OSError):  # a served resource reports what is wrong with the folder
        for path in sorted(folder.iterdir()) if is_ours(folder) else ():
            if _NAME.fullmatch(path.name) and path.stem not in known:
                yield Ownership(device_plugins, f"the resource {path.stem}", hash_=path.stem)


class Ownership:
    """The ownership of one resource. Used from the event loop."""

    def __init__(
        self,
        device_plugins: Path,
        resource: str,
        log: logging.LoggerAdapter[logging.Logger] = _log,
        *,
        hash_: str = "",
    ) -> None:
        """``hash_``: for a resource whose name isn't known."""
        self.folder, self.hash = device_plugins / FOLDER, hash_ or hash_of(resource)
        self.path = self.folder / f"{self.hash}.lock"
        self.next = self.folder / f"{self.hash}.next"
        """The socket at which the next gateway asks for the resource: it is its owner's, or the lender's."""
        self.other = Observable("")
        """A sentence about the other owner and the expected takeover; empty if this gateway is the owner, or hasn't
        tried to be.
        """
        self.waited = False
        """Whether another gateway was the owner, and its journal hasn't been read since."""
        self.writing: Callable[[], Collection[asyncio.Future[Any]]] = tuple
        """The writes under way of what the lock guards."""
        self.calls: Callable[[], Collection[asyncio.Future[Any]]] = tuple
        """The calls of the resource's driver that go on after its end."""
        self.late: dict[str, Ownership] = {}
        """The ended ownerships of this gateway, by hash, that wait for these."""
        self._resource, self._log = resource, log
        self._pool, self._after = "", frozenset[str]()
        self.state = LockState.NOT_THIS
        self._descriptor: int | None = None
        """The locked file, unless the state is NOT_THIS or GIVEN."""
        self._kept = False
        """Whether another object of this gateway has the lock next."""

    async def acquire(self, ask: Ask | None = None) -> None:
        """Returns when this gateway is the owner: the other one has ended, or has lent the lock to ``ask``.

        Raises KubeletError or OSError.
        """
        # Only the folder is made: its parent is the kubelet's to make, with its own mode and SELinux label.
        try:
            self.folder.mkdir(mode=0o700, exist_ok=True)
            ours = is_ours(self.folder)
        except PermissionError as error:
            raise KubeletError(f"uid {os.geteuid()} may not make {self.folder}; run as root") from error
        except OSError as error:
            raise KubeletError(f"can't make {self.folder}: {error.strerror}") from error
        if not ours:
            raise KubeletError(f"{self.folder} must be a directory that belongs to uid {os.geteuid()}; remove it")
        self.folder.chmod(0o700)

        # A resource that was removed and is back has its lock already, if its last write still hangs.
        if (late := self.late.pop(self.hash, None)) is not None:
            late.pass_on(self)

        # The folder may be replaced while this gateway waits for the lock.
        while not self._is_found():
            self.release()
            descriptor = self._open()
            try:
                with naming(self.path):
                    self._descriptor = await self._locked(descriptor, ask)
                    self.state = LockState.SOLE if self._descriptor == descriptor else LockState.BORROWED
            finally:
                if self._descriptor != descriptor:
                    os.close(descriptor)

        if self.state is LockState.SOLE:
            unix.sweep(self.next)
        # Only the owner signs: waiting gateways read its text.
        self._sign()
        self.other.set("")

    async def _locked(self, descriptor: int, ask: Ask | None) -> int:
        """The locked descriptor: this one, or the copy lent by the other gateway."""
        if locks.take(descriptor):
            return descriptor
        when = "this one takes over when that one ends" if ask is None else "this one takes over once it is ready"
        text = f"waiting because {read_owner(descriptor, self._resource).text}; {when}"
        self.waited = True
        self.other.set(text)
        self._log.warning("%s", text)

        # A race of two ways: the other gateway ends and frees the lock, or it lends the lock on request.
        waiting = asyncio.ensure_future(_free(descriptor))
        asking = {asyncio.ensure_future(ask())} if ask is not None else set()
        tasks = {waiting, *asking}
        try:
            _, slower = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in slower:
                task.cancel()
            await asyncio.wait(tasks)
        except asyncio.CancelledError:  # at either wait
            for asked in asking:  # a descriptor lent just now would leak, and keep the lock
                asked.add_done_callback(_close)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            raise
        for asked in asking:
            if not asked.cancelled():
                return asked.result()
        waiting.result()
        return descriptor

    def try_to_acquire(self) -> bool:
        """Takes the lock if it is free. Returns whether it was. Raises KubeletError or OSError."""
        self._descriptor = self._open()
        if locks.take(self._descriptor) and self._is_found():
            self.state = LockState.SOLE
            unix.sweep(self.next)
            self._sign()  # a lock that says nothing blocks the other gateways' pools
            return True
        self.release()
        return False

    @property
    def undivided(self) -> bool:
        """Whether all files of the resource are this gateway's, but for a lender's socket."""
        return self._is_found() and self.state in {LockState.SOLE, LockState.BORROWED}

    @property
    def lent(self) -> bool:
        """Whether another gateway was given the lock, and it wasn't taken back."""
        return self.state in {LockState.LENT, LockState.GIVEN}

    def is_it(self, descriptor: int) -> bool:
        """Whether this descriptor is the lock that others would find, and holds it."""
        try:
            return os.path.samestat(os.fstat(descriptor), self.path.stat()) and locks.take(descriptor)
        except OSError:
            return False

    def lend(self) -> int:
        """Returns the descriptor for the successor, which from now on is an owner, too."""
        assert self._descriptor is not None  # noqa: S101  only an owner is asked
        self.state = LockState.LENT
        return self._descriptor

    @property
    def borrower(self) -> str:
        """The gateway to which the lock was lent, once it has signed; empty if it couldn't."""
        assert self._descriptor is not None  # noqa: S101  only a lender asks
        signed = read_owner(self._descriptor, self._resource).gateway
        return "" if signed == this_gateway() else signed

    def inherit(self) -> None:
        """The gateway that lent the lock has let go of it, or has ended."""
        if self.state is LockState.BORROWED:
            self.state = LockState.SOLE

    def take_back(self) -> None:
        """Breaks off a handover: the successor, which was told, has to let go."""
        if self.state is LockState.LENT:
            self.state = LockState.SOLE
        self._sign()

    def release(self) -> None:
        """Lets go of the lock, and leaves its file to the next owner."""
        self.state = LockState.GIVEN if self.lent else LockState.NOT_THIS
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def keep(self) -> None:
        """From now on :meth:`end` leaves the lock to :meth:`pass_on`, or to :meth:`forgo`, unless it is shared."""
        self._kept = True

    def pass_on(self, to: Ownership) -> None:
        """Gives a lock that was kept to this gateway's next plugin of the resource."""
        if self.state is LockState.SOLE:
            to.waited, to.state, self.state = self.waited, self.state, LockState.NOT_THIS
            to._descriptor, self._descriptor = self._descriptor, None
        self.forgo()

    def forgo(self) -> None:
        """Ends an ownership that was kept."""
        self._kept = False
        self.end()

    def end(self) -> None:
        """Ends the ownership for good, once no write or call goes on: removes the file, unless another gateway has
        the lock, too.
        """
        if self._kept and self.state is LockState.SOLE:
            return
        if self._descriptor is not None and (going_on := (*self.writing(), *self.calls())):
            if self.state is LockState.SOLE:
                self.late[self.hash] = self
            next(iter(going_on)).add_done_callback(lambda _: self.end())
            return
        if self.late.get(self.hash) is self:
            del self.late[self.hash]
        given, last = self.lent, self._is_found()
        if last and self.state is not LockState.SOLE:
            self.release()
            try:
                last = self.try_to_acquire()
            except (KubeletError, OSError):
                last = False
        if last and self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, 0)
            # What a lender that has let go listened at is nobody's by now.
            for path in (self.next, self.path):
                with contextlib.suppress(OSError):
                    path.unlink()
        self.release()
        if given:
            self.state = LockState.GIVEN

    def abandon(self) -> None:
        """The same at the end of the process, with which calls end. May be called from any thread."""
        self.calls = tuple
        if not self.writing():
            self.end()

    def caught_up(self) -> None:
        """The previous owner's journal has been read."""
        self.waited = False

    # the content of the lock's file

    def join(self, pool: str, after: frozenset[str] = frozenset()) -> None:
        """Sets the resource's pool; empty: none. ``after``: see :class:`Owner`."""
        if (self._pool, self._after) != (pool, after):
            self._pool, self._after = pool, after
            if not self.lent:  # a borrower signs for itself
                self._sign()

    def _sign(self) -> None:
        if self._descriptor is None:
            return
        text = signature(self._resource, self._pool, self._after)
        with contextlib.suppress(OSError):  # a full disk: the lock works without its text
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, text.encode(), 0)

    def owner(self) -> Owner | None:
        """The other gateway that is the owner, or None. Doesn't take the lock, so it keeps no gateway out."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:  # never served, or an error that a served resource reports
            return None
        try:
            return None if locks.is_free(descriptor) else read_owner(descriptor, self._resource)
        except OSError:
            return None
        finally:
            os.close(descriptor)

    async def until_free(self) -> None:
        """Returns when no gateway is the owner. Raises KubeletError or OSError."""
        if self.path.exists():
            descriptor = self._open()
            try:
                await _free(descriptor)
            finally:
                os.close(descriptor)

    # its file

    def _open(self) -> int:
        # Anything but a plain file with one name was planted: writing the text would change another file.
        with contextlib.suppress(FileNotFoundError):
            found = self.path.lstat()
            if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
                what = f"{stat.filemode(found.st_mode)} with {found.st_nlink} links"
                expected = f"expected a lock, a file without another name, found {what}; remove it"
                raise KubeletError(f"{self.path}: {expected}")
        return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    def _is_found(self) -> bool:
        """Whether the lock that we hold is the one that others find at the path."""
        if self._descriptor is None:
            return False
        with contextlib.suppress(OSError):
            return os.path.samestat(os.fstat(self._descriptor), self.path.stat())
        return False


async def _free(descriptor: int) -> None:
    """Returns once the lock is taken, or the last owner has left its file. Raises OSError."""

    def left() -> bool:
        found = os.fstat(descriptor)
        return not found.st_nlink and not found.st_size

    await locks.wait(descriptor, vain=left)


def _close(lent: asyncio.Future[int]) -> None:
    if not lent.cancelled() and lent.exception() is None:
        os.close(lent.result())
