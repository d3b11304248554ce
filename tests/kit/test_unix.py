"""Over real sockets, also with paths that are too long for one."""

import asyncio
import socket
import time

import pytest

from dpgateway.kit.unix import LONGEST, Address, read_by_peers
from tests.support.counting import leading_to
from tests.support.waiting import turns


@pytest.fixture
def connect(short_path):
    """Connections to a listener at a path, with both ends: the accepted one first."""
    path, ends = short_path / "listener.sock", []
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def make():
        peer = socket.socket(socket.AF_UNIX)
        peer.connect(str(path))
        ends.extend([peer, accepted := listener.accept()[0]])
        return accepted, peer

    yield make, {str(path)}
    for one in (listener, *ends):
        one.close()


async def test_it_returns_at_once_when_everything_is_read(connect):
    make, paths = connect
    accepted, peer = make()
    accepted.sendall(b"answer")
    assert peer.recv(100) == b"answer"
    async with asyncio.timeout(20):
        await read_by_peers(paths, 60)


async def test_it_returns_once_the_last_peer_has_read(connect):
    make, paths = connect
    pairs = [make(), make()]
    for accepted, _ in pairs:
        accepted.sendall(b"answer")
    waiting = asyncio.ensure_future(read_by_peers(paths, 60))
    for _, peer in pairs:
        await turns()
        assert not waiting.done()
        peer.recv(100)
    async with asyncio.timeout(20):
        await waiting


async def test_many_who_ask_at_once_are_one_look_at_all_descriptors(connect):
    """At the end every resource asks, and the process has hundreds of descriptors."""
    make, paths = connect
    ends = [make() for _ in range(200)]

    async def ask(times):
        began = time.thread_time()
        await asyncio.gather(*(read_by_peers(paths, 60) for _ in range(times)))
        return time.thread_time() - began

    one = max([await ask(1) for _ in range(3)])
    assert await ask(64) < 30 * one
    assert ends


async def test_a_peer_that_never_reads_is_not_waited_for_for_ever(connect):
    make, paths = connect
    accepted, _ = make()
    accepted.sendall(b"answer")
    began = time.monotonic()
    await read_by_peers(paths, 0.05)
    assert time.monotonic() - began >= 0.05
    await read_by_peers({"/another"}, 60)


@pytest.fixture
def deep(short_path):
    """A directory with too long a path for a socket."""
    deep = short_path.joinpath(*["d" * 50] * 4)
    deep.mkdir(parents=True)
    return deep


def test_a_path_of_any_length_has_an_address_that_fits(deep):
    found = Address(deep / "x.sock")
    assert str(found) == f"unix:{found.path}"
    assert len(found.path) <= LONGEST
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(found.path)
    assert (deep / "x.sock").is_socket()
    found.close()


def test_an_address_that_is_closed_holds_no_descriptor(deep):
    addresses = [Address(deep / f"{number}.sock") for number in range(20)]
    assert leading_to(deep) == 20
    for one in [*addresses, *addresses]:
        one.close()
    assert leading_to(deep) == 0
