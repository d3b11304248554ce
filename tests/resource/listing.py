"""One resource's inventory, the kubelet's checkpoint beside it, and a loop in whose time both live."""

import asyncio
import logging
import time
from datetime import timedelta

from dpgateway.config import ResourceConfig, Shares
from dpgateway.deviceplugin.api import LIST_LIMIT
from dpgateway.deviceplugin.holdings.observed import ResourceHoldings
from dpgateway.deviceplugin.holdings.values import Holdings
from dpgateway.model import Device, Health, hardware
from dpgateway.node.holders import Noted
from tests.support.resource import FakeLanes, FakeResource
from tests.support.time import VirtualLoop

WET = Health.unhealthy("wet")
NOBODY: frozenset[str] = frozenset()
A, B = Device("a"), Device("b", numa_nodes=(1,))


def configured(shares=1, keep_lost=10.0):
    return ResourceConfig("example.com/thing", "x", shares=Shares(shares), keep_lost=timedelta(seconds=keep_lost))


class Node:
    """An inventory, the kubelet's checkpoint beside it, and a loop that lets the time of both pass."""

    def __init__(self, shares=1, keep_lost=10.0, *, loop=None, on_file=NOBODY, written=0.0):
        self.loop = loop or VirtualLoop()
        self.clock = self.loop.clock
        self.log = logging.LoggerAdapter(logging.getLogger("inventory"), {})
        self.on_file, self.written = on_file, written
        self.reads = 0
        lanes, self.holdings = FakeLanes("release"), ResourceHoldings(Holdings(), self.read)
        one = FakeResource(configured(shares, keep_lost), lanes, self.clock, holdings=self.holdings, log=self.log)
        self.config, self.inventory, self.releases, self.freed = one.config, one.inventory, one.releases, lanes.released
        self.resource = one
        self.run(one.follow)
        self.run(self.read)

    def run(self, function, *arguments, **named):
        """Calls a function on the loop, as everything is called, and lets those who watch see what it did."""

        async def call():
            result = function(*arguments, **named)
            for _ in range(3):
                await asyncio.sleep(0)
            return result

        return self.loop.run_until_complete(call())

    def sleep(self, seconds):
        self.loop.run_until_complete(asyncio.sleep(seconds))

    def read(self):
        """What the node does when the checkpoint changed, or an id may be dropped."""
        self.reads += 1
        now, value = self.clock.monotonic(), self.holdings.value
        if self.on_file == "missing":
            found = value.missing(now)
        else:
            note = None if self.on_file == "damaged" else dict.fromkeys(self.on_file, Noted())
            found = value.noted(note, self.written, now)
        if not self.holdings.set(found):
            self.holdings.notify()

    def write(self, on_file):
        """The kubelet writes its checkpoint."""
        self.on_file, self.written = on_file, self.clock.monotonic()
        self.run(self.read)

    def take(self, *devices):
        self.run(self.inventory.take, devices, LIST_LIMIT)

    def amend(self, shares, keep_lost):
        """Another configuration; the driver's last list is taken again."""
        self.run(self.config.set, configured(shares, keep_lost))

    def fail(self, reason, *, overdue=False):
        self.run(self.inventory.fail, reason, overdue=overdue)

    def resolve(self, *ids):
        return self.inventory.ledger.resolve(ids, self.clock.monotonic())

    def new_kubelet(self):
        self.run(self.holdings.set, self.holdings.value.new_kubelet(self.clock.monotonic(), "another"))

    def begin(self, *ids):
        """An Allocate is in flight until the function that this returns is called with whether it worked."""
        ledger, usage = self.inventory.ledger, self.holdings
        found = {id_: device for id_ in ids if (device := ledger.device(id_)) is not None}
        behind = {id_: hardware(device) for id_, device in found.items()}

        def begin():
            usage.set(usage.value.began(ids, behind))
            self.inventory.exclusion.uses_changed()

        def end(works):
            if works:
                names = {id_: device.id for id_, device in found.items()}
                usage.set(usage.value.gave(ids, self.clock.monotonic(), behind, int(time.time()), names))
            else:
                usage.set(usage.value.failed(ids))
                self.inventory.exclusion.uses_changed()
                self.releases.release_due()

        self.run(begin)
        return lambda works=True: self.run(end, works)

    def allocate(self, *ids):
        self.begin(*ids)()

    @property
    def offers(self):
        return None if self.inventory.list.value is None else dict(self.inventory.list.value)

    @property
    def listed(self):
        """Whether each id is healthy."""
        return None if self.offers is None else {i: offer.health.ok for i, offer in self.offers.items()}

    def close(self):
        self.end()
        self.loop.close()

    def end(self):
        self.run(self.resource.end)
