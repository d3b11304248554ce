"""Random lives of a cluster whose resources are offered by the device plugin or by DRA: its steps, and what must hold.

Each life has a seed, of which its steps and their order follow. What happens between processes depends on the machine,
so a life that is lived again is much the same, and not exactly so. After each event of a kubelet this must hold:

- no device is in more running pods than it has shares, whichever name or front it was given by;
- a pod that runs has all its devices.

And whenever all is calm again: every deleted pod has ended, and what no pod has is offered.
"""

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from random import Random

from dpgateway_simulator.cluster import SimulatedCluster
from tests.end_to_end.fronts_node import (
    AGENT,
    ALIAS,
    BOARD,
    BOARDS,
    CARD,
    CARDS,
    DEVICES,
    DRIVER,
    NAMES,
    SHARES,
    FrontsNode,
)

FRONTS = "deviceplugin", "dra"
PAUSES = 0.0, 0.0, 0.02, 0.05, 0.1, 0.3
MOST_PODS = 8
CALM = 20.0
"""Seconds until all is as it should be once nothing is disturbed any more."""
PATIENT = 180.0
"""The same after a kubelet or a gateway has ended: nobody saw which pod got a device, or its end."""
IMPATIENT = 5.0
"""The same for short lives: what takes longer isn't waited for."""
LAST = 60
"""Steps that are shown when something is wrong."""


class Life:
    """One life, from its seed. `versions`: of the kubelets, one for each node."""

    def __init__(self, cluster: SimulatedCluster, folder: Path, seed: int, versions: tuple[str, ...]) -> None:
        self.cluster, self.random = cluster, Random(seed)  # noqa: S311  no secret, the same life again
        self.seed, self._began = seed, time.monotonic()
        self.patient = False
        """Whether all must be as it should be, however long that takes."""
        self.ends = 0
        """Kubelets and gateways that have ended since it was."""
        self.nodes = [self._node(folder / f"n{n}", f"n{n}", version) for n, version in enumerate(versions)]
        self.wanted: dict[str, Mapping[str, int]] = {}
        """What each pod asks for, by name."""
        self.violations: list[str] = []
        self.told: list[str] = []
        self.counts: Counter[str] = Counter()
        self._pods = self._agents = 0

    def _node(self, root: Path, name: str, version: str) -> FrontsNode:
        front = self.random.choice(FRONTS)
        root.mkdir()
        node = FrontsNode(self.cluster, root, name, version, dict.fromkeys(NAMES, front))
        node.kubelet.journal.listen(lambda _: self.check(node))
        return node

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
        for device, count in node.used().items():
            if count > (SHARES if device in CARDS else 1):
                having = {pod: dict(found) for pod, found in node.has() if device in found}
                self._violated(f"{device} of {node.name} is in {count} running pods: {having}")
        for pod, found in node.has():
            boards = sum(self.wanted.get(pod, {}).get(name, 0) for name in (BOARD, ALIAS))
            cards = self.wanted.get(pod, {}).get(CARD, 0)
            if sum(found[one] for one in BOARDS) != boards or bool(cards) != any(found[one] for one in CARDS):
                self._violated(f"{pod} on {node.name} runs with {dict(found)}, and asked for {self.wanted.get(pod)}")

    def _violated(self, text: str) -> None:
        if text not in self.violations:
            self.violations.append(text)
            self.note(f"VIOLATION {text}")

    def right(self) -> None:
        assert not self.violations, self.violations

    # its steps

    async def begin(self) -> None:
        for name in NAMES:
            self.cluster.device_class(name.partition("/")[2], DRIVER, resource=name, attributes={"resource": name})
        for node in self.nodes:
            await node.kubelet.start()
            await self.cluster.run(f"{AGENT}-{node.name}-0", {"c": {}}, node=node.name)
            await node.start_gateway()
        self.note(f"seed {self.seed}: " + ", ".join(f"{n.name} {n.kubelet.version} {n.fronts}" for n in self.nodes))

    async def live(self, steps: int) -> None:
        """So many steps, then the end: all pods are deleted, and every device can be had again."""
        await self.begin()
        names, weights = [*STEPS], [weight for weight, _ in STEPS.values()]
        done = 0
        while done < steps:
            (name,) = self.random.choices(names, weights)
            told = await STEPS[name][1](self, self.random.choice(self.nodes))
            if told:
                done += 1
                self.counts[name] += 1
                self.note(f"step {done}: {told}")
                await asyncio.sleep(self.random.choice(PAUSES))
            self.right()
        await self.end()

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
        if not self.ends:
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
        return True

    async def _mend(self) -> None:
        if not self.cluster.server.serving:
            await self.cluster.server.up()
        for node in self.nodes:
            if not node.kubelet.running:
                await node.kubelet.start()
            if not node.gateways:
                await node.start_gateway()
            node.ill.clear()
            node.suffer()
        for pod in self.live_pods():
            if self.cluster.phase(pod) != "Running":
                self.cluster.delete(pod)

    async def _quickly(self) -> bool:
        await self._until(self.missing, IMPATIENT, fails=False)
        if missing := self.missing():
            self.note(f"it takes longer: {'; '.join(missing)}")
            self.counts["longer"] += 1
            return False
        self.ends = 0
        return True

    async def _until(self, missing: Callable[[], list[str]], seconds: float, *, fails: bool = True) -> None:
        """Until nothing is missing. A kubelet looks only once in a minute for claims of pods that ended unseen."""
        end = turned = time.monotonic()
        while found := missing():
            now = time.monotonic()
            if now > end + seconds:
                assert not fails, found
                return
            if now > turned + 1:
                turned = now
                for node in self.nodes:
                    node.kubelet.clock.advance(61)
            await asyncio.sleep(0.02)

    async def _other_pods(self) -> None:
        for pod in self.live_pods():
            self.cluster.delete(pod)
        self._agents += 1
        for node in self.nodes:
            await self.cluster.run(f"{AGENT}-{node.name}-{self._agents}", {"c": {}}, node=node.name)
            self.cluster.delete(f"{AGENT}-{node.name}-{self._agents - 1}")

    def terminating(self) -> list[str]:
        return [
            f"pod {name} is {phase}" for name in self.wanted if (phase := self.cluster.phase(name)) == "Terminating"
        ]

    def missing(self) -> list[str]:
        """What isn't as it should be when all is calm."""
        found = self.terminating()
        for node in self.nodes:
            used = node.used()
            for resource in NAMES:
                free = {
                    device: 1 if device in BOARDS else SHARES
                    for device in DEVICES[resource]
                    if not used[device] and not node.unfit(resource)
                }
                offered = {device: count for device, count in node.offered(resource).items() if not used[device]}
                if free != offered:
                    found.append(f"{resource} of {node.name}: offered {offered}, expected {free}")
        return found

    async def end(self) -> None:
        for pod in self.live_pods():
            self.cluster.delete(pod)
        if not await self.calm():
            return
        for node in self.nodes:
            for resource in [it for it in self.random.sample(NAMES, len(NAMES)) if not node.unfit(it)]:
                count = len(DEVICES[resource])
                pod = self.create(node, {resource: count})
                await self.cluster.until(pod, "Running")
                self.right()
                await self.cluster.end(pod)
                await self._until(self.missing, CALM)

    def create(self, node: FrontsNode, wanted: Mapping[str, int]) -> str:
        self._pods += 1
        name = f"p{self._pods}"
        self.wanted[name] = wanted
        self.cluster.create(name, {"c": wanted}, node=node.name)
        return name


Step = Callable[[Life, FrontsNode], Awaitable[str]]
"""Does it, and returns what it did; empty if it makes no sense now."""


async def create(life: Life, node: FrontsNode) -> str:
    if len(life.live_pods()) >= MOST_PODS:
        return ""
    choices: list[Mapping[str, int]] = [
        {BOARD: 1},
        {ALIAS: 1},
        {CARD: 1},
        {BOARD: 2},
        {BOARD: 1, ALIAS: 1},
        {ALIAS: 1, CARD: 1},
    ]
    wanted = life.random.choices(choices, (4, 4, 4, 1, 1, 1))[0]
    return f"{life.create(node, wanted)} is created for {wanted}"


async def delete(life: Life, node: FrontsNode) -> str:
    return _delete(life, force=False)


async def force(life: Life, node: FrontsNode) -> str:
    return _delete(life, force=True)


def _delete(life: Life, *, force: bool) -> str:
    if not (pods := life.live_pods()):
        return ""
    pod = life.random.choice(pods)
    text = f"{pod}, {life.cluster.phase(pod)}, is deleted{' by force' if force else ''}"
    life.cluster.delete(pod, force=force)
    return text


async def front(life: Life, node: FrontsNode) -> str:
    """Mostly of the whole pool."""
    if not node.gateways or not all(one.log for one in node.gateways):  # before its first words it knows no SIGHUP
        return ""
    front, names = life.random.choice(FRONTS), life.random.choice([(BOARD, ALIAS), (CARD,), NAMES, (BOARD,)])
    node.fronts |= dict.fromkeys(names, front)
    node.reload()
    return f"{', '.join(names)} of {node.name} by {front}"


async def kubelet(life: Life, node: FrontsNode) -> str:
    if not node.kubelet.running:
        await node.kubelet.start()
        return f"the kubelet of {node.name} starts"
    life.ends += 1
    match life.random.randrange(3):
        case 0:
            await node.kubelet.restart()
            return f"the kubelet of {node.name} is killed and starts"
        case 1:
            await node.kubelet.restart(graceful=True)
            return f"the kubelet of {node.name} restarts"
    await node.kubelet.kill()
    return f"the kubelet of {node.name} is killed"


async def gateway(life: Life, node: FrontsNode) -> str:
    """One begins: the only one, or a second one, to which the first one hands over. Or one ends."""
    if not node.gateways or (len(node.gateways) == 1 and life.random.random() < 0.5):
        await node.start_gateway()
        return f"gateway {node.gateways[-1].pid} of {node.name} starts, beside {len(node.gateways) - 1}"
    one = life.random.choice(node.gateways)
    number = life.random.choice((signal.SIGKILL, signal.SIGTERM))
    life.ends += 1
    await node.end_gateway(one, number)
    return f"gateway {one.pid} of {node.name} ended by {number.name}, {len(node.gateways)} left"


async def server(life: Life, node: FrontsNode) -> str:
    if life.cluster.server.serving:
        await life.cluster.server.down()
        return "the API server is away"
    await life.cluster.server.up()
    return "the API server is back"


async def device(life: Life, node: FrontsNode) -> str:
    device = life.random.choice((*BOARDS, *CARDS))
    if node.ill.pop(device, None) is None:
        node.ill[device] = life.random.choice(("absent", "unhealthy"))
    node.suffer()
    return f"{device} of {node.name} is {node.ill.get(device, 'well again')}"


async def calm(life: Life, node: FrontsNode) -> str:
    return f"a calm moment, {'all is' if await life.calm() else 'not yet'} as it should be"


STEPS: Mapping[str, tuple[int, Step]] = {
    "create": (30, create),
    "delete": (12, delete),
    "force": (6, force),
    "front": (8, front),
    "kubelet": (5, kubelet),
    "gateway": (6, gateway),
    "server": (3, server),
    "device": (4, device),
    "calm": (2, calm),
}
"""How often each step is drawn, and what it is."""
