"""Random lives of both fronts (`fronts_walk`).

`DPGATEWAY_SEED=n` lives one again, `DPGATEWAY_SEQUENCES` says how many there are from this one on, `DPGATEWAY_STEPS`
how long they are.
In every other life the gateways choose the front by themselves.

With `DPGATEWAY_PATIENT=1` everything has to be offered again, also what takes some minutes because a kubelet or a
gateway was killed.
"""

import os

import pytest

from dpgateway_simulator.cluster import SimulatedCluster
from tests.end_to_end.fronts_figures import Figures
from tests.end_to_end.fronts_steps import live
from tests.end_to_end.fronts_walk import Life

SEED = int(os.environ.get("DPGATEWAY_SEED", "0"))
COUNT = int(os.environ.get("DPGATEWAY_SEQUENCES", "1" if SEED else "2"))
STEPS, PATIENT = int(os.environ.get("DPGATEWAY_STEPS", "8")), bool(os.environ.get("DPGATEWAY_PATIENT"))

ALL = Figures()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(SEED, SEED + COUNT))
async def test_random_life(seed, short_path):
    versions = ("1.37", "1.34") if seed % 4 in {0, 3} else ("1.37",)
    async with SimulatedCluster() as cluster:
        life = Life(cluster, short_path, seed, versions, auto=bool(seed % 2))
        life.patient = PATIENT
        try:
            await live(life, STEPS)
        except BaseException as error:
            error.add_note(life.story())
            raise
        finally:
            for node in life.nodes:
                await node.close()
    ALL.add(life.figures)
    print(f"\nseed {seed}, {'auto' if life.auto else 'reloads'}: {life.figures}\nall lives so far: {ALL}")  # noqa: T201  of what it was made
    for node in life.nodes:
        for gateway in (*node.ended, *node.gateways):
            bugs = [n for n, line in enumerate(gateway.log) if "Traceback" in line or "a bug:" in line]
            assert not bugs, "\n".join(gateway.log[max(0, bugs[0] - 5) : bugs[0] + 60])
