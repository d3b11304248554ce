"""Calls that go on although their driver has ended: their devices are in somebody's hands until they return."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dpgateway.kit.observable import Observable
from dpgateway.model import Device


@dataclass(frozen=True, eq=False)
class Unended:
    """One such call."""

    resource: str
    method: str
    devices: Sequence[Device]


class UnendedCalls:
    """Of all drivers of this process; used from the event loop. A call outlives its driver, and its configuration."""

    def __init__(self) -> None:
        self.now: Observable[tuple[Unended, ...]] = Observable(())

    def add(self, call: Unended, future: asyncio.Future[Any]) -> None:
        """``future`` is done when the call has really ended."""

        def ended(done: asyncio.Future[Any]) -> None:
            if not done.cancelled():
                done.exception()  # nobody waits for it
            self.now.set(tuple(one for one in self.now.value if one is not call))

        self.now.set((*self.now.value, call))
        future.add_done_callback(ended)
