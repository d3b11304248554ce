"""Resources that share hardware within themselves and in a pool: whatever happens, no hardware has two holders.

A kubelet picks blindly, a gateway is killed, names come to mean other hardware, devices of one resource overlap,
drivers prepare and are told what is free, journals are on a disk, resources change their configuration, come and go.
"""

import asyncio
from dataclasses import replace
from functools import partial

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from dpgateway.model import Device
from dpgateway.resource.shares import device_id, share_ids
from tests.deviceplugin.pool_life import AT_RANDOM, LONG, NodeAtRandom, Setting, Truth
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
    Setting,
    st.sampled_from(LISTS),
    st.sampled_from(["boards", "boards", "boards", "new", None]),
    st.sampled_from([1, 1, 2]),
)
CHANGES = st.dictionaries(st.sampled_from(NAMES), st.none() | SETTINGS, min_size=1)
"""None: the resource isn't configured any more."""
COUNTS = st.tuples(*[st.integers(0, 3)] * len(NAMES))


class Node(NodeAtRandom):
    """A kubelet that picks blindly, and three resources."""

    names = NAMES

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

    @property
    def ready(self) -> list[str]:
        return [name for name, one in self.served.items() if not one.unready]

    @property
    def all_ready(self) -> bool:
        return len(self.ready) == len(self.served)

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
        if end:
            self.end_flights()

    @rule(name=st.sampled_from(NAMES), end=st.booleans())
    def kubelet_asks_for_all(self, name, end) -> None:
        if name in self.ready:
            self.ask_for_all_of(name)
        if end:
            self.end_flights()

    @precondition(lambda self: self.flights)
    @rule(works=st.lists(st.sampled_from([True, True, False]), min_size=1, max_size=3), seconds=st.sampled_from([0, 1]))
    def allocates_end(self, works, seconds) -> None:
        for works_ in works[: len(self.flights)]:
            self.end_flight(works=works_)
        self.wait(seconds)

    @precondition(lambda self: self.truth.has)
    @rule(data=st.data())
    def container_is_prepared(self, data) -> None:
        pod = data.draw(st.sampled_from(sorted(self.truth.has)))
        has = self.truth.has[pod]
        if has.resource not in self.ready:
            return
        resource, known = self.served[has.resource].calls, set(self.truth.preparing)
        refused = asyncio.Event()

        async def prepare() -> None:
            task = asyncio.ensure_future(resource.prepare(has.ids))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            await turns()
            error = task.exception() if task.done() and not task.cancelled() else None
            if isinstance(error, AssertionError):
                raise error
            if error is not None:
                refused.set()

        self.do(prepare)
        self.truth.has[pod] = has = replace(has, refused=refused.is_set())
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

    @rule(name=st.sampled_from(NAMES))
    def node_is_looked_at(self, name) -> None:
        self.look_at(name)

    @rule(name=st.sampled_from(NAMES))
    def driver_is_told(self, name) -> None:
        if name in self.ready:
            self.do(self.served[name].lanes.tell)

    # the gateway, its configuration, and what its drivers find

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
    @rule(name=st.sampled_from(NAMES), pool=st.sampled_from(["boards", "new", None]), shares=st.sampled_from([1, 2]))
    def resource_changes_in_place(self, name, pool, shares) -> None:
        self.change(name, pool=pool, shares=shares)

    @precondition(lambda self: self.all_ready)
    @rule(name=st.sampled_from(NAMES), pool=st.sampled_from(["boards", "new", None]))
    def resource_goes_to_a_pool_later(self, name, pool) -> None:
        if name in self.served:
            self.save()
            self.do(partial(self.life.follow, name, pool))
            self.look()

    def change(self, name: str, **what) -> None:
        if name in self.served:
            self.save()
            self.truth.settings[name] = replace(self.truth.settings[name], **what)
            self.do(partial(self.life.amend, name))
            self.look()

    @precondition(lambda self: self.all_ready)
    @rule(name=st.sampled_from(NAMES), setting=st.none() | SETTINGS, asks=st.none() | st.sampled_from(NAMES))
    def resource_comes_goes_or_begins_again(self, name, setting, asks) -> None:
        """While it ends the kubelet asks for another one."""
        if any(one.resource == name for one in self.flights):
            return
        self.save()
        stops = name in self.served
        if setting is not None:
            self.truth.settings[name] = setting
            self.do(partial(self.life.configured, name) if stops else list)
        elif stops:
            del self.truth.settings[name]
            self.truth.next.pop(name, None)
            self.do(partial(self.life.pools.end, [name]))
            if asks not in {None, name}:
                self.ask_for_all_of(asks)
        if stops:
            self.do(partial(self.life.stop, name))
        if setting is not None:
            self.do(partial(self.life.begin, name))
            self.do(partial(self.new_kubelet, name))
        elif stops:
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
        self.end_flights()
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
            conflicts = self.truth.conflicts(name, device, having)
            others = [one for one in conflicts if not one.refused]
            named = {f"held as {one.resource} by pod {one.pod}" for one in conflicts}
            named |= {f"is held as {id_}" for one in conflicts if one.resource == name for id_ in one.ids}
            ids = share_ids(device.id, setting.shares)
            ours = [(i, one.pod) for one in having if one.resource == name and device in one.devices for i in one.ids]
            besides = [(i, pod) for i, pod in ours if device_id(i) == device.id and i not in ids]
            if besides and not others:  # shares that aren't offered any more count
                free = [i for i in ids if i not in dict(ours)]
                assert missing_only or len([i for i in ids if i in reasons]) == min(len(besides), len(free))
                continue
            for id_ in ids:
                reason = reasons.get(id_)
                may = missing_only or len(conflicts) > len(others)
                assert (reason is None) == (not others) or (reason and may), (name, id_, reason, others)
                assert reason is None or missing_only or any(reason.endswith(text) for text in named), (reason, named)

    @precondition(lambda self: self.truth.has)
    @rule(of=st.sampled_from(range(4)))
    def in_the_end_everything_can_be_given_again(self, of) -> None:
        if not of:  # not often, because it ends all pods
            self.truth.has, self.noted = {}, {}
            self.everything_is_known()


TestNode = Node.TestCase
TestNode.settings = AT_RANDOM
