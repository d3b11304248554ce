"""Preparations that succeeded after whoever asked had stopped waiting: each answers the next prepare of its devices.

It doesn't once one of the devices was released, changed, or given away together with others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from dpgateway.model import Device, Health

KEPT = 300.0
"""Seconds for which a success that came too late answers the next prepare: the kubelet's longest pause (5 min)."""

Key = frozenset[str]


@dataclass(frozen=True, slots=True, eq=False)
class Success:
    """What was prepared, and when."""

    devices: tuple[Device, ...]
    at: float


class Unseen:
    """By the ids of their devices."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """``clock`` tells seconds."""
        self._clock = clock
        self._successes: dict[Key, Success] = {}

    def add(self, devices: tuple[Device, ...]) -> Success:
        """Keeps it until somebody sees it."""
        success = self._successes[key_of(devices)] = Success(devices, self._clock())
        return success

    def saw(self, success: Success) -> None:
        """Whoever asked for it has got it."""
        key = key_of(success.devices)
        if self._successes.get(key) is success:
            del self._successes[key]

    def answers(self, devices: tuple[Device, ...]) -> bool:
        """Whether the devices are ready already. It is asked once."""
        last = self._successes.pop(key_of(devices), None)
        return last is not None and _states(last.devices) == _states(devices) and self._clock() - last.at < KEPT

    def released(self, devices: Iterable[Device]) -> None:
        ids = key_of(devices)
        self._forget(key for key in self._successes if not ids.isdisjoint(key))

    def given(self, devices: Iterable[Device]) -> None:
        """What was prepared of them together with others doesn't count any more."""
        ids = key_of(devices)
        self._forget(key for key in self._successes if key != ids and not ids.isdisjoint(key))

    def listed(self, devices: Collection[Device]) -> None:
        """A new list: a device that changed may have lost what was prepared."""
        if self._successes:
            now = _states(devices)
            self._forget(key for key, one in self._successes.items() if not _states(one.devices).items() <= now.items())

    def _forget(self, keys: Iterable[Key]) -> None:
        for key in list(keys):
            del self._successes[key]


def key_of(devices: Iterable[Device]) -> Key:
    return frozenset(device.id for device in devices)


def _states(devices: Iterable[Device]) -> Mapping[str, tuple[Health, tuple[int, ...]]]:
    """What is compared of devices; what else a driver's own class carries may not be comparable."""
    return {device.id: (device.health, device.numa_nodes) for device in devices}
