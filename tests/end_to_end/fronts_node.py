"""A node of the random lives of both fronts: a simulated kubelet, gateways as processes, hardware that may fail.

Two resources offer the same boards, and two the same cards: one as shares, the other one whole. What a pod has is in
its environment, whichever front it came from.
"""

import json
import re
import signal
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from dpgateway_simulator import Kubelet
from dpgateway_simulator.cluster import SHORT, SimulatedCluster
from tests.support.files import grow_old
from tests.support.gateway import Gateway

DRIVER = "dra.example.com"
BOARD, ALIAS, CARD, SLOT = NAMES = ("example.com/board", "example.com/alias", "example.com/card", "example.com/slot")
BOARDS, CARDS = ("b0", "b1", "b2"), ("c0", "c1")
SHARES = 2
"""Of a card. A slot is a whole one."""
DEVICES = {BOARD: BOARDS, ALIAS: BOARDS, CARD: CARDS, SLOT: CARDS}
POOLS = {BOARD: "boards", ALIAS: "boards", CARD: "cards", SLOT: "cards"}
PAUSES = replace(SHORT, ending=0.05, status=0.1)
"""Containers take a moment to end: a pod that is deleted by force is gone for the scheduler before."""
AGENT = "agent"
"""A pod without devices: a kubelet that lists no pod may not know its pods yet."""
LOGGED = 25
"""Lines of each gateway's log that are shown when something is wrong."""


class Had(NamedTuple):
    """A device, and the resource by which a container has it."""

    resource: str
    device: str


class FrontsNode:
    """Used from the event loop. `fronts`: the front of each resource, as configured."""

    def __init__(
        self, cluster: SimulatedCluster, root: Path, name: str, version: str, fronts: Mapping[str, str]
    ) -> None:
        self.cluster, self.root, self.name, self.fronts = cluster, root, name, dict(fronts)
        self.kubelet: Kubelet = cluster.node(version, root=root, name=name, pauses=PAUSES)
        self.gateways: list[Gateway] = []
        self.ended: list[Gateway] = []
        self.ill: dict[str, str] = {}
        """What is wrong with a device: `absent` or `unhealthy`."""
        self.steady = "auto" in fronts.values()
        """Whether no device may be offered on both fronts, not even for a moment: a reload takes a moment."""
        self.slow: dict[str, object] | None = None
        """What is wrong with a call of the drivers."""

    # the gateways

    def resources(self) -> list[dict[str, object]]:
        return [self._resource(name) for name in NAMES]

    def _resource(self, name: str) -> dict[str, object]:
        options = {
            "ids": list(DEVICES[name]),
            "env_prefix": f"HAS_{short(name)}",
            "prepare": True,
            "release": True,
            "control_file": str(self.root / "control.json"),
        }
        more = {"shares": SHARES} if name == CARD else {}
        common = {"driver": "simulated", "front": self.fronts[name], "pool": POOLS[name]}
        return {"name": name, **common, "options": options, **more}

    async def start_gateway(self) -> None:
        gateway = Gateway(self.root, self.root / "device-plugins")
        gateway.node_name = self.name
        gateway.log_format, gateway.log_level = "text", "info"
        gateway.runtime = {"cdi_dirs": [str(self.root / "cdi")]}
        gateway.more = {"dra": {"driver": DRIVER}, "cluster": self.cluster.account(self.root)}
        self.gateways.append(gateway)
        await gateway.start(*self.resources())

    async def end_gateway(self, gateway: Gateway, number: signal.Signals) -> None:
        self.gateways.remove(gateway)
        self.ended.append(gateway)
        await gateway.end(number)

    async def close(self) -> None:
        for gateway in self.gateways:
            await gateway.close()

    def reload(self) -> None:
        for gateway in self.gateways:
            gateway.reload(*self.resources())

    def an_hour_passes(self) -> None:
        """Without a gateway. Those that changed the front often, or a moment ago, may change it again."""
        for path in (self.root / "state" / "dra" / "fronts").glob("*.json"):
            path.write_text(json.dumps(json.loads(path.read_text()) | {"changes": []}))

    async def reboot(self) -> None:
        """Without a gateway. All that it has remembered is of an earlier boot from now on."""
        grow_old(self.root / "state")
        await self.kubelet.reboot()

    # the hardware

    def suffer(self) -> None:
        """The driver's devices are as ill as `ill` says."""
        kinds: dict[str, dict[str, object]] = {"absent": {"absent": True}, "unhealthy": {"unhealthy": "it smells"}}
        faults = [{"devices": [device]} | kinds[how] for device, how in self.ill.items()]
        faults += [self.slow] if self.slow else []
        new = self.root / "control.json.new"
        new.write_text(json.dumps({"faults": faults}))
        new.rename(self.root / "control.json")

    # what there is

    def has(self) -> Iterator[tuple[str, Mapping[str, frozenset[Had]]]]:
        """Each running pod, and the devices that each of its containers has; of a card it may have several shares,
        which look like one.
        """
        names = {short(name): name for name in NAMES}
        for pod in self.kubelet.running_pods:
            yield (
                pod,
                {
                    container: frozenset(
                        Had(names[found[1]], found[2])
                        for name in options["envs"]
                        if (found := re.fullmatch("HAS_([A-Z]+)_(.+)", name))
                    )
                    for container, options in self.kubelet.given(pod).items()
                },
            )

    def holders(self, claims: Mapping[str, str]) -> dict[str, set[tuple[str, str]]]:
        """Who has each device in a running pod, and by which resource. `claims`: the hand-written claim of a pod, which
        it may share with others.
        """
        found: dict[str, set[tuple[str, str]]] = {}
        for pod, containers in self.has():
            for one in frozenset[Had]().union(*containers.values()):
                found.setdefault(one.device, set()).add((one.resource, claims.get(pod, pod)))
        return found

    def unfit(self, resource: str) -> bool:
        """Whether the kubelet can't offer it on its front."""
        return self.fronts[resource] == "dra" and self.kubelet.behaviour.dra != "extended"

    def offered(self, resource: str) -> Counter[str]:
        """How often each device is offered to pods now, on the front of the resource, without what pods have."""
        if self.fronts[resource] == "dra":
            return self.in_slices(resource)
        if self.fronts[resource] == "auto":
            return self.in_slices(resource) + self.on_list(resource)
        return self.on_list(resource)

    def on_list(self, resource: str) -> Counter[str]:
        """How often each device is on the kubelet's list, free and Healthy."""
        if not self.kubelet.running:
            return Counter()
        devices = self.kubelet.resources().get(resource, {"devices": []})["devices"]
        free = [one["id"] for one in devices if one["health"] == "Healthy" and not one["holders"]]
        return Counter(id_.partition("::")[0] for id_ in free)

    def healthy(self, resource: str) -> int:
        """How many devices on the kubelet's list are Healthy, free or not."""
        devices = self.kubelet.resources().get(resource, {"devices": []})["devices"] if self.kubelet.running else ()
        return sum(one["health"] == "Healthy" for one in devices)

    def in_slices(self, resource: str) -> Counter[str]:
        """How often the scheduler may allocate each device."""
        found: Counter[str] = Counter()
        taken = self.taken()
        for spec in (one["spec"] for one in self.cluster.server.store.list("resourceslices")):
            for device in spec.get("devices", ()) if spec.get("nodeName") == self.name else ():
                attributes = {key.rpartition("/")[2]: value for key, value in device["attributes"].items()}
                if attributes["resource"].get("string") == resource and not device.get("taints"):
                    shares = SHARES if device.get("allowMultipleAllocations") else 1
                    found[attributes["id"]["string"]] = shares - taken[spec["pool"]["name"], device["name"]]
        return +found

    def taken(self) -> Counter[tuple[str, str]]:
        """How often each device, by its pool in slices, is allocated to claims."""
        claims = self.cluster.server.store.list("resourceclaims")
        return Counter((one["pool"], one["device"]) for it in claims for one in _results(it))

    def allocated(self) -> frozenset[str]:
        """The devices of this node that are allocated to claims."""
        return frozenset(name.rpartition("-")[2] for pool, name in self.taken() if pool.startswith(f"{self.name}/"))

    def story(self) -> str:
        lines = [f"--- node {self.name}, kubelet {self.kubelet.version}: {self.fronts}, ill: {self.ill}"]
        lines += [f"{pod} has {text(found)}" for pod, found in self.has()]
        if self.kubelet.running:
            lines += [f"{name}: {one}" for name, one in self.kubelet.resources().items()]
        lines += [f"event {one}" for one in self.kubelet.events[-LOGGED:]]
        for gateway in (*self.ended[-2:], *self.gateways):
            lines += [f"--- gateway {gateway.pid}, {'runs' if gateway in self.gateways else 'ended'}"]
            lines += gateway.log[-LOGGED:]
        return "\n".join(lines)


def short(resource: str) -> str:
    """The resource in the names of variables."""
    return resource.partition("/")[2].upper()


def text(containers: Mapping[str, frozenset[Had]]) -> str:
    """What containers have, for people."""
    return ", ".join(
        f"{name}: {' '.join(f'{short(it.resource)}-{it.device}' for it in sorted(found)) or 'nothing'}"
        for name, found in containers.items()
    )


def _results(claim: dict[str, object]) -> list[dict[str, str]]:
    status: dict[str, dict[str, dict[str, list[dict[str, str]]]]] = claim.get("status") or {}  # type: ignore[assignment]
    return (status.get("allocation") or {}).get("devices", {}).get("results", [])
