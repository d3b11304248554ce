"""Checks whether the answers that a kubelet stores still mean the devices that they were given for.

Theory of operation. A kubelet stores Allocate's answer in its checkpoint, and repeats it at each start of the container
(from 1.9 on; 1.8 allocates again). The answer has paths, and a path may lead to other hardware by then. So the driver
is asked what it gives for the container's devices now, and ``outdated`` compares that with the stored answer, which
outlives gateways, kubelets and reboots. If they differ, then either

- the stored answer is the name of a CDI spec that a gateway wrote: the spec is renewed, and the container gets its own
  device. While the device is away the spec is removed, so that no container starts with another one.
- or the start is refused, because a path can't be taken back: the pod has to be made anew.

They are compared

- before each start (:meth:`StoredAnswers.check`), where the kubelet asks before a start. 1.9 doesn't, nor does one that
  has just started.
- whenever the checkpoint, a held device or the driver has changed (:meth:`StoredAnswers.follow`), for the log and the
  status. Then a driver is asked by ``preview``. One without that is asked to allocate, which may do something to the
  device, only where no start asks it; and never for a container whose pod has ended, because it may be releasing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter

from google.protobuf.message import DecodeError

from dpgateway.deviceplugin.api import Answer, Api, Call
from dpgateway.deviceplugin.cdi import CdiDelivery
from dpgateway.deviceplugin.holdings.observed import ResourceHoldings
from dpgateway.deviceplugin.outdated import answer, outdated, same_hardware, together
from dpgateway.drivers.lanes import Lanes
from dpgateway.errors import CdiError, DriverTimeout, GatewayError, RequestError
from dpgateway.kit.observable import Observable
from dpgateway.model import Allocation, Device
from dpgateway.node.holders import Container, Note
from dpgateway.resource.granting import Granting
from dpgateway.resource.use import hardware

Ids = frozenset[str]
DELETE = "delete the pod, because a kubelet repeats what it was told first"


class StoredAnswers:
    """Used from the event loop."""

    def __init__(
        self, granting: Granting, holdings: ResourceHoldings, cdi: CdiDelivery, api: Callable[[], Api]
    ) -> None:
        """``api``: the version that the kubelet speaks."""
        self.outdated: Observable[Mapping[str, str]] = Observable({})
        """Why the container of an offered id can't start again."""
        self._resting = True
        """Whether another gateway serves the resource."""
        self._name, self._ledger = granting.inventory.name, granting.inventory.ledger
        self._granting, self._driver, self._log = granting, granting.driver, granting.log
        self._holdings, self._cdi, self._api = holdings, cdi, api
        self._changed = asyncio.Event()
        self._known: dict[Ids, object] = {}
        """What was compared last, by the ids of a container; the same isn't compared twice."""
        self._found: dict[Ids, str] = {}
        """The reasons of :attr:`outdated`, by the ids of a container."""
        self._hung: Lanes | None = None
        """A driver that didn't answer in time. It is asked before starts only, because each call that hangs takes a
        thread."""

    # before a start

    def rest(self) -> None:
        """From now on another gateway serves the resource."""
        self._resting = True

    def go_on(self) -> None:
        """This gateway serves it."""
        self._resting = False

    async def check(self, ids: Sequence[str], devices: Sequence[Device], calls: Lanes) -> None:
        """Raises RequestError if the container of these ids would get other hardware than theirs, or if that isn't
        known; and what the driver raises.
        """
        await self._holdings.read()
        note, wanted, reason = self._holdings.value.note, frozenset(ids), ""
        if note is None:
            raise RequestError(
                f"resource {self._name}: it isn't known what the container of {', '.join(ids)} was given, "
                "because the kubelet's checkpoint can't be read; the log says why"
            )
        if containers := [one for one, held in _containers(note, wanted).items() if held == wanted]:
            reason = await self._reason(wanted, containers, devices, calls)
        self._set({wanted: reason})
        if reason:
            names = ", ".join(device.id for device in devices)
            raise RequestError(f"resource {self._name}: device {names}: {reason}")

    async def _reason(
        self,
        ids: Ids,
        containers: Sequence[Container],
        devices: Sequence[Device],
        calls: Lanes,
        allocation: Allocation | None = None,
    ) -> str:
        """Why the stored answer of one of the containers means other hardware than their ids; empty if none does.
        ``allocation``: what the driver gives now, if that is known.
        """
        stored = [self._read(one) for one in containers]
        if allocation is None:
            allocation = await calls.repeat(devices)
        complete = self._granting.complete(allocation, len(ids))
        for given in stored:
            try:
                reason = await self._differs(given, allocation, complete)
            except CdiError as error:
                reason = str(error)
            # An answer may depend on the order of the devices, which no kubelet keeps.
            mixed = len(devices) > 1 and same_hardware(given, answer(allocation))
            if reason and mixed and answer(await calls.repeat(devices[::-1])) != answer(allocation):
                reason = ""
            if reason:
                return f"{reason}: {DELETE}"
        return await self._renumbered(ids, stored)

    async def _renumbered(self, ids: Ids, stored: Sequence[Answer]) -> str:
        """Why a path that is still what the ids give is other hardware than it was; empty if it isn't. A link may lead
        elsewhere, because its name says which device it is.
        """
        unreleased = self._holdings.value.unreleased
        for offered in sorted(ids):
            was = unreleased[offered].hardware if offered in unreleased else frozenset[str]()
            device = self._ledger.device(offered)
            now = hardware(device) if device is not None else frozenset[str]()
            if not was or not now or was <= now:
                continue
            paths = sorted({path for given in stored for path in given.nodes.values()})
            if fixed := await self._cdi.no_links(paths):
                said = f"{', '.join(fixed)} as {', '.join(sorted(was))}"
                return f"this container was given {said}, and it is {', '.join(sorted(now))} now: {DELETE}"
        return ""

    def _read(self, container: Container) -> Answer:
        try:
            return self._api().from_answer(container.answer)
        except DecodeError as error:
            text = f"what container {container.name} of the pod {container.pod_uid} was given is no answer: {error}"
            raise RequestError(f"resource {self._name}: {text}") from error

    async def _differs(self, given: Answer, allocation: Allocation, complete: Allocation) -> str:
        """Why the answer means something else. A spec of our own is renewed instead."""
        own = [name for name in given.cdi_devices if self._cdi.wrote(name)]
        if own:
            if await self._cdi.renew(own, complete):
                self._log.info("CDI devices lead to where their hardware is now: %s", ", ".join(own))
            given = Answer(cdi_devices=tuple(name for name in given.cdi_devices if name not in own))
            now = Answer(cdi_devices=allocation.cdi_devices)
            return outdated(given, now, now)
        if allocation.cdi_devices and not given.cdi_devices:
            allocation = await self._cdi.expanded(allocation)  # this kubelet was told what the names stood for
        return outdated(given, answer(allocation), answer(complete))

    # whenever something has changed

    def look(self) -> None:
        """A held device may have changed, or the driver, or the gateway that serves the resource."""
        self._changed.set()

    async def follow_notes(self) -> None:
        """Looks whenever the kubelet has written down something else; never returns."""
        note: Note | None = None
        while True:
            note = await self._holdings.wait_other(attrgetter("note"), note)
            self.look()

    async def follow(self) -> None:
        """Compares again what has changed; never returns."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            calls, note = self._driver.calls, self._holdings.value.note
            if self._resting or calls is None or note is None:
                continue
            held: dict[Ids, list[Container]] = {}
            for container, ids in _containers(note).items():
                if container.pod_uid not in self._holdings.value.gone:
                    held.setdefault(ids, []).append(container)
            for ids, containers in held.items():
                await self._compare(ids, containers, calls)
            for ids in self._known.keys() - held.keys():
                del self._known[ids]
            self._set(dict.fromkeys(self._found.keys() - held.keys(), ""))

    async def _compare(self, ids: Ids, containers: Sequence[Container], calls: Lanes) -> None:
        found = {id_: self._ledger.device(id_) for id_ in sorted(ids)}
        devices = {device.id: device for device in found.values() if device is not None}
        whole = all(found.values()) and all(device.health.ok for device in devices.values())
        known = frozenset(containers), tuple(devices.values()), calls, self._api()
        if self._known.get(ids) == known or calls is self._hung or self._resting:
            return
        self._known[ids] = known
        try:
            if whole and (allocation := await self._given_now(tuple(devices.values()), containers, calls)):
                self._set({ids: await self._reason(ids, containers, tuple(devices.values()), calls, allocation)})
            elif not all(found.values()):
                await self._withdraw(containers)
        except DriverTimeout:
            self._hung = calls
        except (GatewayError, OSError) as error:  # what the driver refuses now, it refuses before the next start
            self._log.debug("what a container was given can't be compared: %s", error)

    async def _given_now(
        self, devices: Sequence[Device], containers: Iterable[Container], calls: Lanes
    ) -> Allocation | None:
        """What the driver gives for the devices of a container now; None if it can't be asked before a start."""
        if "preview" not in calls.abilities:
            return None if Call.PREPARE in self._api().by_call else await calls.repeat(devices)
        if len(devices) > 1 and any(
            self._cdi.wrote(name) for one in containers for name in self._read(one).cdi_devices
        ):
            return await calls.repeat(devices)  # a spec has more in it than their hardware
        previews = [await calls.preview(device) for device in devices]
        return previews[0] if len(previews) == 1 else together(previews)

    async def _withdraw(self, containers: Iterable[Container]) -> None:
        """Removes the specs of containers whose device is away, because its path may be another one's."""
        for container in containers:
            own = [name for name in self._read(container).cdi_devices if self._cdi.wrote(name)]
            if own and await self._cdi.renew(own, None):
                self._log.info("CDI devices are withdrawn, because their hardware is away: %s", ", ".join(own))

    def _set(self, reasons: Mapping[Ids, str]) -> None:
        """Publishes and logs new reasons, by the ids of a container; an empty one: the answer isn't outdated."""
        before = dict(self._found)
        for ids, reason in reasons.items():
            if reason:
                self._found[ids] = reason
            else:
                self._found.pop(ids, None)
        if before == self._found:
            return
        self.outdated.set({id_: reason for ids, reason in self._found.items() for id_ in ids})
        for ids, reason in self._found.items():
            if before.get(ids) != reason:
                listed, names = self._holdings.value.listed, sorted(ids)
                holder = next((str(listed[id_]) for id_ in ids if id_ in listed), "a container")
                fields = {"devices": names, "reason": reason}
                self._log.warning("%s, held by %s: %s", ", ".join(names), holder, reason, extra=fields)


def _containers(note: Note, among: Ids | None = None) -> Mapping[Container, Ids]:
    """The ids of each container with an answer; ``among``: of containers that have one of these ids."""
    wanted = frozenset().union(*(note[id_].containers for id_ in among if id_ in note)) if among is not None else None
    found: dict[Container, set[str]] = {}
    for id_, noted in note.items():
        for container in noted.containers:
            if container.answer and (wanted is None or container in wanted):
                found.setdefault(container, set()).add(id_)
    return {container: frozenset(ids) for container, ids in found.items()}
