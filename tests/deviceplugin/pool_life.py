"""Resources that may share hardware, as one gateway serves them, and what containers truly have.

The parts are the product's, with the journals on a disk; drivers, kubelet and threads are the test's.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from dpgateway.config import Shares
from dpgateway.drivers.preparing import CallAfterClose
from dpgateway.drivers.running import CallsAfterClose
from dpgateway.kit.threads import Threads
from dpgateway.model import Allocation, Device
from dpgateway.resource.journal import Journal, JournalWriter
from dpgateway.resource.orphans import Orphans
from dpgateway.resource.pools import Pools
from dpgateway.resource.use import hardware
from tests.support.holdings import Told
from tests.support.inline import Inline
from tests.support.resource import LOG, FakeResource
from tests.support.resources import configured


@dataclass(frozen=True)
class Setting:
    """What is configured of one resource, and what its driver finds."""

    devices: tuple[Device, ...]
    pool: str | None = "boards"
    shares: int = 1
    ids: str | None = None


@dataclass(frozen=True, eq=False)
class Has:
    """A container has a device, or is getting it, as what it was when its driver was asked."""

    resource: str
    ids: tuple[str, ...]
    devices: tuple[Device, ...]
    pod: str = ""

    def parts(self) -> Iterator[tuple[str, str, frozenset[str]]]:
        return ((self.resource, device.id, hardware(device)) for device in self.devices)


class Truth:
    """Who has what. Nothing of it is known to the gateway but what the test tells it."""

    def __init__(self, settings: dict[str, Setting]) -> None:
        self.settings = settings
        """Of the resources that are configured."""
        self.has: dict[str, Has] = {}
        """By the pod's uid: containers that run."""
        self.getting: list[Has] = []
        """What drivers are giving just now."""
        self.known: Callable[[str], bool] = lambda _: True
        """Whether the gateway can know what containers have as a resource."""
        self.preparing: dict[Has, asyncio.Future[None]] = {}
        """What drivers are preparing, also those that have ended, until the call returns."""

    @property
    def in_hands(self) -> list[Has]:
        return [*self.has.values(), *self.getting, *self.preparing]

    def counts(self, resource: str, other: str) -> bool:
        """Whether a resource must leave alone what containers have as the other one."""
        pool = self.settings[resource].pool
        return other not in self.settings or (pool is not None and self.settings[other].pool == pool)

    def conflicts(self, resource: str, device: Device, among: list[Has]) -> list[Has]:
        """Who has hardware of the device under another name that matters."""

        def conflict(part: tuple[str, str, frozenset[str]]) -> bool:
            whose, name, names = part
            other = name != device.id if whose == resource else self.counts(resource, whose)
            return other and not names.isdisjoint(hardware(device))

        return [one for one in among if any(map(conflict, one.parts()))]

    def check(self, what: str, resource: str, devices: Sequence[Device], among: list[Has]) -> None:
        """Those who were given the same hardware while they were in no pool go on with it while less is known."""
        for device in devices:
            ours = (resource, device.id, hardware(device))
            had = any(ours in one.parts() for one in self.has.values())
            found = self.conflicts(resource, device, [one for one in among if not had or self.known(one.resource)])
            assert not found, f"{what} {device} of {resource}, though others have its hardware: {found}"


class OracleLanes:
    """A driver that answers when it is told to, and checks that nobody else has what it gets into its hands."""

    abilities = frozenset({"prepare", "release"})

    def __init__(self, name: str, truth: Truth) -> None:
        self._name, self._truth = name, truth
        self.asked: list[tuple[Has, asyncio.Future[None]]] = []
        """Each Allocate so far, and what answers it."""
        self.preparing: list[Has] = []
        self.releasing: list[tuple[tuple[Device, ...], Callable[..., list[Device]], Callable[[], None]]] = []

    async def allocate(self, devices, late):
        has, truth = Has(self._name, (), tuple(devices)), self._truth
        truth.check("given", self._name, devices, truth.in_hands)
        truth.getting.append(has)
        self.asked.append((has, asyncio.get_running_loop().create_future()))
        try:
            await self.asked[-1][1]
        finally:
            truth.getting.remove(has)
        return Allocation()

    async def prepare(self, devices, *, once=True):
        has, truth = Has(self._name, (), tuple(devices)), self._truth
        truth.check("prepared", self._name, devices, truth.in_hands)
        truth.preparing[has] = ended = asyncio.get_running_loop().create_future()
        self.preparing.append(has)
        try:
            await asyncio.shield(ended)
        finally:
            self.preparing.remove(has)

    def release(self, devices, free, told):
        self.releasing.append((tuple(devices), free, told))

    def tell(self) -> bool:
        """The driver is told what was freed first; not while it prepares that. Whether it was told anything."""
        if not self.releasing:
            return False
        devices, free, told = self.releasing[0]
        ids = {device.id for device in devices}
        if any(device.id in ids for has in self.preparing for device in has.devices):
            return False
        del self.releasing[0]
        for device in free(devices):
            having = [*self._truth.has.values(), *self._truth.getting]
            self._truth.check("released", self._name, [device], having)
            ours = [one for one in having if (self._name, device.id, hardware(device)) in one.parts()]
            assert not ours, f"released {device} of {self._name}, which {ours} have"
        told()
        return True


class Served(FakeResource):
    """One resource while it is served."""

    def __init__(self, name: str, life: "Life", setting: Setting) -> None:
        super().__init__(
            life.config(name, setting),
            OracleLanes(name, life.truth),
            life.loop.clock,
            holdings=life.usages.by_resource[name],
        )
        life.pools.join(self.inventory)
        self.setting = setting
        self.releases.rest()
        journal = Journal(life.folder / "state", life.folder / "device-plugins", name)
        self.remembering = JournalWriter(journal, self.holdings, Inline(), LOG)
        self.follow()
        self._remembers = asyncio.ensure_future(self.remembering.follow())
        self.unready = {"journal", "note", "list"}

    def list(self) -> None:
        self.devices = self.setting.devices
        super().list()

    def ready(self) -> None:
        self.inventory.hold()
        self.inventory.settle()
        self.releases.go_on()
        self.releases.tell()

    def end(self) -> None:
        self._remembers.cancel()
        super().end()


class Life:
    """One gateway, from its start to its end."""

    def __init__(self, loop, folder, truth, reread: Callable[[str], None], threads: Threads) -> None:
        self.loop, self.folder, self.truth = loop, folder, truth
        self.usages = Told(truth.settings, reread)
        self.unended = CallsAfterClose()
        self.pools = Pools(Orphans(self.usages, folder / "device-plugins", folder / "state", threads), self.unended)
        self._following = asyncio.ensure_future(self.pools.run())
        self.served: dict[str, Served] = {}
        truth.known = lambda name: name not in self.served or not self.served[name].unready
        for name in truth.settings:
            self.pools.add(self.config(name))
        for name in truth.settings:
            self.served[name] = Served(name, self, truth.settings[name])

    def config(self, name: str, setting: Setting | None = None):
        setting = setting or self.truth.settings[name]
        return configured(name=name, pool=setting.pool, shares=Shares(setting.shares, ids=setting.ids), keep_lost=0)

    def amend(self, name: str) -> None:
        served = self.served[name]
        served.setting, config = self.truth.settings[name], self.config(name)
        served.config.set(config)
        served.list()
        self.pools.add(config)

    async def begin(self, name: str) -> None:
        self.usages.add(name)
        self.pools.add(self.config(name))
        self.served[name] = Served(name, self, self.truth.settings[name])

    async def stop(self, name: str) -> None:
        """What its driver prepares goes on without it."""
        served = self.served.pop(name)
        for has in served.lanes.preparing:
            self.unended.add(CallAfterClose(name, "prepare", has.devices, self.truth.preparing[has]))
        await served.remembering.finish()
        served.end()

    async def end(self, *, killed: bool) -> None:
        """Calls of its drivers end with it."""
        self._following.cancel()
        for served in self.served.values():
            for _, answer in served.lanes.asked:
                answer.cancel()
            if not killed:
                await served.remembering.finish()
            served.end()
        for ended in self.truth.preparing.values():
            ended.cancel()
        self.truth.preparing.clear()
