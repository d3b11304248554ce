"""A few short walks find nothing. ``python -m tools.walk`` walks for longer."""

import os

import pytest

from tests.scenarios.engines import REAL, Make
from tests.scenarios.walking.walk import Walk

SEEDS = 1, 2
"""DPGATEWAY_SEED is another one."""


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_walk_finds_nothing(make: Make, seed: int) -> None:
    said: list[str] = []
    walk = Walk(int(os.environ.get("DPGATEWAY_SEED", seed)), make, "1.37", said.append)
    walked = await walk.run(60 if REAL else 25, settles=False)
    print("\n".join(said))  # noqa: T201  pytest shows it when the walk failed
    assert not walked.violations, walked.told
    assert walked.counts["containers started"]
