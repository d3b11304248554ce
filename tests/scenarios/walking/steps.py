"""The steps of a walk: each does something, or begins something that goes on beside the next steps.

They are weighted so that things coincide: both halves of a pool are asked at once while it is handed over; who asks
comes while what was free is being released; shares go while they are held; a container starts again after its stick
has changed places with another one.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from tests.scenarios.walking.node import WalkingGateway

if TYPE_CHECKING:
    from tests.scenarios.walking.walk import Walk

Step = Callable[["Walk"], Awaitable[str | None]]
"""One step; what it did, or None if it couldn't be done."""


async def admit(walk: Walk) -> str | None:
    names = walk.life.names()
    if not names:
        return None
    # as often as others: what is one among many cards
    slot = walk.random.choice(("card", "card", "stick", "shared", "shared", "slow"))
    chosen = [one for one in names if one[1].startswith(slot)]
    if not chosen or chosen[0][1] in walk.left_alone:
        return None
    name, of = walk.random.choice(chosen)
    later = walk.random.choice((0.0, 0.0, 0.0, 0.0, 0.3, 1.0))
    walk.admit(name, of, later=later)
    return f"a pod asks for {name}{f', starts {later:g} s later' if later else ''}"


async def end_pod(walk: Walk) -> str | None:
    if (name := walk.pod()) is None:
        return None
    walk.life.spawn(f"end {name}", walk.life.end_pod(name, cleaned=walk.random.choice((0.0, 0.0, 0.3, 1.0))))
    return f"{name} ends"


async def follow(walk: Walk) -> str | None:
    """A pod ends, and at once another one asks for what it had."""
    if (name := walk.pod(*(("slow",) if walk.random.random() < 0.7 else ()))) is None:
        return None
    pod = walk.life.pods[name]
    later = walk.random.choice((0.1, 0.3, 0.6))

    async def following() -> None:
        await walk.life.end_pod(name)
        for _ in range(3):
            await asyncio.sleep(later)
            if await walk.life.admit(pod.resource, pod.slot) is not None:
                return

    walk.life.spawn(f"follow {name}", following())
    return f"{name} ends, {later:g} s later another pod asks for {pod.resource}"


async def restart_container(walk: Walk) -> str | None:
    if (name := walk.pod()) is None:
        return None
    walk.life.spawn(f"restart {name}", walk.life.start(name))
    return f"the container of {name} restarts"


async def exchange(walk: Walk) -> str | None:
    """Hardware comes back in another order, and containers that have it start again once that was noticed."""
    if walk.random.random() < 0.7 or "card-0" in walk.left_alone:
        what, change = "sticks", walk.life.exchange_sticks
        slots: tuple[str, ...] = ("stick",)
    else:
        what, change, slots = "cards", walk.life.swap_cards, walk.life.plan.pooled
    seconds = walk.random.choice((0.0, 2.7, 2.7, 2.7))

    async def exchanging() -> None:
        await walk.life.hotplug(change)
        await asyncio.sleep(seconds)
        for name in [name for name, pod in walk.life.pods.items() if pod.slot in slots]:
            await walk.life.start(name)
        for name, slot in walk.life.names():
            if slot in slots[:2]:
                await walk.life.admit(name, slot)

    walk.life.spawn("exchange", exchanging())
    return f"{what} change places, their containers restart {seconds:g} s later"


async def move_stick(walk: Walk) -> str | None:
    walk.life.spawn("move", walk.life.hotplug(walk.life.move_stick))
    return "a stick comes or goes"


async def reload(walk: Walk) -> str | None:
    if (one := walk.life.newest) is None or not one.running or not one.heard or not walk.undisturbed:
        return None
    what, plan = one.plan.changed(walk.random)
    walk.life.reload(one, plan)
    if walk.random.random() < 0.3:
        for other in walk.life.gateways[:-1]:
            if other.running and other.heard:
                walk.life.reload(other, plan)
    if "renamed" in what:
        slot = what.partition(" ")[0]
        for _ in range(2):
            walk.admit(plan.name(slot), slot, wait=walk.random.choice((0.3, 0.6, 1.0)))
    return f"{one} reads another configuration: {what}"


async def reshare(walk: Walk) -> str | None:
    """Shares change while some are held; then one comes free, and others ask."""
    one = walk.life.newest
    if one is None or not one.running or not one.heard or not walk.undisturbed:
        return None
    before = one.plan
    plan = before.reshared(walk.random)

    async def resharing() -> None:
        for _ in range(walk.random.randint(0, before.shares * before.shared)):
            await walk.life.admit(before.name("shared"), "shared")
        if walk.life.newest is not one or not one.running:
            return
        walk.life.reload(one, plan)
        await asyncio.sleep(walk.random.choice((0.0, 0.5, 1.0)))
        for _ in range(3):
            if walk.random.random() < 0.5 and (old := walk.pod("shared")) is not None:
                await walk.life.end_pod(old)
                await asyncio.sleep(walk.random.choice((0.0, 0.5)))
            await walk.life.admit(plan.name("shared"), "shared")

    walk.life.spawn("reshare", resharing())
    return f"{one} has shares {before.shares} -> {plan.shares}, ids {before.share_ids} -> {plan.share_ids}"


async def handover(walk: Walk) -> str | None:
    """A newer gateway comes, and pairs of pods ask for one thing meanwhile: while Registers are slow, which tears a
    pool if anything does; under a name that only one of the two has; or with anything else in the configuration.
    """
    life, random = walk.life, walk.random
    if not walk.undisturbed or len(life.gateways) > 2:
        return None
    what, plan, name = "the same configuration", life.plan, ""
    slots, slow, stays = plan.pooled, random.choice((0.0, 0.1)), random.choice((0.0, 0.5, 3.0, 6.0))
    match random.choice(("slow", "slow", "slow", "renamed", "renamed", "any")):
        case "slow":
            slow, stays = random.choice((0.3, 0.5)), random.choice((3.0, 6.0, 6.0))
        case "renamed":
            slots = random.choice((plan.pooled, plan.pooled, ("stick",), ("shared",), ("slow",)))
            slot = random.choice(slots)
            plan = plan.rename(slot)
            what, name = f"{slot} renamed", plan.name(slot)
        case _:
            slots = random.choice((plan.pooled, ("stick",), ("shared",), ("slow",)))
            what, plan = plan.changed(random)
    number = random.choice((signal.SIGTERM, signal.SIGTERM, signal.SIGTERM, signal.SIGKILL))
    before = list(life.gateways)

    async def handing() -> None:
        walk.left_alone = slots
        life.slow_down(slow)
        life.counts["handovers"] += 1
        new = await life.start_gateway(plan)
        walk.empty(slots)
        await _until_first(new)
        life.spawn("ask for one thing", walk.ask_for_one_thing(slots, 7, name))
        await asyncio.sleep(stays)
        for one in before:
            await life.end_gateway(one, number)
        life.slow_down(0)
        walk.left_alone = ()
        walk.note(f"the gateways before {new} have ended")

    walk.life.spawn("handover", handing())
    how = f"a Register takes {slow:g} s, the older one has {number.name} after {stays:g} s"
    return f"a newer gateway starts with {what}; {how}"


async def _until_first(new: WalkingGateway) -> None:
    """Until it has registered something, or won't soon."""
    with contextlib.suppress(AssertionError):
        await new.said(" registered resource=", seconds=5)


async def both(walk: Walk) -> str | None:
    """Two names of one thing at once."""
    slots = walk.random.choice((walk.life.plan.pooled, walk.life.plan.pooled, ("stick",), ("shared",)))
    if slots[0] in walk.left_alone:
        return None
    walk.life.spawn("ask for one thing", walk.ask_for_one_thing(slots, 1))
    return f"two pods ask at once among {', '.join(slots)}"


def _other(walk: Walk) -> WalkingGateway | None:
    running = [one for one in walk.life.gateways if one.running and not one.stopped]
    return walk.random.choice(running) if running else None


async def end_gateway(walk: Walk) -> str | None:
    if (one := _other(walk)) is None or not walk.undisturbed:
        return None
    number = walk.random.choice((signal.SIGKILL, signal.SIGTERM))
    alone = len(walk.life.gateways) == 1
    away = walk.random.choice((0.0, 0.3, 1.0))

    async def ending() -> None:
        await walk.life.end_gateway(one, number)
        if alone:
            await asyncio.sleep(away)
            if not walk.life.gateways:
                plan = walk.life.plan.changed(walk.random)[1] if walk.random.random() < 0.3 else walk.life.plan
                await walk.life.start_gateway(plan)

    walk.life.spawn(f"end {one}", ending())
    return f"{one} has {number.name}" + (f", another one comes {away:g} s later" if alone else "")


async def pause_gateway(walk: Walk) -> str | None:
    if (one := _other(walk)) is None:
        return None
    seconds = walk.random.choice((0.1, 0.5, 1.2))
    walk.life.spawn(f"pause {one}", walk.life.pause(one, seconds))
    return f"{one} is stopped for {seconds:g} s"


async def revive(walk: Walk) -> str | None:
    if any(one.running for one in walk.life.gateways) or walk.life.busy:
        return None
    await walk.life.start_gateway(walk.life.plan)
    return "a gateway starts"


async def restart_kubelet(walk: Walk) -> str | None:
    if walk.life.restarting or not walk.undisturbed:
        return None
    graceful, pods_first = walk.random.random() < 0.5, walk.random.random() < 0.3
    walk.life.spawn("restart the kubelet", walk.life.restart_kubelet(graceful=graceful, pods_first=pods_first))
    return f"the kubelet {'restarts' if graceful else 'is killed and starts'}{', pods first' if pods_first else ''}"


STEPS: dict[str, tuple[int, Step]] = {
    "admit": (22, admit),
    "end pod": (9, end_pod),
    "follow": (7, follow),
    "restart container": (8, restart_container),
    "exchange": (5, exchange),
    "move stick": (2, move_stick),
    "reload": (6, reload),
    "reshare": (4, reshare),
    "handover": (20, handover),
    "both": (6, both),
    "end gateway": (2, end_gateway),
    "pause gateway": (2, pause_gateway),
    "revive": (3, revive),
    "restart kubelet": (1, restart_kubelet),
}
"""How often each step is drawn, and what it is."""
