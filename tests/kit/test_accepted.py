"""Over real sockets of this process."""

import os
import socket

import pytest

from dpgateway.kit.accepted import Accepted, Credentials

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
def test_it_is_gone_without_another_look_once_an_end_is_closed(listener, connect, end):
    ends, found = connect(), Accepted()
    found.look()
    ends[end].close()
    assert found.at({listener.getsockname()}) == []


def test_a_descriptor_that_is_another_connection_by_now_is_found_anew(listener, connect):
    (accepted, _), found = connect(), Accepted()
    found.look()
    (before,) = found.at({listener.getsockname()})
    os.dup2(connect()[0].fileno(), accepted.fileno())
    assert not before.is_open
    assert found.at({listener.getsockname()}) == []
    found.look()
    assert accepted.fileno() in {one.descriptor for one in found.at({listener.getsockname()})}
