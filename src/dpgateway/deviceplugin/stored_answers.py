"""Checks whether a kubelet's stored answers still mean the devices that they were given for.

Theory of operation. A kubelet stores Allocate's answer in its checkpoint, and repeats it at each start of the container
(from 1.9 on; 1.8 allocates again). The answer outlives gateways, kubelets and reboots, while its paths may come to mean
other hardware. So the driver is asked for the present answer for the container's devices, and ``outdated`` compares the
two. If they differ, then either

- the stored answer names a CDI spec that a gateway wrote: the spec is renewed, and the container gets its own device.
  While the device is away the spec is removed, so that no container starts with another one.
- or the start is refused, because a path can't be revoked: the pod must be recreated.

They are compared

- before each start (:meth:`StoredAnswers.check`), if the kubelet calls PreStartContainer. 1.9 doesn't, nor does a
  kubelet that has just started, until the plugin has registered.
- whenever the checkpoint, a held device or the driver has changed (:meth:`StoredAnswers.follow`), for the log and the
  status. This asks the driver's ``preview``. A driver without it is asked to allocate, which may have side effects on
  the device, only if no start asks it; and never for a container whose pod has ended, because it may be releasing.

While another gateway serves the resource (``Releases.resting``), :meth:`StoredAnswers.follow` compares nothing.
``_known`` are the inputs of the last comparison, ``_found`` the reasons behind :attr:`StoredAnswers.outdated`, both by
the set of a container's ids.
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
from dpgateway.model import Allocation, Device, hardware
from dpgateway.node.holders import Container, Note
from dpgateway.resource.granting import Granting

Ids = frozenset[str]
DELETE = "delete the pod, because a kubelet repeats what it was told first"


class StoredAnswers:
    """The stored answers of one resource. Used from the event loop."""

    def __init__(
        self, granting: Granting, holdings: ResourceHoldings, cdi: CdiDelivery, api: Callable[[], Api]
    ) -> None:
        """``api``: returns the kubelet's version of the API."""
        self.outdated: Observable[Mapping[str, str]] = Observable({})
        """Why the container of an offered id can't restart, by id."""
        self._name, self._ledger = granting.inventory.name, granting.inventory.ledger
        self._granting, self._driver, self._log = granting, granting.driver, granting.log
        self._holdings, self._cdi, self._api = holdings, cdi, api
        self._changed = asyncio.Event()
        self._known: dict[Ids, object] = {}
        """The inputs of the last comparison, by the ids of a container; the same inputs aren't compared twice."""
        self._found: dict[Ids, str] = {}
        """The reasons of :attr:`outdated`, by the ids of a container."""
        self._hung: Lanes | None = None
        """The calls of a driver that timed out. It is asked before starts only, because each hanging call occupies a
        thread."""

    # before a start

    async def check(self, ids: Sequence[str], devices: Sequence[Device], lanes: Lanes) -> None:
        """Raises RequestError if the container of these ids would get other hardware than theirs, or if that is
        unknown; and the driver's errors.
        """
        # The present checkpoint, which has the answer of the container that is about to start.
        await self._holdings.read()
        note, wanted, reason = self._holdings.value.note, frozenset(ids), ""
        if note is None:
            raise RequestError(
                f"resource {self._name}: it isn't known what the container of {', '.join(ids)} was given, "
                "because the kubelet's checkpoint can't be read; the log says why"
            )
        # PreStartContainer names all of a container's ids, so a container with other ids isn't the one.
        if containers := [one for one, held in _containers(note, wanted).items() if held == wanted]:
            reason = await self._reason(wanted, containers, devices, lanes)
        self._set({wanted: reason})
        if reason:
            names = ", ".join(device.id for device in devices)
            raise RequestError(f"resource {self._name}: device {names}: {reason}")

    async def _reason(
        self,
        ids: Ids,
        containers: Sequence[Container],
        devices: Sequence[Device],
        lanes: Lanes,
        allocation: Allocation | None = None,
    ) -> str:
        """Why one container's stored answer means other hardware than ``ids``; empty if none does. ``allocation``: the
        driver's present answer, if it is known already.
        """
        stored = [self._read(one) for one in containers]
        if allocation is None:
            allocation = await lanes.repeat(devices)
        complete = self._granting.complete(allocation, len(ids))
        for given in stored:
            try:
                reason = await self._differs(given, allocation, complete)
            except CdiError as error:
                reason = str(error)
            # An answer may depend on the order of the devices, which no kubelet stores: try the other order, too.
            mixed = len(devices) > 1 and same_hardware(given, answer(allocation))
            if reason and mixed and answer(await lanes.repeat(devices[::-1])) != answer(allocation):
                reason = ""
            if reason:
                return f"{reason}: {DELETE}"

        # An unchanged path may mean other hardware than at the Allocate. Links are exempt: the name of a link
        # identifies its device, wherever it leads.
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
        """Why the stored answer is outdated; empty if it isn't. Renews a spec of our own instead."""
        # Such a spec holds env, device nodes and mounts, so once it is renewed only the driver's names are compared.
        own = [name for name in given.cdi_devices if self._cdi.wrote(name)]
        if own:
            if await self._cdi.renew(own, complete):
                self._log.info("CDI devices lead to where their hardware is now: %s", ", ".join(own))
            given = Answer(cdi_devices=tuple(name for name in given.cdi_devices if name not in own))
            now = Answer(cdi_devices=allocation.cdi_devices)
            return outdated(given, now, now)
        if allocation.cdi_devices and not given.cdi_devices:
            allocation = await self._cdi.expanded(allocation)  # the stored answer was expanded, too
        return outdated(given, answer(allocation), answer(complete))

    # after changes

    def look(self) -> None:
        """Triggers a comparison: a held device, the driver, or the serving gateway may have changed."""
        self._changed.set()

    async def follow_notes(self) -> None:
        """Triggers a comparison whenever the checkpoint's content has changed; never returns."""
        note: Note | None = None
        while True:
            note = await self._holdings.wait_other(attrgetter("note"), note)
            self.look()

    async def follow(self) -> None:
        """Repeats the comparisons whose inputs have changed; never returns."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            lanes, note = self._driver.lanes, self._holdings.value.note
            if self._granting.releases.resting or lanes is None or note is None:
                continue
            # A pod that has ended may be releasing its devices, so the driver isn't asked about them.
            held: dict[Ids, list[Container]] = {}
            for container, ids in _containers(note).items():
                if container.pod_uid not in self._holdings.value.gone:
                    held.setdefault(ids, []).append(container)
            for ids, containers in held.items():
                await self._compare(ids, containers, lanes)
            # Forgets containers that are gone.
            for ids in self._known.keys() - held.keys():
                del self._known[ids]
            self._set(dict.fromkeys(self._found.keys() - held.keys(), ""))

    async def _compare(self, ids: Ids, containers: Sequence[Container], lanes: Lanes) -> None:
        found = {id_: self._ledger.device(id_) for id_ in sorted(ids)}
        devices = {device.id: device for device in found.values() if device is not None}
        whole = all(found.values()) and all(device.health.ok for device in devices.values())
        known = frozenset(containers), tuple(devices.values()), lanes, self._api()
        hangs = whole and lanes is self._hung  # of a device that is away the driver isn't asked
        if self._known.get(ids) == known or hangs or self._granting.releases.resting:
            return
        self._known[ids] = known  # before the comparison: one that fails isn't repeated with the same inputs
        try:
            if whole and (allocation := await self._given_now(tuple(devices.values()), containers, lanes)):
                # A container may have started meanwhile, with what its device is by now: that is compared next.
                if any(self._ledger.device(id_) != device for id_, device in found.items()):
                    return
                self._set({ids: await self._reason(ids, containers, tuple(devices.values()), lanes, allocation)})
            elif not all(found.values()):
                # The device is away, and its path may be another one's by now, so the container loses its spec.
                for container in containers:
                    own = [name for name in self._read(container).cdi_devices if self._cdi.wrote(name)]
                    if own and await self._cdi.renew(own, None):
                        text = "CDI devices are withdrawn, because their hardware is away: %s"
                        self._log.info(text, ", ".join(own))
        except DriverTimeout:
            self._hung = lanes
        except (GatewayError, OSError) as error:  # the next start meets the same error, and reports it
            self._log.debug("what a container was given can't be compared: %s", error)

    async def _given_now(
        self, devices: Sequence[Device], containers: Iterable[Container], lanes: Lanes
    ) -> Allocation | None:
        """The driver's present answer for a container's devices; None if only a start may ask it."""
        if "preview" not in lanes.abilities:
            return None if Call.PREPARE in self._api().by_call else await lanes.repeat(devices)
        if len(devices) > 1 and any(
            self._cdi.wrote(name) for one in containers for name in self._read(one).cdi_devices
        ):
            return await lanes.repeat(devices)  # a spec holds the whole answer, not only the hardware
        previews = [await lanes.preview(device) for device in devices]
        return previews[0] if len(previews) == 1 else together(previews)

    def _set(self, reasons: Mapping[Ids, str]) -> None:
        """Publishes and logs new reasons, by the ids of a container; an empty reason clears the entry."""
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
    """The ids of each container with an answer. ``among``: only containers with at least one of these ids."""
    wanted = frozenset().union(*(note[id_].containers for id_ in among if id_ in note)) if among is not None else None
    found: dict[Container, set[str]] = {}
    for id_, noted in note.items():
        for container in noted.containers:
            if container.answer and (wanted is None or container in wanted):
                found.setdefault(container, set()).add(id_)
    return {container: frozenset(ids) for container, ids in found.items()}
