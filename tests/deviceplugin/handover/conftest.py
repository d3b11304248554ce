import asyncio
import fcntl

import pytest

from dpgateway.kit.seqpacket import Listener, Peer
from dpgateway_simulator import Kubelet
from tests.support.handover import Holders, R, S, heard, offered, path
from tests.support.inside import Inside
from tests.support.resources import Scripted, configured
from tests.support.waiting import until


@pytest.fixture
async def make(short_path, kubelet):
    """Makes gateways, not yet started."""
    made = []

    def one():
        made.append(Inside(short_path / "device-plugins"))
        return made[-1]

    yield one
    for gateway in made:
        if gateway.task is not None and not gateway.task.done():
            await gateway.end()


@pytest.fixture
async def kubelet(request, short_path):
    async with Kubelet(getattr(request, "param", "1.37"), short_path / "device-plugins") as kubelet:
        yield kubelet


@pytest.fixture
async def older(make, kubelet):
    older = make()
    older.serve(configured(driver_class=Scripted))
    await offered(kubelet)
    return older


@pytest.fixture
async def dial():
    """Dials a gateway as a newer one does, which the test plays."""
    dialled = []

    async def one(older, name=R):
        await until(path(older, "next", name).exists)
        dialled.append(Peer.dial(path(older, "next", name)))
        return dialled[-1]

    yield one
    for peer in dialled:
        peer.close()


@pytest.fixture
async def newer(older, dial):
    """A newer gateway, which the test plays: it has asked, and was given the lock."""
    peer = await dial(older)
    peer.send("ask 1")
    assert await heard(peer) == "take v1beta1"
    return peer


@pytest.fixture
async def holder(make):
    """Has the lock, and hears what a newer gateway asks."""
    gateway = make()
    peers: asyncio.Queue[Peer] = asyncio.Queue()
    path(gateway, "lock").parent.mkdir(mode=0o700)
    with path(gateway, "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        listener = Listener(path(gateway, "next"), peers.put_nowait)
        yield lock, peers
        listener.close()
        while not peers.empty():
            peers.get_nowait().close()


@pytest.fixture
async def holders(make):
    holders = Holders(make(), (R, S))
    yield holders
    for name in list(holders.locks):
        holders.let_go(name)
    for peer in holders.met:
        peer.close()


@pytest.fixture
async def ask(kubelet):
    """Asks a gateway that serves a pool for all of it, as a newer gateway does, which the test plays."""
    peers = []

    async def ask(gateway):
        await offered(kubelet, R, S)
        for name in (R, S):
            await until(path(gateway, "next", name).exists)
            peers.append(Peer.dial(path(gateway, "next", name)))
            peers[-1].send("ask 1")
        return peers

    yield ask
    for peer in peers:
        peer.close()
