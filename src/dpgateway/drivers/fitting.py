"""What a container would get with each device, made and judged when the device is listed. What can never be given isn't
Healthy: its pod would be placed on this node again and again, and fail.

The driver says by ``preview`` what ``allocate`` would answer; of a driver that has no such method only what all of the
resource's devices have in common is judged. All of it runs on the list lane's thread, because it may touch disks.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Protocol

from dpgateway.config import ResourceConfig
from dpgateway.drivers import answers
from dpgateway.errors import GatewayError
from dpgateway.kit.observable import Observable
from dpgateway.model import Allocation, Device

UNFIT = "it can't be given"
"""How the reason begins of a device that no container can get."""


class Fitness(Protocol):
    """What a front, and the configuration, let containers have."""

    def lacks(self) -> str:
        """Why nothing of the resource can be given now; empty if it can be. May block."""

    def unfit(self, device: str, allocation: Allocation) -> str:
        """Why no container can get the device with this allocation; empty if one can."""


class Anything:
    """No front is there to judge."""

    def lacks(self) -> str:
        return ""

    def unfit(self, device: str, allocation: Allocation) -> str:
        return ""


class Fitting:
    """Of one running driver."""

    def __init__(self, fits: Callable[[ResourceConfig], Fitness] | None, config: Observable[ResourceConfig]) -> None:
        self._fits, self._config = fits, config
        self._judged: dict[str, tuple[Device, Device]] = {}
        """By id: what the driver listed, and what came of it."""
        self._given: tuple[object, ...] = ()
        """What the configuration gave containers when that was judged."""

    def judged(self, driver: Any, devices: tuple[Device, ...]) -> tuple[Device, ...]:  # noqa: ANN401
        """The list, in which a device that can't be given is Unhealthy."""
        config, preview = self._config.value, getattr(driver, "preview", None)
        fitness = Anything() if self._fits is None else self._fits(config)
        if (gives := given(config)) != self._given:
            self._given, self._judged = gives, {}
        lacking = f"{UNFIT}: {why}" if (why := fitness.lacks()) else ""
        if not lacking and not callable(preview):
            self._judged = {}
            return devices
        before, self._judged = {} if lacking else self._judged, {}
        listed: list[Device] = []
        for device in devices:
            known = before.get(device.id)
            now = known[1] if known is not None and known[0] is device else None
            # of what couldn't be given it is asked again, because that may lack nothing by now
            if now is not device and device.health.ok:
                why = lacking or _unfit(fitness, preview, device)
                if not why:
                    now = device
                elif now is None or now.health.reason != why:
                    now = answers.unhealthy(device, why)
            listed.append(now or device)
            if not lacking:
                self._judged[device.id] = device, listed[-1]
        return devices if all(map(operator.is_, listed, devices)) else tuple(listed)


def given(config: ResourceConfig) -> tuple[object, ...]:
    """What the configuration itself gives a container."""
    return config.env, config.annotations, config.mounts, config.shares


def _unfit(fitness: Fitness, preview: Any, device: Device) -> str:  # noqa: ANN401
    """Why a device that its driver calls healthy can't be given."""
    (own,) = answers.own([device])
    try:
        allocation = answers.ask("preview", lambda: answers.allocation(preview(own), "preview"))
    except GatewayError as error:
        return f"{UNFIT}: {error}"
    why = fitness.unfit(device.id, allocation)
    return f"{UNFIT}: {why}" if why else ""
