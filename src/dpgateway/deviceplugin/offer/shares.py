"""The ids under which one device is offered when a resource shares it.

Share 0 has the device's own id, the others are ``<id>::1`` ... ``<id>::n-1``. A device's id never ends that way (the
model refuses it), so an id that was once offered means the same device for ever, whatever ``shares`` says later.
"""

from __future__ import annotations

import re

_SHARE = re.compile(r"(.*)::[1-9][0-9]*\Z", re.DOTALL)


def share_ids(device_id: str, count: int) -> tuple[str, ...]:
    """The ids of ``count`` shares of a device, share 0 first."""
    if count == 1:
        return (device_id,)
    return (device_id, *(f"{device_id}::{index}" for index in range(1, count)))


def device_id(offered_id: str) -> str:
    """The device of an id that ``share_ids`` made: its inverse, and of no use for an id that wasn't offered."""
    match = _SHARE.match(offered_id)
    return match[1] if match else offered_id
