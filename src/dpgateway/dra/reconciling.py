"""Compares the records of claims with the kubelet and the API server: at the start, after each registration by a
kubelet, once the directories of a claim's pods have gone, when pods come that may share a claim, and every
``Pauses.usual``.

Theory of operation. Two things can be wrong, and each is believed only after a second look, because a kubelet that has
just started lists no pods, and a claim may come or go during a look:

    a record without its claim   nobody will end it, or not soon. It ends here, as by Unprepare (``abandoned``)
    a claim without its record   the record was lost, with ``state_dir`` for example. It is made again, of what kubelet
                                 and API server say; until then no claim gets devices

Where records were never compared before (a new ``state_dir``), a claim without a record is believed at once. So is the
end of a claim that can't come back into use (``abandoned``).

A node without doubtful claims asks the kubelet alone: the API server gets no request.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from dpgateway.cluster.server import ObjectKind
from dpgateway.dra.abandoned import AbandonedClaims
from dpgateway.dra.claims.choosing import chosen
from dpgateway.dra.claims.reading import Asked, allocated
from dpgateway.dra.claims.records import ClaimRecord, Phase
from dpgateway.dra.claims.staleness import NodeEvidence
from dpgateway.dra.pods import ClaimPods
from dpgateway.dra.preparing import NodeClaims
from dpgateway.errors import GatewayError, KubeletError, RequestError
from dpgateway.kit.complaint import Complaint
from dpgateway.kit.tasks import backoff
from dpgateway.node.podresources import ListedClaim, PodResources, between_allocates
from dpgateway.node.pods import PodDirectories
from dpgateway.resource.granting import CLAIMS_END

Key = tuple[str, str]
"""The namespace and the name of a claim."""
NO_PODS = "", ""
"""Stands for the observation that the kubelet lists no pods at all."""


class Pauses(NamedTuple):
    """Seconds between two looks."""

    usual: float = 600.0
    doubtful: float = 30.0
    """While something is in doubt; a doubt is believed after so long."""
    first: float = 1.0
    """After a failure, after a registration, and while the API server still has a claim that nothing on the node uses;
    then twice as long each time."""
    soon: float = 10.0
    """While a pod that is gone has claims, or may have some that another front lists by that pod."""
    ending: float = CLAIMS_END
    """For which the claim of a pod that is gone is taken for one that ends now, for which another front waits."""


PAUSES = Pauses()
LOOKS_AFTER = 6
"""Looks after a registration, within a minute, at which a kubelet may still be ending pods that it knows no more; and
after a pod has come, which the kubelet lists with its claims once its volumes are there."""


class Reconciling:
    """Used from the event loop."""

    def __init__(
        self,
        claims: NodeClaims,
        pod_resources: PodResources,
        pods: Path,
        pauses: Pauses = PAUSES,
        allocating: Callable[[], bool] = lambda: False,
    ) -> None:
        """``pods``: the kubelet's directory with a directory for each pod. ``allocating``: whether an Allocate of the
        device plugin is in flight.
        """
        self._allocating = allocating
        self._claims, self._store, self._log = claims, claims.store, claims.parts.log
        self._pod_resources, self._pods, self._pauses = pod_resources, pods, pauses
        self._wake, self._hinted = asyncio.Event(), asyncio.Event()
        """``_hinted``: the directory of a pod has come or gone."""
        # By default the device plugin's holdings watch the same folder: for the kernel that is one watch (kit/inotify).
        self._directories = PodDirectories(pods, self._hinted.set)
        self._complaint = Complaint(self._log, "claims can't be compared with the kubelet's: %s")
        self._abandoned = AbandonedClaims(claims, pauses.doubtful, pauses.ending)
        self._claim_pods = ClaimPods(claims, self._seen)
        self._again = 0
        """The number of looks in a row that failed, or found the same records so."""
        self._settled = LOOKS_AFTER
        """The number of looks since the last registration."""
        self._missing: dict[Key, float] = {}
        """`_missing` contains since when a claim has no record, on the loop's clock, keyed by its name, or NO_PODS."""

    def look_soon(self) -> None:
        """A kubelet has registered the driver, perhaps one that has just started."""
        self._pod_resources.new_kubelet()
        self._settled = 0
        self._wake.set()

    def look_for_lost(self) -> None:
        """A resource has begun: claims whose records are lost may have devices of it."""
        if self._store.doubts.lost:
            self._wake.set()

    async def run(self) -> None:
        """Never returns. Begins once the records were read."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._directories.run(), name="watch the directories of claims' pods")
            group.create_task(self._follow_directories(), name="find claims without pods")
            while True:
                self._wake.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(await self._look()):
                        await self._wake.wait()

    async def _follow_directories(self) -> None:
        """The claims of a pod that ends with its kubelet have ended before its directory goes, so a look is rare. Of a
        pod that comes nobody says whether it shares a claim: the kubelet prepares that for its first pod only.
        """
        known: frozenset[str] | None = None
        while True:
            await self._hinted.wait()
            self._hinted.clear()
            with contextlib.suppress(GatewayError, OSError):
                there, before = await self._store.disk.run(self._seen), known
                known = there
                shared = any(not one.extended for it in self._store.records.values() for one in it.given)
                if shared and there is not None and there - (before or frozenset()):
                    self._settled = 0
                    self._wake.set()
                if self._abandoned.has_more(there):
                    self._wake.set()
            await asyncio.sleep(self._pauses.first)  # however many come and go

    async def _look(self) -> float:
        """Looks, and returns the seconds until the next look."""
        pauses, abandoned = self._pauses, self._abandoned
        before = abandoned.asked.keys()
        try:
            doubtful = await self.look()
        except (GatewayError, OSError) as error:
            self._complaint.say(str(error))
            if not self._pod_resources.exists:
                self._store.doubts.kubelet_is_mute()
            self._again += 1
            return backoff(self._again, pauses.doubtful, pauses.first)
        self._complaint.over()
        self._settled += 1
        self._again = self._again + 1 if abandoned.asked and abandoned.asked.keys() <= before else 0

        # It takes two looks to ask about a pod that isn't listed, as one that is ending just now.
        settles = self._store.records and self._settled <= LOOKS_AFTER
        if abandoned.unsure:
            return pauses.first if settles or abandoned.urgent else pauses.doubtful
        longest = min(pauses.doubtful if doubtful else pauses.usual, pauses.soon if abandoned.urgent else pauses.usual)
        if abandoned.asked:
            return backoff(self._again + 1, longest, pauses.first)
        # A new kubelet ends the containers of the pods that it refuses, and not their claims.
        return min(longest, backoff(self._settled, longest, pauses.first)) if settles else longest

    async def look(self) -> bool:
        """Looks once; returns whether something is in doubt. Raises GatewayError, OSError."""
        await self._store.doubts.look_for_damage()
        # An Allocate may be what waits for a claim that this look ends.
        if not self._abandoned.urgent and not await between_allocates(self._allocating):
            raise KubeletError("an Allocate takes so long that the kubelet can't be asked meanwhile")
        before = self._recorded()
        found = await self._pod_resources.claims()
        directories = await self._store.disk.run(self._seen)
        ours = {
            (one.namespace, one.name): one
            for one in found.claims
            if any(device.driver == self._claims.driver for device in one.devices)
        }

        # A claim that was ended during the question may be in the answer.
        without = {key: one for key, one in ours.items() if key not in before and key not in self._recorded()}
        observed = without.keys() if found.pods else {*without, NO_PODS}
        self._missing = {key: since for key, since in self._missing.items() if key in observed}
        lost = await self._restored(without)
        empty = not found.pods and await self._store.disk.run(self._empty)
        refused: Exception | None = None
        if found.pods or empty or self._believed(NO_PODS):
            pools = {it.pool for key in lost for it in ours[key].devices if it.driver == self._claims.driver}
            try:
                await self._store.compared("; ".join(lost.values()), pools)
            except (GatewayError, OSError) as error:
                refused = error
        # Whatever driver they are of: the records may be of an earlier driver's name.
        listed = {(one.namespace, one.name): one for one in found.claims}
        # Goes on with the ends that the disk refused to record: only the kubelet's would be asked for again.
        ends, records = self._claims.ends, self._store.records.items()
        await self._abandoned.end_all(
            {uid: (one, "") for uid, one in records if one.phase is Phase.ENDING and not ends.goes_on(uid)}
        )
        unasked = await self._claim_pods.follow(listed, directories)
        await self._abandoned.end(NodeEvidence(listed.keys(), directories, found.pods))
        # Only now: neither a full disk nor a claim that can't be asked for holds up the end of another one.
        if (why := refused or unasked) is not None:
            raise why
        return bool(without or self._abandoned.stale or self._store.doubts.why.value)

    def _recorded(self) -> frozenset[Key]:
        return frozenset((one.namespace, one.name) for one in self._store.records.values())

    def _seen(self) -> frozenset[str] | None:
        """The uids of the pods that have a directory; None if it can't be seen: there is always one. Blocks."""
        try:
            return frozenset(path.name for path in self._pods.iterdir()) or None
        except OSError:
            return None

    def _empty(self) -> bool:
        """Whether no pod has a directory, so none runs. Blocks."""
        try:
            return not any(self._pods.iterdir())
        except OSError:
            return False

    # claims without their records

    def _believed(self, key: Key) -> bool:
        """Whether this was so at an earlier look, long enough ago."""
        now = asyncio.get_running_loop().time()
        earlier = key in self._missing
        return now - self._missing.setdefault(key, now) >= self._pauses.doubtful and earlier

    async def _restored(self, without: Mapping[Key, ListedClaim]) -> Mapping[Key, str]:
        """Makes the records of these claims again; returns why that can't be done, of which."""
        lost = {}
        for key, one in without.items():
            if self._store.doubts.compared and not self._store.doubts.lost and not self._believed(key):
                continue
            try:
                await self._restore(one)
            except GatewayError as error:
                devices = ", ".join(f"{it.device} in {it.pool}" for it in one.devices)
                lost[key] = f"the kubelet has claim {one.namespace}/{one.name} ({devices}) without a record: {error}"
        return lost

    async def _restore(self, one: ListedClaim) -> None:
        """Makes the record of a claim from the kubelet's answer and the API server's. A kubelet that has started asks
        again for the claims of pods that run: a call that waits is answered from the record. Raises GatewayError.
        """
        claims, driver, store = self._claims, self._claims.driver, self._store
        found = await claims.parts.server.get(ObjectKind.CLAIM, one.name, one.namespace)
        uid = str(found["metadata"]["uid"]) if found is not None else ""
        wanted = allocated(found, driver, Asked(one.namespace, one.name, uid))
        cdi = {(it.pool, it.device): it.cdi for it in one.devices if it.driver == driver}
        if not cdi.keys() <= {(it.pool, it.device) for it in wanted.results}:
            raise RequestError(f"{wanted} is allocated to other devices at the API server")
        resources = await claims.extended.asked(wanted)
        # A call prepares it meanwhile. If that fails, the claim's containers run without a record again.
        while (known := store.records.get(uid)) is not None:
            if known.phase is not Phase.PREPARING or (call := claims.lanes.last(uid)) is None:
                return
            await asyncio.wait({call})

        # No await until the record reserves the ids.
        given, others = [], claims.elsewhere()
        for it in chosen(wanted, {**others, **store.offerings}, had=True):
            names = [name for device, _ in it.devices for name in cdi.get((it.pool, device), ())]
            if it.resource not in store.offerings:
                store.recall(it.resource, others[it.resource].recalled(it.ids))
            given.append(replace(it, cdi=tuple(dict.fromkeys(names))))
        key = uid, one.namespace, one.name
        new = ClaimRecord(*key, Phase.PREPARED, claims.boot, tuple(given), wanted.pods, driver=driver)
        await store.write(new.asking(resources), recalled=True)
        self._log.warning("made the record of %s again: it was lost", wanted)
