"""Random lives of a cluster whose resources are offered by the device plugin or by DRA: its steps, and what must hold.

Each life has a seed, of which its steps and their order follow. What happens between processes depends on the machine,
so a life that is lived again is much the same, and not exactly so. After each event of a kubelet this must hold:

- no device is in more running pods than it has shares, whichever name or front it was given by;
- a pod that runs has all its devices.

And whenever all is calm again: every deleted pod has ended, and what no pod has is offered.
"""

import asyncio
import shutil
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
VERSIONS = "1.34", "1.36", "1.37"
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
        self.wanted: dict[str, Mapping[str, int]] = {}
        """What each pod asks for, by name."""
        self.violations: list[str] = []
        self.told: list[str] = []
        self.counts: Counter[str] = Counter()
        self.unlucky: set[str] = set()
        """Pods that the scheduler sent for a claim, just before a downgrade, to a kubelet that knows nothing of such
        claims: it runs them without devices.
        """
        self._pods = self._agents = 0

    def _node(self, root: Path, name: str, version: str) -> FrontsNode:
        front = "auto" if self.auto else self.random.choice(FRONTS)
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
        if node.steady:
            self._check_offers(node)
        for device, count in node.used().items():
            if count > (SHARES if device in CARDS else 1):
                having = {pod: dict(found) for pod, found in node.has() if device in found}
                self.violated(f"{device} of {node.name} is in {count} running pods: {having}")
        for pod, found in node.has():
            if not found and self.by_claim(pod) and node.kubelet.behaviour.dra != "extended":
                self.unlucky.add(pod)
            if not found and pod in self.unlucky:
                continue
            boards = sum(self.wanted.get(pod, {}).get(name, 0) for name in (BOARD, ALIAS))
            cards = self.wanted.get(pod, {}).get(CARD, 0)
            if sum(found[one] for one in BOARDS) != boards or bool(cards) != any(found[one] for one in CARDS):
                self.violated(f"{pod} on {node.name} runs with {dict(found)}, and asked for {self.wanted.get(pod)}")

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
            await self.cluster.run(f"{AGENT}-{node.name}-0", {"c": {}}, node=node.name)
            await node.start_gateway()
        self.note(f"seed {self.seed}: " + ", ".join(f"{n.name} {n.kubelet.version} {n.fronts}" for n in self.nodes))

    def make_class(self, name: str) -> None:
        self.cluster.device_class(name.partition("/")[2], DRIVER, resource=name, attributes={"resource": name})

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
                if not before or pod not in node.kubelet.pods:  # a kubelet that has just started admits them one by one
                    continue
                if self.by_claim(pod) and node.kubelet.behaviour.dra != "extended":
                    continue
                reply = await node.kubelet.start_container(pod, "c")
                if not reply["ok"] or dict(node.has()).get(pod, before) != before:
                    self.violated(f"{pod} of {node.name} had {dict(before)}, and starts again: {reply}")
        self.right()

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
            self.counts["longer"] += 1
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
                offered = node.offered(resource)
                for device in DEVICES[resource]:
                    most = 0 if node.unfit(resource) else (SHARES if device in CARDS else 1) - used[device]
                    # A share on the other front may cost the whole card.
                    least = most if not used[device] else 0
                    if not least <= offered[device] <= most:
                        text = f"{resource} of {node.name}: {device} is offered {offered[device]} times"
                        found.append(f"{text}, expected {least} to {most}")
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
    if life.auto:
        if life.random.random() < 0.7:
            return ""
        front, names = life.random.choice((*FRONTS, "auto", "auto")), NAMES
        node.steady = False
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


async def pause(life: Life, node: FrontsNode) -> str:
    if not node.gateways:
        return ""
    one, seconds = life.random.choice(node.gateways), life.random.choice((0.2, 0.6))
    one.process.send_signal(signal.SIGSTOP)
    await asyncio.sleep(seconds)
    one.process.send_signal(signal.SIGCONT)
    return f"gateway {one.pid} of {node.name} was stopped for {seconds:g} s"


async def upgrade(life: Life, node: FrontsNode) -> str:
    """Or a downgrade."""
    life.ends += 1
    version = life.random.choice([it for it in VERSIONS if it != node.kubelet.version])
    await node.kubelet.upgrade(version)
    return f"the kubelet of {node.name} is {version} now"


async def classes(life: Life, node: FrontsNode) -> str:
    """A DeviceClass goes, or comes back."""
    if not life.auto:
        return ""
    name = life.random.choice(NAMES)
    if not life.has_class(name):
        life.make_class(name)
        return f"there is a class for {name}"
    life.cluster.server.store.delete(("deviceclasses", "", name.partition("/")[2]))
    return f"there is no class for {name}"


async def forget(life: Life, node: FrontsNode) -> str:
    """Who ends the claims of its pods? The gateway, after a minute."""
    if not life.patient:
        return ""
    life.ends += 1
    await node.kubelet.kill()
    (node.root / "dra_manager_state").unlink(missing_ok=True)
    await node.kubelet.start()
    return f"the kubelet of {node.name} has forgotten its claims"


async def lose(life: Life, node: FrontsNode) -> str:
    """An older kubelet can't say which claims there are, so there nobody would notice."""
    if not life.patient or node.kubelet.behaviour.dra != "extended" or not node.kubelet.running:
        return ""
    life.ends += 1
    for one in list(node.gateways):
        await node.end_gateway(one, signal.SIGKILL)
    shutil.rmtree(node.root / "state", ignore_errors=True)
    await node.start_gateway()
    return f"the state directory of {node.name} is lost"


async def restart(life: Life, node: FrontsNode) -> str:
    """A container starts again, and gets what it had, or nothing."""
    names = [pod for pod, _ in node.has() if pod in life.wanted and life.cluster.phase(pod) == "Running"]
    if not names or not node.kubelet.running:
        return ""
    pod = life.random.choice(names)
    if life.by_claim(pod) and node.kubelet.behaviour.dra != "extended":
        return ""
    before = dict(node.has())[pod]
    reply = await node.kubelet.start_container(pod, "c")
    if reply["ok"] and dict(node.has()).get(pod, before) != before:
        life.violated(f"{pod} had {dict(before)}, and has {dict(dict(node.has())[pod])} after its restart")
    return f"{pod} starts again: {reply.get('error', 'as before')}"


async def server(life: Life, node: FrontsNode) -> str:
    if not life.cluster.server.serving:
        await life.server_answers()
        return "the API server is back"
    if life.random.random() < 0.3:
        life.cluster.server.hang()
        return "the API server hangs"
    await life.cluster.server.down()
    return "the API server is away"


async def driver(life: Life, node: FrontsNode) -> str:
    """Its calls take long, or fail, or are quick again."""
    node.slow = None
    if life.random.random() < 0.6:
        faults: list[dict[str, object]] = [{"delay": "300ms"}, {"error": "it is in a bad mood"}, {"busy": True}]
        node.slow = {"call": life.random.choice(("allocate", "prepare"))} | life.random.choice(faults)
    node.suffer()
    return f"the drivers of {node.name}: {node.slow or 'as ever'}"


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
    "front": (11, front),
    "kubelet": (5, kubelet),
    "gateway": (6, gateway),
    "pause": (2, pause),
    "upgrade": (3, upgrade),
    "classes": (4, classes),
    "forget": (1, forget),
    "lose": (1, lose),
    "restart": (5, restart),
    "server": (3, server),
    "driver": (3, driver),
    "device": (4, device),
    "calm": (2, calm),
}
"""How often each step is drawn, and what it is."""
