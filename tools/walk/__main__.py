"""Walks at random over a node of two gateways, whose pods must never share hardware that isn't shared.

``python -m tools.walk`` (as root) does something to real gateways, to a kubelet and to hardware some times a second,
and looks at what each container gets: tests/scenarios/walking says what must hold. The kubelet is a simulated one
(``simulated``, ``simulated:1.31``), or a real device manager (``1.37``), once ``python -m tests.real_kubelet.build``
has made it. Each life of some hundred steps has a seed of its own, the next number; ``--seed N --lives 1`` walks one
again. On a violation the last steps, the state and the ends of the logs are printed, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import sys
import time

from tests.scenarios.engines import Make, Real, Simulated
from tests.scenarios.walking.oracle import Violation
from tests.scenarios.walking.walk import Walk, Walked

NEWEST = "1.37"
SETTLES = 4
"""One life in this many is watched until everything is free again, which may take more than a minute."""


def engine(text: str) -> tuple[Make, str]:
    name, _, release = text.partition(":")
    return (Simulated, release or NEWEST) if name == "simulated" else (Real, text)


async def walk(words: argparse.Namespace) -> list[Walked]:
    make, release = engine(words.kubelet)
    lives: list[Walked] = []
    end = time.monotonic() + 60 * words.minutes
    while time.monotonic() < end and (not words.lives or len(lives) < words.lives):
        seed = words.seed + len(lives)
        say = print_now if words.verbose else (lambda _: None)
        one = Walk(seed, make, release, say, keep_going=words.keep_going)
        lives.append(await one.run(words.steps, end, settles=seed % SETTLES == 0))
        print_now(summary(lives[-1]))
        for violation in lives[-1].violations:
            print_now(f"VIOLATION {violation}")
        if lives[-1].told and not words.brief:
            print_now(lives[-1].told)
        if lives[-1].violations and not words.keep_going:
            break
    return lives


def print_now(text: str) -> None:
    print(text, flush=True)


def summary(one: Walked) -> str:
    counts = ", ".join(f"{name} {count}" for name, count in sorted(one.counts.items()))
    pace = one.steps / one.seconds if one.seconds else 0
    return f"seed {one.seed}: {one.steps} steps, {pace:.1f} a second, {len(one.violations)} violations; {counts}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of the first life; each one after it has the next number")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--lives", type=int, default=0, help="at most so many; 0: as many as there is time for")
    parser.add_argument("--steps", type=int, default=200, help="of each life")
    parser.add_argument("--kubelet", default="simulated", help="simulated, simulated:1.31, or a real one: 1.37")
    parser.add_argument("--keep-going", action="store_true", help="a violation ends its pods, and not the walk")
    parser.add_argument("--verbose", action="store_true", help="print each step when it is done")
    parser.add_argument("--brief", action="store_true", help="print violations alone, not steps, state and logs")
    words = parser.parse_args()
    began = time.monotonic()
    lives = asyncio.run(walk(words))
    violations: list[Violation] = [one for life in lives for one in life.violations]
    steps, seconds = sum(life.steps for life in lives), time.monotonic() - began
    total = collections.Counter(one.rule for one in violations)
    rules = "; ".join(f"{rule}: {count}" for rule, count in total.items()) or "none"
    print_now(f"{steps} steps in {seconds / 60:.1f} min, {steps / seconds:.1f} a second; violations: {rules}")
    sys.exit(1 if violations else 0)


if __name__ == "__main__":
    main()
