"""The held devices, for a driver that asks on a thread of its own (``Context.held``).

A driver asks in order to keep the names under which devices were granted. It may list before the kubelet's note was
read, so the first call waits for that.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from dpgateway.config import ResourceConfig
from dpgateway.kit.observable import Observable
from dpgateway.resource.front import Usage
from dpgateway.resource.shares import device_id, share_ids

PATIENCE = 1.0
"""Seconds that the first call waits, once: there may be no kubelet."""


class HeldDevices:
    """Made in the event loop, asked from any other thread."""

    def __init__(self, usage: Usage, config: Observable[ResourceConfig]) -> None:
        """``config``: with ``shares.ids``, an id doesn't tell its device."""
        self._usage, self._config = usage, config
        self._loop = asyncio.get_running_loop()
        self._waits = True

    def __call__(self) -> frozenset[str]:
        if self._waits and not self._usage.value.known:
            known = asyncio.run_coroutine_threadsafe(self._usage.wait_for(lambda one: one.known), self._loop)
            with suppress(TimeoutError):
                known.result(PATIENCE)
            known.cancel()
        self._waits = False
        formed = self._config.value.shares.ids
        return frozenset() if formed else frozenset(map(device_id, self._usage.value.taken))

    def has(self, device: str) -> bool:
        """Whether containers hold an id of this device, of whichever form."""
        found, shares = device in self(), self._config.value.shares
        if found or not shares.ids:
            return found
        return not self._usage.value.taken.isdisjoint(share_ids(device, shares.count, shares.ids))
