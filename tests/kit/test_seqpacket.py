import asyncio
import os
import resource
import socket
import sys
import time
from pathlib import Path

import pytest

from dpgateway.kit import unix
from dpgateway.kit.seqpacket import EXHAUSTED, MOST_DESCRIPTORS, Gone, Listener, Peer
from tests.support.waiting import turns, until


@pytest.fixture
async def both(short_path):
    """Who dialled, and whom it met."""
    met: asyncio.Queue[Peer] = asyncio.Queue()
    listener = Listener(short_path / "peer", met.put_nowait)
    dialled = Peer.dial(short_path / "peer")
    async with asyncio.timeout(20):
        accepted = await met.get()
    yield dialled, accepted
    for one in (dialled, accepted, listener):
        one.close()


async def test_connections_of_one_process_are_known(short_path: Path) -> None:
    met: list[Peer] = []
    path = short_path / "peer"
    listener = Listener(path, met.append)
    dialled = [Peer.dial(path), Peer.dial(path), Peer.dial(path, "another")]
    dialled.append(Peer(unix.connect(path, socket.SOCK_SEQPACKET)))
    await until(lambda: len(met) == len(dialled))
    one, again, another, unknown = [peer.process for peer in met]
    assert (one == again, bool(one), another, unknown) == (True, True, "another", "")
    for peer in (*met, *dialled):
        peer.close()
    listener.close()


async def test_without_descriptors_the_loop_rests(short_path):
    met: asyncio.Queue[Peer] = asyncio.Queue()
    listener = Listener(short_path / "peer", met.put_nowait)
    dialled = Peer.dial(short_path / "peer")
    tried = 0

    def count(frame, event, called):
        nonlocal tried
        tried += event == "c_call" and called.__name__ == "_accept"

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    began = time.monotonic()
    sys.setprofile(count)
    try:
        await until(lambda: tried)
        await turns(100)
    finally:
        sys.setprofile(None)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert 1 <= tried <= 1 + (time.monotonic() - began) / EXHAUSTED
    async with asyncio.timeout(20):
        accepted = await met.get()
    for one in (dialled, accepted, listener):
        one.close()


async def test_a_closed_listener_tries_no_more(short_path):
    met: list[Peer] = []
    listener = Listener(short_path / "peer", met.append)
    dialled = Peer.dial(short_path / "peer")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        await turns(10)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    listener.close()
    with pytest.raises(Gone):
        await dialled.receive()
    dialled.close()


async def test_texts_arrive_whole_and_in_order(both):
    dialled, accepted = both
    for text in ("one", "two"):
        dialled.send(text)
    assert [await accepted.receive() for _ in range(2)] == ["one", "two"]
    hearing = asyncio.ensure_future(dialled.receive())
    await asyncio.sleep(0)
    accepted.send("three")
    assert await hearing == "three"


async def test_a_passed_descriptor(both, tmp_path):
    dialled, accepted = both
    with (tmp_path / "file").open("w") as file:
        accepted.send("take", file.fileno())
        await dialled.receive()
        (passed,) = dialled.take_descriptors()
        assert os.path.samestat(os.fstat(passed), os.fstat(file.fileno()))
        assert not os.get_inheritable(passed)
        os.close(passed)
    assert dialled.take_descriptors() == []


async def test_descriptors_that_nobody_took_are_closed(both):
    dialled, accepted = both
    reader, writer = os.pipe()
    accepted.send("take", writer)
    os.close(writer)
    await dialled.receive()
    dialled.close()
    assert os.read(reader, 1) == b""  # the last copy of the other end is closed
    os.close(reader)


async def test_who_listens_takes_no_descriptors(both):
    dialled, accepted = both
    reader, writer = os.pipe()
    dialled.send("ask", *[writer] * MOST_DESCRIPTORS)
    os.close(writer)
    os.set_blocking(reader, False)
    assert await accepted.receive() == "ask"
    assert os.read(reader, 1) == b""
    os.close(reader)


async def test_the_end_of_the_other_is_noticed(both):
    dialled, accepted = both
    dialled.close()
    with pytest.raises(Gone):
        await accepted.receive()
    with pytest.raises(OSError, match="Broken pipe"):
        accepted.send("hello")


async def test_messages_of_a_closed_peer_are_received(both):
    dialled, accepted = both
    dialled.send("serves")
    accepted.send("back")
    accepted.close()
    assert await dialled.receive() == "back"
    with pytest.raises(Gone):
        await dialled.receive()


async def test_who_waits_for_a_text_hears_that_nobody_will_get_it(both):
    dialled, _ = both
    hearing = asyncio.ensure_future(dialled.receive())
    await asyncio.sleep(0)
    dialled.close()
    with pytest.raises(Gone):
        await hearing


async def test_a_path_is_taken_over_and_nobody_at_it_is_an_error(short_path):
    path = short_path / "peer"
    first = Listener(path, Peer.close)
    met: asyncio.Queue[Peer] = asyncio.Queue()
    second = Listener(path, met.put_nowait)
    assert path.stat().st_mode & 0o777 == 0o600
    Peer.dial(path).close()
    (await met.get()).close()
    assert [one.name for one in short_path.iterdir()] == ["peer"]
    first.close()
    second.close()
    with pytest.raises(ConnectionRefusedError):
        Peer.dial(path)


async def test_a_path_may_be_longer_than_a_sockets(short_path):
    deep = short_path.joinpath(*["d" * 50] * 3)
    deep.mkdir(parents=True)
    met: asyncio.Queue[Peer] = asyncio.Queue()
    listener = Listener(deep / "peer", met.put_nowait)
    Peer.dial(deep / "peer").close()
    (await met.get()).close()
    listener.close()


async def test_another_kind_of_socket_is_an_error(short_path):
    with socket.socket(socket.AF_UNIX) as plain:
        plain.bind(str(short_path / "plain"))
        with pytest.raises(OSError):  # noqa: PT011  which one depends on the kernel
            Peer.dial(short_path / "plain")
