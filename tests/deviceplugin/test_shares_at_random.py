"""One resource whose `shares` change, count and ids, while containers run: no device has more holders than shares.

The kubelet of this test knows every id that was ever listed, and asks for any of them that it doesn't count as given
away, whatever its health. The gateway and the journal are the product's; it is killed, restarted and reloaded.
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
from dpgateway.resource.shares import share_ids
from tests.deviceplugin.pool_life import Has, Life, Served, Setting, Truth
from tests.support.inline import Inline
from tests.support.time import VirtualLoop
from tests.support.waiting import turns

NAME = "example.com/gpu"
LISTS = (
    (Device("a"), Device("b", hardware=("char 226:1",)), Device("a-1")),
    (Device("a", hardware=("char 226:0",)), Device("b", hardware=("char 226:1", "card1"))),
    (Device("a"), Device("a-0")),
)
"""An id may be one device's share with one form, and another device's own id without."""
FORMS = st.sampled_from([None, None, "{id}-{share}", "{share}/{id}", "{sha1:{id}{share}}"])
SETTINGS = st.builds(Setting, st.sampled_from(LISTS), st.none(), st.integers(1, 3), FORMS)
SAVED = 0.2
"""Seconds after which the journal is written, if nothing changes."""
LONG = 30.0
"""Seconds after which the kubelet's note counts for all that was given away, and what was lost has left its list."""


@dataclass
class Flight:
    """An Allocate that the kubelet waits for."""

    ids: tuple[str, ...]
    task: asyncio.Task[object]
    gives: Has | None = None
    """None: the gateway has refused it."""
    answer: asyncio.Future[None] | None = None


class Node(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualLoop()
        self.loop.clock.now = time.monotonic()  # journals have dates
        asyncio.set_event_loop(self.loop)
        self.folder = Path(tempfile.mkdtemp(prefix="shares-"))
        self.noted: dict[str, Has] = {}
        """What the kubelet wrote down: by pod, also those that ended since."""
        self.flights: list[Flight] = []
        self.pods = 0
        self.once: set[str] = set()
        """The ids that were ever listed."""

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

    @initialize(setting=SETTINGS)
    def first(self, setting) -> None:
        self.truth = Truth({NAME: setting})
        self.start()
        self.learn()

    def start(self) -> None:
        def start() -> None:
            self.life = Life(self.loop, self.folder, self.truth, lambda _: self.note(), Inline())
            holdings = self.life.usages.by_resource[NAME]
            holdings.set(holdings.value.new_kubelet(0.0, "1"))

        self.do(start)

    @property
    def served(self) -> Served:
        return self.life.served[NAME]

    @property
    def setting(self) -> Setting:
        return self.truth.settings[NAME]

    def teardown(self) -> None:
        if hasattr(self, "life"):
            self.do(partial(self.life.end, killed=True))
        self.loop.close()
        asyncio.set_event_loop(None)
        shutil.rmtree(self.folder)

    def learn(self, order=("journal", "list", "note")) -> None:
        """The gateway serves once all of it is known."""
        actions = {"journal": self.served.remembering.load, "list": self.served.list, "note": self.note}
        for what in order:
            self.do(actions[what])
            self.served.unready.discard(what)
        self.do(self.served.ready)
        self.once |= (self.served.inventory.list.value or {}).keys()

    def note(self) -> None:
        """What the kubelet wrote down is read, and which pods are gone."""
        note: dict[str, Noted] = {}
        for pod, has in self.noted.items():
            for id_ in has.ids:
                note[id_] = Noted((), note.get(id_, Noted()).containers | {Container(pod, "c")})
        gone = frozenset(map(str, range(1, self.pods + 1))) - self.truth.has.keys()
        holdings, now = self.life.usages.by_resource[NAME], self.loop.clock.now
        holdings.set(holdings.value.noted(note, now, now).ended(gone))

    # containers

    @rule(data=st.data(), healthy=st.booleans(), end=st.booleans(), most=st.integers(1, 2))
    def allocates_begin(self, data, healthy, end, most) -> None:
        free = [id_ for id_ in self.free() if not healthy or id_ not in self.served.reasons]
        if free:
            self.begin(tuple(data.draw(st.lists(st.sampled_from(free), min_size=1, max_size=most, unique=True))))
        while end and self.flights:
            self.end_flight(works=True)

    @rule()
    def kubelet_asks_for_all(self) -> None:
        for id_ in self.free():
            self.begin((id_,))
        while self.flights:
            self.end_flight(works=True)

    def free(self) -> list[str]:
        taken = {id_ for one in self.truth.has.values() for id_ in one.ids}
        taken |= {id_ for flight in self.flights for id_ in flight.ids}
        return sorted(self.once - taken)

    def begin(self, ids: tuple[str, ...]) -> None:
        asked = self.served.lanes.asked
        before = len(asked)

        async def begin() -> None:
            self.flights.append(Flight(ids, self.served.allocate(*ids)))

        self.do(begin)
        if len(asked) > before:
            self.flights[-1].gives, self.flights[-1].answer = asked[-1]
        else:
            assert isinstance(self.flights[-1].task.exception(), RequestError)

    @precondition(lambda self: self.flights)
    @rule(works=st.booleans())
    def allocate_ends(self, works) -> None:
        self.end_flight(works=works)

    def end_flight(self, *, works: bool) -> None:
        flight = self.flights.pop(0)
        if flight.answer is None or flight.gives is None:
            return
        answer = flight.answer
        self.do(lambda: answer.set_result(None) if works else answer.set_exception(RequestError("no")))
        if flight.task.exception() is None:
            self.truth.check("given away", NAME, flight.gives.devices, list(self.truth.has.values()))
            self.pods += 1
            self.truth.has[str(self.pods)] = replace(flight.gives, ids=flight.ids, pod=str(self.pods))
            self.noted = dict(self.truth.has)
            for device in flight.gives.devices:
                holders = self.holders(device.id)
                assert len(holders) <= self.setting.shares, f"{device.id} is given as {flight.ids}: {holders}"

    def holders(self, device: str) -> list[str]:
        """The ids under which containers have shares of the device; those of one container are of the same device."""
        return [id_ for has in self.truth.has.values() for id_ in has.ids if self.means(has, id_) == device]

    def means(self, has: Has, id_: str) -> str:
        if len(has.devices) == 1:
            return has.devices[0].id
        # of a container with two devices: each id was resolved in the request's order
        return has.devices[has.ids.index(id_)].id

    @precondition(lambda self: self.truth.has)
    @rule(data=st.data(), seen=st.booleans())
    def pod_ends(self, data, seen) -> None:
        del self.truth.has[data.draw(st.sampled_from(sorted(self.truth.has)))]
        if seen:
            self.do(self.note)

    @rule()
    def node_is_looked_at(self) -> None:
        self.do(self.note)

    @rule()
    def kubelet_writes(self) -> None:
        self.noted = dict(self.truth.has)

    @rule()
    def driver_is_told(self) -> None:
        self.do(self.served.lanes.tell)

    @rule(seconds=st.sampled_from([0.01, 1.0, 20.0]))
    def time_passes(self, seconds) -> None:
        self.wait(seconds)

    # the gateway and its configuration

    def save(self) -> None:
        self.wait(SAVED)
        self.do(self.note)
        self.wait(SAVED)

    @rule(count=st.integers(1, 3), form=FORMS)
    def shares_change_in_place(self, count, form) -> None:
        self.truth.settings[NAME] = replace(self.setting, shares=count, ids=form)
        self.do(partial(self.life.amend, NAME))
        self.once |= (self.served.inventory.list.value or {}).keys()

    @rule(
        count=st.integers(1, 3),
        form=FORMS,
        killed=st.booleans(),
        order=st.permutations(["journal", "list", "note"]),
        at_once=st.booleans(),
    )
    def gateway_restarts_with_other_shares(self, count, form, killed, order, at_once) -> None:
        if killed:
            self.save()
        self.do(partial(self.life.end, killed=killed))
        self.flights = []
        self.truth.settings[NAME] = replace(self.setting, shares=count, ids=form)
        self.start()
        self.learn(order)
        if at_once:
            self.kubelet_asks_for_all()

    @rule(devices=st.sets(st.integers(0, 2)))
    def devices_come_and_go(self, devices) -> None:
        present = tuple(device for number, device in enumerate(self.setting.devices) if number not in devices)
        self.served.setting = replace(self.setting, devices=present)
        self.do(self.served.list)

    # what must hold once everything is known

    @rule()
    def everything_is_known(self) -> None:
        """As much can be given away as there are shares that no container has, and an Unhealthy one names a holder."""
        while self.flights:
            self.end_flight(works=True)
        self.served.setting = self.setting
        self.do(self.served.list)
        for _ in range(3):
            self.do(self.note)
            while self.served.lanes.releasing:
                self.do(self.served.lanes.tell)
            self.wait(LONG)
        self.do(self.note)
        taken = {id_ for one in self.truth.has.values() for id_ in one.ids}
        reasons = self.served.reasons
        for device in self.setting.devices:
            ids = share_ids(device.id, self.setting.shares, self.setting.ids or "")
            holders, free = self.holders(device.id), [id_ for id_ in ids if id_ not in taken]
            able = [id_ for id_ in free if id_ not in reasons]
            room = max(0, self.setting.shares - len(holders))
            if len(free) + len(set(holders) & set(ids)) < len(ids):
                assert len(able) <= room, "an id of it is another device's in a container"
                continue
            assert len(able) == min(room, len(free)), (device.id, ids, able, free, holders)
            for id_ in set(free) - set(able):
                assert any(f"held as {other}," in reasons[id_] for other in holders), reasons[id_]
                assert any(reasons[id_].endswith(f"by pod {pod}") for pod in self.truth.has), reasons[id_]


TestNode = Node.TestCase
# Without shrinking, which may take minutes, in which nobody sees that something is wrong.
TestNode.settings = settings(
    deadline=None, max_examples=60, stateful_step_count=40, phases=set(Phase) - {Phase.shrink, Phase.explain}
)
