"""What the containers of this node hold of one resource: arithmetic over values.

Three sources, none of which is enough:

- the *note*: what the kubelet wrote into its checkpoint, read some time after it was written;
- what was *granted*: ids that a front gave to a container, as long as the note may be older than that;
- what is *in flight*: ids of Allocates that haven't been answered. The kubelet chose them already.

Everything works over ids as the kubelet knows them. Times are seconds of one monotonic clock, because the clock that
stamps files may be set; the caller reads the clock, and reads the files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

NOTED_WITHIN = 10.0
"""Seconds from an Allocate to the note of it. A checkpoint that was written for another reason may lack the Allocate
until then; a later one is right."""

CLOCK_STEP = 0.02
"""Seconds by which a file's time may lag behind the clock, because the kernel stamps files with its last tick."""

LONG_AGO = float("-inf")

Note = Mapping[str, tuple[int, ...]]
"""The ids that the kubelet wrote down, each with the NUMA nodes that the kubelet knew the id to be near."""

Held = frozenset[str] | None
"""The ids that containers hold; None when that can't be known, and then nothing may leave a list."""


@dataclass(frozen=True)
class Holdings:
    """A value that never changes; each event makes a new one."""

    note: Note | None = None
    """None: the note wasn't read yet, or it can't be read."""
    looked: bool = False
    """Whether somebody tried to read the note."""
    written: float = LONG_AGO
    """When the kubelet wrote the note."""
    granted: Mapping[str, float] = field(default_factory=dict)
    """The ids that the note may not have yet, and when each was given."""
    in_flight: tuple[tuple[str, ...], ...] = ()
    """The ids of each Allocate that is under way."""
    kubelet_since: float = LONG_AGO
    """When this kubelet appeared. An older note doesn't prove that a container gave up an id."""
    counted: frozenset[str] = frozenset()
    """The ids that a note had, or should have had, and of which nobody was told yet that they are free."""

    # what is held

    @cached_property
    def held(self) -> Held:
        return None if self.note is None else frozenset(self.note).union(self.granted, *self.in_flight)

    @property
    def known(self) -> bool:
        """Whether it is known what containers hold."""
        return self.note is not None

    @property
    def freed(self) -> frozenset[str]:
        """The ids that no container holds any more, and of which nobody was told that yet."""
        held = self.held
        if held is None or self.written < self.kubelet_since:
            return frozenset()
        return self.counted - held

    @property
    def last_known(self) -> frozenset[str]:
        """The ids that a container may hold. While the note can't be read, these are the ids that were held before."""
        return self.counted.union(self.note or (), self.granted, *self.in_flight)

    def look_again(self, lost: Iterable[str]) -> float | None:
        """Seconds after which one of the ``lost`` ids may be free although the note doesn't change; None: never."""
        waits = self.note is not None and not self.granted.keys().isdisjoint(lost)
        return NOTED_WITHIN if waits else None

    # what happens

    def noted(self, note: Note | None, written: float, now: float) -> Holdings:
        """The checkpoint was read; ``note`` is None if that failed."""
        granted = self.granted
        if note is not None:
            granted = {id_: at for id_, at in granted.items() if not _is_in(note, id_, at, written, now)}
        new = replace(self, note=note, looked=True, written=written, granted=granted)
        if note is None or written < self.kubelet_since:
            return new
        return replace(new, counted=self.counted.union(note, self.granted))

    def missing(self, now: float) -> Holdings:
        """There is no checkpoint.

        Nothing was ever allocated, or the file was deleted. If the file was deleted, what it said last stays true; if
        it couldn't be read before, what containers hold stays unknown until a kubelet writes the file again.
        """
        if not self.looked:
            return self.noted({}, LONG_AGO, now)
        return replace(self, note=None if self.note is None else dict(self.note))  # another look, though of no file

    def new_kubelet(self, since: float) -> Holdings:
        """Another kubelet appeared at ``since``. It may have forgotten what containers hold, so an id that it doesn't
        know need not be free, whatever an older checkpoint says.
        """
        return replace(self, counted=frozenset(), kubelet_since=since)

    def began(self, ids: tuple[str, ...]) -> Holdings:
        """An Allocate of ``ids`` is under way."""
        return replace(self, in_flight=(*self.in_flight, ids))

    def gave(self, ids: tuple[str, ...], now: float) -> Holdings:
        """The Allocate of ``ids`` succeeded: a container has them until a newer note says otherwise."""
        granted = {**self.granted, **dict.fromkeys(ids, now)}
        return replace(self._landed(ids), granted=granted)

    def failed(self, ids: tuple[str, ...]) -> Holdings:
        """The Allocate of ``ids`` failed: the ids are as they were before."""
        return self._landed(ids)

    def told(self) -> Holdings:
        """Whoever wants to know was told which ids were freed."""
        return replace(self, counted=self.counted - self.freed)

    def _landed(self, ids: tuple[str, ...]) -> Holdings:
        flights = list(self.in_flight)
        flights.remove(ids)
        return replace(self, in_flight=tuple(flights))


def _is_in(note: Note, id_: str, granted: float, written: float, now: float) -> bool:
    """Whether the note tells what became of an id that was granted."""
    return written >= granted - CLOCK_STEP and (id_ in note or now - granted > NOTED_WITHIN)
