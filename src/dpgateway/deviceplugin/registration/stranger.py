"""Notices another device plugin with the name of one of our resources.

A kubelet gives away what the plugin lists that registered last, and tells nobody of it. But its checkpoint has the ids
(`RegisteredDevices`, 1.9 and later), so it shows when they aren't those of our list.
"""

from __future__ import annotations

from collections.abc import Collection

LISTED_WITHIN = 1.0
"""Seconds from our list to the checkpoint that has it. An earlier one may have what was listed before."""
SETTLED = 10.0
"""Seconds after which one that was written sooner, and is still the newest, has what is listed: when a kubelet starts,
all plugins register within moments, and then it writes nothing until the next Allocate."""
MOST_NAMED = 3


class Stranger:
    """Of one resource. It reads no clock, and no file."""

    def __init__(self, resource: str) -> None:
        self._resource = resource
        self.complaint = ""
        """What is wrong; empty while nothing is known to be."""
        self._since: float | None = None

    def look(  # noqa: PLR0913, PLR0917  plain values
        self,
        registered: Collection[str],
        written: float,
        ours: Collection[str],
        published: float,
        listed_since: float | None,
        now: float,
    ) -> bool:
        """Compares the ids in the kubelet's checkpoint with those of our list. Returns whether the complaint changed.

        ``registered``: the ids in the checkpoint that was ``written`` then. ``ours``: those of our list, ``published``
        then. ``listed_since``: when our registration began, None until the kubelet has our list. All in seconds of the
        monotonic clock.
        """
        before = self.complaint
        if listed_since != self._since:  # each registration of ours replaces another plugin's
            self.complaint, self._since = "", listed_since
        if listed_since is not None:
            listed = max(listed_since, published)
            if written > listed + LISTED_WITHIN or (written > listed and now > listed + SETTLED):
                strange = sorted(set(registered).difference(ours))
                self.complaint = self._of(strange) if strange else ""
        return self.complaint != before

    def _of(self, ids: list[str]) -> str:
        more = f" and {len(ids) - MOST_NAMED} more" if len(ids) > MOST_NAMED else ""
        return (
            f"another device plugin has registered {self._resource}: the kubelet lists ids that this gateway never "
            f"offered: {', '.join(ids[:MOST_NAMED])}{more}; stop it, or rename the resource of one of the two"
        )
