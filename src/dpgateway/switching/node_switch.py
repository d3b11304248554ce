"""The resources of a node with ``front: auto``, in groups.

The resources of a pool are one group, because they may offer the same hardware. The states of the groups alone decide
what a front offers (:meth:`NodeSwitch.offers`). A resource confirms its front before it is served
(:meth:`NodeSwitch.confirm_front`).
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Collection, Iterable

from dpgateway.config import ResourceConfig
from dpgateway.deviceplugin.holdings.node_holdings import NodeHoldings
from dpgateway.dra.front import DraFront
from dpgateway.errors import GatewayError, KubeletError, OnOtherFront
from dpgateway.kit.log import bind
from dpgateway.kit.observable import Signal
from dpgateway.kit.tasks import wait_for
from dpgateway.resource.published import SwitchStatus
from dpgateway.switching.choosing import Group, obstacles
from dpgateway.switching.claims import AllocatedClaims
from dpgateway.switching.states import DISK, SwitchFiles, SwitchRecord, SwitchState
from dpgateway.switching.switch import FrontSwitch
from dpgateway.switching.view import GroupView, SwitchingGateway
from dpgateway.switching.watching import WatchedFacts

PAUSE = 0.05
"""The least seconds between two steps of all groups."""
SWEEP = 300.0
"""Seconds until the next sweep, while there are states that may be another gateway's."""

_log = bind(__name__)


class NodeSwitch:
    """Used from the event loop."""

    def __init__(
        self,
        front: DraFront,
        facts: WatchedFacts,
        gateway: SwitchingGateway,
        holdings: NodeHoldings,
        files: SwitchFiles,
    ) -> None:
        """``holdings``: those of the device plugin."""
        self._front, self._facts, self._gateway, self._holdings = front, facts, gateway, holdings
        self._files = files
        self.switches: dict[str, FrontSwitch] = {}
        """`switches` contains the groups, keyed by pool, or by the name of a resource without one."""
        self.changed = Signal()
        """Notified when a step may be due."""
        self._group_of: dict[str, str] = {}
        """`_group_of` contains the group of each resource, keyed by name."""
        self._groups, self._configured = frozenset[str](), Signal()
        """The groups of all configured resources, also of those with one front for good."""
        self.jitter = random.uniform(0.2, 1.0)  # noqa: S311  of each node, and never 0: groups leave one after the other
        self._claims = AllocatedClaims(front.server, front.us.driver, front.claims.store)
        front.members.offers = lambda name: self.offers(name, front.name)
        front.switches, front.owned, front.claims.waits.gone = self.status, self._owned, self._gone
        front.publisher.leaving = self._leave
        for value in (facts.facts, front.publisher.state):
            value.subscribe(self.look)
        facts.facts.subscribe(self._learned)

    async def configure(self, resources: Iterable[ResourceConfig]) -> None:
        """Takes over the resources of a new configuration. One call at a time."""
        resources = tuple(resources)
        changing = [config for config in resources if config.front == "auto"]
        groups: dict[str, list[ResourceConfig]] = {}
        for config in changing:
            groups.setdefault(config.pool or config.name, []).append(config)
        members = {group: tuple([one.name for one in some]) for group, some in groups.items()}
        # A pool of other resources that gets the name of an earlier one begins anew.
        known = {group: one.group.names for group, one in self.switches.items()}
        new = {group: names for group, names in members.items() if set(names).isdisjoint(known.get(group, ()))}
        # Before the disk is read: a sweep leaves their states.
        self._groups = frozenset(config.pool or config.name for config in resources)
        unserved = [group for group, names in new.items() if not self._present(names)]
        read = await asyncio.gather(*[self._remembered(group, new[group]) for group in unserved])
        on_disk = dict(zip(unserved, read, strict=True))

        # Nothing awaits from here on: others find the groups of one configuration.
        self._group_of = {config.name: group for group, some in groups.items() for config in some}
        self._facts.need(changing)
        for group, some in groups.items():
            names, why = members[group], [text for one in some for text in obstacles(one)]
            if group in new:
                fronts = self._present(names)
                # Where it is now counts, if a reload gave up a front for good: what the disk has is outdated.
                state = SwitchState.DRA if fronts == {"dra"} else SwitchState.PLUGIN
                begun = SwitchRecord(group, state, resources=names)
                remembered = None if fronts else on_disk.get(group)
                made = FrontSwitch(remembered or begun, self._facts.facts, self, self._files)
                made.saved = not fronts
                if not fronts and remembered is None:
                    made.begun.clear()
                if group in self.switches:
                    self.switches[group].begun.set()
                self.switches[group] = made
            self.switches[group].group = Group(names, tuple(why), self._front.us.pool_of(some[0]))
        for group in self.switches.keys() - groups.keys():
            self.switches.pop(group).begun.set()  # a resource of it may be in another one now
        self._configured.notify()
        self.offer()  # a resource may have come to a group in another state

    def _present(self, names: Iterable[str]) -> Collection[str]:
        """The fronts that offer some of these resources now."""
        serving = [self._gateway.serving[name] for name in names if name in self._gateway.serving]
        return {one.present for one in serving if one.present is not None}

    async def _remembered(self, group: str, names: Collection[str]) -> SwitchRecord | None:
        """The state on disk; None if it can't be read, because holdings are known without it, or if it is that of an
        earlier pool of the name.
        """
        try:
            found = await self._files.read(group)
            return found if found is not None and found.is_of(names) else None
        except (GatewayError, OSError, ValueError) as error:
            text = "the front of %s isn't known any more, so it begins on the device plugin: %s"
            _log.error(text, group, error)
            return None

    def _learned(self) -> None:
        if self._facts.facts.value.node.value:
            self._front.publisher.owner.suits()

    def _leave(self, pools: Iterable[str]) -> bool:
        """Whether all of these pools have ``front: auto``."""
        return {one.group.pool for one in self.switches.values()}.issuperset(pools)

    def _gone(self, pool: str) -> str:
        """The refusal of a claim for this pool, which the kubelet retries and shows as its pod's event; empty if there
        is none.
        """
        for one in self.switches.values():
            if one.group.pool == pool and one.record.state.front != self._front.name:
                names = ", ".join(one.group.names)
                return (
                    f"the device plugin offers {names} by now: delete the pod, and the next one gets its device there"
                )
        return ""

    async def _owned(self) -> None:
        """The gateway that had the driver may have moved resources until it gave it away: those are expected here
        before slices of what nobody offers are deleted, and claims refused. Raises GatewayError, OSError.
        """
        await asyncio.gather(*map(_refresh, self.switches.values()))
        await self.move(self._group_of)

    async def run(self) -> None:
        """Never returns."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._facts.run(), name="watch what DRA needs")
            tasks.create_task(self._step(), name="change fronts")
            tasks.create_task(self._sweep(), name="remove the states of groups that are gone")

    async def _sweep(self) -> None:
        """With the driver's lock: an older gateway without it has given its resources, a newer one has none yet."""
        while True:
            await self._front.loaded.wait()
            version, stay = self._configured.version, True
            with contextlib.suppress(GatewayError, OSError):  # they harm nobody
                stay = await self._files.sweep(self._groups, self._front.common.directory)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SWEEP if stay else None):
                    await self._configured.wait(version)

    async def _step(self) -> None:
        while True:
            version = self.changed.version
            again = await asyncio.gather(*[one.step() for one in tuple(self.switches.values())])
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min((one for one in again if one is not None), default=None)):
                    await self.changed.wait(version)
            await asyncio.sleep(PAUSE)  # a node with many groups has other things to do: an Allocate is four changes

    def look(self) -> None:
        """Requests a step."""
        self.changed.notify()

    def status(self) -> tuple[SwitchStatus, ...]:
        """All groups, by name."""
        return tuple([switch.status for _, switch in sorted(self.switches.items())])

    # for the gateway

    def front_of(self, name: str) -> str | None:
        """The resource's chosen front; None if the configuration has its front."""
        group = self._group_of.get(name)
        return None if group is None else self.switches[group].record.state.front

    def offers(self, name: str, front: str) -> bool:
        """Whether this front may offer the resource at present."""
        if (group := self._group_of.get(name)) is None:
            return True
        state = self.switches[group].record.state
        return state.front == front and not state.leaving

    async def confirm_front(self, name: str, front: str) -> None:
        """Called before the resource is served on this front, with its lock: another gateway may have moved it, or it
        has no front yet. Raises OnOtherFront; KubeletError, OSError if the state can't be read.
        """
        while (group := self._group_of.get(name)) is not None and not self.switches[group].begun.is_set():
            one = self.switches[group]
            one.locked.add(name)
            self.look()
            try:
                await one.begun.wait()
            finally:
                one.locked.discard(name)
        if group is not None:
            try:
                await _refresh(self.switches[group])
            except GatewayError as error:
                raise KubeletError(f"the front of {name} isn't known: {error}") from error
            if (other := self.front_of(name)) not in (None, front):
                raise OnOtherFront(f"resource {name} is on the front {other} by now")

    # for the changes

    def view(self, group: Group, front: str) -> GroupView:
        of_gateway, dra = self._gateway.serving, self._front
        serving = [of_gateway[name] for name in group.names if name in of_gateway]
        whole = len(serving) == len(group.names)
        # The resources are given to another gateway after the driver.
        given = front == dra.name and not dra.loaded.is_set()
        other = dra.instance.ownership.other.value  # the gateway that has the driver
        if dra.members.withdrawn:
            closed = "DRA to offer anything (dra.withdraw)"
        elif dra.loaded.is_set():
            closed = ""
        # In a handover another gateway may have the driver first, and wait for a driver of devices that hangs.
        elif other:
            closed = f"the other gateway, which has the DRA driver and takes over the resources next: {other}"
        else:
            closed = "the DRA driver to be served here"
        usages = [self._holdings.by_resource[name] for name in group.names if name in self._holdings.by_resource]
        kubelet = self._holdings.node.appeared.value
        return GroupView(
            serves=whole and not given and all(one.serves_on(front) for one in serving),
            elsewhere=next(filter(None, [one.elsewhere for one in serving]), "") or other,
            closed=closed,
            streams=whole and all(one.streams for one in serving),
            age=0.0 if kubelet is None else time.monotonic() - kubelet[0],
            in_flight=any(one.grant_under_way for one in usages),
            answers=dra.server.up is True,
        )

    async def known(self, names: Iterable[str]) -> bool:
        try:
            content = await wait_for(self._holdings.reader.content(), DISK, "the disk")
        except FileNotFoundError:
            return False
        except (GatewayError, OSError):
            return True
        return any(name in content.registered or name in content.notes for name in names)

    async def move(self, names: Iterable[str]) -> None:
        await self._gateway.move(names)

    def offer(self) -> None:
        leaving = [one for one in self.switches.values() if one.record.state is SwitchState.LEAVING_DRA]
        self._claims.keep({one.group.pool for one in leaving})
        self._front.members.look()
        self._gateway.offer()
        self.changed.notify()

    def published(self, pool: str) -> int | None:
        if (seen := self._front.seen.objects.value) is None:
            return None
        specs = [one["spec"] for one in seen.values()]
        return sum(len(spec.get("devices") or ()) for spec in specs if spec["pool"]["name"] == pool)

    async def pending(self, pool: str, since: float) -> Collection[str]:
        return await self._claims.pending(pool, lambda: [one.group.pool for one in self.switches.values()], since)


async def _refresh(one: FrontSwitch) -> None:
    """Raises GatewayError, OSError if the state isn't known. One that a reload has found is, although the disk may be
    full: then the front doesn't change before it is written.
    """
    try:
        await one.refresh()
    except (GatewayError, OSError):
        if one.saved:
            raise
