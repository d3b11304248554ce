"""The facts of this node about DRA, kept up to date from the kubelet and the API server.

Theory of operation. Nothing is polled: the Node and the DeviceClasses are watched, the rest is state of the DRA front.
Each change makes all facts anew, which is cheap, and notifies only if one differs.

- A fact that was known stays as it was while the API server is away. Only a refusal (403), or an API that isn't served
  (a 404 of the server's own: a balancer has its pages, too), is an answer, and makes it false.
- An object of an unexpected form changes no fact either: its error mustn't reach the publisher, or another notifier.
- The Node has the runtime's version. Whether CDI is switched on, only the runtime knows. If it has to be asked and
  doesn't answer within MUTE, the answer counts as a no: a group on DRA would start containers without devices.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass

from dpgateway.cluster.errors import FORBIDDEN, UnservedApi
from dpgateway.cluster.server import ApiServer, Object, ObjectKind
from dpgateway.cluster.watching import WatchedObjects
from dpgateway.config import ResourceConfig
from dpgateway.dra.obstacles import FIRST, suits
from dpgateway.dra.publishing import Publisher, Us
from dpgateway.dra.slices.attributes import resource_value
from dpgateway.dra.slices.names import pool_name
from dpgateway.kit.clock import Clock
from dpgateway.kit.complaint import Complaint
from dpgateway.kit.log import bind
from dpgateway.kit.observable import Observable, Signal
from dpgateway.node.runtime import CdiSupport
from dpgateway.resource.standing import Standing
from dpgateway.switching.classes import why_not
from dpgateway.switching.facts import UNKNOWN, DraFacts, Fact
from dpgateway.switching.trying import TriedFields

SUFFIXES = {"": 1, "k": 10**3, "M": 10**6}
"""Of a number of devices: the API server has 1000 as ``1k`` (apimachinery, pkg/api/resource)."""
MUTE = 10.0
"""Timeout in seconds of a runtime for its support of CDI names, from the first sight of its version on."""
_QUANTITY = re.compile(r"([0-9]{1,9})([kM]?)")

_log = bind(__name__)


@dataclass(frozen=True, slots=True)
class FactSources:
    """The sources on the node and in the DRA front."""

    kubelet: Observable[bool]
    """Whether there is a kubelet."""
    standing: Observable[Standing]
    """The registration of the DRA driver."""
    publisher: Publisher
    seen: WatchedObjects
    """The slices."""
    cdi: Callable[[], Awaitable[CdiSupport]]
    """Asks the container runtime."""


class WatchedFacts:
    """Used from the event loop."""

    def __init__(self, server: ApiServer, us: Us, sources: FactSources, clock: Clock = time) -> None:
        self.facts: Observable[DraFacts] = Observable(DraFacts())
        self._us, self._sources, self._clock = us, sources, clock
        mine, heard = {"metadata.name": us.node}, Complaint(_log, "the Node isn't seen: %s")
        self._node = WatchedObjects(server, ObjectKind.NODE, mine, heard)
        self._classes = WatchedObjects(server, ObjectKind.CLASS, {}, Complaint(_log, "DeviceClasses aren't seen: %s"))
        self._complaint = Complaint(_log, "the Node or a DeviceClass can't be read, so nothing changes: %s")
        self._pools: dict[str, tuple[ResourceConfig, ...]] = {}
        """`_pools` contains the resources that may have either front, keyed by the name of their pool in slices."""
        self._cdi: bool | None = None
        """The runtime's own answer, whether it supports CDI names."""
        self._version: object = None
        """The runtime's version in the last Node."""
        self._mute: float | None = None
        """Since when its answer is missing, in seconds of the monotonic clock."""
        self._runtime, self._asked_for = Signal(), object()
        """Notified when the runtime has to be asked again; and what the node looked like at the last question."""
        self._fields = TriedFields(us.driver, sources.publisher, sources.seen)
        watches = self._node, self._classes, sources.seen
        of_watches = [value for one in watches for value in (one.objects, one.failure)]
        parts = sources.kubelet, sources.standing, sources.publisher.state, self._fields.trial
        for value in (*parts, *of_watches):
            value.subscribe(self._look)

    def need(self, configs: Iterable[ResourceConfig]) -> None:
        """Sets the resources that may have either front; of others there are no facts."""
        pools: dict[str, list[ResourceConfig]] = {}
        for one in configs:
            pools.setdefault(pool_name(self._us.node, one.pool or one.name), []).append(one)
        self._pools = {name: tuple(some) for name, some in pools.items()}
        self._fields.need(self._pools)
        self._look()

    async def run(self) -> None:
        """Never returns."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._node.run(), name="watch the Node")
            group.create_task(self._classes.run(), name="watch DeviceClasses")
            group.create_task(self._ask_runtime(), name="ask the runtime for CDI")
            group.create_task(self._fields.run(), name="try what slices need")

    async def _ask_runtime(self) -> None:
        while True:
            version = self._runtime.version
            self._cdi = (await self._sources.cdi()).by_name
            self._look()
            await self._runtime.wait(version)

    def _look(self) -> None:
        """Makes the facts anew."""
        self._fields.look()
        before, fields = self.facts.value, dict[str, Fact]()
        try:
            registered, node = self._registered(before.registered), self._suits(before.node)
            slices = self._readable(before.slices, "which slices it has", (self._sources.seen, "resourceslices"))
            both = (self._node, "nodes"), (self._classes, "deviceclasses")
            rights = self._readable(before.rights, "what it has", *both)
            for name in self._pools:
                fields[name] = self._known(before.fields.get(name, UNKNOWN), *self._fields.result(name))
            classes = self._selected(before.classes)
            allocatable = before.allocatable if (own := self._own) is None else extended(own)
        except (AttributeError, KeyError, TypeError) as error:
            return self._complaint.say(repr(error))
        self._complaint.over()
        made = DraFacts(registered, node, slices, rights, fields, classes, allocatable)
        if made != self.facts.value:
            self.facts.set(made)
        return None

    def _fact(self, before: Fact, value: bool | None, text: str = "") -> Fact:
        return before.now(value, text, self._clock.monotonic())

    def _known(self, before: Fact, value: bool | None, text: str) -> Fact:
        """As :meth:`_fact`, but a known fact stays as it was while the value is unknown."""
        return before if value is None and before.value is not None else self._fact(before, value, text)

    # of the node

    @property
    def _own(self) -> Object | None:
        return (self._node.objects.value or {}).get(self._us.node)

    def _registered(self, before: Fact) -> Fact:
        standing = self._sources.standing.value
        if standing.registered:
            return self._fact(before, True)
        driver = self._us.driver
        if not self._sources.kubelet.value:
            return self._fact(before, None, f"there is no kubelet that could register {driver}")
        if standing.state == "unready":
            why = standing.failure or "it isn't served yet"
            return self._fact(before, None, f"the kubelet doesn't see {driver}: {why}")
        if standing.failure:
            return self._fact(before, False, f"the kubelet refuses {driver}: {standing.failure}")
        text = f"the kubelet hasn't registered {driver}: expected one of {FIRST[0]}.{FIRST[1]} or later, with DRA on"
        return self._fact(before, False, text)

    def _suits(self, before: Fact) -> Fact:
        if (node := self._own) is None:
            there_is_none = f"there is no node {self._us.node}: is it the name that the kubelet has (--node-name)?"
            text = there_is_none if self._node.objects.value is not None else self._node.failure.value
            return self._known(before, None, text)
        # The runtime is asked again with each Node, which its kubelet writes every 5 min at least: it may start again
        # with CDI switched on or off, and neither kubelet nor Node say so.
        seen = node["metadata"]["resourceVersion"], self._sources.standing.value.registered
        if seen != self._asked_for:
            self._asked_for = seen
            self._runtime.notify()
        version = ((node.get("status") or {}).get("nodeInfo") or {}).get("containerRuntimeVersion")
        if version != self._version:
            before, self._version, self._cdi, self._mute = UNKNOWN, version, None, None  # all was of another runtime
        value, text = suits(node, self._cdi)
        if value is not None or before.value is True:
            self._mute = None
        elif self._mute is None:
            self._mute = self._clock.monotonic()
            asyncio.get_running_loop().call_later(MUTE, self._look)
        elif self._clock.monotonic() - self._mute >= MUTE:
            value = False
        return self._known(before, value, text)

    # of the API server

    def _readable(self, before: Fact, what: str, *watched: tuple[WatchedObjects, str]) -> Fact:
        """Whether the objects of these plurals may be read; ``what``: for a server that hasn't answered yet."""
        if texts := list(filter(None, (_refusal(*one) for one in watched))):
            return self._fact(before, False, "; ".join(texts))
        if all(one.objects.value is not None and not one.failure.value for one, _ in watched):
            return self._fact(before, True)
        away = next(filter(None, (one.failure.value for one, _ in watched)), "")
        return self._known(before, None, away or f"the API server hasn't said yet {what}")

    def _selected(self, before: Mapping[str, Fact] | None) -> Mapping[str, Fact] | None:
        if (classes := self._classes.objects.value) is None:
            return before
        found = {}
        for name in sorted(one.name for some in self._pools.values() for one in some):
            why = why_not(classes.values(), name, resource_value(name), self._us.driver)
            found[name] = self._fact((before or {}).get(name, UNKNOWN), not why, why)
        return found


def _refusal(watched: WatchedObjects, plural: str) -> str:
    """The API server's refusal to list these objects; empty if there is none."""
    said = watched.error
    if said is not None and said.status == FORBIDDEN:
        return f"{said}: expected the right to list and watch {plural}, which the chart's ClusterRole has"
    if isinstance(said, UnservedApi):
        return f"{said}: expected an API server that has resource.k8s.io/v1, which are those of 1.34 and later"
    return ""


def extended(node: Object) -> Mapping[str, int]:
    """The extended resources of a Node: the larger of its ``allocatable`` and ``capacity``."""
    found: dict[str, int] = {}
    status = node.get("status") or {}
    for name, text in (one for kind in ("allocatable", "capacity") for one in (status.get(kind) or {}).items()):
        match = _QUANTITY.fullmatch(str(text))
        if "/" in name and match is not None:
            found[name] = max(found.get(name, 0), int(match[1]) * SUFFIXES[match[2]])
    return found
