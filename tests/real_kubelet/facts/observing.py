"""Runs facts, many at once, each on a kubelet of its own."""

import asyncio
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.real_kubelet.facts import FACTS, Case
from tests.scenarios.engines import Make, Real, Simulated

ENGINES: dict[str, Make] = {"real": Real, "simulated": Simulated}
AT_ONCE = 4  # processes that start; most of the time they wait for each other
PATIENT = {"nobody_serves", "long_name"}  # these wait for the kubelet's 10 seconds, beside all others
Key = tuple[str, str, str]  # engine, release, fact


async def observe_all(keys: Iterable[Key], at_once: int = AT_ONCE) -> dict[Key, str]:
    """What each fact is; where it can't be told, the error in its stead, so that the others still can."""
    turn = asyncio.Semaphore(at_once)

    async def one(key: Key) -> str:
        if key[2] in PATIENT:
            return await observe(*key)
        async with turn:
            return await observe(*key)

    keys = list(keys)
    return dict(zip(keys, await asyncio.gather(*map(one, keys)), strict=True))


async def observe(engine: str, release: str, fact: str) -> str:
    with tempfile.TemporaryDirectory(prefix="fact-") as folder:
        case = Case(ENGINES[engine], release, Path(folder))
        try:
            async with asyncio.timeout(60):
                return await FACTS[fact](case)
        except Exception as error:  # whatever it is, it is shown in the fact's place
            return f"can't be told: {type(error).__name__}: {error}"
        finally:
            await case.close()
