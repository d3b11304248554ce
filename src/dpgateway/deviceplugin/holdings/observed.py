"""The observable holdings of one resource: each event that the resource reports sets the next value.

Watchers are woken only if they may have something to do. The start of an Allocate wakes none: the resource, which has
just reported it, applies its exclusions itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping

from dpgateway.deviceplugin.holdings.values import Holdings
from dpgateway.kit.observable import Observable
from dpgateway.resource.freeing import Releases
from dpgateway.resource.front import Behind, Unreleased
from dpgateway.resource.inventory import Inventory


async def up_to_date() -> None:
    """The ``read`` of holdings without a source."""


class ResourceHoldings(Observable[Holdings]):
    """A resource's :class:`dpgateway.resource.front.Usage`."""

    def __init__(
        self,
        value: Holdings,
        reread: Callable[[], None] = lambda: None,
        read: Callable[[], Awaitable[None]] = up_to_date,
    ) -> None:
        """``reread`` requests another read of the kubelet's checkpoint, published even if unchanged; ``read`` waits for
        one.
        """
        super().__init__(value, news=Holdings.is_news_after)
        self._reread, self.read = reread, read

    def reread(self) -> None:
        self._reread()

    def given_by(self, driver: str) -> None:
        self.set(self.value.given_by(driver))

    def began(self, ids: tuple[str, ...], hardware: Behind) -> None:
        self.set(self.value.began(ids, hardware))

    def owed(self, ids: tuple[str, ...], hardware: Behind, devices: Mapping[str, str]) -> None:
        self.set(self.value.owed(ids, hardware, devices))

    def gave(self, ids: tuple[str, ...], now: float, hardware: Behind, since: int, devices: Mapping[str, str]) -> None:
        self.set(self.value.gave(ids, now, hardware, since, devices))

    def failed(self, ids: tuple[str, ...]) -> None:
        self.set(self.value.failed(ids))

    def prepared(self, hardware: Behind) -> None:
        self.set(self.value.prepared(hardware))

    def released(self, ids: Collection[str]) -> None:
        self.set(self.value.released(ids))

    def known_behind(self, hardware: Behind, devices: Mapping[str, str]) -> None:
        self.set(self.value.known_behind(hardware, devices))

    def remembered(self, unreleased: Mapping[str, Unreleased], granted: Mapping[str, float] | None = None) -> None:
        found = self.value.remembered(unreleased, granted)
        if found != self.value:  # other gateways' journals are read repeatedly
            self.set(found)


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
            inventory.use()
            if inventory.ledger.lost:
                inventory.look_later()

        # The kubelet writes its checkpoint for each list, which resolves the doubt.
        if holdings.doubted != before.doubted:
            inventory.repeat()
        if holdings.unsettled and not holdings.only_gave_since(before):
            releases.tell()
        before = holdings
