"""One pool: resources whose devices may be the same hardware. What one of them uses, the others don't give away.

Everything happens in the event loop and waits for nothing: whoever begins to use hardware first has it, and the others
know before anything else can happen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Protocol

from dpgateway.resource.use import Used


class Member(Protocol):
    """One resource of the pool."""

    @property
    def name(self) -> str: ...

    def used(self) -> Used: ...

    def exclude(self, others: Sequence[Used]) -> None:
        """Lists its devices accordingly."""


class Pool:
    """Used from the event loop."""

    def __init__(self, besides: Callable[[], Iterable[Used]] = tuple, *, alone: bool = False) -> None:
        """``besides`` says what is used under names that aren't in the pool, but count in it. ``alone``: this is no
        pool that anybody configured, but one resource that is in none.
        """
        self.members: dict[str, Member] = {}
        """By resource."""
        self.alone = alone
        self.known = asyncio.Event()
        """Set while it is known what containers hold of each of them."""
        self._besides = besides

    def expect(self, member: Member) -> None:
        """``member`` stands for the resource until that joins."""
        self.members[member.name] = member
        self.known.clear()

    def others(self, name: str) -> Sequence[Used]:
        """What is used under other names than this one, as far as it keeps a device from anybody."""
        uses = {other: member.used() for other, member in self.members.items()}
        return _others(name, _that_count(uses), self._besides())

    def tell(self, name: str = "") -> None:
        """What is used under this name has changed; without a name, what is used besides."""
        uses = {other: member.used() for other, member in self.members.items()}
        besides = tuple(self._besides())
        if all(use.known for use in (*uses.values(), *besides)):
            self.known.set()
        else:
            self.known.clear()
        counting = _that_count(uses)
        for other, member in tuple(self.members.items()):
            if other != name:
                member.exclude(_others(other, counting, besides))


def _that_count(uses: Mapping[str, Used]) -> Mapping[str, Used]:
    """Those that keep a device from anybody, because a pool may have hundreds that use nothing. Of those of which only
    that is known that nothing is known two are enough, so that each of the pool sees another one than itself.
    """
    using = {name: use for name, use in uses.items() if use.behind}
    unsure = islice((name for name, use in uses.items() if use.unsure and name not in using), 2)
    return using | {name: uses[name] for name in unsure}


def _others(name: str, uses: Mapping[str, Used], besides: Iterable[Used]) -> Sequence[Used]:
    return (*(use for other, use in uses.items() if other != name), *besides)
