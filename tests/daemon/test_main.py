"""The gateway's companions: what the log says of one that can't do its work."""

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.inside import Inside
from tests.support.time import hurry
from tests.support.waiting import until

CANNOT = "`dpgateway status` can't ask this gateway: "


@pytest.fixture
async def gateway(short_path: Path) -> AsyncIterator[Inside]:
    running = Inside(short_path / "device-plugins")
    running.control = short_path / "run" / "control.sock"
    running.control.parent.mkdir()
    yield running
    await running.close()


async def test_a_control_socket_that_fails_for_hours_is_one_line(
    gateway: Inside, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dpgateway")
    path = gateway.control
    assert path is not None
    hurry(100)

    def said() -> list[str]:
        return [line for line in caplog.messages if line.startswith("`dpgateway status` can")]

    async def retried() -> None:
        """Lets the pauses of half a dozen retries pass."""
        end = asyncio.get_running_loop().time() + 100
        await until(lambda: asyncio.get_running_loop().time() > end)

    # Two faults, one after the other: each is a line, however often it is tried again.
    path.parent.chmod(0o777)
    gateway.serve()
    await until(said)
    await retried()
    path.write_text("somebody's")
    path.parent.chmod(0o700)
    no_socket = f"{CANNOT}{path}: found a file that is no socket, expected a gateway's socket, or nothing"
    await until(lambda: no_socket in said())
    await retried()
    first, *others = said()
    assert first.startswith(f"{CANNOT}{path}: ")
    assert others == [no_socket]

    # Once it is over that is a line, and the same fault is one again.
    path.unlink()
    await until(lambda: said()[2:])
    path.parent.chmod(0o777)
    await until(lambda: said()[3:])
    assert said()[2:] == ["`dpgateway status` can ask this gateway again", first]
