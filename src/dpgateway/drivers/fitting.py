"""Judges whether each listed device can be given to a container. One that never can isn't Healthy: its pod would be
placed on this node again and again, and fail.

A driver says by ``preview`` what ``allocate`` would answer, and the front judges that. The host must have the mounts of
the configuration in any case. All of it runs on the list lane's thread, because it may touch disks.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Sequence
from typing import Any

from dpgateway.config import ResourceConfig
from dpgateway.drivers import answers
from dpgateway.errors import GatewayError
from dpgateway.kit.observable import Observable
from dpgateway.model import Allocation, Device, Mount

UNFIT = "it can't be given"
"""How the reason begins of a device that no container can get."""


Unfit = Callable[[ResourceConfig, str, Allocation], str]
"""Says why a front can't give any container the device of this id with this allocation; empty if it can."""


class Fitting:
    """Judges the lists of one running driver."""

    def __init__(self, unfit: Unfit | None, config: Observable[ResourceConfig]) -> None:
        self._unfit, self._config = unfit, config
        self._judged: dict[str, tuple[Device, Device]] = {}
        """By id: what the driver listed, and what came of it."""
        self._given: tuple[object, ...] = ()
        """What the configuration gave containers when that was judged."""

    def judged(self, driver: Any, devices: tuple[Device, ...]) -> tuple[Device, ...]:  # noqa: ANN401
        """The list, in which a device that can't be given is Unhealthy."""
        config, preview = self._config.value, getattr(driver, "preview", None)
        if (gives := given(config)) != self._given:
            self._given, self._judged = gives, {}
        lacking = next((f"{UNFIT}: mounts[{n}]: {why}" for n, why in missing(config.mounts).items()), "")
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
                why = lacking or self._unfit_now(preview, device)
                if not why:
                    now = device
                elif now is None or now.health.reason != why:
                    now = answers.unhealthy(device, why)
            listed.append(now or device)
            if not lacking:
                self._judged[device.id] = device, listed[-1]
        return devices if all(map(operator.is_, listed, devices)) else tuple(listed)

    def _unfit_now(self, preview: Any, device: Device) -> str:  # noqa: ANN401
        """Why a device that its driver calls healthy can't be given."""
        (own,) = answers.own([device])
        try:
            allocation = answers.ask("preview", lambda: answers.allocation(preview(own), "preview"))
        except GatewayError as error:
            return f"{UNFIT}: {error}"
        why = "" if self._unfit is None else self._unfit(self._config.value, device.id, allocation)
        return f"{UNFIT}: {why}" if why else ""


def given(config: ResourceConfig) -> tuple[object, ...]:
    """What the configuration itself gives a container."""
    return config.env, config.annotations, config.mounts, config.shares


def missing(mounts: Sequence[Mount]) -> dict[int, str]:
    """Why the host lacks a mount, by the mount's number. A pod sees its own files, not the host's, so nothing is known
    there (kubelets set this variable in all containers: pkg/kubelet/envvars/envvars.go).
    """
    if not mounts or "KUBERNETES_SERVICE_HOST" in os.environ:
        return {}
    lacking = {number: mount.host_path for number, mount in enumerate(mounts) if _is_missing(mount)}
    return {number: f"{path} isn't there on this host, and is to be mounted" for number, path in lacking.items()}


def _is_missing(mount: Mount) -> bool:
    try:
        os.stat(mount.host_path)  # noqa: PTH116  a Path isn't needed for it
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:  # it is there, or nobody knows
        return False
    return False
