"""A node whose claims a test prepares: resources with drivers that the test plays, an API server, and a disk."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dpgateway import Allocation, Device, DeviceNode
from dpgateway.cdi.own import OwnSpecs
from dpgateway.cluster.server import ApiServer
from dpgateway.dra.claims.files import ClaimFiles
from dpgateway.dra.claims.holdings import ClaimHoldings
from dpgateway.dra.claims.reading import EXTENDED, Asked
from dpgateway.dra.preparing import ClaimParts, NodeClaims
from dpgateway.kit.log import bind
from dpgateway.kit.observable import Observable
from dpgateway.kit.threads import Threads
from dpgateway.resource.freeing import Releases
from dpgateway.resource.front import Unreleased, Usage
from dpgateway.resource.granting import Granting
from dpgateway.resource.inventory import Inventory
from dpgateway_simulator.apiserver import SimulatedApiServer as Simulated
from tests.support.files import texts
from tests.support.resource import FakeLanes, running
from tests.support.resources import NAME, configured
from tests.support.specs import own

IN_VAIN = 0.1
"""Seconds. The patience of a gateway whose calls are to wait for what doesn't come."""
DRIVER, POOL, BOOT = "dra.example.com", "n1/example.com/thing", "boot-1"
LOG = bind("test")


class Pods:
    """Those that have containers, as the container runtime says; None while it says nothing."""

    def __init__(self, *uids: str) -> None:
        self.uids: frozenset[str] | None = frozenset(uids)
        self.asked = 0

    async def running(self, pods: frozenset[str]) -> frozenset[str] | None:
        self.asked += 1
        return None if self.uids is None else pods & self.uids


class ClaimedResource:
    """A resource on the DRA front."""

    def __init__(self, lanes: FakeLanes, *devices: Device, shares: int = 1, name: str = NAME, pool: str = POOL) -> None:
        """``pool``: of its slices."""
        config, self.lanes, self._pool = Observable(configured(name=name, shares=shares)), lanes, pool
        self.usage = Usage(ClaimHoldings(resource=name))
        driver = running(lanes)
        self.inventory = Inventory(config, self.usage, LOG)
        self.releases = Releases(config, self.inventory, driver, LOG)
        self.granting = Granting(config, self.inventory, driver, self.releases, LOG)
        self.usage.set(self.usage.value.remembered({}).given_by("scripted" if "release" in lanes.abilities else ""))
        self.usage.subscribe(self._follow)
        self.inventory.take(devices)

    def id_of(self, pool: str, device: str) -> str | None:
        return device if pool == self._pool and device in self.inventory.ledger.devices else None

    def _follow(self) -> None:
        self.inventory.exclusion.uses_changed()
        if self.usage.value.unsettled:
            asyncio.get_running_loop().call_soon(self.releases.release_due)


class ClaimNode:
    """The claims of a node, and what is on its disk."""

    def __init__(self, server: ApiServer, simulated: Simulated, folder: Path) -> None:
        self.api, self.store, self.server, self.folder = simulated, simulated.store, server, folder
        self.journals: dict[str, Mapping[str, Unreleased]] = {}
        """By resource: what the gateways remember of their grants."""
        self.specs = folder / "cdi"
        self.specs.mkdir()
        self.files = ClaimFiles(folder)
        self.files.all()  # makes the folders
        self.files.completed()

    async def gateway(
        self,
        resource: ClaimedResource | None = None,
        boot: str = BOOT,
        patience: float = 30.0,
        disk: tuple[ClaimFiles, OwnSpecs] | None = None,
    ) -> NodeClaims:
        """Another gateway, with what its predecessors left; without a resource: it isn't served yet.
        ``patience``: seconds, more than a busy machine needs for what does come. ``disk``: as it writes, if not as
        usual.
        """
        files, specs = disk or (self.files, own(self.specs))
        parts = ClaimParts(self.server, files, specs, Threads(), Observable({}), LOG)
        claims = NodeClaims(DRIVER, parts, boot, patience)
        claims.store.journal = lambda name: self.journals.get(name, {})
        claims.store.expect(NAME)
        await claims.load()
        if resource is not None:
            resource.usage.set(replace(resource.usage.value, boot=boot))
            claims.store.add(NAME, resource)
        return claims

    def allocate(self, name: str, *devices: str, driver: str = DRIVER, **more: Any) -> Asked:
        """The scheduler allocates devices to a claim."""
        given = {"request": "r", "driver": driver, "pool": POOL, **more}
        return self.allocate_results(name, [{**given, "device": one} for one in devices])

    def allocate_results(self, name: str, results: list[dict[str, Any]]) -> Asked:
        pods = [{"resource": "pods", "name": f"pod-{name}", "uid": f"uid-{name}"}]
        status = {"allocation": {"devices": {"results": results}}, "reservedFor": pods}
        one = self.store.create("resourceclaims", "default", {"metadata": {"name": name}, "status": status})
        return Asked("default", name, one["metadata"]["uid"])

    def make_class(self, name: str, resource: str = "") -> None:
        """``resource``: its extendedResourceName."""
        spec = {"extendedResourceName": resource} if resource else {}
        self.store.create("deviceclasses", "", {"metadata": {"name": name}, "spec": spec})

    def extend(self, claim: str, class_: str, annotation: str = "true") -> None:
        """The scheduler made the claim for a pod's extended resources."""

        def change(one: dict[str, Any]) -> None:
            one["metadata"]["annotations"] = {EXTENDED: annotation}
            one["spec"] = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": class_}}]}}

        self.store.update(("resourceclaims", "default", claim), change)

    @property
    def records(self) -> dict[str, Any]:
        found = map(json.loads, texts(self.folder / "dra" / "claims").values())
        return {one["name"]: one for one in found}


def lanes(*abilities: str, **more: Any) -> FakeLanes:
    given: Callable[[Any], Allocation] = lambda devices: Allocation(  # noqa: E731
        env={"DEVICE": devices[0].id}, device_nodes=tuple(DeviceNode("/dev/null", f"/dev/{d.id}") for d in devices)
    )
    return FakeLanes(*abilities, **{"allocation": given, **more})


async def one(answers: Any) -> Any:
    (answer,) = answers.values()
    return answer
