import os
import socket

import pytest

from dpgateway.deviceplugin.handover.parked import ParkedConnections
from tests.support.waiting import turns, until


@pytest.fixture
async def held():
    """What holds it, a copy of the kubelet's connection as the older gateway has it, and the kubelet's end."""
    older, kubelet = socket.socketpair()
    parked = ParkedConnections()
    parked.park([os.dup(older.fileno())])
    yield parked, older, kubelet
    parked.close()
    older.close()
    kubelet.close()


async def test_the_connection_outlives_the_older_gateway(held):
    parked, older, kubelet = held
    older.close()
    await turns()
    assert len(parked.descriptors) == 1
    kubelet.setblocking(False)
    with pytest.raises(BlockingIOError):
        kubelet.recv(1)


async def test_what_the_kubelet_says_is_left_to_the_older_gateway(held):
    parked, older, kubelet = held
    kubelet.send(b"hello")
    await turns()
    assert older.recv(5) == b"hello"
    assert len(parked.descriptors) == 1


async def test_it_is_closed_when_the_kubelet_has_closed_it(held):
    parked, _, kubelet = held
    kubelet.close()
    await until(lambda: not parked.descriptors)


async def test_what_is_held_is_let_go_at_the_end(held):
    parked, older, kubelet = held
    older.close()
    parked.close()
    assert kubelet.recv(1) == b""
