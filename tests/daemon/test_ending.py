"""How long a gateway lingers that is told to end. tests/scenarios/test_linger.py does it with the process."""

import asyncio
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dpgateway.daemon.ending import UNASKED, UNSEEN, Ending, Patience, linger
from dpgateway.kit.observable import Signal
from tests.support.time import advance, in_virtual_time

MINUTES = 180.0
A, B = "example.com/a", "example.com/b"


class Lingers:
    """What lingering sees of a gateway, and when it ended."""

    def __init__(self, tmp_path: Path, followed: bool | None = True) -> None:
        self.ours: tuple[str, ...] = (A, B)
        self.changed, self.last = Signal(), tmp_path / "last"
        self.sign, self.others = followed, self
        self.given = False
        self.told: list[float] = []
        self.overview = SimpleNamespace(linger=self.told.append)
        self.seconds: float | None = None
        self.ending = Ending()
        self.ending.tell()

    def say_ending(self, own: str) -> None:
        pass

    def followed(self, own: str) -> bool | None:
        return self.sign

    async def run(self, patience: Patience = Patience(MINUTES)) -> None:  # noqa: B008  it is frozen
        """For how many seconds."""
        gateway: Any = self
        clock = asyncio.get_running_loop().time
        began = clock()
        await linger(gateway, patience, self.ending.at_once)
        self.seconds = clock() - began


@pytest.fixture
def told(caplog):
    caplog.set_level(logging.INFO, "dpgateway")
    return lambda: caplog.messages[-1]


@in_virtual_time
async def test_without_patience_or_a_resource_it_ends_at_once(tmp_path):
    nothing = Lingers(tmp_path)
    await nothing.run(Patience())
    nothing.ours = ()
    await nothing.run()
    assert (nothing.seconds, nothing.told) == (0, [])


@pytest.mark.parametrize("followed", [True, None])
@in_virtual_time
async def test_it_waits_for_all_of_its_time_if_another_may_come(tmp_path, told, followed):
    one = Lingers(tmp_path, followed)
    await one.run()
    assert one.seconds == pytest.approx(MINUTES, abs=0.1)
    assert told() == f"ending, though no gateway has taken over {A}, {B}: the time is over"


@in_virtual_time
async def test_it_ends_when_the_last_resource_is_another_gateways(tmp_path, told):
    one = Lingers(tmp_path)
    running = asyncio.create_task(one.run())
    await advance(20)
    one.ours = (B,)
    one.changed.notify()
    await advance(20)
    assert one.seconds is None
    one.ours = ()
    one.changed.notify()
    await running
    assert one.seconds == 40
    assert told() == "ending: other gateways have taken over every resource"


@in_virtual_time
async def test_it_ends_when_the_one_that_took_the_others_over_does_not_ask_for_the_rest(tmp_path, told):
    """It has another name there."""
    one = Lingers(tmp_path)
    running = asyncio.create_task(one.run())
    await advance(100)
    assert one.seconds is None, "nobody has taken anything"
    one.ours, one.given = (B,), True
    one.changed.notify()
    await running
    assert one.seconds == pytest.approx(100 + UNASKED, abs=2)
    assert told().endswith(f"{B}: another gateway has taken over the others, and hasn't asked for this within 60 s")


@in_virtual_time
async def test_a_second_signal_ends_it(tmp_path, told):
    one = Lingers(tmp_path)
    running = asyncio.create_task(one.run())
    await advance(20.5)
    one.ending.tell()
    await running
    assert (one.seconds, told()) == (20.5, f"ending, though no gateway has taken over {A}, {B}: told to end once more")


@in_virtual_time
async def test_it_ends_when_no_other_gateways_pod_has_been_there_for_a_while(tmp_path, told):
    one = Lingers(tmp_path, followed=False)
    running = asyncio.create_task(one.run())
    await advance(UNSEEN - 2)
    one.sign = True  # it was on its way
    await advance(60)
    assert one.seconds is None
    one.sign = False  # its rollout was rolled back
    await running
    assert one.seconds == pytest.approx(UNSEEN - 2 + 60 + UNSEEN, abs=2)
    assert told().endswith(": no pod of another gateway has been on this node for 15 s")


@in_virtual_time
async def test_a_file_says_that_none_comes(tmp_path, told):
    one = Lingers(tmp_path)
    running = asyncio.create_task(one.run())
    await advance(20)
    one.last.touch()
    await running
    assert one.seconds == pytest.approx(20, abs=2)
    assert told().endswith(f": {one.last} says that no gateway comes after this one")
