"""The Node that owns the slices: its uid, and what on it stands in the way of DRA.

- The server deletes slices together with their owner. A Node that is made anew has another uid, so the uid is read
  again whenever slices are missing.
- The Node says the versions of its software some seconds after the kubelet has started, so it is read at each
  registration or refusal, and twice later; while there is an obstacle again and again, because a runtime is mended
  without the kubelet.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from dpgateway.cluster.errors import ClusterError
from dpgateway.cluster.server import ApiServer, ObjectKind
from dpgateway.dra.obstacles import obstacle
from dpgateway.dra.slices.changes import Identity
from dpgateway.node.runtime import CdiSupport

LATER = 15.0, 60.0
"""Seconds after a registration, or a refusal, until the Node is read again."""
AGAIN = 60.0
"""Seconds until a Node with an obstacle is read again, at random between half and one and a half of it."""

AskRuntime = Callable[[], Awaitable[CdiSupport]]
"""Asks the container runtime."""


async def unasked() -> CdiSupport:
    """The container runtime can't be asked."""
    return CdiSupport(None)


class OwnerNode:
    """Used from the event loop."""

    def __init__(self, server: ApiServer, driver: str, node: str, outdated: Callable[[], object]) -> None:
        """``outdated`` is called whenever the Node has to be read again."""
        self.runtime: AskRuntime = unasked
        self.uid = ""
        """Empty while the Node has to be read."""
        self.obstacle = ""
        """Why nothing may be published on this node."""
        self.answered = False
        """Whether a kubelet has said anything yet."""
        self._server, self._driver, self._node, self._outdated = server, driver, node, outdated
        self._again: asyncio.TimerHandle | None = None

    @property
    def identity(self) -> Identity:
        """Of a slice, but for its pool; as the Node was read last."""
        return Identity(self._driver, self._node, self.uid, "")

    def registered(self) -> None:
        """A kubelet has registered the driver or refused it, perhaps one of another version."""
        self.answered = True
        self._forget()
        for seconds in LATER:
            asyncio.get_running_loop().call_later(seconds, self._forget)

    def suits(self) -> None:
        """Others see a Node without an obstacle, which may be newer than the one that was read."""
        if self.obstacle:
            self._forget()

    def _forget(self) -> None:
        self.uid = ""
        self._outdated()

    async def known(self) -> None:
        """Reads the Node unless it is known. Raises ClusterError."""
        if not self.uid:
            await self.read()

    async def read(self) -> None:
        """Raises ClusterError."""
        self.uid = ""  # if it can't be read it isn't known, as slices that are missing may have gone with their Node
        found = await self._server.get(ObjectKind.NODE, self._node)
        if found is None:
            raise ClusterError(f"there is no node {self._node}: is it the name that the kubelet has (--node-name)?")
        support = await self.runtime()
        try:
            self.uid, self.obstacle = str(found["metadata"]["uid"]), obstacle(found, support.by_name)
        except (AttributeError, KeyError, TypeError) as error:
            raise ClusterError(f"node {self._node} can't be read: {error!r}") from error
        if self._again is not None:
            self._again.cancel()
            self._again = None
        if self.obstacle:
            pause = AGAIN * random.uniform(0.5, 1.5)  # noqa: S311
            self._again = asyncio.get_running_loop().call_later(pause, self._forget)
