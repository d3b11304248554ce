"""One pool: resources whose devices may be the same hardware. What one of them uses, the others don't give away.

Everything happens in the event loop and waits for nothing: whoever begins to use hardware first has it, and the others
know before anything else can happen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from dpgateway.deviceplugin.offer.exclusion import Used


class Member(Protocol):
    """One resource of the pool."""

    @property
    def name(self) -> str: ...

    def used(self) -> Used: ...

    def exclude(self, others: Sequence[Used]) -> None:
        """Lists its devices accordingly."""


class Pool:
    """Used from the event loop."""

    def __init__(self, besides: Callable[[], Iterable[Used]] = tuple) -> None:
        """``besides`` says what is used under names that are in no pool, but count in each of them."""
        self.members: dict[str, Member] = {}
        """By resource."""
        self.known = asyncio.Event()
        """Set while it is known what containers hold of each of them."""
        self._besides = besides

    def expect(self, member: Member) -> None:
        """``member`` stands for the resource until that joins."""
        self.members[member.name] = member
        self.known.clear()

    def others(self, name: str) -> Sequence[Used]:
        """What is used under other names than this one."""
        return (*(member.used() for other, member in self.members.items() if other != name), *self._besides())

    def tell(self, name: str = "") -> None:
        """What is used under this name has changed; without a name, what is used besides."""
        uses = {other: member.used() for other, member in self.members.items()}
        besides = tuple(self._besides())
        if all(use.known for use in (*uses.values(), *besides)):
            self.known.set()
        for other, member in tuple(self.members.items()):
            if other != name:
                member.exclude([*(use for whose, use in uses.items() if whose != other), *besides])
