"""The devices that containers hold, for a driver that asks on a thread of its own (``Context.held``).

A driver may list before the kubelet's note was read. So the first question waits for that, because a driver asks in
order to name devices as they were named when they were given away.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from dpgateway.config import ResourceConfig
from dpgateway.kit.observable import Observable
from dpgateway.resource.front import Usage
from dpgateway.resource.shares import device_id

PATIENCE = 1.0
"""Seconds that the first question waits, once: there may be no kubelet."""


class HeldDevices:
    """Made in the event loop, asked from any other thread."""

    def __init__(self, usage: Usage, config: Observable[ResourceConfig]) -> None:
        """``config``: ids that were made as ``shares.ids`` says don't say which device each is of."""
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
