"""What of the wanted slices can be published, as far as the Node and the API server say.

The server drops the fields of features that are off, silently. A pool with counters, shares or taints is first created
as a dry run; if fields are missing in the answer, the pool isn't published: without its counters the scheduler would
give one board to two pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from dpgateway.cluster.errors import OF_ALL, SERVER_ERROR, ClusterError
from dpgateway.cluster.server import ApiServer, ObjectKind
from dpgateway.dra.owner import OwnerNode
from dpgateway.dra.slices.changes import Identity, dropped, specimen
from dpgateway.dra.slices.due import Wanted
from dpgateway.dra.slices.layout import Content


class Publishable(NamedTuple):
    """What can be published."""

    pools: Wanted
    identity: Identity
    """Of a slice, but for its pool."""
    failures: tuple[str, ...]
    """Why other pools can't be."""
    refused: Mapping[str, str]
    """The same, by name, for each pool whose fields the server would drop."""
    errors: Mapping[str, ClusterError]
    """What the server says of pools that it refuses to try, by name: their slices stay as they are."""


class DryRuns:
    """Used from the event loop."""

    def __init__(self, server: ApiServer, owner: OwnerNode) -> None:
        self._server, self._owner = server, owner
        self._dropped: dict[str, str] = {}
        """The fields that the server drops, or an empty text, by the features that a slice uses."""

    def forget(self) -> None:
        """The server may be another one."""
        self._dropped = {}  # an answer that is still to come is of the server before

    async def publishable(self, wanted: Wanted) -> Publishable:
        """Raises ClusterError."""
        await self._owner.known()
        identity, obstacle = self._owner.identity, self._owner.obstacle
        if wanted and obstacle:
            return Publishable({}, identity, (obstacle,), {}, {})
        pools, refused, failed, known = dict(wanted), dict[str, str](), dict[str, ClusterError](), self._dropped
        for name, some in wanted.items():
            try:
                lost = await self.dropped(name, some or ())
            except ClusterError as error:
                if error.status in OF_ALL - {SERVER_ERROR}:  # as in writing
                    raise
                pools[name], failed[name] = None, error
                continue
            if lost:
                del pools[name]
                refused[name] = f"pool {name} isn't published: the API server drops {lost}"
        if known is not self._dropped:  # some of that is of the server before
            return await self.publishable(wanted)
        return Publishable(pools, identity, tuple(refused.values()), refused, failed)

    async def dropped(self, pool: str, contents: Iterable[Content]) -> str:
        """The fields of slices with these contents that the API server drops, by a dry run; empty if it keeps all.
        Raises ClusterError.
        """
        await self._owner.known()
        identity, known = self._owner.identity._replace(pool=pool), self._dropped
        for one in contents:
            features, probe = specimen(one, identity)
            if features and features not in known:
                kept = await self._server.create(ObjectKind.SLICE, probe, dry_run=True)
                known[features] = dropped(probe, kept)
            if features and known[features]:
                return known[features]
        return ""
