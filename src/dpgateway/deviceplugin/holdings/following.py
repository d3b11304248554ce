"""Has a resource follow its holdings: the list, what other resources may give away, and what the driver is told."""

from __future__ import annotations

from dpgateway.deviceplugin.holdings.observed import ResourceHoldings
from dpgateway.deviceplugin.holdings.values import Holdings
from dpgateway.resource.freeing import Releases
from dpgateway.resource.inventory import Inventory


async def follow(observed: ResourceHoldings, inventory: Inventory, releases: Releases) -> None:
    """Never returns."""
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
        if not holdings.only_gave_since(before):
            releases.tell()
        before = holdings
