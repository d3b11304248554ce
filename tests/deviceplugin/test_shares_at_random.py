"""One resource whose `shares` change, count and ids, while containers run: no device has more holders than shares.

The kubelet of this test knows every id that was ever listed, and asks for any of them that it doesn't count as given
away, whatever its health. The gateway and the journal are the product's; it is killed, restarted and reloaded.
"""

from dataclasses import replace
from functools import partial

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from dpgateway.model import Device
from dpgateway.resource.shares import share_ids
from tests.deviceplugin.pool_life import AT_RANDOM, LONG, Has, NodeAtRandom, Served, Setting, Truth

NAME = "example.com/gpu"
LISTS = (
    (Device("a"), Device("b", hardware=("char 226:1",)), Device("a-1")),
    (Device("a", hardware=("char 226:0",)), Device("b", hardware=("char 226:1", "card1"))),
    (Device("a"), Device("a-0")),
)
"""An id may be one device's share with one form, and another device's own id without."""
FORMS = st.sampled_from([None, None, "{id}-{share}", "{share}/{id}", "{sha1:{id}{share}}"])
SETTINGS = st.builds(Setting, st.sampled_from(LISTS), st.none(), st.integers(1, 3), FORMS)


class Node(NodeAtRandom):
    names = (NAME,)

    def __init__(self) -> None:
        super().__init__()
        self.once: set[str] = set()
        """The ids that were ever listed."""

    @initialize(setting=SETTINGS)
    def first(self, setting) -> None:
        self.truth = Truth({NAME: setting})
        self.start()
        self.learn_all()

    @property
    def one(self) -> Served:
        return self.served[NAME]

    @property
    def setting(self) -> Setting:
        return self.truth.settings[NAME]

    def learn_all(self, order=("journal", "list", "note")) -> None:
        """The gateway serves once all of it is known."""
        for what in order:
            self.learn(NAME, what)
        self.now_listed()

    def now_listed(self) -> None:
        self.once |= (self.one.inventory.list.value or {}).keys()

    # containers

    @rule(data=st.data(), healthy=st.booleans(), end=st.booleans(), most=st.integers(1, 2))
    def allocates_begin(self, data, healthy, end, most) -> None:
        free = [id_ for id_ in self.free() if not healthy or id_ not in self.one.reasons]
        if free:
            self.begin(NAME, tuple(data.draw(st.lists(st.sampled_from(free), min_size=1, max_size=most, unique=True))))
        if end:
            self.end_flights()

    @rule()
    def kubelet_asks_for_all(self) -> None:
        for id_ in self.free():
            self.begin(NAME, (id_,))
        self.end_flights()

    def free(self) -> list[str]:
        taken = {id_ for one in self.truth.has.values() for id_ in one.ids}
        taken |= {id_ for flight in self.flights for id_ in flight.ids}
        return sorted(self.once - taken)

    @precondition(lambda self: self.flights)
    @rule(works=st.booleans())
    def allocate_ends(self, works) -> None:
        self.end_flight(works=works)

    def was_given(self, has: Has) -> None:
        for device in has.devices:
            holders = self.holders(device.id)
            assert len(holders) <= self.setting.shares, f"{device.id} is given as {has.ids}: {holders}"

    def holders(self, device: str) -> list[str]:
        """The ids under which containers have shares of the device; those of one container are of the same device."""
        return [id_ for has in self.truth.has.values() for id_ in has.ids if self.means(has, id_) == device]

    def means(self, has: Has, id_: str) -> str:
        if len(has.devices) == 1:
            return has.devices[0].id
        # of a container with two devices: each id was resolved in the request's order
        return has.devices[has.ids.index(id_)].id

    @rule()
    def node_is_looked_at(self) -> None:
        self.note_all()

    @rule()
    def driver_is_told(self) -> None:
        self.do(self.one.lanes.tell)

    # the gateway and its configuration

    @rule(count=st.integers(1, 3), form=FORMS)
    def shares_change_in_place(self, count, form) -> None:
        self.truth.settings[NAME] = replace(self.setting, shares=count, ids=form)
        self.do(partial(self.life.amend, NAME))
        self.now_listed()

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
        self.stop(killed=killed)
        self.truth.settings[NAME] = replace(self.setting, shares=count, ids=form)
        self.start()
        self.learn_all(order)
        if at_once:
            self.kubelet_asks_for_all()

    @rule(devices=st.sets(st.integers(0, 2)))
    def devices_come_and_go(self, devices) -> None:
        present = tuple(device for number, device in enumerate(self.setting.devices) if number not in devices)
        self.one.setting = replace(self.setting, devices=present)
        self.do(self.one.list)

    # what must hold once everything is known

    @rule()
    def everything_is_known(self) -> None:
        """As much can be given away as there are shares that no container has, and an Unhealthy one names a holder."""
        self.end_flights()
        self.one.setting = self.setting
        self.do(self.one.list)
        for _ in range(3):
            self.note_all()
            while self.one.lanes.releasing:
                self.do(self.one.lanes.tell)
            self.wait(LONG)
        self.note_all()
        taken = {id_ for one in self.truth.has.values() for id_ in one.ids}
        reasons = self.one.reasons
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
TestNode.settings = AT_RANDOM
