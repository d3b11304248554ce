"""Over real sockets of this process."""

import asyncio
import os
import socket
import time

import pytest

from dpgateway.kit.accepted import Accepted
from dpgateway.kit.unix import Credentials
from tests.support.waiting import turns

OURS = Credentials(os.getpid(), os.getuid(), os.getgid())


@pytest.fixture
def listener(short_path):
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(short_path / "listener"))
        one.listen()
        yield one


@pytest.fixture
def connect(listener):
    """The accepted end of a new connection, and the peer's."""
    ends = []

    def make():
        peer = socket.socket(socket.AF_UNIX)
        peer.connect(listener.getsockname())
        ends.extend([accepted := listener.accept()[0], peer])
        return accepted, peer

    yield make
    for one in ends:
        one.close()


def test_what_was_accepted_at_a_path_is_found_with_its_peer(listener, connect):
    (accepted, _), found = connect(), Accepted()
    found.look()
    (connection,) = found.at({listener.getsockname()})
    assert (connection.descriptor, connection.peer) == (accepted.fileno(), OURS)
    assert found.at({"/elsewhere"}) == []


@pytest.mark.parametrize("end", [0, 1], ids=["ours", "the peer's"])
def test_gone_once_an_end_is_closed(listener, connect, end):
    ends, found = connect(), Accepted()
    found.look()
    ends[end].close()
    assert found.at({listener.getsockname()}) == []


def test_a_reused_descriptor_is_found_anew(listener, connect):
    (accepted, _), found = connect(), Accepted()
    found.look()
    (before,) = found.at({listener.getsockname()})
    os.dup2(connect()[0].fileno(), accepted.fileno())
    assert not before.is_open
    assert found.at({listener.getsockname()}) == []
    found.look()
    assert accepted.fileno() in {one.descriptor for one in found.at({listener.getsockname()})}


async def test_it_returns_at_once_when_everything_is_read(listener, connect):
    found = Accepted()
    accepted, peer = connect()
    accepted.sendall(b"answer")
    assert peer.recv(100) == b"answer"
    async with asyncio.timeout(20):
        await found.read({listener.getsockname()}, 60)


async def test_it_returns_once_the_last_peer_has_read(listener, connect):
    found = Accepted()
    pairs = [connect(), connect()]
    for accepted, _ in pairs:
        accepted.sendall(b"answer")
    waiting = asyncio.ensure_future(found.read({listener.getsockname()}, 60))
    for _, peer in pairs:
        await turns()
        assert not waiting.done()
        peer.recv(100)
    async with asyncio.timeout(20):
        await waiting


async def test_many_who_ask_at_once_are_one_look(listener, connect):
    """At the end every resource asks, and the process has hundreds of descriptors."""
    found = Accepted()
    ends = [connect() for _ in range(200)]

    async def ask(times):
        began = time.thread_time()
        await asyncio.gather(*(found.read({listener.getsockname()}, 60) for _ in range(times)))
        return time.thread_time() - began

    one = max([await ask(1) for _ in range(3)])
    assert await ask(64) < 30 * one
    assert ends


async def test_a_peer_that_never_reads_is_not_waited_for_for_ever(listener, connect):
    found = Accepted()
    accepted, _ = connect()
    accepted.sendall(b"answer")
    began = time.monotonic()
    await found.read({listener.getsockname()}, 0.05)
    assert time.monotonic() - began >= 0.05
    await found.read({"/another"}, 60)
