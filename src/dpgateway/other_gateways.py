"""The other gateways of a node: the sockets that earlier ones left behind, and the one that follows.

Two gateways run side by side during an upgrade. Each resource is handed over by itself: its lock says who serves it
(``resource.ownership``). Whether a gateway is to follow at all is known from files: the directories of the node's pods,
the mark that each terminating gateway leaves in its own, and :attr:`OtherGateways.last`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from dpgateway.deviceplugin.server.sockets import left_behind
from dpgateway.errors import KubeletError
from dpgateway.fronts import NodeFronts
from dpgateway.kit.log import bind
from dpgateway.node.node import Node
from dpgateway.node.pods import other_of_us, say_ending
from dpgateway.resource.ownership import FOLDER, LAST
from dpgateway.serving import ServedResource

_log = bind(__name__)


class OtherGateways:
    """As this gateway sees them. Used from the event loop."""

    def __init__(self, node: Node, pods: Path, fronts: NodeFronts, serving: Mapping[str, ServedResource]) -> None:
        """``pods``: the directory with those of the node's pods; ``serving``: the served resources by name, live."""
        self._node, self._pods, self._fronts, self._serving = node, pods, fronts, serving
        self.lingers = False
        """Whether this gateway serves on only until another one has taken over."""
        self.last = node.directory / FOLDER / LAST
        """The file that says that no gateway follows this one."""

    async def sweep(self) -> None:
        """Removes the sockets that earlier gateways left of resources no longer configured."""
        await self._node.there.wait()
        with suppress(OSError):
            self.last.unlink()  # it was meant for an earlier gateway: this one did follow
        removed = 0
        # The lock decides: the files of a live gateway stay.
        for names in left_behind(self._node.directory, self._serving):
            try:
                removed += names.remove_unowned()
            except (KubeletError, OSError) as error:
                _log.warning("what an earlier gateway left behind stays: %s", error)
        if removed:
            text = "removed the sockets that an earlier gateway left of resources that aren't configured: %d"
            _log.info(text, removed)

    @property
    def ours(self) -> tuple[str, ...]:
        """The resources that would be unserved if this gateway ended now."""
        mine = [(name, one) for name, one in self._serving.items() if one.is_ours]
        names = tuple([name for name, one in mine if not self._fronts.handed_over(one.config.value)])
        return (*names, *self._fronts.passing)

    @property
    def given(self) -> bool:
        """Whether another gateway has taken any resource over."""
        return any(not serving.follows for serving in self._serving.values())

    def followed(self, own: str) -> bool | None:
        """Whether another gateway's pod is on this node; None if that can't be seen. ``own``: our pod's uid."""
        try:
            return other_of_us(self._pods, own)
        except OSError:
            return None

    def say_ending(self, own: str) -> None:
        """Marks this gateway, in the pod ``own``, as terminating, so that no other terminating one waits for it."""
        self.lingers = True
        self._fronts.told_to_end()
        with suppress(OSError):  # the other one waits for longer
            say_ending(self._pods, own)
