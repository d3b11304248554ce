"""A node whose gateway is killed at any step, with a kubelet and a scheduler; what must hold is checked at each.

Two things are checked. No device is in two running pods. No device is given to a claim before the driver was told that
the claim before has released it, unless the records of that were taken away.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from dpgateway import Allocation, Device
from dpgateway.cdi.own import OwnSpecs
from dpgateway.dra.claims.files import ClaimFiles
from dpgateway.dra.claims.reading import Asked
from dpgateway.dra.claims.records import ClaimRecord, Damaged
from dpgateway.dra.reconciling import Pauses, Reconciling
from dpgateway.errors import DriverError
from dpgateway.kit.threads import Threads
from dpgateway.node.podresources import ListedClaim, ListedClaims, ListedDevice, PodResources
from dpgateway.resource.front import Unreleased
from tests.dra.claim_node import DRIVER, POOL, ClaimedResource, ClaimNode, lanes
from tests.support.files import texts
from tests.support.logs import complaint
from tests.support.resource import FakeLanes
from tests.support.waiting import until

DEVICES = "a", "b", "c"


class Life:
    """Of one gateway: it counts the steps, and ends before one of them, as by SIGKILL."""

    def __init__(self, last: int | None = None) -> None:
        """``last``: the step that isn't done any more; None: it isn't killed."""
        self._last, self.steps, self.over = last, 0, False
        self._lock, self.removing = threading.Lock(), threading.Lock()
        """`removing` is held while a record is being removed, which is the last that a claim's end does."""

    def step(self, error: type[Exception] = OSError) -> None:
        """Raises ``error`` once it is over: what would follow has no effect."""
        with self._lock:
            self.steps += 1
            self.over = self.over or self.steps == self._last
        if self.over:
            raise error("killed")


class MortalFiles(ClaimFiles):
    """Records on a disk that a dead gateway doesn't reach."""

    def __init__(self, folder: Path, life: Life) -> None:
        super().__init__(folder)
        self._life = life

    def write(self, one: ClaimRecord) -> None:
        self._life.step()
        super().write(one)
        self._life.step()

    def remove(self, uid: str) -> None:
        with self._life.removing:
            self._life.step()
            super().remove(uid)
            self._life.step()

    def set_aside(self, one: Damaged) -> None:
        self._life.step()
        super().set_aside(one)

    def completed(self) -> None:
        self._life.step()
        super().completed()


class MortalSpecs(OwnSpecs):
    """CDI specs, the same way."""

    def __init__(self, folder: Path, life: Life) -> None:
        super().__init__(folder / "state", folder, Path("/dp"), complaint([]))
        self._life = life

    def write(self, resource: str, ids: tuple[str, ...], allocation: Allocation, *, lasting: bool = True) -> Allocation:
        self._life.step()
        named = super().write(resource, ids, allocation, lasting=lasting)
        self._life.step()
        return named

    def withdraw(self, names: Iterable[str]) -> None:
        self._life.step()
        super().withdraw(names)
        self._life.step()


class MortalLanes(FakeLanes):
    """A driver whose devices outlive its gateway. ``owner``: the claim that each was given to and not released from."""

    def __init__(self, life: Life, claim_of: Callable[[str], str], owner: dict[str, str], slow: list[str]) -> None:
        """``slow``: while it isn't empty, nothing is released."""
        given = lanes()
        super().__init__("prepare", "release", allocation=given.allocation)
        self._life, self._claim_of, self._owner, self._slow = life, claim_of, owner, slow
        self.waiting_releases: list[Callable[[], None]] = []

    async def allocate(self, devices: Sequence[Device], late: object, options: object = None) -> Allocation:
        self._life.step(DriverError)
        for one in devices:
            claim = self._claim_of(one.id)
            assert self._owner.get(one.id, claim) == claim, f"{one.id} given to {claim} before {self._owner} released"
            self._owner[one.id] = claim
        self._life.step(DriverError)
        return await super().allocate(devices, late, options)

    async def prepare(self, devices: Sequence[Device], *, once: bool = True, options: object = None) -> None:
        self._life.step(DriverError)
        await super().prepare(devices, once=once, options=options)
        self._life.step(DriverError)

    def release(
        self, devices: Sequence[Device], free: Callable[[Sequence[Device]], list[Device]], told: Callable[[], None]
    ) -> None:
        if self._slow:
            self.waiting_releases.append(lambda: self.release(devices, free, told))
            return
        try:
            self._life.step()
            for one in free(devices):
                self._owner.pop(one.id, None)
            self._life.step()
        except OSError:
            return
        told()


class Listed(PodResources):
    """What the node's kubelet lists."""

    def __init__(self, node: LivingNode) -> None:
        super().__init__(Path("/nowhere"), Threads())
        self._node = node

    async def claims(self) -> ListedClaims:
        found = []
        for name, (_, devices) in self._node.running.items():
            listed = tuple([ListedDevice(DRIVER, POOL, device, (cdi,), "") for device, cdi in devices.items()])
            if name not in self._node.forced:  # no longer an active pod
                found.append(ListedClaim("default", name, frozenset([f"pod-{name}"]), listed))
        pods = {(one.namespace, pod) for one in found for pod in one.pods}
        return ListedClaims(tuple(found), frozenset({("default", "other"), *pods}))


class LivingNode:
    """The node. Its kubelet and scheduler do what the test says."""

    def __init__(self, node: ClaimNode, pauses: Pauses) -> None:
        self.node, self._pauses = node, pauses
        self.pods = node.folder / "pods"
        (self.pods / "other").mkdir(parents=True)
        self.boot, self.owner = 1, dict[str, str]()
        self.claims: dict[str, tuple[Asked, tuple[str, ...]]] = {}
        """The claims that the kubelet has to end, with their devices."""
        self.running: dict[str, tuple[Asked, dict[str, str]]] = {}
        """The claims of pods that run, with the CDI name of each device."""
        self.forced: set[str] = set()
        """The claims of pods that were deleted by force."""
        self._journal: dict[str, Unreleased] = {}
        self._number = 0
        self.life = Life()
        self.slow: list[str] = []

    async def start(self, last: int | None = None) -> None:
        """Another gateway; the one before is dead. ``last``: the step at which this one dies."""
        self.life.over = True
        self.life = life = Life(last)
        files, specs = MortalFiles(self.node.folder, life), MortalSpecs(self.node.specs, life)
        driver = MortalLanes(life, self._preparing, self.owner, self.slow)
        self._driver = driver
        self.resource = ClaimedResource(driver, *map(Device, DEVICES))
        self.resource.usage.set(self.resource.usage.value.remembered(self._journal))
        self.gateway = await self.node.gateway(self.resource, f"boot-{self.boot}", 0.05, (files, specs))
        self.reconciling = Reconciling(self.gateway, Listed(self), self.pods, self._pauses)
        self.resource.usage.subscribe(lambda: self._note(life))
        self._note(life)

    def go_on(self) -> None:
        """The driver makes the releases that it was slow with."""
        waiting, self._driver.waiting_releases = self._driver.waiting_releases, []
        for release in waiting:
            release()

    @property
    def files(self) -> list[Path]:
        """The records."""
        return sorted((self.node.folder / "dra" / "claims").glob("*.json"))

    def _note(self, life: Life) -> None:
        if not life.over:
            self._journal = dict(self.resource.usage.value.unreleased)

    def _preparing(self, device: str) -> str:
        """The claim for which a gateway asks the driver for the device: its record is on disk."""
        (name,) = (
            one["name"]
            for one in self.records
            if one["phase"] == "preparing" and device in [id_ for given in one["given"] for id_ in given["ids"]]
        )
        return str(name)

    @property
    def records(self) -> list[Any]:
        found = []
        for text in texts(self.node.files.folder).values():
            try:
                found.append(json.loads(text))
            except ValueError:  # damaged by the test
                continue
        return found

    # scheduler and kubelet

    @property
    def free(self) -> list[str]:
        """As the scheduler knows."""
        used = set()
        for one in self.node.store.list("resourceclaims", "default", {}):
            used |= {it["device"] for it in one["status"]["allocation"]["devices"]["results"]}
        return [one for one in DEVICES if one not in used]

    def schedule(self, *devices: str) -> str:
        self._number += 1
        name = f"c{self._number}"
        self.claims[name] = self.node.allocate(name, *devices), devices
        (self.pods / f"uid-{name}").mkdir()
        return name

    async def prepare(self, name: str) -> str:
        """The kubelet prepares the claim and starts its pod; returns why it can't."""
        asked, devices = self.claims[name]
        (answer,) = (await self.gateway.prepare([asked])).values()
        if self.life.over or isinstance(answer, str):
            return answer if isinstance(answer, str) else "killed"
        for other, (_, others) in self.running.items():
            assert other == name or not others.keys() & set(devices), f"{devices} in {other} and {name}"
        assert {one.device for one in answer} == set(devices)
        self.running[name] = asked, {one.device: one.cdi[0] if one.cdi else "" for one in answer}
        return ""

    def force(self, name: str) -> None:
        """The pod is deleted by force: its containers run on for a while."""
        self.forced.add(name)
        self._delete(name)

    def stop(self, name: str) -> None:
        """The containers of the pod end."""
        self.running.pop(name, None)

    async def unprepare(self, name: str) -> str:
        """The kubelet ends the claim of a pod whose containers have ended; returns why it can't."""
        asked, _ = self.claims[name]
        assert name not in self.running
        (answer,) = (await self.gateway.unprepare([asked])).values()
        if self.life.over or isinstance(answer, str):
            return answer if isinstance(answer, str) else "killed"
        self.forget(name)
        return ""

    async def over(self) -> None:
        """Returns once no claim has a record, or the gateway is dead: a call may be answered before its claim's end."""
        await until(lambda: self.life.over or not (self.records or self.life.removing.locked()))

    def forget(self, name: str) -> None:
        """The pod is gone, and the kubelet asks no more for its claim."""
        self.running.pop(name, None)
        self.claims.pop(name)
        self.forced.discard(name)
        self._delete(name)
        (self.pods / f"uid-{name}").rmdir()

    def _delete(self, name: str) -> None:
        if (key := ("resourceclaims", "default", name)) in self.node.store.objects:
            self.node.store.delete(key)

    def reboot(self) -> None:
        """No container runs any more; the gateway is to be started again. What it does now it may still be doing."""
        self.running.clear()
        self.boot += 1
        for path in self.node.specs.glob("*.json"):
            path.unlink(missing_ok=True)

    def wipe(self) -> None:
        """``state_dir`` is lost: nobody knows what the driver is owed."""
        for path in [one for one in (self.node.folder / "dra").rglob("*") if one.is_file()]:
            path.unlink(missing_ok=True)
        self._journal.clear()
        self.owner.clear()
