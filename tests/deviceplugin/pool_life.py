"""Resources that may share hardware, as one gateway serves them, and what containers truly have.

The parts are the product's, with the journals on a disk; drivers, kubelet and threads are the test's.
"""

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from dpgateway.config import Shares
from dpgateway.deviceplugin.holdings.observed import ResourceHoldings
from dpgateway.drivers.preparing import CallAfterClose
from dpgateway.drivers.running import CallsAfterClose
from dpgateway.errors import RequestError
from dpgateway.kit.threads import Threads
from dpgateway.model import Allocation, Device, hardware
from dpgateway.node.holders import Container, Noted
from dpgateway.resource.journal import Journal, JournalWriter
from dpgateway.resource.orphans import Orphans
from dpgateway.resource.pools import Pools
from tests.support.holdings import Told
from tests.support.inline import Inline
from tests.support.resource import LOG, FakeResource
from tests.support.resources import configured
from tests.support.time import VirtualLoop
from tests.support.waiting import turns

SAVED = 0.2
"""Seconds after which journals are written, if nothing changes."""
LONG = 30.0
"""Seconds after which the kubelet's note counts for all that was given away, and what was lost has left its list."""
# Without shrinking, which may take minutes, in which nobody sees that something is wrong.
AT_RANDOM = settings(
    deadline=None, max_examples=60, stateful_step_count=40, phases=set(Phase) - {Phase.shrink, Phase.explain}
)


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
    refused: bool = False
    """Whether the container was to start again, which was refused: it has ended, and the gateway may know that."""

    def parts(self) -> Iterator[tuple[str, str, frozenset[str]]]:
        return ((self.resource, device.id, hardware(device)) for device in self.devices)


class Truth:
    """Who has what. Nothing of it is known to the gateway but what the test tells it."""

    def __init__(self, settings: dict[str, Setting]) -> None:
        self.settings = settings
        """Of the resources that are configured."""
        self.next: dict[str, str] = {}
        """The pools to which resources go once their new drivers have devices."""
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
        if other not in self.settings:
            return True
        pool, its = self.settings[resource].pool, self.settings[other].pool
        if pool is not None and pool in {its, self.next.get(other)}:
            return True
        # Of a resource that goes to another pool all of its present one leave that pool's alone.
        mine = [name for name in self.next if name == resource or pool == self.settings[name].pool is not None]
        return its in {self.next[name] for name in mine}

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
            among = [one for one in among if not one.refused and (not had or self.known(one.resource))]
            found = self.conflicts(resource, device, among)
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

    async def allocate(self, devices, late, options=None):
        has, truth = Has(self._name, (), tuple(devices)), self._truth
        truth.check("given", self._name, devices, truth.in_hands)
        truth.getting.append(has)
        self.asked.append((has, asyncio.get_running_loop().create_future()))
        try:
            await self.asked[-1][1]
        finally:
            truth.getting.remove(has)
        return Allocation()

    async def prepare(self, devices, *, once=True, options=None):
        has, truth = Has(self._name, (), tuple(devices)), self._truth
        truth.check("prepared", self._name, devices, truth.in_hands)
        truth.preparing[has] = ended = asyncio.get_running_loop().create_future()
        self.preparing.append(has)
        try:
            await asyncio.shield(ended)
        finally:
            self.preparing.remove(has)

    @property
    def busy(self):
        called = [has.devices for has in self.preparing] + [devices for devices, _, _ in self.releasing]
        return {device.id for devices in called for device in devices}

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
        life.pools.join(self.inventory.exclusion)
        self.setting = setting
        self.releases.rest()
        journal = Journal(life.folder / "state", life.folder / "device-plugins", name)
        self.remembering = JournalWriter(journal, self.holdings, Inline(), LOG, clock=life.loop.clock)
        self.follow()
        self._remembers = asyncio.ensure_future(self.remembering.follow())
        self.unready = {"journal", "note", "list"}

    def list(self) -> None:
        self.devices = self.setting.devices
        super().list()

    def ready(self) -> None:
        self.inventory.hold()
        self.inventory.list.flush()
        self.releases.go_on()
        self.releases.release_due()

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
        truth.next.clear()
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
        self.configured(name)

    def configured(self, name: str) -> None:
        self.truth.next.pop(name, None)
        self.pools.add(self.config(name))
        self.pools.follow(self.config(name))

    def follow(self, name: str, pool: str | None) -> None:
        """The resource is to have another pool once its new driver has devices."""
        self.truth.next.pop(name, None)
        if pool is not None and pool != self.truth.settings[name].pool:
            self.truth.next[name] = pool
        self.pools.follow(self.config(name, replace(self.truth.settings[name], pool=pool)))

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


@dataclass
class Flight:
    """An Allocate that the kubelet waits for."""

    resource: str
    ids: tuple[str, ...]
    task: asyncio.Task[object]
    gives: Has | None = None
    """None: the gateway has refused it."""
    answer: asyncio.Future[None] | None = None


class NodeAtRandom(RuleBasedStateMachine):
    """A kubelet, pods that come and go, and one gateway after the other. A machine of hypothesis adds what happens."""

    names: tuple[str, ...]
    """All that resources may be called."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualLoop()
        asyncio.set_event_loop(self.loop)
        self.folder = Path(tempfile.mkdtemp(prefix="node-"))
        self.truth = Truth({})
        self.life: Life
        self.noted: dict[str, Has] = {}
        """What the kubelet wrote down: by pod, also those that ended since."""
        self.kubelets, self.kubelet_since = 1, self.loop.clock.now
        self.flights: list[Flight] = []
        self.pods = 0

    def do(self, work) -> None:
        """Does this in the event loop, and lets the loop do what follows from it. No time passes."""

        async def do() -> None:
            result = work()
            if asyncio.iscoroutine(result):
                await result
            await turns()

        self.loop.run_until_complete(do())

    def wait(self, seconds: float) -> None:
        self.do(partial(asyncio.sleep, seconds))

    def start(self) -> None:
        def start() -> None:
            self.life = Life(self.loop, self.folder, self.truth, self.note, Inline())

        self.do(start)
        for name in self.names:
            self.do(partial(self.new_kubelet, name))

    def stop(self, *, killed: bool) -> None:
        self.do(partial(self.life.end, killed=killed))
        self.flights = []

    def teardown(self) -> None:
        if hasattr(self, "life"):
            self.stop(killed=True)
        self.loop.close()
        asyncio.set_event_loop(None)
        shutil.rmtree(self.folder)

    def holdings(self, name: str) -> ResourceHoldings | None:
        return self.life.usages.by_resource.get(name)

    def new_kubelet(self, name: str) -> None:
        if (holdings := self.holdings(name)) is not None:
            holdings.set(holdings.value.new_kubelet(self.kubelet_since, str(self.kubelets)))

    @property
    def served(self) -> dict[str, Served]:
        return self.life.served

    # what becomes known

    def learn(self, name: str, what: str) -> None:
        one = self.served[name]
        actions = {"journal": one.remembering.load, "list": one.list, "note": partial(self.note, name)}
        self.do(actions[what])
        one.unready.discard(what)
        if not one.unready:
            self.do(one.ready)

    def note(self, name: str) -> None:
        """What the kubelet wrote down of the resource is read, and which pods are gone."""
        if (holdings := self.holdings(name)) is None:
            return
        note: dict[str, Noted] = {}
        for pod, has in self.noted.items():
            for id_ in has.ids if has.resource == name else ():
                note[id_] = Noted((), note.get(id_, Noted()).containers | {Container(pod, "c")})
        gone = frozenset(map(str, range(1, self.pods + 1))) - self.truth.has.keys()
        now = self.loop.clock.now
        holdings.set(holdings.value.noted(note, now, now).ended(gone))

    def note_all(self) -> None:
        for name in self.names:
            self.look_at(name)

    def look_at(self, name: str) -> None:
        if name not in self.served or "note" not in self.served[name].unready:
            self.do(partial(self.note, name))

    def save(self) -> None:
        """What is given away is written down; a gateway that is killed before that takes names for what they mean."""
        self.wait(SAVED)
        self.note_all()
        self.wait(SAVED)

    # containers

    def begin(self, name: str, ids: tuple[str, ...]) -> None:
        asked = self.served[name].lanes.asked
        before = len(asked)

        async def begin() -> None:
            self.flights.append(Flight(name, ids, self.served[name].allocate(*ids)))

        self.do(begin)
        if len(asked) > before:
            self.flights[-1].gives, self.flights[-1].answer = asked[-1]
        else:
            assert isinstance(error := self.flights[-1].task.exception(), RequestError), error

    def end_flight(self, *, works: bool) -> None:
        flight = self.flights.pop(0)
        if flight.answer is None or flight.gives is None:
            return
        answer = flight.answer
        self.do(lambda: answer.set_result(None) if works else answer.set_exception(RequestError("no")))
        if flight.task.exception() is None:
            others = [*self.truth.has.values(), *self.truth.preparing]
            self.truth.check("given away", flight.resource, flight.gives.devices, others)
            self.pods += 1
            self.truth.has[str(self.pods)] = given = replace(flight.gives, ids=flight.ids, pod=str(self.pods))
            self.noted = dict(self.truth.has)
            self.was_given(given)

    def was_given(self, has: Has) -> None:
        """What else must hold then."""

    def end_flights(self) -> None:
        while self.flights:
            self.end_flight(works=True)

    @precondition(lambda self: self.truth.has)
    @rule(data=st.data(), seen=st.booleans())
    def pod_ends(self, data, seen) -> None:
        del self.truth.has[data.draw(st.sampled_from(sorted(self.truth.has)))]
        if seen:
            self.note_all()

    @rule()
    def kubelet_writes(self) -> None:
        self.noted = dict(self.truth.has)

    @rule(seconds=st.sampled_from([0.01, 1.0, 20.0]))
    def time_passes(self, seconds) -> None:
        self.wait(seconds)
