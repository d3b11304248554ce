"""All objects that are meant, in one look."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dpgateway.sysfs.matching import Match
from dpgateway.sysfs.objects import Look, Object
from dpgateway.sysfs.templates import Matched


def find(look: Look, matches: Sequence[Match]) -> Iterator[tuple[int, Matched]]:
    """Each object once, for the first of ``matches`` that takes it, with the number of that. Raises OSError."""
    seen: set[Object] = set()
    for number, match in enumerate(matches):
        for thing in look.objects(match.subsystem):
            if thing not in seen and isinstance(ancestor := match.look(look, thing), Object):
                seen.add(thing)
                yield number, Matched(thing, ancestor)
