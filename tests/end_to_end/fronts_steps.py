"""The steps of random lives of both fronts (`fronts_walk`), and how often each is drawn."""

import asyncio
import shutil
import signal
from collections.abc import Awaitable, Callable, Mapping

from dpgateway_simulator.cluster.scheduler import NAMESPACE
from tests.end_to_end.fronts_node import ALIAS, BOARD, BOARDS, CARD, CARDS, NAMES, SLOT, FrontsNode, text
from tests.end_to_end.fronts_walk import Life, Wanted

FRONTS = "deviceplugin", "dra"
VERSIONS = "1.34", "1.36", "1.37"
PAUSES = 0.0, 0.0, 0.02, 0.05, 0.1, 0.3, 1.0
LONG_PAUSES = *PAUSES, 2.0, 4.0
"""Of lives with `front: auto`, which waits some seconds for everything."""
MOST_PODS, MOST_CLAIMS = 8, 2
BACK = 30
"""The weight of a step that brings back what is away: a life without it shows little."""

Step = Callable[[Life, FrontsNode], Awaitable[str]]
"""Does it, and returns what it did; empty if it makes no sense now."""


async def live(life: Life, steps: int) -> None:
    """So many steps, then the end: all pods are deleted, and every device can be had again."""
    await life.begin()
    done = 0
    while done < steps:
        node = life.random.choice(life.nodes)
        away = {"server": not life.cluster.server.serving, "kubelet": not node.kubelet.running}
        away |= {"gateway": not node.gateways}
        weights = [BACK if away.get(name) else weight for name, (weight, _) in STEPS.items()]
        (name,) = life.random.choices([*STEPS], weights)
        told = await STEPS[name][1](life, node)
        if told:
            done += 1
            life.figures.counts[f"step {name}"] += 1
            life.note(f"step {done}: {told}")
            await life.passes(life.random.choice(LONG_PAUSES if life.auto else PAUSES))
        life.right()
    await life.end()


async def create(life: Life, node: FrontsNode) -> str:
    if len(life.live_pods()) >= MOST_PODS:
        return ""
    choices = [
        Wanted({BOARD: 1}),
        Wanted({ALIAS: 1}),
        Wanted({CARD: 1}),
        Wanted({SLOT: 1}),
        Wanted({BOARD: 2}),
        Wanted({BOARD: 1, ALIAS: 1}),
        Wanted({ALIAS: 1, CARD: 1}),
        Wanted({CARD: 1, SLOT: 1}),
        Wanted({BOARD: 1}, init={BOARD: 1}),
        Wanted({BOARD: 1}, init={BOARD: 2}),
        Wanted({ALIAS: 1}, init={BOARD: 1}),
    ]
    choices += [Wanted({one.resource: 1}, claim=name) for name, one in life.claims.items() if one.node == node.name]
    weights = [4, 4, 4, 3, 1, 1, 1, 1, 1, 1, 1, *(3 for _ in life.claims)]
    wanted = life.random.choices(choices, weights[: len(choices)])[0]
    return f"{life.create(node, wanted)} is created for {wanted}"


async def claim(life: Life, node: FrontsNode) -> str:
    """Somebody writes a claim, or deletes one that nobody uses."""
    for name in [it for it in life.claims if not life.users(it)]:
        if life.random.random() < 0.5:
            del life.claims[name]
            life.cluster.server.store.delete(("resourceclaims", NAMESPACE, name))
            return f"claim {name} is deleted"
    if len(life.claims) >= MOST_CLAIMS:
        return ""
    resource = life.random.choice(NAMES)
    return f"{life.write_claim(node, resource)} is written, for {resource} of {node.name}"


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
    pools: list[tuple[str, ...]] = [(BOARD, ALIAS), (CARD, SLOT), NAMES, (BOARD,)]
    front, names = life.random.choice(FRONTS), life.random.choice(pools)
    if life.auto:
        if life.random.random() < 0.5:
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
        if hour := not node.gateways and life.random.random() < 0.7:
            node.an_hour_passes()
        await node.start_gateway()
        text = f"gateway {node.gateways[-1].pid} of {node.name} starts, beside {len(node.gateways) - 1}"
        return f"{text}{', an hour later' if hour else ''}"
    one = life.random.choice(node.gateways)
    number = life.random.choice((signal.SIGKILL, signal.SIGTERM))
    life.ends += 1
    life.figures.counts["gateways killed"] += number is signal.SIGKILL
    await node.end_gateway(one, number)
    return f"gateway {one.pid} of {node.name} ended by {number.name}, {len(node.gateways)} left"


async def roll(life: Life, node: FrontsNode) -> str:
    """A rolling update, in whatever state the node is: the newer one takes over, or is killed on the way."""
    if len(node.gateways) != 1:
        return ""
    await node.start_gateway()
    old, new = node.gateways
    await asyncio.sleep(seconds := life.random.choice((0.1, 0.5, 1.0, 2.0, 4.0)))
    ways = (old, signal.SIGTERM), (old, signal.SIGTERM), (old, signal.SIGKILL), (new, signal.SIGKILL)
    one, number = life.random.choice(ways)
    life.ends += 1
    life.figures.counts["gateways killed"] += number is signal.SIGKILL
    await node.end_gateway(one, number)
    return f"gateway {new.pid} of {node.name} starts, and after {seconds:g} s {one.pid} is ended by {number.name}"


async def reboot(life: Life, node: FrontsNode) -> str:
    """The gateway or the kubelet is first."""
    life.ends += 1
    for one in list(node.gateways):
        await node.end_gateway(one, signal.SIGKILL)
    await node.reboot()
    await node.start_gateway()
    return f"{node.name} reboots"


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
    if reply["ok"] and (now := dict(node.has()).get(pod, before)) != before:
        life.violated(f"{pod} had {text(before)}, and has {text(now)} after its restart")
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


async def settle(life: Life, node: FrontsNode) -> str:
    """The machine may be slow: what was begun gets its time."""
    if not (life.cluster.server.serving and node.kubelet.running and node.gateways):
        return ""
    await life.settled()
    return "what no pod has is offered" if not life.missing() else "something isn't offered for long"


async def calm(life: Life, node: FrontsNode) -> str:
    return f"a calm moment, {'all is' if await life.calm() else 'not yet'} as it should be"


STEPS: Mapping[str, tuple[int, Step]] = {
    "create": (30, create),
    "delete": (12, delete),
    "force": (6, force),
    "claim": (4, claim),
    "front": (11, front),
    "kubelet": (5, kubelet),
    "gateway": (6, gateway),
    "roll": (3, roll),
    "reboot": (2, reboot),
    "pause": (2, pause),
    "upgrade": (3, upgrade),
    "classes": (4, classes),
    "forget": (1, forget),
    "lose": (1, lose),
    "restart": (5, restart),
    "server": (3, server),
    "driver": (3, driver),
    "device": (4, device),
    "settle": (5, settle),
    "calm": (2, calm),
}
"""How often each step is drawn, and what it is."""
