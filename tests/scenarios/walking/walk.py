"""Random walks: lives of a node whose every step is drawn from a seed.

A life has its own seed, of which its steps and their order follow. What happens between two processes depends on the
machine, so a life that is walked again is much the same, and not exactly so.
"""

import asyncio
import collections
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from tests.scenarios.engines import Make
from tests.scenarios.walking.life import Life
from tests.scenarios.walking.oracle import Violation
from tests.scenarios.walking.plan import SHARE_IDS, Plan
from tests.scenarios.walking.steps import STEPS

ROOM = 0.6
"""How often a pod ends first when another one asks for what is all in use."""
STORM = 0.02
"""How often something else is disturbed while gateways or kubelet aren't back yet."""
MOST_NAMES = 4
"""Of one thing, that are asked for at once."""
MOST_BUSY = 20
"""Things that are done at the same time."""
PAUSES = 0.0, 0.0, 0.02, 0.05, 0.1, 0.2, 0.4
IMPOSSIBLE = 0.02
"""Seconds after which something else is tried, where a step can't be done just now."""
LAST = 60
"""Steps that are shown when something is wrong."""
SETTLED = 120.0
"""Seconds until everything is free that nobody has. A gateway that was killed just after an Allocate needs a minute."""


@dataclass
class Walked:
    """What became of a life."""

    seed: int
    steps: int = 0
    seconds: float = 0.0
    violations: list[Violation] = field(default_factory=list)
    counts: collections.Counter[str] = field(default_factory=collections.Counter)
    told: str = ""
    """What a person wants to see of the first violation."""


class Walk:
    """One life. `keep_going`: a violation ends its pods, and not the walk."""

    def __init__(
        self, seed: int, make: Make, release: str, say: Callable[[str], None], *, keep_going: bool = False
    ) -> None:
        self.random = Random(seed)  # noqa: S311  no secret, the same walk again
        self.walked = Walked(seed)
        self.keep_going = keep_going
        self.left_alone: tuple[str, ...] = ()
        """The slots that others ask for, while gateways change."""
        self._say = say
        self._began = time.monotonic()
        self._history: collections.deque[str] = collections.deque(maxlen=LAST)
        plan = Plan(
            pool=self.random.choice((2, 3, 8, 8, 8)),
            cards=self.random.choice((1, 2)),
            shared=self.random.choice((1, 2)),
            shares=self.random.randint(1, 3),
            share_ids=self.random.choice(SHARE_IDS),
            cdi=self.random.choice(("auto", "always")),
            seconds=self.random.choice((0.3, 0.8, 1.5)),
        )
        self.life = Life(make, release, self.random, plan, self.note, self.found, self.walked.counts)
        self.note(f"seed {seed}, kubelet {release}, {plan}")

    def note(self, text: str) -> None:
        line = f"{time.monotonic() - self._began:7.3f} {text}"
        self._history.append(line)
        self._say(line)

    def found(self, violation: Violation) -> None:
        self.note(f"VIOLATION {violation}")
        self.walked.violations.append(violation)
        if not self.walked.told:
            self.walked.told = self._state(violation)
        if not self.keep_going:
            return
        for name in violation.pods:
            self.life.spawn(f"end {name}", self.life.end_pod(name))

    def _state(self, violation: Violation) -> str:
        life = self.life
        lines = [f"{violation}", f"--- the last steps of seed {self.walked.seed}", *self._history]
        lines += ["--- pods", *(f"{name}: {grant}" for name, grant in life.oracle.grants.items())]
        lines += [f"--- hardware: {life.hardware.things}, sticks {life.hardware.sticks}"]
        for one in [*life.ended[-2:], *life.gateways]:
            lines += [f"--- {one}, {'running' if one.running else 'ended'}: {one.plan}", *one.log[-40:]]
        return "\n".join([*lines, "--- kubelet", life.kubelet.story()[-4000:]])

    @property
    def over(self) -> bool:
        return bool(self.walked.violations) and not self.keep_going

    async def run(self, steps: int, until: float = float("inf"), *, settles: bool = True) -> Walked:
        """So many steps, or until the monotonic clock says ``until``."""
        try:
            async with self.life as life:
                await life.start_gateway(life.plan)
                await life.serves()
                await self._walk(steps, until)
                if settles and not self.over:
                    self.note("everything ends")
                    await life.settle(SETTLED)
                self._read_logs()
        except Violation as violation:
            self.found(violation)
        self.walked.seconds = time.monotonic() - self._began
        return self.walked

    async def _walk(self, steps: int, until: float) -> None:
        names, weights = [*STEPS], [weight for weight, _ in STEPS.values()]
        while self.walked.steps < steps and time.monotonic() < until and not self.over:
            (name,) = self.random.choices(names, weights)
            did = await STEPS[name][1](self) if self.life.busy < MOST_BUSY else None
            if did is not None:
                self.walked.steps += 1
                self.note(f"step {self.walked.steps}: {did}")
            await asyncio.sleep(self.random.choice(PAUSES) if did is not None else IMPOSSIBLE)
            self.life.check()

    def _read_logs(self) -> None:
        for one in [*self.life.ended, *self.life.gateways]:
            for number, line in enumerate(one.log):
                if "Traceback" in line or "a bug:" in line:
                    text = "\n".join([f"{one} said", *one.log[number : number + 25]])
                    return self.found(Violation("no bug", text, []))
        return None

    # what steps have in common

    @property
    def undisturbed(self) -> bool:
        """Whether gateways and kubelet may be disturbed: mostly one thing after another."""
        return self.life.calm or self.random.random() < STORM

    def admit(self, resource: str, slot: str, *, wait: float = 0.0, later: float = 0.0) -> None:
        async def admission() -> None:
            await asyncio.sleep(wait)
            if self.life.full(slot) and self.random.random() < ROOM and (old := self.pod(slot.partition("-")[0])):
                await self.life.end_pod(old)
            await self.life.admit(resource, slot, later=later)

        self.life.spawn(f"admit for {resource}", admission())

    def pod(self, *slots: str) -> str | None:
        names = [
            name for name, pod in self.life.pods.items() if not pod.busy and (not slots or pod.slot.startswith(slots))
        ]
        return self.random.choice(names) if names else None

    def empty(self, slots: tuple[str, ...]) -> None:
        """Pods of these slots end."""
        names = [name for name, pod in self.life.pods.items() if not pod.busy and pod.slot in slots]
        for name in names:
            self.life.spawn(f"end {name}", self.life.end_pod(name))

    async def ask_for_one_thing(self, slots: tuple[str, ...], times: int, new: str = "") -> None:
        """Pods that ask at once, under names that may mean one thing; each time it is free before. ``new``: a name that
        is always among them, if it is known.
        """
        for _ in range(times):
            self.empty(slots)
            await self.life.are_free(slots, self.random.choice((0.3, 1.5, 1.5)))
            names = [(name, slot) for name, slot in self.life.names() if slot in slots]
            some = self.random.sample(names, min(MOST_NAMES, len(names)))
            some = [*(one for one in names if one[0] == new), *(one for one in some if one[0] != new)][:MOST_NAMES]
            self.random.shuffle(some)
            asked = [self._ask(name, slot, self.random.choice((0.0, 0.0, 0.05, 0.2))) for name, slot in some]
            await asyncio.gather(*asked)

    async def _ask(self, name: str, slot: str, wait: float) -> None:
        await asyncio.sleep(wait)
        await self.life.admit(name, slot)
