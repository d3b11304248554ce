"""The observable holdings of one resource, and the resource that follows them.

Watchers are woken only if they may have something to do. The start of an Allocate wakes none: the resource, which has
just published it, applies its exclusions itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from dpgateway.deviceplugin.holdings.values import Holdings
from dpgateway.resource.freeing import Releases
from dpgateway.resource.front import Usage
from dpgateway.resource.inventory import Inventory


async def up_to_date() -> None:
    """The ``read`` of holdings without a source."""


async def _unasked(_: frozenset[str], *, static: bool = False) -> frozenset[str] | None:
    """The ``running`` of holdings without a runtime."""
    return None


class ResourceHoldings(Usage):
    """The usage of one resource by this front's containers."""

    value: Holdings

    def __init__(
        self,
        value: Holdings,
        reread: Callable[[], object] = lambda: None,
        read: Callable[[], Awaitable[None]] = up_to_date,
        running: Callable[..., Awaitable[frozenset[str] | None]] = _unasked,
    ) -> None:
        """``reread`` requests another read of the kubelet's checkpoint, ``read`` waits for one. ``running``: which of
        these pods have a container that may run, as ``Asking.running``; None if nobody says.
        """
        super().__init__(value, reread, Holdings.is_news_after)
        self.read, self.running = read, running


async def follow(observed: ResourceHoldings, inventory: Inventory, releases: Releases) -> None:
    """Applies each change of the holdings to a resource: its list, its pool's exclusions, and its releases. Never
    returns.
    """
    seen, before = 0, Holdings()
    while True:
        seen = await observed.wait(seen)
        holdings = observed.value

        # Only another note can let ids leave the list.
        if holdings.note is not before.note:
            inventory.hold()
        else:
            inventory.exclusion.uses_changed()
            if inventory.ledger.lost:
                inventory.list.look_later()

        # Of what the kubelet has struck in an earlier gateway's time, it is asked at once whether its pods run.
        if holdings.remembers and not before.remembers and holdings.struck.pods:
            observed.reread()

        # From 1.9 on the kubelet writes its checkpoint for each list, even a repeated one, which resolves the doubt
        # (genericDeviceUpdateCallback in pkg/kubelet/cm/devicemanager/manager.go).
        if holdings.doubted != before.doubted and inventory.list.value is not None:
            inventory.list.notify()
        if holdings.unsettled and not holdings.only_gave_since(before):
            releases.release_due()
        before = holdings
