"""The event log of a simulated kubelet, to follow or wait on."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")
MOST_ITEMS = 8
"""Items of a list in an event's text."""


@dataclass(frozen=True)
class KubeletEvent:
    """One event: its kind, such as `registered` or `list received`, its time in seconds, and its details."""

    kind: str
    time: float
    fields: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        parts = [self.kind]
        for name, value in self.fields.items():
            text = str(value)
            if isinstance(value, tuple | list):
                text = ",".join(str(item) for item in value[:MOST_ITEMS])
                text += f",... ({len(value)})" if len(value) > MOST_ITEMS else ""
            parts.append(f"{name}={text}")
        return " ".join(parts)


@dataclass(eq=False)
class EventLog:
    """The events of all incarnations of one simulated kubelet.

    `emit` never awaits: listeners run inside it, and waiting tasks wake up afterwards. Each wake-up replaces
    `_changed`, so that every waiter of the old event runs once and nothing has to clear it.
    """

    time: Callable[[], float]
    events: list[KubeletEvent] = field(default_factory=list)
    _listeners: list[Callable[[KubeletEvent], None]] = field(default_factory=list)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def emit(self, kind: str, **fields: object) -> None:
        event = KubeletEvent(kind, self.time(), fields)
        self.events.append(event)
        for listener in tuple(self._listeners):
            listener(event)
        self._changed.set()
        self._changed = asyncio.Event()

    def listen(self, listener: Callable[[KubeletEvent], None]) -> Callable[[], None]:
        """Calls `listener` with every event from now on, until the returned function is called."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def wait(self, predicate: Callable[[], T]) -> T:
        """The predicate's first true value; it is evaluated now and after every event."""
        while not (value := predicate()):
            await self._changed.wait()
        return value

    async def follow(self, start: int = 0) -> AsyncIterator[KubeletEvent]:
        """Yields every event from index `start` on; never ends."""
        while True:
            while start < len(self.events):
                start += 1
                yield self.events[start - 1]
            await self._changed.wait()
