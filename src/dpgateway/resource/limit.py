"""The limit on the size of a front's list.

A list must fit even when everything on it turns Unhealthy, and NUMA nodes count. Nearly every list is far below the
limit, so a cheap upper bound comes first, and a list is encoded only if the bound exceeds the limit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from dpgateway.model import Device
from dpgateway.resource.ledger import Lost, offers_of
from dpgateway.resource.shares import Offer, share_id

_GROWTH = 25
"""Bytes by which an entry's framing may grow beyond that of a one-letter id: three for each length that takes more than
one byte, and the suffix of a share."""


class ListLimit:
    """The limit of one front."""

    def __init__(self, most: int, size: Callable[[Iterable[Offer]], int]) -> None:
        """``most``: bytes of a list. ``size``: bytes of the list of these offers if each of them were Unhealthy."""
        self._most, self._size = most, size
        # Measured, because each API frames an entry and its NUMA nodes in its own way.
        self._framing = size([Offer("x")]) - 1
        self._node = size([Offer("x", numa_nodes=(2**31 - 1,))]) - size([Offer("x")])

    def bound(
        self, entries: Collection[Device] | Collection[Lost] | Collection[Offer], ids: Iterable[str], shares: int = 1
    ) -> int:
        """An upper bound of the bytes of a list of ``entries`` with these ids, each offered ``shares`` times."""
        nodes = sum(map(len, [entry.numa_nodes for entry in entries]))
        return shares * (_text(ids) + (self._framing + _GROWTH) * len(entries) + self._node * nodes)

    def too_long(
        self,
        devices: Collection[Device],
        shares: int,
        form: str,
        besides: int = 0,
        after: Callable[[], Collection[Offer]] | None = None,
    ) -> str:
        """Why the list of ``devices`` can't be published; empty if it can.

        ``form``: of the shares' ids. ``besides``: bytes at most of everything else on the list. ``after()``: the whole
        list, if it has more than ``devices``; called only if it may be too long.
        """
        ids = [share_id(device.id, shares - 1, form) if form else device.id for device in devices]
        if self.bound(devices, ids, shares) + besides <= self._most:
            return ""
        count, size = shares * len(devices), shares * (_text(ids) + self._framing * len(devices))
        if size <= self._most:  # else even this lower bound is too long, without making the list
            offers = after() if after else offers_of(devices, shares, form).values()
            count, size = len(offers), self._size(offers)
        if size <= self._most:
            return ""
        return (
            f"the list of {count} ids takes {size} bytes or more, and the kubelet accepts {self._most}; "
            "offer fewer devices, fewer shares, or shorter ids"
        )


def _text(ids: Iterable[str]) -> int:
    return len("".join(ids).encode())
