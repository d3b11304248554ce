"""The states of a change of front, on disk in ``state_dir/dra/fronts/``, one file for each group of resources.

    PLUGIN          the device plugin offers the resources
    LEAVING_PLUGIN  neither front does; the plugin is registered, and its list empty, until the Node shows no device
    DRA             slices have the devices
    LEAVING_DRA     neither front does; claims are served, until none is allocated that has to be prepared yet

Each is on disk before it has an effect, so a gateway that is killed leaves to its successor what has to go on. A disk
that fails keeps no group in a state in which neither front offers anything: the successor may go on from that. What one
front gave stays in use on the other one until its containers, or claims, have ended; that needs no state.

A group whose resources the configuration gives one front for good has PLUGIN or DRA, or no file, so that it can begin
there again.

A file has the group's resources, too: a pool of other resources that has its name by now begins on the device plugin.
Files of groups that no gateway of the node has are removed (:meth:`SwitchFiles.sweep`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict, dataclass, replace
from enum import Enum
from pathlib import Path
from typing import TypeVar

from dpgateway.kit.files import NotAFileError, TooLongError, make_private, read, sweep, write
from dpgateway.kit.tasks import KeyedLanes
from dpgateway.kit.threads import Threads
from dpgateway.kit.timestamp import LATEST
from dpgateway.resource.ownership import hash_of, others

T = TypeVar("T")

VERSION = 1
LARGEST = 64 * 1024
"""Bytes of a file."""
DISK = 5.0
"""Timeout in seconds of the disk."""
REMEMBERED = 8
"""Remembered changes of a group's front."""


class SwitchState(Enum):
    """The position of a group between its two fronts."""

    PLUGIN = "plugin"
    LEAVING_PLUGIN = "leaving-plugin"
    DRA = "dra"
    LEAVING_DRA = "leaving-dra"

    @property
    def front(self) -> str:
        """The front that serves the kubelet's calls."""
        return "dra" if self in {SwitchState.DRA, SwitchState.LEAVING_DRA} else "deviceplugin"

    @property
    def leaving(self) -> bool:
        """Whether no front offers the resources."""
        return self in {SwitchState.LEAVING_PLUGIN, SwitchState.LEAVING_DRA}


@dataclass(frozen=True, slots=True)
class SwitchRecord:
    """The state of one group."""

    group: str
    """The pool's name, or the resource's."""
    state: SwitchState = SwitchState.PLUGIN
    since: int = 0
    """When the state began, in seconds since 1970."""
    because: str = ""
    """A sentence for people."""
    changes: tuple[float, ...] = ()
    """When the last changes of the front began, in seconds of the monotonic clock. They mean nothing after a reboot,
    which is one after ``since``.
    """
    resources: tuple[str, ...] = ()
    """Those of the group; empty if they aren't known."""

    def is_of(self, resources: Collection[str]) -> bool:
        """Whether it may be the state of a group with these resources."""
        return not self.resources or not set(resources).isdisjoint(self.resources)

    def at(self, state: SwitchState, because: str, now: float, wall: float, *, forced: bool = False) -> SwitchRecord:
        """The record in another state. A change of front begins where one is left; ``forced``: it doesn't count."""
        changes = (*self.changes, now)[-REMEMBERED:] if state.leaving and not forced else self.changes
        return replace(self, state=state, since=int(wall), because=because, changes=changes)

    def to_json(self) -> str:
        return json.dumps({"version": VERSION, **asdict(self), "state": self.state.value})


def switch_record(text: str) -> SwitchRecord:
    """The record in a file; keys of a later version are ignored. Raises ValueError, TypeError, OverflowError,
    RecursionError.
    """
    found = json.loads(text)
    if not isinstance(found, dict) or type(found.get("version")) is not int or found["version"] < 1:
        raise ValueError(f"expected a state with a version from 1 on, found {text[:60]!r}")
    if not isinstance(group := found.get("group"), str) or not group:
        raise TypeError(f"group: expected a name, found {group!r}")
    changes, resources = found.get("changes") or [], found.get("resources") or []
    if not isinstance(changes, list):
        raise TypeError(f"changes: expected a list, found {changes!r}")
    if not isinstance(resources, list) or not all(isinstance(name, str) for name in resources):
        raise TypeError(f"resources: expected names, found {resources!r}")
    since, because = int(found.get("since") or 0), str(found.get("because") or "")
    if not 0 <= since <= LATEST:
        raise ValueError(f"since: expected seconds since 1970, found {since}")
    state = SwitchState(found.get("state"))
    return SwitchRecord(group, state, since, because, tuple(map(float, changes)), tuple(resources))


class SwitchFiles:
    """The states of all groups. One object writes them all."""

    def __init__(self, state_dir: Path, threads: Threads) -> None:
        self.folder, self._threads = state_dir / "dra" / "fronts", threads
        self._calls = KeyedLanes("state of group")

    async def read(self, group: str) -> SwitchRecord | None:
        """None without a file. Raises GatewayError, OSError; ValueError if it is no state of the group."""
        return await self._in_turn(group, lambda: self.look(group))

    async def write(self, one: SwitchRecord) -> None:
        """Raises GatewayError, OSError; after a TimeoutError it may be written yet."""
        await self._in_turn(one.group, lambda: self._write(one))

    async def fix(self, group: str, front: str, name: str) -> None:
        """The configuration has given the group this front for good, and its resource ``name`` begins there: what the
        disk has is outdated. Raises GatewayError, OSError.
        """
        await self._in_turn(group, lambda: self._fix(group, front, name))

    async def _in_turn(self, group: str, work: Callable[[], T]) -> T:
        """After what is under way for the group: a write that took too long must not come after a later one."""
        return await self._calls.within(group, lambda: self._threads.call("fronts", work, DISK), DISK, "the disk")

    def _fix(self, group: str, front: str, name: str) -> None:
        try:
            found = self.look(group) or SwitchRecord(group)
        except (OSError, ValueError):
            found = SwitchRecord(group)
        state = SwitchState.DRA if front == "dra" else SwitchState.PLUGIN
        if found.state is not state:
            self._write(SwitchRecord(group, state, int(time.time()), resources=(name,)))
        elif found.resources and name not in found.resources:
            self._write(replace(found, resources=(*found.resources, name)))

    async def sweep(self, groups: Iterable[str], device_plugins: Path) -> bool:
        """Removes the states of all groups but these. Those that another gateway may have stay: its locks name them.
        Returns whether one stays. Raises GatewayError, OSError.
        """
        ours = frozenset(map(hash_of, groups))
        return await self._threads.call_within("fronts", lambda: self._sweep(ours, device_plugins), DISK)

    def _sweep(self, ours: Collection[str], device_plugins: Path) -> bool:
        if self.folder.is_dir():
            sweep(self.folder)
        stale = [path for path in self.folder.glob("*.json") if path.stem not in ours]
        owned = [(lock.hash, lock.owner()) for lock in others(device_plugins, ())] if stale else []
        pools = {hash_: owner.pool for hash_, owner in owned if owner is not None}
        if None in pools.values():  # a lock that doesn't say its pool
            return bool(stale)
        theirs = {hash_of(pool) if pool else hash_ for hash_, pool in pools.items()}
        gone = [path for path in stale if path.stem not in theirs]
        for path in gone:
            path.unlink(missing_ok=True)
        return len(gone) < len(stale)

    def look(self, group: str) -> SwitchRecord | None:
        """As :meth:`read`, and blocks."""
        try:
            found = switch_record(read(self._path(group), LARGEST).content.decode())
        except FileNotFoundError:
            return None
        except (TypeError, OverflowError, RecursionError, NotAFileError, TooLongError) as error:
            raise ValueError(f"{self._path(group)}: {error}") from error
        if found.group != group:
            raise ValueError(f"expected the state of {group}, found that of {found.group}")
        return found

    def _write(self, one: SwitchRecord) -> None:
        make_private(self.folder.parent)
        make_private(self.folder)
        write(self._path(one.group), one.to_json().encode())

    def _path(self, group: str) -> Path:
        return self.folder / f"{hash_of(group)}.json"
