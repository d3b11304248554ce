"""The driver: devices by their paths (named.py) or by their properties in sysfs (matched.py), and probes of health."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from dpgateway import Allocation, Candidate, Context, Device, Health
from dpgateway.sysfs import HOST_DEV
from dpgateway_chardev.matched import MatchedDevices
from dpgateway_chardev.named import NamedDevices
from dpgateway_chardev.options import CharDeviceOptions
from dpgateway_chardev.probing import Prober

MOST_AWAY = 4096
"""Limit of absent devices whose hardware is remembered."""


class CharDevices:
    """Device nodes under /dev. Listed devices carry all that a later call needs; the gateway knows the grants."""

    Options: ClassVar[type] = CharDeviceOptions
    release: Callable[[Sequence[Device]], None] | None = None
    """Set only with device-info files, which a release removes."""

    def __init__(self, options: CharDeviceOptions, context: Context) -> None:
        self._options, self._context = options, context
        self._devices: MatchedDevices | NamedDevices = NamedDevices(options, context)
        if options.match:
            self._devices = matched = MatchedDevices(options, context)
            if options.device_info:
                self.release = matched.release
        self._prober: Prober | None = None
        if options.health is not None:
            self._prober = Prober(f"chardev {context.resource} probes", options.health, context.changed)
        self._last: Mapping[str, tuple[str, ...]] = {}
        """The hardware last seen behind each id, including absent devices."""

    def devices(self) -> Sequence[Device]:
        devices = self._devices.find()

        # absent devices stay remembered, so that one that comes back with other hardware is noticed
        now = {id_: one.hardware for id_, one in devices.items() if one.hardware}
        for id_, hardware in now.items():
            if self._last.get(id_, hardware) != hardware:
                self._context.log.warning(
                    "%s is %s now, it was %s: containers that have it keep the old device",
                    id_ if self._options.match else f"{HOST_DEV}/{id_}", *map(", ".join, (hardware, self._last[id_])),
                )  # fmt: skip
        away = self._last.keys() - now.keys()
        self._last = {**self._last, **now} if len(away) <= MOST_AWAY else now

        # probes run in the background, so the list never waits for them: it has their latest results
        if self._prober is None:
            return tuple(devices.values())
        self._prober.watch({id_: one.checks for id_, one in devices.items()})
        reasons = {id_: self._prober.reason(id_) for id_, one in devices.items() if one.health.ok}
        return [
            replace(one, health=Health.unhealthy(reason)) if (reason := reasons.get(id_)) else one
            for id_, one in devices.items()
        ]

    def allocate(self, devices: Sequence[Device]) -> Allocation:
        return self._devices.allocate(devices)

    def preview(self, device: Device) -> Allocation:
        return self._devices.preview(device)

    def explain(self, about: str | None) -> Iterable[Candidate]:
        return self._devices.explain(about)

    def close(self) -> None:
        self._devices.close()
        if self._prober:
            self._prober.close()
