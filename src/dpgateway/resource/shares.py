"""The list of a resource, for every front: ids with their health. A shared device has several ids.

Share 0 has the device's own id, the others are ``<id>::1`` ... ``<id>::n-1``. A device's id never ends that way (the
model refuses it), so an offered id means the same device for ever, independent of later ``shares``.

A configuration may give ids another form (``shares.ids``), that of a predecessor's device plugin, so that running pods
keep theirs. Such an id doesn't name its device.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from dpgateway.config import GRANTED_FIELD, SHARE_FIELD
from dpgateway.model import HEALTHY, Health

_SHARE = re.compile(r"(.*)::[1-9][0-9]*\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Offer:
    """One offered id: a device, or a share of a device. Made from a checked device, so it doesn't check itself."""

    id: str
    health: Health = HEALTHY
    numa_nodes: tuple[int, ...] = ()
    first: str = ""
    """The id of its device's share 0, where the id doesn't spell it."""
    taken: bool = False
    """Whether it is Unhealthy only because its hardware is in use otherwise: as it is in ordinary operation."""


Offers = Mapping[str, Offer]
"""The whole list, keyed by id."""


def share_ids(device_id: str, count: int, form: str = "") -> tuple[str, ...]:
    """The ids of ``count`` shares of a device, share 0 first. ``form``: the configuration's; empty if it has none."""
    return tuple([share_id(device_id, index, form) for index in range(count)])


def share_id(device_id: str, index: int, form: str) -> str:
    if form:
        return _named(form, {"id": device_id, "share": str(index)})
    return f"{device_id}::{index}" if index else device_id


def device_id(offered_id: str) -> str:
    """The inverse of ``share_ids`` without a form. An id that was never offered gives nonsense."""
    match = _SHARE.match(offered_id)
    return match[1] if match else offered_id


@lru_cache(maxsize=16)
def clash(device_ids: tuple[str, ...], count: int, form: str) -> str:
    """Why a form doesn't suit these devices; empty if it does. Each id must mean one device."""
    owners: dict[str, str] = {}
    for device in device_ids if form else ():
        for offered in share_ids(device, count, form):
            if (other := owners.setdefault(offered, device)) != device:
                return f"{other} and {device} would both be offered as {offered}: let shares.ids have {{id}}, set apart"
    return ""


def environment(env: Mapping[str, str], granted: int, shares: int) -> dict[str, str]:
    """The configuration's ``shares.env`` for a number of granted shares. A part is rounded down."""
    numbers = {"granted": granted, "shares": shares}

    def filled(field: re.Match[str]) -> str:
        return str(int(field[2]) * granted // shares if field[2] else numbers[field[1]])

    return {name: GRANTED_FIELD.sub(filled, text) for name, text in env.items()}


def _named(form: str, fields: Mapping[str, str]) -> str:
    def filled(field: re.Match[str]) -> str:
        if field[1]:
            return fields[field[1]]
        return hashlib.sha1(_named(field[2], fields).encode(), usedforsecurity=False).hexdigest()

    return SHARE_FIELD.sub(filled, form)
