"""Resources that share hardware within themselves and in a pool: whatever happens, no hardware has two holders.

A kubelet picks blindly, a gateway is killed, names come to mean other hardware, devices of one resource overlap,
drivers prepare and are told what is free, journals are on a disk, resources change their configuration, come and go.
"""

import asyncio
import shutil
import tempfile
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from dpgateway.errors import RequestError
from dpgateway.model import Device
from dpgateway.node.holders import Container, Noted
from dpgateway.resource.shares import device_id, share_ids
from tests.deviceplugin.pool_life import Has, Life, Served, Setting, Truth
from tests.support.inline import Inline
from tests.support.time import VirtualLoop
from tests.support.waiting import turns

NAMES = ("example.com/aes", "example.com/fft", "example.com/raw")
LISTS = (
    (Device("h0"), Device("h1"), Device("h2")),
    (Device("x", hardware=("h0",)), Device("y", hardware=("h0", "h1")), Device("h2")),
    (Device("x", hardware=("h1",)), Device("y", hardware=("h2",)), Device("h2", hardware=("h3", "h0"))),
    (Device("pair", hardware=("h1", "h2")), Device("x", hardware=("h2",)), Device("h1"), Device("h3")),
)
"""The same names mean different things in these."""
SETTINGS = st.builds(
    Setting, st.sampled_from(LISTS), st.sampled_from(["boards", "boards", "boards", None]), st.sampled_from([1, 1, 2])
)
CHANGES = st.dictionaries(st.sampled_from(NAMES), st.none() | SETTINGS, min_size=1)
"""None: the resource isn't configured any more."""
COUNTS = st.tuples(*[st.integers(0, 3)] * len(NAMES))
SAVED = 0.2
"""Seconds after which journals are written, if nothing changes."""
LONG = 30.0
"""Seconds after which the kubelet's note counts for all that was given away, and what was lost has left its list."""


@dataclass
class Flight:
    """An Allocate that the kubelet waits for."""

    resource: str
    ids: tuple[str, ...]
    task: asyncio.Task[object]
    gives: Has | None = None
    """None: the gateway has refused it."""
    answer: asyncio.Future[None] | None = None


class Node(RuleBasedStateMachine):
    """A kubelet that picks blindly, pods that come and go, and a gateway."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualLoop()
        self.loop.clock.now = time.monotonic()  # journals have dates
        asyncio.set_event_loop(self.loop)
        self.folder = Path(tempfile.mkdtemp(prefix="pools-"))
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

    @initialize(settings=st.tuples(*[SETTINGS] * len(NAMES)), order=st.permutations(NAMES), counts=COUNTS)
    def first(self, settings, order, counts) -> None:
        """Some pods run."""
        self.truth = Truth(dict(zip(NAMES, settings, strict=True)))
        self.start()
        self.learn_all()
        for name, count in zip(order, counts, strict=True):
            self.ask_for_all_of(name, count)
            self.allocates_end([True] * len(self.flights), 0)
        self.note_all()

    def start(self) -> None:
        def start() -> None:
            self.life = Life(self.loop, self.folder, self.truth, self.note, Inline())

        self.do(start)
        for name in NAMES:
            self.do(partial(self.new_kubelet, name))

    def new_kubelet(self, name: str) -> None:
        if (holdings := self.life.usages.by_resource.get(name)) is not None:
            holdings.set(holdings.value.new_kubelet(self.kubelet_since, str(self.kubelets)))

    @property
    def served(self) -> dict[str, Served]:
        return self.life.served

    @property
    def ready(self) -> list[str]:
        return [name for name, one in self.served.items() if not one.unready]

    @property
    def all_ready(self) -> bool:
        return len(self.ready) == len(self.served)

    def teardown(self) -> None:
        if hasattr(self, "life"):
            self.stop(killed=True)
        self.loop.close()
        asyncio.set_event_loop(None)
        shutil.rmtree(self.folder)

    def stop(self, *, killed: bool) -> None:
        self.do(partial(self.life.end, killed=killed))
        self.flights = []

    # what becomes known

    def learn(self, name: str, what: str) -> None:
        one = self.served[name]
        actions = {"journal": one.remembering.load, "list": one.list, "note": partial(self.note, name)}
        self.do(actions[what])
        one.unready.discard(what)
        if not one.unready:
            self.do(one.ready)

    def learn_all(self) -> None:
        for name, one in self.served.items():
            for what in sorted(one.unready):
                self.learn(name, what)

    @precondition(lambda self: not self.all_ready)
    @rule(data=st.data(), all_=st.booleans())
    def becomes_known(self, data, all_) -> None:
        if all_:
            self.learn_all()
            return
        unready = [(name, what) for name, one in self.served.items() for what in sorted(one.unready)]
        self.learn(*data.draw(st.sampled_from(unready)))

    def note(self, name: str) -> None:
        """What the kubelet wrote down of the resource is read, and which pods are gone."""
        if (holdings := self.life.usages.by_resource.get(name)) is None:
            return
        note: dict[str, Noted] = {}
        for pod, has in self.noted.items():
            for id_ in has.ids if has.resource == name else ():
                note[id_] = Noted((), note.get(id_, Noted()).containers | {Container(pod, "c")})
        gone = frozenset(map(str, range(1, self.pods + 1))) - self.truth.has.keys()
        now = self.loop.clock.now
        holdings.set(holdings.value.noted(note, now, now).ended(gone))

    def note_all(self) -> None:
        for name in NAMES:
            if name not in self.served or "note" not in self.served[name].unready:
                self.do(partial(self.note, name))

    # containers

    @precondition(lambda self: self.ready)
    @rule(data=st.data(), count=st.integers(1, 3), end=st.booleans())
    def allocates_begin(self, data, count, end) -> None:
        for _ in range(count):
            name = data.draw(st.sampled_from(self.ready))
            free = self.free(name)
            if free:
                ids = tuple(data.draw(st.lists(st.sampled_from(free), min_size=1, max_size=2, unique=True)))
                self.begin(name, ids)
        while end and self.flights:
            self.end_flight(works=True)

    @rule(name=st.sampled_from(NAMES), end=st.booleans())
    def kubelet_asks_for_all(self, name, end) -> None:
        if name in self.ready:
            self.ask_for_all_of(name)
        while end and self.flights:
            self.end_flight(works=True)

    def begin(self, name: str, ids: tuple[str, ...]) -> None:
        asked = self.served[name].lanes.asked
        before = len(asked)

        async def begin() -> None:
            self.flights.append(Flight(name, ids, self.served[name].allocate(*ids)))

        self.do(begin)
        if len(asked) > before:
            self.flights[-1].gives, self.flights[-1].answer = asked[-1]
        else:
            assert isinstance(self.flights[-1].task.exception(), RequestError)

    @precondition(lambda self: self.flights)
    @rule(works=st.lists(st.sampled_from([True, True, False]), min_size=1, max_size=3), seconds=st.sampled_from([0, 1]))
    def allocates_end(self, works, seconds) -> None:
        for works_ in works[: len(self.flights)]:
            self.end_flight(works=works_)
        self.wait(seconds)

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
            self.truth.has[str(self.pods)] = replace(flight.gives, ids=flight.ids, pod=str(self.pods))
            self.noted = dict(self.truth.has)

    def pod(self, data) -> str:
        pod: str = data.draw(st.sampled_from(sorted(self.truth.has)))
        return pod

    @precondition(lambda self: self.truth.has)
    @rule(data=st.data())
    def container_is_prepared(self, data) -> None:
        pod = self.pod(data)
        has = self.truth.has[pod]
        if has.resource not in self.ready:
            return
        resource, known = self.served[has.resource].calls, set(self.truth.preparing)

        async def prepare() -> None:
            task = asyncio.ensure_future(resource.prepare(has.ids))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            await turns()
            if task.done() and not task.cancelled() and isinstance(error := task.exception(), AssertionError):
                raise error

        self.do(prepare)
        # It starts with what the names mean now. What it had before is nobody's, because a kubelet asks once that has
        # ended; but of two containers that are noted with one id the gateway can't tell which has.
        for new in self.truth.preparing.keys() - known:
            noted = [one for one in self.noted.values() if one.resource == has.resource]
            alone = all(sum(id_ in one.ids for one in noted) == 1 for id_ in has.ids)
            self.truth.has[pod] = replace(has, devices=new.devices if alone else (*has.devices, *new.devices))

    @precondition(lambda self: self.truth.preparing)
    @rule()
    def preparations_end(self) -> None:
        for has, ended in tuple(self.truth.preparing.items()):
            del self.truth.preparing[has]
            self.do(partial(ended.set_result, None))

    @precondition(lambda self: self.truth.has)
    @rule(data=st.data(), seen=st.booleans())
    def pod_ends(self, data, seen) -> None:
        del self.truth.has[self.pod(data)]
        if seen:
            self.note_all()

    @rule(name=st.sampled_from(NAMES))
    def node_is_looked_at(self, name) -> None:
        if name not in self.served or "note" not in self.served[name].unready:
            self.do(partial(self.note, name))

    @rule()
    def kubelet_writes(self) -> None:
        self.noted = dict(self.truth.has)

    @rule(name=st.sampled_from(NAMES))
    def driver_is_told(self, name) -> None:
        if name in self.ready:
            self.do(self.served[name].lanes.tell)

    @rule(seconds=st.sampled_from([0.01, 1.0, 20.0]))
    def time_passes(self, seconds) -> None:
        self.wait(seconds)

    # the gateway, its configuration, and what its drivers find

    def save(self) -> None:
        """What is given away is written down; a gateway that is killed before that takes names for what they mean."""
        self.wait(SAVED)
        self.note_all()
        self.wait(SAVED)

    @precondition(lambda self: self.truth.has or self.flights)
    @rule(killed=st.booleans(), quickest=st.sampled_from(NAMES))
    def gateway_restarts(self, killed, quickest) -> None:
        """One resource is served before the others, and a kubelet asks at once for all that it has."""
        self.stop(killed=killed)
        self.start()
        self.ask_for_all_of(quickest)

    def ask_for_all_of(self, name: str, most: int = 10) -> None:
        if name not in self.served:
            return
        for what in sorted(self.served[name].unready):
            self.learn(name, what)
        for id_ in self.free(name)[:most]:
            self.begin(name, (id_,))

    def free(self, name: str) -> list[str]:
        """What a kubelet may choose that doesn't know what is Unhealthy by now."""
        setting = self.truth.settings[name]
        taken = {(one.resource, id_) for one in self.truth.has.values() for id_ in one.ids}
        taken |= {(one.resource, id_) for one in self.flights for id_ in one.ids}
        offered = [id_ for device in setting.devices for id_ in share_ids(device.id, setting.shares)]
        return [id_ for id_ in offered if (name, id_) not in taken]

    @precondition(lambda self: self.all_ready)
    @rule(changes=CHANGES, first=st.sampled_from(NAMES))
    def gateway_restarts_with_another_configuration(self, changes, first) -> None:
        self.save()
        self.stop(killed=True)
        for name, setting in changes.items():
            self.truth.settings.pop(name, None)
            if setting is not None:
                self.truth.settings[name] = setting
        self.start()
        self.ask_for_all_of(first)

    @precondition(lambda self: self.all_ready)
    @rule(name=st.sampled_from(NAMES), devices=st.sampled_from(LISTS))
    def names_mean_other_devices(self, name, devices) -> None:
        self.change(name, devices=devices)

    @precondition(lambda self: self.all_ready)
    @rule(name=st.sampled_from(NAMES), pool=st.sampled_from(["boards", None]), shares=st.sampled_from([1, 2]))
    def resource_changes_in_place(self, name, pool, shares) -> None:
        self.change(name, pool=pool, shares=shares)

    def change(self, name: str, **what) -> None:
        if name in self.served:
            self.save()
            self.truth.settings[name] = replace(self.truth.settings[name], **what)
            self.do(partial(self.life.amend, name))
            self.look()

    @precondition(lambda self: self.all_ready)
    @rule(name=st.sampled_from(NAMES), setting=st.none() | SETTINGS)
    def resource_comes_goes_or_begins_again(self, name, setting) -> None:
        if any(one.resource == name for one in self.flights):
            return
        self.save()
        stops = name in self.served
        if setting is not None:
            self.truth.settings[name] = setting
            self.do(partial(self.life.pools.add, self.life.config(name)) if stops else list)
        if stops:
            self.do(partial(self.life.stop, name))
        if setting is not None:
            self.do(partial(self.life.begin, name))
            self.do(partial(self.new_kubelet, name))
        elif stops:
            del self.truth.settings[name]
            self.do(partial(self.life.pools.remove, name))
            self.look()

    @precondition(lambda self: self.all_ready)
    @rule(forgets=st.booleans())
    def kubelet_restarts(self, forgets) -> None:
        """One that has lost its checkpoint knows nothing of containers that run on."""
        self.save()
        self.kubelets, self.kubelet_since = self.kubelets + 1, self.loop.clock.now
        if forgets:
            self.noted = {}
        for name in NAMES:
            self.do(partial(self.new_kubelet, name))

    # what must hold once everything is known

    @rule()
    def everything_is_known(self) -> None:
        self.learn_all()
        while self.flights:
            self.end_flight(works=True)
        self.preparations_end()
        self.settle()
        for name, one in self.served.items():
            self.compare(name, one.reasons)

    def look(self) -> None:
        """What a change of the configuration means is known at once, unless something else is under way."""
        if not self.flights and not self.truth.preparing and self.all_ready:
            for name, one in self.served.items():
                self.compare(name, one.reasons, missing_only=True)

    def settle(self) -> None:
        for _ in range(3):
            self.note_all()
            while any(one.lanes.tell() for one in self.served.values()):
                self.wait(0)
            self.wait(LONG)
        self.note_all()

    def compare(self, name: str, reasons: dict[str, str], *, missing_only: bool = False) -> None:
        """Just what others have can't be given away, and the reason names one of them. ``missing_only``: what ended may
        not be free yet.
        """
        setting, having = self.truth.settings[name], list(self.truth.has.values())
        for device in setting.devices:
            others = self.truth.conflicts(name, device, having)
            named = {f"held as {one.resource} by pod {one.pod}" for one in others}
            named |= {f"is held as {id_}" for one in others if one.resource == name for id_ in one.ids}
            ids = share_ids(device.id, setting.shares)
            ours = [(i, one.pod) for one in having if one.resource == name and device in one.devices for i in one.ids]
            besides = [(i, pod) for i, pod in ours if device_id(i) == device.id and i not in ids]
            if besides and not others:  # shares that aren't offered any more count
                free = [i for i in ids if i not in dict(ours)]
                assert missing_only or len([i for i in ids if i in reasons]) == min(len(besides), len(free))
                continue
            for id_ in ids:
                reason = reasons.get(id_)
                assert (reason is None) == (not others) or (reason and missing_only), (name, id_, reason, others)
                assert reason is None or missing_only or any(reason.endswith(text) for text in named), (reason, named)

    @precondition(lambda self: self.truth.has)
    @rule(of=st.sampled_from(range(4)))
    def in_the_end_everything_can_be_given_again(self, of) -> None:
        if not of:  # not often, because it ends all pods
            self.truth.has, self.noted = {}, {}
            self.everything_is_known()


TestNode = Node.TestCase
# Without shrinking, which may take minutes, in which nobody sees that something is wrong.
TestNode.settings = settings(
    deadline=None, max_examples=60, stateful_step_count=40, phases=set(Phase) - {Phase.shrink, Phase.explain}
)
