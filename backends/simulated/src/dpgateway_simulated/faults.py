"""Faults and their schedules, as plain values: the driver does the waiting and the reporting."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from dpgateway import refuse

Call = Literal["list", "allocate", "prepare"]
_ZERO, _SECOND = timedelta(), timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Fault:
    """One temporary fault, of devices or of a call."""

    after: timedelta = field(
        default=_ZERO, metadata={"help": "when it begins, from the start or from the reading of the control file"}
    )
    lasts: timedelta | None = field(default=None, metadata={"help": "how long it lasts; by default for ever"})
    every: timedelta | None = field(default=None, metadata={"help": "it begins again this long after each beginning"})
    indexes: tuple[int, ...] = field(default=(), metadata={"help": "the devices concerned, by index, counted from 0"})
    devices: tuple[str, ...] = field(default=(), metadata={"help": "the devices concerned, by id; with neither, all"})
    unhealthy: str = field(default="", metadata={"help": "the devices are unhealthy, for this reason"})
    absent: bool = field(default=False, metadata={"help": "the devices are gone"})
    extra: int = field(default=0, metadata={"help": "this many more devices, after the last one"})
    call: Call | None = field(default=None, metadata={"help": "the call that misbehaves: list, allocate or prepare"})
    delay: timedelta = field(default=_ZERO, metadata={"help": "the call takes this much longer"})
    hang: bool = field(default=False, metadata={"help": "the call doesn't return while the fault lasts"})
    error: str = field(default="", metadata={"help": "the call fails with this message"})
    busy: bool = field(default=False, metadata={"help": "the call answers that trying again later helps"})

    def __post_init__(self) -> None:
        wrong: list[str] = []
        on_devices = sum(map(bool, (self.unhealthy, self.absent, self.extra)))
        on_call = bool(self.delay or self.hang or self.error or self.busy)
        if on_devices + on_call != 1:
            wrong.append("a fault is one of unhealthy, absent, extra; or, of a call, any of delay, hang, error, busy")
        elif on_call != bool(self.call):
            wrong.append(f"call: expected one with delay, hang, error and busy only, found {self.call!r}")
        if (self.indexes or self.devices) and (self.call == "list" or self.extra):
            which = "indexes" if self.indexes else "devices"
            wrong.append(f"{which}: no meaning with 'call: list' nor with 'extra'")
        least = {"after": self.after / _SECOND, "delay": self.delay / _SECOND, "extra": self.extra}
        numbers = least | {"indexes": min(self.indexes, default=0)}
        wrong += [f"{name}: expected nothing below 0, found {one:g}" for name, one in numbers.items() if one < 0]
        if self.lasts is not None and self.lasts <= _ZERO:
            wrong.append(f"lasts: expected more than 0s, found {self.lasts / _SECOND:g}s")
        if self.every is not None and not (self.lasts and self.lasts < self.every):
            wrong.append("every: expected 'lasts' too, shorter than 'every'")
        refuse(wrong)

    def concerns(self, device_id: str) -> bool:
        """Whether the fault affects a device. The driver has replaced ``indexes`` by ids, which only it knows."""
        return not self.devices or device_id in self.devices

    def active(self, elapsed: float) -> bool:
        """Whether the fault is active now. ``elapsed``: seconds since the plan's start."""
        since = elapsed - self.after.total_seconds()
        if since < 0:
            return False
        if self.every:
            since %= self.every.total_seconds()
        return self.lasts is None or since < self.lasts.total_seconds()

    def changes(self, elapsed: float) -> Iterator[float]:
        """The next times at which the fault begins or ends, in seconds since the plan's start."""
        begin, lasts = self.after.total_seconds(), self.lasts.total_seconds() if self.lasts else None
        if self.every and elapsed > begin:
            period = self.every.total_seconds()
            begin += (elapsed - begin) // period * period
            yield begin + period
        moments = [begin] if lasts is None else [begin, begin + lasts]
        yield from (moment for moment in moments if moment > elapsed)


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """Faults, and the start of their schedules, in seconds of a monotonic clock."""

    faults: tuple[Fault, ...]
    start: float

    def active(self, now: float) -> list[Fault]:
        return [fault for fault in self.faults if fault.active(now - self.start)]

    def next_change(self, now: float) -> float | None:
        moments = [moment for fault in self.faults for moment in fault.changes(now - self.start)]
        return self.start + min(moments) if moments else None
