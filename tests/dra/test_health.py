"""The health of devices, as a kubelet's stream gets it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from dpgateway.dra.claims.records import Given
from dpgateway.dra.health import (
    HEALTH_SERVICES,
    LONGEST_MESSAGE,
    VANISHED,
    HealthPace,
    HealthStreams,
    SaidHealth,
    heard,
    messages,
    said,
)
from dpgateway.dra.wire import health_pb2 as wire
from dpgateway.kit.channel import Channel
from tests.support.waiting import turns

POOL = "n1/example.com/thing"


def devices(**reasons: str) -> tuple[SaidHealth, ...]:
    return tuple(SaidHealth(POOL, name, reason) for name, reason in reasons.items())


def given(*names: str, ids: tuple[str, ...] = (), pool: str = POOL) -> Given:
    return Given("r", "example.com/thing", pool, tuple((name, "") for name in names), ids or names)


def reasons_of(found: tuple[SaidHealth, ...]) -> dict[tuple[str, str], str]:
    return {(one.pool, one.device): one.unhealthy for one in found}


def what(reasons: dict[str, str], *records: Given, **meanings: str) -> dict[tuple[str, str], str]:
    names = {id_: (POOL, id_) for id_ in reasons}
    return reasons_of(said(reasons, names, records, lambda id_: meanings.get(id_, id_)))


def test_a_claims_device_that_is_gone_is_unhealthy() -> None:
    assert what({"a": ""}, given("a"), given("b")) == {(POOL, "a"): "", (POOL, "b"): VANISHED}


def test_a_claim_keeps_the_name_of_an_earlier_pool() -> None:
    found = what({"a": "hot"}, given("thing-a", ids=("a",), pool="n1/board"))
    assert found == {(POOL, "a"): "hot", ("n1/board", "thing-a"): "hot"}


def test_shares_of_a_claim_are_their_device() -> None:
    shares = Given("r", "example.com/thing", "n1/old", (("x", "s1"), ("x", "s2"), ("y", "")), ("a", "a1", "b1"))
    found = what({"a": "", "b": "hot"}, shares, a1="a", b1="b")
    assert (found["n1/old", "x"], found["n1/old", "y"]) == ("", "hot")


def test_a_monitored_device_that_is_gone_is_not_another_one() -> None:
    monitored = Given("r", "example.com/thing", POOL, (("7", ""),), (), admin=True)
    assert what({"0": ""}, monitored) == {(POOL, "0"): "", (POOL, "7"): VANISHED}


def test_of_too_many_devices_those_of_claims_are_heard() -> None:
    found = said({f"d{n}": "" for n in range(9)}, {f"d{n}": (POOL, f"d{n}") for n in range(9)}, [given("d7")], str)
    assert [one.device for one in heard(found, 3)] == ["d7", "d0", "d1"]
    assert heard(found, 9) == found


@pytest.mark.parametrize("reason", ["x" * 5000, "ü" * 5000, "a\udc80b" * 1000])
def test_a_long_reason_is_cut_to_its_bytes(reason: str) -> None:
    (message,) = messages(devices(a=reason), 7)
    assert 1000 < len(message.devices[0].message.encode()) <= LONGEST_MESSAGE


def test_a_large_message_is_several() -> None:
    many = devices(**{f"d{n}": "no link" for n in range(1000)})
    found = messages(many, 7, largest=4096)
    assert [one.device.device_name for message in found for one in message.devices] == [one.device for one in many]
    assert all(message.ByteSize() <= 4096 for message in found)


class Rig:
    """The streams, served on a socket, and a kubelet's ends of them."""

    def __init__(self, channel: Channel, streams: HealthStreams) -> None:
        self.channel, self.streams = channel, streams
        self.now = devices(a="", b="")

    def set(self, **reasons: str) -> None:
        self.now = devices(**reasons)
        self.streams.look()

    def open(self, service: str = "v1.DRAResourceHealth") -> Any:
        return self.channel.unary_stream(f"/{service}/NodeWatchResources")(b"")


async def read(stream: Any) -> dict[str, tuple[int, str]]:
    async with asyncio.timeout(60):
        raw = await stream.read()
    assert raw is not grpc.aio.EOF, "the stream has ended"
    found = wire.NodeWatchResourcesResponse.FromString(raw).devices
    assert all(one.device.pool_name == POOL and one.last_updated_time for one in found)
    return {one.device.device_name: (one.health, one.message) for one in found}


HEALTHY = (wire.HEALTHY, "")


@pytest.fixture
async def make(short_path: Path) -> AsyncIterator[Any]:
    server, path = grpc.aio.server(), short_path / "h.sock"
    async with Channel(path) as channel:

        async def rig(repeat: float = 60.0, pause: float = 0.0, fresh: float = 0.0) -> Rig:
            made = Rig(channel, HealthStreams(lambda: made.now, HealthPace(repeat, pause, 0.05, fresh)))
            server.add_generic_rpc_handlers(tuple(map(made.streams.handlers, HEALTH_SERVICES.values())))
            server.add_insecure_port(f"unix:{path}")
            await server.start()
            return made

        yield rig
        await server.stop(0)


@pytest.mark.parametrize("service", HEALTH_SERVICES.values())
async def test_a_stream_begins_with_everything(make: Any, service: str) -> None:
    rig = await make()
    rig.set(a="", b="no link")
    assert await read(rig.open(service)) == {"a": HEALTHY, "b": (wire.UNHEALTHY, "no link")}


async def test_a_change_is_said_alone(make: Any) -> None:
    rig = await make()
    stream = rig.open()
    await read(stream)
    rig.set(a="hot", b="")
    assert await read(stream) == {"a": (wire.UNHEALTHY, "hot")}
    rig.set(a="", b="")
    assert await read(stream) == {"a": HEALTHY}


@pytest.mark.parametrize("pace", [{"repeat": 0.05}, {"fresh": 60.0}], ids=["in time", "often to a fresh stream"])
async def test_everything_is_repeated(make: Any, pace: dict[str, float]) -> None:
    stream = (await make(**pace)).open()
    for _ in range(3):
        assert await read(stream) == {"a": HEALTHY, "b": HEALTHY}


async def test_everything_is_said_again_on_request(make: Any) -> None:
    rig = await make()
    stream = rig.open()
    await read(stream)
    rig.streams.repeat()
    assert await read(stream) == {"a": HEALTHY, "b": HEALTHY}


async def test_a_stream_isnt_fresh_for_ever(make: Any) -> None:
    rig = await make(fresh=0.2)
    stream = rig.open()
    await read(stream)
    await asyncio.sleep(0.25)
    rig.set(a="hot", b="")
    while (found := await read(stream)).keys() == {"a", "b"}:
        assert found["b"] == HEALTHY
    assert found == {"a": (wire.UNHEALTHY, "hot")}


async def test_two_streams_get_the_same(make: Any) -> None:
    rig = await make()
    one, other = rig.open(), rig.open("v1alpha1.DRAResourceHealth")
    assert await read(one) == await read(other)
    rig.set(a="hot", b="")
    assert await read(one) == await read(other) == {"a": (wire.UNHEALTHY, "hot")}


async def test_a_flapping_device_is_said_once_a_pause(make: Any) -> None:
    rig = await make(pause=0.2)
    stream = rig.open()
    await read(stream)
    loop = asyncio.get_running_loop()
    began, last, count = loop.time(), "", 0
    while loop.time() < began + 1 or count <= 100:
        last = f"flap {count}"
        rig.set(a=last, b="")
        count += 1
        await turns(1)
    most = (loop.time() - began) / 0.2 + 2
    found: list[dict[str, tuple[int, str]]] = []
    while not found or found[-1]["a"][1] != last:
        found.append(await read(stream))
    assert len(found) <= most


async def test_a_slow_reader_skips_to_the_newest(make: Any) -> None:
    rig = await make()
    stream = rig.open()
    await read(stream)
    for count in range(200):
        rig.set(**{f"d{n}": f"{count} " + "x" * 900 for n in range(100)})
        await turns()
    found: list[dict[str, tuple[int, str]]] = []
    while not found or not found[-1]["d0"][1].startswith("199 "):
        found.append(await read(stream))
    assert len(found) < 100


async def test_the_end_ends_all_streams(make: Any) -> None:
    rig = await make(pause=60.0)
    streams = [rig.open(), rig.open()]
    for stream in streams:
        await read(stream)
    rig.streams.end()
    async with asyncio.timeout(60):
        assert [await stream.read() for stream in streams] == [grpc.aio.EOF] * 2


async def test_a_stream_that_the_kubelet_ends_is_forgotten(make: Any) -> None:
    rig = await make()
    stream = rig.open()
    await read(stream)
    stream.cancel()
    other = rig.open()
    await read(other)
    rig.set(a="hot", b="")
    assert await read(other) == {"a": (wire.UNHEALTHY, "hot")}
