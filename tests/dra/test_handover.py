"""Two gateways with one driver: the newer one asks for its lock, and serves."""

from __future__ import annotations

import asyncio
from pathlib import Path

from dpgateway.dra.handover import DriverHandover
from dpgateway.resource.ownership import Ownership
from tests.support.logs import Records
from tests.support.time import skip

DRIVER = "dra.example.com"


async def warm() -> None:
    """It could serve at once."""


async def test_calls_are_passed_on_however_long_the_newer_gateway_takes_to_serve(short_path: Path) -> None:
    """It may have to wait for its disk, and nobody else can serve meanwhile: it has the lock."""
    locks = [Ownership(short_path, DRIVER) for _ in range(2)]
    older, newer = (DriverHandover(lock, warm, Records().bound()) for lock in locks)
    await locks[0].acquire()
    older.listen()
    taking = asyncio.create_task(locks[1].acquire(newer.ask))
    await older.asked.wait()
    older.give()
    await taking
    passed = asyncio.Queue[Path]()
    passing = asyncio.create_task(older.pass_on(passed.put_nowait, short_path))

    await asyncio.sleep(0)
    skip(3600)
    await asyncio.sleep(0.001)
    newer.serves(short_path / "dra-1.sock")
    assert await passed.get() == short_path / "dra-1.sock"
    newer.close()
    await asyncio.wait({passing})
    assert isinstance(passing.exception(), OSError)
    older.close()
    for lock in locks:
        lock.end()
