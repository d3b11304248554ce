"""The gateway's status, figures and readiness, made on request. Nothing here waits.

Everything is read from the parts of the gateway at that moment; neither Allocate nor a change of a device passes
through here. Only readiness depends on the past: :meth:`Served.note` records it whenever a registration changes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from dpgateway.config import ResourceConfig
from dpgateway.deviceplugin.holdings.node_holdings import NodeHoldings
from dpgateway.deviceplugin.registration.client import KubeletClient
from dpgateway.deviceplugin.values import FRONT
from dpgateway.kit.log import lost, recent
from dpgateway.kit.observable import Observable, Signal
from dpgateway.resource.front import InUse
from dpgateway.resource.fronted import OnFront
from dpgateway.status import figures, snapshot
from dpgateway.status.dra_troubles import of_dra, of_moved
from dpgateway.status.figures import ClusterFigures, Figures
from dpgateway.status.readiness import DAMPED, History, Past, Readiness, Report, readiness, report
from dpgateway.status.troubles import lingering, of_left, troubles, unserved
from dpgateway.status.values import (
    SCHEMA,
    VERSION,
    GatewayStatus,
    KubeletStatus,
    PodResourcesStatus,
    Reloads,
    ResourceStatus,
    Status,
    Time,
    stamp,
    stamped,
)

if TYPE_CHECKING:
    from dpgateway.dra.front import DraFront


@dataclass(eq=False)
class Served:
    """One resource while it is served."""

    config: Observable[ResourceConfig]
    began: float
    """In seconds of the monotonic clock."""
    plugin: OnFront | None = None
    """None until it is made."""
    devices: snapshot.Devices = field(default_factory=snapshot.Devices)
    """The last snapshot of the devices."""
    history: History = field(default_factory=History)

    @property
    def pending(self) -> str:
        """Why a changed configuration isn't served yet; empty if none is pending."""
        return ""

    def note(self) -> None:
        """Records a change of its registration."""
        if (plugin := self.plugin) is not None:
            listed, had_devices = plugin.standing.value.listed, plugin.resource.inventory.list.had_healthy
            self.history.note(time.monotonic(), listed=listed, had_devices=had_devices)


class Overview:
    """Makes status, figures and readiness, in the event loop."""

    def __init__(
        self,
        node_name: str,
        holdings: NodeHoldings,
        client: KubeletClient,
        serving: Mapping[str, Served],
        changed: Signal,
    ) -> None:
        """``serving``: the served resources by name, a live view of the gateway's own mapping. ``changed``: notified
        after a reload, and when the gateway starts to linger.
        """
        self._node_name, self._client, self._serving = node_name, client, serving
        self._holdings, self._node = holdings, holdings.node
        self._changed, self._began = changed, time.monotonic()
        self._reloads = Reloads(stamp(self._began))
        self.cluster: Callable[[], ClusterFigures] = ClusterFigures
        """Makes the figures of the API server."""
        self._lingers: Time | None = None
        self.on_other_front: Callable[[str], Iterable[InUse]] = lambda _: ()
        """What the other front gave of a resource, before the resource changed its front."""
        self.dra: DraFront | None = None
        """The front for DRA; None while none is configured."""

    def took_over(self, problems: Iterable[str] = ()) -> None:
        """Records that a changed configuration took effect. ``problems``: of the resources that go on as before."""
        self._reloaded(self._reloads.took_over(stamp(time.monotonic()), problems))

    def refuse(self, problems: Iterable[str]) -> None:
        """Records that a changed configuration was refused."""
        self._reloaded(self._reloads.refuse(stamp(time.monotonic()), problems))

    def fell_back(self, problems: Iterable[str], kept: Time, *, whole: bool) -> None:
        """Records that the configuration was refused at the start: as a ``whole``, or that of single resources. They
        are served by the last good one, which was kept at ``kept``.
        """
        self._reloaded(self._reloads.fell_back(problems, kept, whole=whole))

    def linger(self, until: float) -> None:
        """Records that the gateway was told to end and serves on. ``until``: its latest end, in monotonic seconds."""
        self._lingers = stamp(until)
        self._changed.notify()

    def _reloaded(self, reloads: Reloads) -> None:
        self._reloads = reloads
        self._changed.notify()

    def status(self, only: str = "") -> Status:
        """The whole status; or with only the resource named ``only``, and with none if it doesn't exist."""
        # Without an await in between, so that all parts belong to one moment.
        process = GatewayStatus(VERSION, os.getpid(), self._node_name, stamp(self._began))
        node, asking = self._node, self._holdings.asking
        api = self._client.accepted.name if self._client.accepted is not None else None
        version = snapshot.release(api, asking.api)
        kubelet = KubeletStatus(node.kubelet, stamp(node.since), node.incarnation or None, api, version)
        asked = PodResourcesStatus(stamped(asking.answered), asking.complaint or None)
        found = []
        for served in [one for name, one in self._serving.items() if only in ("", name)]:
            if served.plugin is not None:
                resource = served.plugin.resource
                usage = resource.inventory.usage.value
                served.devices.look(served.plugin, usage, *self.on_other_front(resource.name))
            devices = served.devices
            found.append(replace(self._resource(served), counts=devices.counts, devices=devices.all))
        resources = tuple(found)
        dra = self.dra.status() if self.dra is not None else None
        now = stamp(time.monotonic())
        wrong = troubles(node.directory, self._reloads, kubelet, asked, resources)
        if dra is not None:
            wrong = of_dra(dra, kubelet.there, now, only) + wrong
        wrong += tuple(unserved(one.config.value.name, one.pending) for one in self._serving.values() if one.pending)
        if self._lingers is not None:
            wrong += (lingering(self._lingers),)

        # Held ids of resources that the device plugin doesn't offer any more, each with its holder, by resource.
        offered = {name for name, one in self._serving.items() if one.config.value.on == FRONT}
        names = [name for name in self._holdings.by_resource if name not in offered and only in ("", name)]
        values = {name: self._holdings.by_resource[name].value for name in names}
        left = {name: [(i, one.last_holder(i)) for i in sorted(one.last_known)] for name, one in values.items()}
        wrong += of_left({name: held for name, held in left.items() if name not in self._serving})
        wrong += of_moved({name: held for name, held in left.items() if name in self._serving})
        return Status(SCHEMA, now, process, self._reloads, kubelet, asked, wrong, resources, recent().last(), dra)

    def _resource(self, served: Served) -> ResourceStatus:
        age = time.monotonic() - served.began
        return snapshot.resource(served.config.value, served.plugin, age, directory=self._node.there.is_set())

    def figures(self) -> Figures:
        """The gateway in numbers, without devices."""
        serving = self._serving.items()
        found = tuple(
            [figures.resource(one.config.value, one.plugin, self.on_other_front(name)) for name, one in serving]
        )
        node, asking = self._node, self._holdings.asking
        answered = figures.moment(asking.answered)
        kubelet = figures.KubeletFigures(node.kubelet, node.appearances, dict(asking.asked), answered)
        dra = self.dra.figures() if self.dra is not None else None
        return Figures(VERSION, self._reloads, kubelet, lost(), found, self.cluster(), dra)

    def report(self) -> Report:
        resources = map(self._resource, self._serving.values())
        return report(resources, self._reloads.refusal, kubelet=self._node.kubelet)

    def readiness(self) -> Readiness:
        now, node = time.monotonic(), self._node
        ready, deprived = set(), set()
        for name, one in self._serving.items():
            # A driver's failure can make every device Unhealthy: then the damping counts from the failure. A resource
            # that never had a Healthy device loses nothing by it.
            since = None
            if (plugin := one.plugin) is not None and plugin.resource.failure:
                offers = plugin.resource.inventory.list.value or {}
                healthy = any(offer.health.ok for offer in offers.values())
                if one.history.deprived(had_devices=plugin.resource.inventory.list.had_healthy, healthy=healthy):
                    deprived.add(name)
                    since = plugin.resource.failed_since
            if one.history.passing(now, node.since, since):
                ready.add(name)
        past = Past(frozenset(ready), frozenset(deprived), node.appearances > 0 and now < node.since + DAMPED)
        refusal, resources = self._reloads.refusal, map(self._resource, self._serving.values())
        return readiness(resources, kubelet=node.kubelet, past=past, lingers=self._lingers, refusal=refusal)
