"""What two gateways say to each other, byte by byte."""

import asyncio
import contextlib
import os
import socket

import pytest

from dpgateway.deviceplugin.handover.protocol import keeps_one_client
from dpgateway.kit.seqpacket import LONGEST
from tests.support.handover import R, offered, path
from tests.support.kubelet import registered
from tests.support.resources import Scripted, configured
from tests.support.time import slowly
from tests.support.waiting import until

KIND = socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK


class Relay:
    """Stands between an older gateway and a newer one, and notes each packet and how many descriptors came with it."""

    def __init__(self, listening):
        self.said: list[tuple[str, bytes, int]] = []
        behind = listening.with_suffix(".behind")
        listening.rename(behind)
        self.listener = socket.socket(socket.AF_UNIX, KIND)
        self.listener.bind(str(listening))
        self.listener.listen()
        self.task = asyncio.ensure_future(self.run(behind))

    async def run(self, behind):
        loop = asyncio.get_running_loop()
        with self.listener:
            newer, _ = await loop.sock_accept(self.listener)
        with newer, socket.socket(socket.AF_UNIX, KIND) as older:
            older.connect(str(behind))
            ends = {"newer": (newer, older), "older": (older, newer)}
            while ends:
                for who, (one, other) in list(ends.items()):
                    with contextlib.suppress(BlockingIOError):
                        raw, descriptors, _, _ = socket.recv_fds(one, LONGEST, 10)
                        self.said.append((who, raw, len(descriptors)))
                        with contextlib.suppress(OSError):
                            socket.send_fds(other, [raw], descriptors) if raw else other.shutdown(socket.SHUT_RDWR)
                        for descriptor in descriptors:
                            os.close(descriptor)
                        if not raw:
                            return
                await asyncio.sleep(0.001)


async def test_gateways_of_all_releases_say_the_same_bytes(make, kubelet, older):
    """An upgrade is a handover between two releases: whoever changes this breaks it."""
    newer = make()
    await until(path(older, "next").exists)
    relay = Relay(path(older, "next"))
    with slowly():  # it has 2 s until it serves
        newer.serve(configured(driver_class=Scripted))
        await until(lambda: ("newer", b"serves", 0) in relay.said)
    async with asyncio.timeout(60):
        await relay.task
    assert relay.said == [
        ("newer", b"ask 1", 0),
        ("older", b"take v1beta1", 1),
        ("newer", b"serves", 0),
        ("older", b"register", 0),
        ("newer", b"listed", 0),
        ("older", b"", 0),
    ]
    assert registered(kubelet, R) == 2
    await offered(kubelet)


@pytest.mark.parametrize(
    ("agent", "one"),
    [
        ("grpc-go/1.3.0", False),
        ("grpc-go/1.40.0", False),
        ("grpc-go/1.47.0", True),
        ("grpc-go/1.79.3", True),
        ("grpc-go/1.81.1", False),
        ("grpc-go/2.0", False),
        ("another", True),
    ],
)
def test_which_kubelets_keep_one_client(agent, one):
    assert keeps_one_client(agent) == one
