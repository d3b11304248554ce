"""Devices that share hardware exclude each other: while a container has one of them, the others are Unhealthy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from dpgateway.deviceplugin.offer.shares import device_id
from dpgateway.model import Device
from dpgateway.node.holdings import Holdings


def excluded(
    devices: Iterable[Device], holdings: Holdings, device_of: Callable[[str], Device | None]
) -> Mapping[str, str]:
    """Why a device can't be given away because of what is behind it, by device id.

    ``device_of``: the present device of an offered id. What was behind an id when it was given away counts, not what
    its name means today.
    """
    named = [device for device in devices if device.hardware is not None]
    if not named:
        return {}
    used: dict[str, str] = {}
    forgotten: list[str] = []
    given = frozenset(id_ for ids in holdings.in_flight for id_ in ids)
    for offered in sorted(holdings.claimed):
        claim, device = holdings.claims.get(offered), device_of(offered)
        behind = claim.hardware if claim is not None else frozenset()
        if device is not None and (offered in given or not behind):
            behind |= hardware(device)
        used |= dict.fromkeys(behind, offered)
        if not behind:
            forgotten.append(offered)
    held = {device_id(offered) for offered in holdings.claimed}
    out = {device.id: _reason(device, used, holdings) for device in named}
    if forgotten:
        unsure = f"it may be what a container holds as {forgotten[0]}, because nobody remembers what that was"
        out = {id_: reason or ("" if id_ in held else unsure) for id_, reason in out.items()}
    return {id_: reason for id_, reason in out.items() if reason}


def _reason(device: Device, used: Mapping[str, str], holdings: Holdings) -> str:
    for name in device.hardware or ():
        other = used.get(name)
        if other is not None and device_id(other) != device.id:
            holder = holdings.listed.get(other)
            return f"{name} is held as {other}{f' by {holder}' if holder else ''}"
    return ""


def hardware(device: Device) -> frozenset[str]:
    """The names of what is behind a device; its own id if the driver says nothing of it.

    Empty if the driver can't know: of an Unhealthy device it may not see more than the name.
    """
    if device.hardware is None:
        return frozenset([device.id]) if device.health.ok else frozenset()
    return frozenset(device.hardware)


def shared(devices: Iterable[Device]) -> tuple[Device, Device] | None:
    """Two of the devices that have hardware in common, if there are any."""
    first: dict[str, Device] = {}
    for device in devices:
        for name in hardware(device):
            if first.setdefault(name, device) is not device:
                return first[name], device
    return None
