"""What the gateway says of itself, to all who ask. Nothing here waits."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from dpgateway.config import ResourceConfig
from dpgateway.deviceplugin.plugin import Plugin
from dpgateway.deviceplugin.registration.client import KubeletClient
from dpgateway.kit.log import recent
from dpgateway.kit.observable import Signal
from dpgateway.node.node import Node
from dpgateway.status import figures as counted
from dpgateway.status import snapshot
from dpgateway.status.figures import Figures, ResourceFigures
from dpgateway.status.problems import lingering, of_left, troubles, unserved
from dpgateway.status.readiness import DAMPED, Past, Readiness, Record, readiness
from dpgateway.status.report import Report, report
from dpgateway.status.values import SCHEMA, VERSION, Gateway, Reloads, Resource, Standing, Status, Time


@dataclass(eq=False)
class Served:
    """One resource while it is served."""

    config: ResourceConfig
    began: float
    """In seconds of the monotonic clock."""
    plugin: Plugin | None = None
    """None until it is made."""
    devices: snapshot.Devices = field(default_factory=snapshot.Devices)
    """As they were seen last."""
    figures: counted.Resource = field(init=False)
    """The same in numbers."""
    record: Record = field(default_factory=Record)
    """Whether it was ready."""

    def __post_init__(self) -> None:
        self.figures = counted.Resource(self.config.name)

    @property
    def pending(self) -> str:
        """Why its changed configuration isn't served yet; empty if there is none."""
        return ""

    def note(self) -> None:
        """Something of it may be another one."""
        if (plugin := self.plugin) is not None:
            offers = plugin.inventory.list.value or {}
            healthy = any(offer.health.ok for offer in offers.values())
            listed = plugin.registrar.standing.value.listed
            self.record.note(time.monotonic(), listed=listed, healthy=healthy, failed=bool(plugin.failure))


class Overview:
    """Used from the event loop."""

    def __init__(
        self, node_name: str, node: Node, client: KubeletClient, serving: Mapping[str, Served], changed: Signal
    ) -> None:
        """``serving``: by resource, as its owner keeps it. ``changed`` says whenever something of them may be another
        one, and after a reload.
        """
        self._node_name, self._node, self._client, self._serving = node_name, node, client, serving
        self._changed, self._counted_at = changed, -1
        self._counted: tuple[ResourceFigures, ...] = ()
        """As they were when something moved last."""
        self._began, self._version = time.monotonic(), VERSION
        self._reloads = Reloads(snapshot.stamp(self._began))
        self._lingers: Time | None = None

    def took_over(self) -> None:
        """A changed configuration counts from now on."""
        self._reloaded(self._reloads.took_over(snapshot.stamp(time.monotonic())))

    def refuse(self, problems: Iterable[str]) -> None:
        """A changed configuration doesn't count, because of these problems."""
        self._reloaded(self._reloads.refuse(snapshot.stamp(time.monotonic()), problems))

    def linger(self, until: float) -> None:
        """It was told to end, and serves on for now. ``until``: in seconds of the monotonic clock."""
        self._lingers = snapshot.stamp(until)
        self._changed.notify()

    def _reloaded(self, reloads: Reloads) -> None:
        self._reloads = reloads
        self._changed.notify()

    def status(self, only: str = "") -> Status:
        """Everything; or ``only`` one resource, and none if there is none of that name."""
        process = Gateway(self._version, os.getpid(), self._node_name, snapshot.stamp(self._began))
        api, directory = self._client.accepted, self._node.directory
        kubelet = snapshot.kubelet(self._node, api.name if api is not None else None)
        asked = snapshot.pod_resources(self._node)
        resources = tuple([self._detailed(one) for name, one in self._serving.items() if only in ("", name)])
        wrong = troubles(directory, self._reloads, kubelet, asked, resources)
        wrong += tuple(unserved(one.config.name, one.pending) for one in self._serving.values() if one.pending)
        if self._lingers is not None:
            wrong += (lingering(self._lingers),)
        wrong += of_left(self._left(only))
        now = snapshot.stamp(time.monotonic())
        return Status(SCHEMA, now, process, self._reloads, kubelet, asked, wrong, resources, recent().last())

    def _left(self, only: str) -> dict[str, list[tuple[str, str]]]:
        """What containers hold of resources that aren't served, and which, by resource."""
        names = [name for name in self._node.holdings if name not in self._serving and only in ("", name)]
        values = {name: self._node.holdings[name].value for name in names}
        return {name: [(i, one.last_holder(i)) for i in sorted(one.last_known)] for name, one in values.items()}

    def _detailed(self, serving: Served) -> Resource:
        holdings = self._node.holdings[serving.config.name].value
        return snapshot.resource(serving.config, self._standing(serving), serving.plugin, holdings, serving.devices)

    def figures(self) -> Figures:
        """The same in numbers, without the devices; with the same resources again, if nothing has changed."""
        if self._counted_at != self._changed.version:
            self._counted_at = self._changed.version
            self._counted = tuple([self._count(one) for one in self._serving.values()])
        return counted.figures(self._version, self._reloads, self._node, self._counted)

    def _count(self, serving: Served) -> ResourceFigures:
        config, holdings = serving.config, self._node.holdings[serving.config.name].value
        return serving.figures.look(config.driver, serving.plugin, holdings)

    def report(self) -> Report:
        return report(self._standings(), self._reloads.refusal, kubelet=self._node.kubelet)

    def readiness(self) -> Readiness:
        now, node = time.monotonic(), self._node
        ready = frozenset(name for name, one in self._serving.items() if one.record.passing(now, node.since))
        deprived = frozenset(name for name, one in self._serving.items() if one.record.deprived)
        kubelet = node.appearances > 0 and now < node.since + DAMPED
        past = Past(ready, deprived, kubelet)
        return readiness(self._standings(), kubelet=node.kubelet, past=past, lingers=self._lingers)

    def _standings(self) -> Iterable[Standing]:
        return map(self._standing, self._serving.values())

    def _standing(self, serving: Served) -> Standing:
        age = time.monotonic() - serving.began
        return snapshot.standing(serving.config, serving.plugin, age, directory=self._node.there.is_set())
