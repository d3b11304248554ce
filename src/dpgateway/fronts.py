"""The fronts of a node, and the parts that they share: holdings, pools, and CDI specs.

The device-plugin front is always there. The DRA front is made once the configuration has a driver for it, or an earlier
one has left claims: before, none of its code and libraries is loaded. Grants of one front count in the other one, as
orphans (``resource.orphans``) or in ``resource.pools``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from dpgateway.cdi.directories import SpecDirectories
from dpgateway.cdi.own import OwnSpecs
from dpgateway.config import Configuration, ResourceConfig
from dpgateway.deviceplugin.api import LIST_LIMIT, only, unfit
from dpgateway.deviceplugin.cdi import CdiDelivery
from dpgateway.deviceplugin.handover.coordinator import Coordinator
from dpgateway.deviceplugin.holdings.node_holdings import NodeHoldings
from dpgateway.deviceplugin.plugin import Front, Plugin
from dpgateway.deviceplugin.registration.client import KubeletClient
from dpgateway.deviceplugin.remainder import Remainders
from dpgateway.deviceplugin.server.streams import ListThrottle
from dpgateway.deviceplugin.values import FRONT
from dpgateway.drivers.running import CallsAfterClose, RunningDriver
from dpgateway.errors import CdiError, GatewayError, KubeletError
from dpgateway.kit.complaint import Complaint
from dpgateway.kit.log import bind
from dpgateway.kit.observable import Observable
from dpgateway.kit.threads import Threads
from dpgateway.model import Allocation
from dpgateway.node.directory import Places
from dpgateway.node.incarnation import Change
from dpgateway.node.node import Node
from dpgateway.node.runtime import Runtime
from dpgateway.resource.front import Usage
from dpgateway.resource.fronted import OnFront
from dpgateway.resource.journal import Journal
from dpgateway.resource.orphans import Orphans
from dpgateway.resource.pools import Pools
from dpgateway.resource.resource import Common
from dpgateway.resource.specs import SpecKeeper

if TYPE_CHECKING:
    from dpgateway.dra.front import DraFront
    from dpgateway.switching.node_switch import NodeSwitch
    from dpgateway.switching.states import SwitchFiles
    from dpgateway.switching.view import SwitchingGateway

_log = bind(__name__)

Work = tuple[str, Callable[[], Awaitable[None]]]
"""A task that no resource owns: its name and its function."""
DISK = 5.0
"""Seconds that the disk has to answer."""


class NodeFronts:
    """Used from the event loop."""

    def __init__(self, configuration: Configuration, node: tuple[str, Node, Places], group: asyncio.TaskGroup) -> None:
        """``node``: its name, its kubelet, and the kubelet's paths."""
        self._name, self._node, places = node
        self.threads, self.after_close = Threads(), CallsAfterClose()
        names = [config.name for config in configuration.resources if config.front != "dra"]
        directory, state_dir = configuration.kubelet.device_plugins_dir, configuration.state_dir
        self.holdings = NodeHoldings(self._node, places, names, self.threads)
        self.client = KubeletClient(directory, only(configuration.kubelet.apis), group)
        self.client.changing = self._node.changing
        self._remainders = Remainders(self.holdings, self.client)
        orphans = Orphans(self.holdings, directory, state_dir, self.threads)
        self.pools = Pools(orphans, self.after_close)

        cdi_dirs = configuration.runtime.cdi_dirs
        self._specs = OwnSpecs(state_dir, cdi_dirs[-1], directory, Complaint(_log, "a CDI spec: %s"))
        self._usages: list[Mapping[str, Usage]] = [self.holdings.by_resource]
        """By resource, of each front."""
        self._keeper = SpecKeeper(self._specs, self._usages, orphans, self.threads)
        self._keeper.unsure = self._unsure

        confirm = partial(self._confirm_front, FRONT)
        common = Common(directory, state_dir, self.threads, self.pools, LIST_LIMIT, confirm_front=confirm)
        self.pools.record = common.served.record
        handover = Coordinator(self.pools.together, group)
        self._directories = SpecDirectories(cdi_dirs, Complaint(_log, "a CDI spec doesn't count: %s"))
        self._runtime = Runtime(configuration.runtime.socket)
        cdi = CdiDelivery(self._directories, self._specs, self.threads, self._runtime.cdi)
        self._plugins = Front(common, self.holdings, self.client, handover, cdi, ListThrottle(self._node.written))
        self.dra: DraFront | None = None
        self.claims_unknown = True
        """Whether an earlier configuration may have left claims that nobody serves yet."""
        self.switch: NodeSwitch | None = None
        """The changes of front; None without a resource that may change."""
        self._kubelet = Observable(self._node.kubelet)
        """Whether there is a kubelet."""

    @property
    def work(self) -> tuple[Work, ...]:
        """The tasks that run as long as the gateway."""
        return (
            ("know what containers hold", self.holdings.run),
            ("follow the pools", self.pools.run),
            ("keep CDI specs", self._keeper.run),
            ("tell the kubelet of what DRA offers", self._remainders.run),
        )

    async def has_claims(self, configuration: Configuration) -> bool:
        """Whether there are records of claims, of whatever driver, or the journal of a resource has what drivers owe
        for others. Returns once the disk has answered.
        """
        directory, state_dir = configuration.kubelet.device_plugins_dir, configuration.state_dir
        journals = [Journal(state_dir, directory, one.name, "dra") for one in configuration.resources]

        def look() -> bool:
            return _has_records(state_dir / "dra" / "claims") or any(map(_has_debts, journals))

        return await self.threads.call("claims", look)

    async def driver_of_claims(self, state_dir: Path) -> str:
        """The driver of these claims; empty if no record says it. Returns once the disk has answered."""
        from dpgateway.dra.claims.files import ClaimFiles  # noqa: PLC0415  with the libraries of DRA

        return await self.threads.call("claims", ClaimFiles(state_dir).driver)

    def add_dra(self, configuration: Configuration) -> DraFront:
        """Makes the DRA front."""
        from dpgateway.dra.front import dra_front  # noqa: PLC0415  18 MB with its libraries

        common = replace(self._plugins.common, confirm_front=partial(self._confirm_front, "dra"))
        node = self._name, self._node.there
        self.dra = dra_front(configuration, node, common, self._specs, self._runtime.cdi)
        self.dra.claims.running = self.holdings.asking.running
        self._usages.append(self.dra.claims.store.by_resource)
        self.pools.look_at_left = self.dra.look_at_left
        return self.dra

    def add_switch(self, dra: DraFront, gateway: SwitchingGateway) -> NodeSwitch:
        """Makes the changes of front."""
        from dpgateway.switching.node_switch import NodeSwitch  # noqa: PLC0415  with the libraries of DRA
        from dpgateway.switching.watching import FactSources, WatchedFacts  # noqa: PLC0415

        sources = FactSources(self._kubelet, dra.standing, dra.publisher, dra.seen, self._runtime.cdi)
        facts = WatchedFacts(dra.server, dra.us, sources)
        self.switch = NodeSwitch(dra, facts, gateway, self.holdings, self._states)
        return self.switch

    async def _confirm_front(self, front: str, config: ResourceConfig) -> None:
        """Confirms the front of a resource, with its lock, before it is served."""
        if self.switch is not None and self.switch.front_of(config.name) is not None:
            await self.switch.confirm_front(config.name, front)
        elif config.front != "auto":
            # A later `front: auto` begins with this state. If it can't be written, that costs one change of front.
            folder = self._plugins.common.state_dir / "dra" / "fronts"
            try:
                # No change is written while no file has another front.
                if front != FRONT or await self.threads.call_within("fronts", lambda: _has_records(folder), DISK):
                    await self._states.fix(config.pool or config.name, front, config.name)
            except (GatewayError, OSError) as error:
                text = "with front: auto, %s would begin where it was before: %s"
                _log.warning(text, config.name, error, extra={"resource": config.name})

    @cached_property
    def _states(self) -> SwitchFiles:
        from dpgateway.switching.states import SwitchFiles  # noqa: PLC0415  for nodes that have, or had, DRA

        return SwitchFiles(self._plugins.common.state_dir, self.threads)

    # the resources

    def chosen(self, config: ResourceConfig) -> ResourceConfig:
        """The resource's configuration with its chosen front."""
        if self.switch is None or config.front != "auto" or (front := self.switch.front_of(config.name)) is None:
            return config
        return replace(config, chosen=front)

    def offers(self, config: ResourceConfig) -> bool:
        """Whether the resource's front may offer it at present."""
        return self.switch is None or self.switch.offers(config.name, config.on)

    def expect(self, config: ResourceConfig) -> None:
        """Announces a resource: its published devices stay until it is offered."""
        if self.dra is not None and config.on == self.dra.name:
            self.dra.members.expect(config)

    def place(self, config: ResourceConfig) -> None:
        """Moves the resource to its configured front and pool; the other front forgets it."""
        self.expect(config)
        if config.on == FRONT:
            self._remainders.remove(config.name)
        if self.dra is not None and config.on != self.dra.name:
            self.dra.members.forget(config.name)
        self.pools.add(config)

    def forget(self, resource: str) -> None:
        """Forgets a removed resource on both fronts."""
        self._remainders.remove(resource)
        if self.dra is not None:
            self.dra.members.forget(resource)

    def usage(self, config: ResourceConfig) -> Usage:
        """The use of the resource by containers, on its front."""
        if config.on == FRONT:
            self.holdings.add(config.name)
            return self.holdings.by_resource[config.name]
        assert self.dra is not None  # noqa: S101  the configuration has its driver
        return self.dra.claims.store.usage(config.name)

    def unfit(self, held: Callable[[str], bool], config: ResourceConfig, device: str, allocation: Allocation) -> str:
        """Why no container can get the device with this allocation; empty if one can. Reads CDI specs, so it blocks."""
        if (why := unfit(config, device, allocation)) or not allocation.cdi_devices:
            return why
        try:
            self._directories.resolve(allocation.cdi_devices)
        except CdiError as error:
            # After a boot a spec may come later than the kubelet, which from 1.25 on refuses to readmit a pod with an
            # Unhealthy device; the runtime starts its containers once the spec is there.
            return "" if held(device) else str(error)
        return ""

    def plugin(
        self, config: Observable[ResourceConfig], driver: RunningDriver, group: asyncio.TaskGroup, *, follows: bool
    ) -> OnFront:
        """The resource on its front. ``follows``: whether to take over from a gateway that serves it."""
        if config.value.on == FRONT:
            listed = Plugin(config, driver, self._plugins, group, follows=follows)
            listed.resource.inventory.list.offer(offered=self.offers(config.value))
            return listed
        from dpgateway.dra.plugin import DraPlugin  # noqa: PLC0415  18 MB with its libraries

        assert self.dra is not None  # noqa: S101  the configuration has its driver
        plugin = DraPlugin(config, driver, self.dra, group)
        self._remainders.add(plugin.resource)
        return plugin

    def _unsure(self, ids: Sequence[str]) -> bool:
        """Whether a claim may have the CDI spec of these ids, although none is known."""
        return self.claims_unknown if self.dra is None else self.dra.claims.may_have(ids)

    # the node and the process

    def kubelet(self, change: Change) -> None:
        """Handles a change of the kubelet's socket."""
        self._kubelet.set(self._node.kubelet)
        if change is Change.NEW:
            self.client.new_kubelet()  # the old channel leads to the previous kubelet's socket
        if change is Change.GONE and self.dra is not None:
            self.dra.instance.kubelet_gone()

    def handed_over(self, config: ResourceConfig) -> bool:
        """Whether another gateway has the DRA driver of the resource, and thus the resource."""
        dra = self.dra
        return dra is not None and config.on == dra.name and not dra.instance.follows and not dra.loaded.is_set()

    @property
    def passing(self) -> tuple[str, ...]:
        """The DRA driver, if the kubelet calls this gateway for it until the next one is registered."""
        return () if self.dra is None or not self.dra.instance.passing else (self.dra.us.driver,)

    def told_to_end(self) -> None:
        """The process was told to end; it may linger until another gateway has taken over."""
        if self.dra is not None:
            self.dra.told_to_end()

    def ending(self) -> None:
        """The process is about to end: slices stay."""
        if self.dra is not None:
            self.dra.ending()

    async def close(self) -> None:
        if self.dra is not None:
            await self.dra.close()
        await self.client.close()

    def abandon(self) -> None:
        """Releases locks and sockets at once; from any thread."""
        if self.dra is not None:
            self.dra.abandon()


def _has_records(folder: Path) -> bool:
    return any(folder.glob("*.json"))


def _has_debts(journal: Journal) -> bool:
    try:
        return any(one.driver for one in journal.load().values())
    except (KubeletError, OSError):  # the front tells of it
        return True
