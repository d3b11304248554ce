"""Two gateways of a node, of which a test may play one."""

import asyncio
import contextlib
import fcntl
import hashlib
import os
import socket
from functools import partial

from dpgateway.kit.seqpacket import Listener, Peer
from tests.support.resources import Scripted, configured

R, S, T = "example.com/thing", "example.com/other", "example.com/third"
BOTH = [configured(name=name, driver_class=Scripted, pool="p") for name in (R, S)]


def path(gateway, suffix, name=R):
    return gateway.directory / "dpgateway" / f"{hashlib.sha256(name.encode()).hexdigest()[:16]}.{suffix}"


async def offered(kubelet, *names):
    for name in names or (R,):
        await kubelet.wait_for(lambda name=name: kubelet.counts(name)[1] == 2)


async def heard(peer, seconds=60):
    async with asyncio.timeout(seconds):
        return await peer.receive()


def ends(name=R):
    """Whether a gateway of this process has been told to end the resource, and hasn't yet."""
    return any(task.cancelling() for task in asyncio.all_tasks() if task.get_name() == name)


def serves(newer, gateway, name=R):
    """It binds its socket, and says so."""
    bound = path(gateway, "sock", name)
    with socket.socket(socket.AF_UNIX) as its:
        its.bind(str(bound.with_suffix(".new")))
    bound.with_suffix(".new").rename(bound)
    newer.send("serves")


@contextlib.contextmanager
def passed(peer):
    (descriptor,) = peer.take_descriptors()
    yield descriptor
    os.close(descriptor)


async def asked(peers):
    async with asyncio.timeout(60):
        peer = await peers.get()
    assert await heard(peer) == "ask 1"
    return peer


class Holders:
    """Has the locks of several resources, and hears what a newer gateway asks."""

    def __init__(self, gateway, names):
        self.gateway, self.locks, self.listeners, self.met = gateway, {}, {}, []
        self.peers: dict[str, asyncio.Queue[Peer]] = {name: asyncio.Queue() for name in names}
        path(gateway, "lock").parent.mkdir(mode=0o700)
        for name in names:
            self.locks[name] = lock = path(gateway, "lock", name).open("w")
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.listeners[name] = Listener(path(gateway, "next", name), partial(self.meet, name))

    def meet(self, name, peer):
        self.met.append(peer)
        self.peers[name].put_nowait(peer)

    def let_go(self, name):
        self.listeners.pop(name).close()
        path(self.gateway, "next", name).unlink(missing_ok=True)
        self.locks.pop(name).close()


async def taken(holders, *names):
    """A newer gateway serves them."""
    peers = [await asked(holders.peers[name]) for name in names]
    for name, peer in zip(names, peers, strict=True):
        peer.send("take v1beta1", holders.locks[name].fileno())
    assert [await heard(peer) for peer in peers] == ["serves"] * len(names)
    return peers


async def admitted(kubelet, pod, name):
    return (await kubelet.admit(pod, {"c": {name: 1}}))["ok"]


def all_healthy(kubelet, name):
    """How many of its lists said so."""
    lists = [event.fields for event in kubelet.events if event.kind == "list received"]
    return sum(fields["resource"] == name and fields["healthy"] == 2 for fields in lists)
