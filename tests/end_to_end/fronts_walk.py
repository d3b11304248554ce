"""Random lives of a cluster whose resources are offered by the device plugin or by DRA: its steps, and what must hold.

Each life has a seed, of which its steps and their order follow. What happens between processes depends on the machine,
so a life that is lived again is much the same, and not exactly so. After each event of a kubelet this must hold:

- no device is in more running pods than it has shares, whichever name or front it was given by;
- a pod that runs has all its devices.

And whenever all is calm again: every deleted pod has ended, and what no pod has is offered.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from dpgateway_simulator import KubeletEvent
from dpgateway_simulator.cluster import PodEndedError, SimulatedCluster
from tests.end_to_end.fronts_figures import Figures
from tests.end_to_end.fronts_node import AGENT, CARD, DEVICES, DRIVER, NAMES, SHARES, FrontsNode, Had, text

FRONTS = "deviceplugin", "dra"
CALM = 150.0
"""Seconds until all is as it should be once nothing is disturbed any more: a change of front may have begun, and lasts
up to 70 if claims aren't prepared.
"""
PATIENT = 180.0
"""The same after a kubelet or a gateway has ended: nobody saw which pod got a device, or its end."""
IMPATIENT = 5.0
"""The same for short lives: what takes longer isn't waited for."""
TURN = 4.0
"""Seconds until the kubelets' clocks are turned, while something is waited for."""
SETTLED = 15.0
"""Seconds until resources are offered, on a busy machine."""
LAST = 60
"""Steps that are shown when something is wrong."""


class Wanted(NamedTuple):
    """What a pod asks for."""

    limits: Mapping[str, int]
    """Of its container, by resource; of its hand-written claim, if it has one."""
    init: Mapping[str, int] = {}
    """Of its init container, which it has if that asks for something."""
    claim: str = ""
    """A claim that it shares with other pods."""

    def __str__(self) -> str:
        init = f", by an init container {dict(self.init)}" if self.init else ""
        return f"{dict(self.limits)}{init}{f', by claim {self.claim}' if self.claim else ''}"


class HandMade(NamedTuple):
    """A claim that a person wrote, for one device."""

    node: str
    resource: str


class Life:
    """One life, from its seed. `versions`: of the kubelets, one for each node; `auto`: whether the gateways choose the
    front by themselves.
    """

    def __init__(
        self, cluster: SimulatedCluster, folder: Path, seed: int, versions: tuple[str, ...], *, auto: bool = False
    ) -> None:
        self.cluster, self.random = cluster, Random(seed)  # noqa: S311  no secret, the same life again
        self.seed, self.auto, self._began = seed, auto, time.monotonic()
        self.patient = False
        """Whether all must be as it should be, however long that takes."""
        self.ends = 0
        """Kubelets and gateways that have ended since it was."""
        self.nodes = [self._node(folder / f"n{n}", f"n{n}", version) for n, version in enumerate(versions)]
        self.wanted: dict[str, Wanted] = {}
        """What each pod asks for, by name."""
        self.claims: dict[str, HandMade] = {}
        """The hand-written claims that pods may use, by name."""
        self.violations: list[str] = []
        self.told: list[str] = []
        self.figures = Figures()
        self.unlucky: set[str] = set()
        """Pods that the scheduler sent for a claim, just before a downgrade, to a kubelet that knows nothing of such
        claims: it runs them without devices.
        """
        self.outrun: set[str] = set()
        """Pods that their kubelet refused because its list had no longer as many Healthy devices as they ask for. The
        Node says so a moment later, so any scheduler sends some.
        """
        self._pods = self._agents = self._claims = 0

    def _node(self, root: Path, name: str, version: str) -> FrontsNode:
        front = "auto" if self.auto else self.random.choice(FRONTS)
        root.mkdir()
        node = FrontsNode(self.cluster, root, name, version, dict.fromkeys(NAMES, front))
        node.kubelet.journal.listen(lambda event: self._heard(node, event))
        return node

    def _heard(self, node: FrontsNode, event: KubeletEvent) -> None:
        self.figures.heard(event)
        if event.kind == "pod refused" and event.fields["reason"] == "UnexpectedAdmissionError":
            self._refused(node, event.fields["pod"])
        self.check(node)

    def _refused(self, node: FrontsNode, pod: str) -> None:
        if (wanted := self.wanted.get(pod)) is None or wanted.claim or self.by_claim(pod):
            return
        listed = {name: count for name, count in wanted.limits.items() if node.fronts[name] == "deviceplugin"}
        if any(node.healthy(name) < count for name, count in listed.items()):
            self.outrun.add(pod)

    def note(self, text: str) -> None:
        self.told.append(f"{time.monotonic() - self._began:7.3f} {text}")

    def story(self) -> str:
        lines = [f"--- the last steps of seed {self.seed}", *self.told[-LAST:]]
        lines += [f"{name}: {self.cluster.phase(name)}, {self.cluster.why(name)}" for name in self.wanted]
        lines += [f"{claim}" for claim in self.cluster.claims()]
        return "\n".join([*lines, *(node.story() for node in self.nodes)])

    # what must hold

    def check(self, node: FrontsNode) -> None:
        """Notes what is wrong now."""
        if node.steady:
            self._check_offers(node)
        claims = {pod: one.claim for pod, one in self.wanted.items() if one.claim}
        for device, holders in node.holders(claims).items():
            if len(holders) > (SHARES if {name for name, _ in holders} == {CARD} else 1):
                having = {pod: text(one) for pod, one in node.has() if device in {it.device for it in _flat(one)}}
                self.violated(f"{device} of {node.name} is in {len(holders)} running pods: {having}")
        for pod, containers in node.has():
            self._check_pod(node, pod, containers)

    def _check_pod(self, node: FrontsNode, pod: str, containers: Mapping[str, frozenset[Had]]) -> None:
        if (wanted := self.wanted.get(pod)) is None or (found := containers.get("c")) is None:
            return
        if not found and self.by_claim(pod) and node.kubelet.behaviour.dra != "extended":
            self.unlucky.add(pod)
        if not found and pod in self.unlucky:
            return
        for name in NAMES:
            count, devices = wanted.limits.get(name, 0), {one.device for one in found if one.resource == name}
            # Several shares may be of one card.
            if len(devices) != count and not (name == CARD and min(count, 1) <= len(devices) <= count):
                self.violated(f"{pod} on {node.name} runs with {text(containers)}, and asked for {wanted}")

    def _check_offers(self, node: FrontsNode) -> None:
        for resource in NAMES:
            if both := node.on_list(resource) & node.in_slices(resource):
                self.violated(f"{resource} of {node.name} is offered on both fronts: {dict(both)}")

    def violated(self, text: str) -> None:
        if text not in self.violations:
            self.violations.append(text)
            self.note(f"VIOLATION {text}")

    def right(self) -> None:
        assert not self.violations, self.violations

    # its steps

    async def begin(self) -> None:
        for name in NAMES:
            self.make_class(name)
        for node in self.nodes:
            await node.kubelet.start()
            await self.cluster.run(f"{AGENT}-{node.name}-0", {"c": {}}, node=node.name, within=CALM)
            await node.start_gateway()
        await self.settled()
        self.note(f"seed {self.seed}: " + ", ".join(f"{n.name} {n.kubelet.version} {n.fronts}" for n in self.nodes))

    def make_class(self, name: str) -> None:
        self.cluster.device_class(name.partition("/")[2], DRIVER, resource=name, attributes={"resource": name})

    async def settled(self) -> None:
        """What no pod has is offered, or won't be soon."""
        await self._until(self.missing, SETTLED, fails=False)

    async def passes(self, seconds: float) -> None:
        """So much time. Where it is long, what happens meanwhile is looked at."""
        end = time.monotonic() + seconds
        self.figures.look(self.nodes)
        while (left := end - time.monotonic()) > 0:
            await asyncio.sleep(min(left, 0.2))
            self.figures.look(self.nodes)

    def has_class(self, name: str) -> bool:
        return ("deviceclasses", "", name.partition("/")[2]) in self.cluster.server.store.objects

    def by_claim(self, pod: str) -> bool:
        """Whether it has its devices by a claim."""
        return "extendedResourceClaimStatus" in (self.cluster.pod(pod) or {"status": {}})["status"]

    def live_pods(self) -> list[str]:
        return [name for name in self.wanted if self.cluster.phase(name) not in {"Gone", "Terminating"}]

    async def calm(self) -> bool:
        """Nothing is disturbed any more, and what can't run is deleted: then what no pod has is offered again. False if
        that takes longer than anybody waits.
        """
        await self._mend()
        self.note("calm")
        await self._until(self.terminating, CALM)
        self.right()
        if not self.ends and not self.auto:
            await self._until(self.missing, CALM)
        elif not self.patient:
            return await self._quickly()
        else:
            await self._until(self.missing, PATIENT / 2, fails=False)
            if missing := self.missing():
                # Unseen holders may be any pods of that time, so all of them have to end.
                self.note(f"other pods: {'; '.join(missing)}")
                await self._other_pods()
                await self._until(self.missing, PATIENT / 2)
        self.ends = 0
        await self._containers_start()
        return True

    async def _containers_start(self) -> None:
        """Each container can start again, whichever front its devices came by, and gets what it had."""
        for node in self.nodes:
            for pod, before in list(node.has()):
                if (
                    not before.get("c") or pod not in node.kubelet.pods
                ):  # a kubelet that has just started admits them one by one
                    continue
                if self.by_claim(pod) and node.kubelet.behaviour.dra != "extended":
                    continue
                reply = await self._start_container(node, pod)
                if not reply["ok"] or dict(node.has()).get(pod, before) != before:
                    self.violated(f"{pod} of {node.name} had {text(before)}, and starts again: {reply}")
        self.right()

    @staticmethod
    async def _start_container(node: FrontsNode, pod: str) -> dict[str, Any]:
        """A kubelet tries again while it has no endpoint of the resource: the gateway is registering another one."""
        async with asyncio.timeout(CALM):
            while True:
                reply: dict[str, Any] = await node.kubelet.start_container(pod, "c")
                if reply["ok"] or "has been stopped" not in str(reply):
                    return reply
                await asyncio.sleep(0.02)

    async def _mend(self) -> None:
        await self.server_answers()
        for node in self.nodes:
            if not node.kubelet.running:
                await node.kubelet.start()
            if not node.gateways:
                await node.start_gateway()
            node.ill.clear()
            node.slow = None
            node.suffer()
        for name in NAMES:
            if not self.has_class(name):
                self.make_class(name)
        for pod in self.live_pods():
            if self.cluster.phase(pod) != "Running":
                self.cluster.delete(pod)

    async def server_answers(self) -> None:
        self.cluster.server.resume()
        if not self.cluster.server.serving:
            await self.cluster.server.up()

    async def _quickly(self) -> bool:
        await self._until(self.missing, IMPATIENT, fails=False)
        if missing := self.missing():
            self.note(f"it takes longer: {'; '.join(missing)}")
            self.figures.counts["calms that take longer"] += 1
            return False
        self.ends = 0
        await self._containers_start()
        return True

    async def _until(self, missing: Callable[[], list[str]], seconds: float, *, fails: bool = True) -> None:
        """Until nothing is missing. A kubelet looks only once in a minute for claims of pods that ended unseen."""
        end = turned = time.monotonic()
        while found := missing():
            now = time.monotonic()
            if now > end + seconds:
                assert not fails, found
                return
            # Calls under way have their deadlines on the same clock.
            if now > turned + TURN:
                turned = now
                for node in self.nodes:
                    node.kubelet.clock.advance(61)
            self.figures.look(self.nodes)
            await asyncio.sleep(0.02)

    async def _other_pods(self) -> None:
        for pod in self.live_pods():
            self.cluster.delete(pod)
        self._agents += 1
        for node in self.nodes:
            agent = f"{AGENT}-{node.name}-{self._agents}"
            await self.cluster.run(agent, {"c": {}}, node=node.name, within=CALM)
            self.cluster.delete(f"{AGENT}-{node.name}-{self._agents - 1}")

    def terminating(self) -> list[str]:
        return [
            f"pod {name} is {phase}" for name in self.wanted if (phase := self.cluster.phase(name)) == "Terminating"
        ]

    def missing(self) -> list[str]:
        """What isn't as it should be when all is calm."""
        found = self.terminating()
        for node in self.nodes:
            claims = {pod: one.claim for pod, one in self.wanted.items() if one.claim}
            holders, allocated = node.holders(claims), node.allocated()
            for resource in NAMES:
                offered = node.offered(resource)
                for device in DEVICES[resource]:
                    having = holders.get(device, set())
                    least = most = SHARES if resource == CARD else 1
                    if having or device in allocated:
                        # A share on the other front may cost the whole card. What extended resources have by a claim
                        # is on the plugin's list as well.
                        shared = {name for name, _ in having} <= {resource} and resource == CARD
                        most = SHARES - len(having) if shared else 0
                        least = 0
                        most = SHARES if device in allocated else most
                    if node.unfit(resource):
                        least = most = 0
                    if not least <= offered[device] <= most:
                        words = f"{resource} of {node.name}: {device} is offered {offered[device]} times"
                        found.append(f"{words}, expected {least} to {most}")
        return found

    async def end(self) -> None:
        for pod in self.live_pods():
            self.cluster.delete(pod)
        if not await self.calm():
            return
        for node in self.nodes:
            for resource in [it for it in self.random.sample(NAMES, len(NAMES)) if not node.unfit(it)]:
                pod = await self._created(node, Wanted({resource: len(DEVICES[resource])}))
                self.right()
                await self.cluster.end(pod, within=CALM)
                await self._until(self.missing, CALM)

    async def _created(self, node: FrontsNode, wanted: Wanted) -> str:
        """A pod that runs. One that is sent to its node just before a front changes is refused: its owner makes
        another, and no front changes again within a minute. So is one that the kubelet's list outran.
        """
        changes, outran = self.auto, True
        while True:
            pod = self.create(node, wanted)
            try:
                await self.cluster.until(pod, "Running", within=CALM)
            except PodEndedError as error:
                if outran and pod in self.outrun:
                    outran = False
                elif changes:
                    changes = False
                else:
                    raise
                self.note(f"another pod is made, because {error}")
                self.cluster.delete(pod)
                if pod in self.outrun:
                    await self._until(self.missing, CALM)
            else:
                return pod

    def create(self, node: FrontsNode, wanted: Wanted) -> str:
        self._pods += 1
        name = f"p{self._pods}"
        self.wanted[name] = wanted
        self.figures.created(name)
        init = {"i": wanted.init} if wanted.init else {}
        if wanted.claim:
            self.cluster.create(name, {"c": {}}, claims={wanted.claim: ["c"]}, node=node.name)
        else:
            self.cluster.create(name, {"c": wanted.limits}, init=init, node=node.name)
        return name

    def write_claim(self, node: FrontsNode, resource: str) -> str:
        self._claims += 1
        name = f"k{self._claims}"
        exactly = {"deviceClassName": resource.partition("/")[2], "allocationMode": "ExactCount", "count": 1}
        self.cluster.claim(name, {"name": "r", "exactly": exactly})
        self.claims[name] = HandMade(node.name, resource)
        return name

    def users(self, claim: str) -> list[str]:
        """The pods of a hand-written claim."""
        return [pod for pod, one in self.wanted.items() if one.claim == claim and self.cluster.phase(pod) != "Gone"]


def _flat(containers: Mapping[str, frozenset[Had]]) -> frozenset[Had]:
    return frozenset[Had]().union(*containers.values())
