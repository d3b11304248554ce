"""The claims of a node's pods: their cache, their state file, and the calls to their drivers.

The cache contains each claim that a pod of this node uses, with the devices that its drivers prepared. It is written to
`dra_manager_state` in the kubelet's --root-dir before and after each call; whether a claim is prepared isn't written,
so after a restart of the kubelet the next pod of a claim has it prepared again. A pod that still runs doesn't, because
claims are prepared before a sandbox is made.

Sources: pkg/kubelet/cm/dra/manager.go, claiminfo.go, state/state_checkpoint.go (1.37).
"""

import asyncio
import json
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from dpgateway_simulator.kubelet.cluster_node import ApiAwayError, ClusterNode
from dpgateway_simulator.kubelet.dra.drivers import DraDrivers
from dpgateway_simulator.kubelet.incarnation import Incarnation
from dpgateway_simulator.kubelet.pods import Pod, PodClaim
from dpgateway_simulator.wire.k8s.io.kubelet.pkg.apis.dra import v1 as dra
from dpgateway_simulator.wire.plugin_calls import CallError

STATE = "dra_manager_state"
NAMESPACE = "default"


class ClaimError(Exception):
    """A pod's claims can't be prepared, or unprepared; the kubelet's text."""


@dataclass(frozen=True)
class PreparedDevice:
    """What a driver answered for one device."""

    driver: str
    pool: str
    device: str
    requests: tuple[str, ...]
    cdi: tuple[str, ...]
    share: str = ""


@dataclass(frozen=True)
class ClaimInfo:
    """A claim in the cache. `pods`: the uids of the pods that use it."""

    uid: str
    name: str
    drivers: tuple[str, ...]
    pods: tuple[str, ...]
    devices: tuple[PreparedDevice, ...] = ()
    prepared: bool = field(default=False, compare=False)


class ClaimManager:
    """The claims of one incarnation, by name."""

    def __init__(self, incarnation: Incarnation, root: Path, node: ClusterNode, drivers: DraDrivers) -> None:
        self._incarnation, self._node, self._drivers = incarnation, node, drivers
        self._file = root / STATE
        self.known: dict[str, ClaimInfo] = {}

    def load(self) -> None:
        """Reads what the kubelet before wrote."""
        if not self._file.exists():
            return
        for one in json.loads(self._file.read_text())["claims"]:
            devices = [
                PreparedDevice(**{**it, "requests": tuple(it["requests"]), "cdi": tuple(it["cdi"])})
                for it in one["devices"]
            ]
            drivers, pods = tuple(one["drivers"]), tuple(one["pods"])
            self.known[one["name"]] = ClaimInfo(one["uid"], one["name"], drivers, pods, tuple(devices))

    def uses(self, pod: Pod) -> tuple[PodClaim, ...]:
        """The pod's claims that this release knows: before 1.36 none of extended resources, which it doesn't notice."""
        known = self._incarnation.behaviour.dra
        return tuple(one for one in pod.claims if known == "extended" or (known == "claims" and one.name))

    async def prepare(self, pod: Pod) -> None:
        """PrepareResources. Raises ClaimError."""
        todo: dict[str, list[ClaimInfo]] = {}
        for use in self.uses(pod):
            try:
                claim = self._node.find("resourceclaims", use.object, NAMESPACE)
            except ApiAwayError as error:
                raise ClaimError(f"fetch ResourceClaim {use.object}: {error}") from error
            if claim is None:
                raise ClaimError(f'fetch ResourceClaim {use.object}: resourceclaims "{use.object}" not found')
            uid, status = claim["metadata"]["uid"], claim.get("status", {})
            if pod.uid not in {one["uid"] for one in status.get("reservedFor", ())}:
                text = f"pod {pod.name}({pod.uid}) is not allowed to use ResourceClaim {use.object}({uid})"
                raise ClaimError(text)
            known = self.known.get(use.object)
            if known is not None and known.uid != uid:
                raise ClaimError(
                    f"old ResourceClaim with same name {use.object} and different UID {known.uid} still exists"
                )

            # From now on the cache has the claim, with a reference of the pod.
            if known is None:
                results = status.get("allocation", {}).get("devices", {}).get("results", ())
                drivers = tuple(dict.fromkeys(one["driver"] for one in results))  # in the order of the results
                known = ClaimInfo(uid, use.object, drivers, ())
            info = replace(known, pods=tuple(dict.fromkeys((*known.pods, pod.uid))))
            self.known[use.object] = info
            for driver in () if info.prepared else info.drivers:
                todo.setdefault(driver, []).append(info)
        self._save()
        for driver, infos in todo.items():
            await self._prepare(pod, driver, infos)
        for info in [one for infos in todo.values() for one in infos]:
            self.known[info.name] = replace(self.known[info.name], prepared=True)
        self._save()

    async def _prepare(self, pod: Pod, driver: str, infos: Iterable[ClaimInfo]) -> None:
        """Asks one driver for all claims of a pod."""
        instance, names = self._drivers.find(driver), {one.uid: one.name for one in infos}
        about = {"pod": pod.name, "driver": driver, "claims": tuple(names.values())}
        if instance is None or instance.calls is None:
            raise ClaimError(f"DRA driver {driver} is not registered")
        self._incarnation.emit("prepare", **about)
        claims = [dra.Claim(NAMESPACE, uid, name) for uid, name in names.items()]
        try:
            answers = await instance.calls.prepare(instance.service, claims, self._node.pauses.prepare)
        except CallError as error:
            self._check()
            raise ClaimError(f"NodePrepareResources: {error}") from error
        for uid, answer in answers.items():
            if answer.error:
                raise ClaimError(f"NodePrepareResources failed for ResourceClaim {names.get(uid, uid)}: {answer.error}")
            if uid not in names:
                raise ClaimError(f"NodePrepareResources returned an unknown ResourceClaim UID: {uid}")
            found = [
                PreparedDevice(driver, it.pool_name, it.device_name, tuple(it.request_names), tuple(it.cdi_device_ids),
                               it.share_id or "")
                for it in answer.devices
            ]  # fmt: skip
            known = self.known[names[uid]]
            kept = [it for it in known.devices if it.driver != driver]
            self.known[names[uid]] = replace(known, devices=(*kept, *found))
        if missing := names.keys() - answers.keys():
            raise ClaimError(f"NodePrepareResources skipped {len(missing)} ResourceClaims")
        self._incarnation.emit("prepared", **about)

    async def unprepare(self, pod_uid: str, names: Collection[str]) -> None:
        """UnprepareResources, of the claims of these names that this pod has a reference of. Raises ClaimError."""
        mine = [one for one in self.known.values() if pod_uid in one.pods and one.name in names]
        last = {one.name: one for one in mine if one.pods == (pod_uid,)}
        for driver in dict.fromkeys(it for one in last.values() for it in one.drivers):
            instance, asked = self._drivers.find(driver), [one for one in last.values() if driver in one.drivers]
            if instance is None or instance.calls is None:
                raise ClaimError(f"DRA driver {driver} is not registered")
            about = {"driver": driver, "claims": tuple(one.name for one in asked)}
            self._incarnation.emit("unprepare", **about)
            try:
                claims = [dra.Claim(NAMESPACE, one.uid, one.name) for one in asked]
                answers = await instance.calls.unprepare(instance.service, claims, self._node.pauses.prepare)
            except CallError as error:
                self._check()
                raise ClaimError(f"NodeUnprepareResources: {error}") from error
            for one in asked:
                if one.uid not in answers:
                    raise ClaimError("NodeUnprepareResources skipped 1 ResourceClaims")
                if answers[one.uid].error:
                    text = answers[one.uid].error
                    raise ClaimError(f"NodeUnprepareResources failed for ResourceClaim {one.name}: {text}")
            self._incarnation.emit("unprepared", **about)
        for one in mine:
            self.known[one.name] = replace(one, pods=tuple(it for it in one.pods if it != pod_uid))
            if one.name in last:
                del self.known[one.name]
        if mine:
            self._save()

    def devices(self, pod: Pod, container: str) -> list[tuple[str, PreparedDevice]]:
        """The prepared devices of a container, each with the name of its claim."""
        found: list[tuple[str, PreparedDevice]] = []
        for use in self.uses(pod):
            info = self.known.get(use.object)
            asked = {request for name, request in use.users if name == container}
            devices = info.devices if info is not None and asked else ()
            mine = [it for it in devices if "" in asked or not it.requests or asked & set(it.requests)]
            found += [(use.object, it) for it in mine]
        return found

    async def reconcile(self, active: Collection[str]) -> None:
        """Unprepares the claims of pods that aren't `active` (uids), because they ended unseen."""
        for uid in {uid for one in self.known.values() for uid in one.pods} - set(active):
            try:
                await self.unprepare(uid, self.known.keys())
            except ClaimError as error:
                self._incarnation.emit("unprepare failed", pod=uid, reason=str(error))

    def _check(self) -> None:
        """Ends the pod's task if its kubelet has ended, which makes a call fail, too."""
        if self._incarnation.ended:
            raise asyncio.CancelledError

    def _save(self) -> None:
        if not self._incarnation.ended:
            claims = [
                {key: value for key, value in asdict(one).items() if key != "prepared"} for one in self.known.values()
            ]
            self._file.write_text(json.dumps({"claims": claims}))
