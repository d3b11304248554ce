"""What containers hold of one resource, as it changes: what a resource tells becomes another value of the holdings.

Watchers are woken by what may give them something to do. An Allocate that begins wakes nobody: what it excludes is up
to the resource itself, which has just told it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping

from dpgateway.deviceplugin.holdings.values import Holdings
from dpgateway.kit.observable import Observable
from dpgateway.resource.freeing import Releases
from dpgateway.resource.front import Behind, Unreleased
from dpgateway.resource.inventory import Inventory


async def up_to_date() -> None:
    """For holdings that are always so."""


class ResourceHoldings(Observable[Holdings]):
    """A resource's :class:`dpgateway.resource.front.Usage`."""

    def __init__(
        self,
        value: Holdings,
        reread: Callable[[], None] = lambda: None,
        read: Callable[[], Awaitable[None]] = up_to_date,
    ) -> None:
        """``reread`` has the kubelet's checkpoint read once more, and what it says published; ``read`` returns when
        that was done.
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
        if found != self.value:  # journals of others are read again and again
            self.set(found)


async def follow(observed: ResourceHoldings, inventory: Inventory, releases: Releases) -> None:
    """Has a resource follow its holdings: its list, what others of its pool may give away, and what its driver is told.
    Never returns.
    """
    seen, before = 0, Holdings()
    while True:
        seen = await observed.wait(seen)
        holdings = observed.value

        # Only another note tells of ids that may leave the list.
        if holdings.note is not before.note:
            inventory.hold()
        else:
            inventory.use()
            if inventory.ledger.lost:
                inventory.look_later()

        # A kubelet writes its note anew for each list that it gets.
        if holdings.doubted != before.doubted:
            inventory.repeat()
        if holdings.unsettled and not holdings.only_gave_since(before):
            releases.tell()
        before = holdings
