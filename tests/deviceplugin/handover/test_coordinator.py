"""Pools are handed over as one."""

import asyncio
import os
from collections.abc import Awaitable, Callable

import pytest

from dpgateway import Allocation, Device, Health
from dpgateway.kit.seqpacket import Gone, Peer
from dpgateway_simulator import Kubelet
from tests.support.handover import BOTH, R, S, ends, heard, offered, passed, path, serves, taken
from tests.support.inside import Inside
from tests.support.kubelet import registered
from tests.support.resources import Scripted, configured, scripted
from tests.support.time import slowly
from tests.support.waiting import turns, until


async def giving(
    make: Callable[[], Inside], ask: Callable[[Inside], Awaitable[list[Peer]]]
) -> tuple[Inside, Peer, Peer]:
    """A gateway that has given the locks of its pool to a newer one, which the test plays."""
    older = make()
    older.serve(*BOTH)
    one, other = await ask(older)
    assert [await heard(peer) for peer in (one, other)] == ["take v1beta1"] * 2
    return older, one, other


async def test_a_pool_is_handed_over_as_one(make, kubelet):
    """And not at all to a gateway that has only a part of it."""
    older, part, whole = make(), make(), make()
    both = [configured(name=name, driver_class=Scripted, pool="p") for name in (R, S)]
    older.serve(*both)
    await offered(kubelet, R, S)
    part.serve(both[0])
    await turns(500)
    assert (registered(kubelet, R), registered(kubelet, S)) == (1, 1)
    await part.end()
    whole.serve(*both)
    await kubelet.wait_for(lambda: (registered(kubelet, R), registered(kubelet, S)) == (2, 2), 30)
    await offered(kubelet, R, S)


async def test_no_call_passes_before_all_serve(make, kubelet, ask):
    older, one, other = await giving(make, ask)
    serves(other, older, S)
    call = asyncio.ensure_future(kubelet.allocate(S, ["a"]))
    await turns(200)
    one.send("no")
    assert [await heard(peer) for peer in (one, other)] == ["back"] * 2
    assert await call


async def test_a_pool_goes_to_one_gateway_only(
    make: Callable[[], Inside],
    kubelet: Kubelet,
    ask: Callable[[Inside], Awaitable[list[Peer]]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Two of an earlier release may ask at once, each for another part of it."""
    older, *peers = await giving(make, ask)
    for peer, name, who in zip(peers, (R, S), ("newer", "newest"), strict=True):
        with passed(peer) as lock:
            os.truncate(lock, 0)
            os.pwrite(lock, f"pid 7 in pod n/{who}, since 2026-01-31T12:00:00Z\n{name}\npool p\n".encode(), 0)
        serves(peer, older, name)
    assert [await heard(peer) for peer in peers] == ["back"] * 2
    assert [await kubelet.allocate(name, [id_]) for name, id_ in ((R, "a"), (S, "b"))]
    assert (registered(kubelet, R), registered(kubelet, S)) == (1, 1)
    assert any("each of pid 7 in pod n/newer and pid 7 in pod n/newest asked" in text for text in caplog.messages)


async def test_who_asks_for_all_of_a_pool_gets_it(make: Callable[[], Inside], kubelet: Kubelet) -> None:
    """Another one that has asked for a part waits meanwhile."""
    older = make()
    older.serve(*BOTH)
    await offered(kubelet, R, S)
    asking = []
    for name, process in ((R, "whole"), (R, "part"), (S, "whole")):
        asking.append(Peer.dial(path(older, "next", name), process))
        asking[-1].send("ask 1")
        await turns(50)
    one, part, other = asking
    assert [await heard(peer) for peer in (one, other)] == ["take v1beta1"] * 2
    assert not part.gone
    for peer in asking:
        peer.close()


async def test_a_kubelet_restarts_while_a_pool_is_given(
    make: Callable[[], Inside], kubelet: Kubelet, ask: Callable[[Inside], Awaitable[list[Peer]]]
) -> None:
    """What the older one bound now would be in the newer one's place, where it forwards calls to."""
    older, one, _ = await giving(make, ask)
    serves(one, older, R)
    path(older, "link", R).hardlink_to(path(older, "sock", R))  # else the inode's number would be used again
    await kubelet.restart()
    assert await heard(one) == "back"
    assert path(older, "sock", R).samefile(path(older, "link", R))
    await offered(kubelet, R, S)


async def test_what_has_recovered_is_not_taken(
    make: Callable[[], Inside], kubelet: Kubelet, dial: Callable[[Inside, str], Awaitable[Peer]]
) -> None:
    """By a gateway without a healthy device, which asked for it before, and for the rest of the pool after that."""
    older, found = make(), [Device("a", Health.unhealthy("no power"))]
    sick = scripted(devices=lambda: list(found))
    older.serve(configured(name=R, driver_class=sick, pool="p", refresh=0.05), BOTH[1])
    await kubelet.wait_for(lambda: kubelet.counts(R) == (1, 0))
    await offered(kubelet, S)
    poor = await dial(older, R)
    poor.send("ask 1 without healthy devices")
    await turns(50)
    found[:] = [Device("a")]
    await kubelet.wait_for(lambda: kubelet.counts(R) == (1, 1))
    rest = await dial(older, S)  # only now: who says nothing within a second is hung up on
    rest.send("ask 1")
    for peer in (poor, rest):
        with pytest.raises(Gone):
            await heard(peer)
    assert (registered(kubelet, R), kubelet.counts(R)) == (1, (1, 1))


async def registering(make, ask):
    """The newer gateway, which the test plays, has the list of one resource of the pool at the kubelet."""
    older, one, other = await giving(make, ask)
    serves(one, older, R)
    serves(other, older, S)
    assert await heard(one) == "register"
    one.send("listed")
    assert await heard(other) == "register"
    return older, one, other


async def test_a_pool_waits_for_its_last_list(make, kubelet, ask):
    _, one, other = await registering(make, ask)
    await turns(200)
    assert not one.gone
    other.send("listed")
    for peer in (one, other):
        with pytest.raises(Gone):
            await heard(peer)


async def test_a_failure_takes_the_pool_back(make, kubelet, ask):
    _, one, other = await registering(make, ask)
    other.send("no")
    assert [await heard(peer) for peer in (one, other)] == ["back"] * 2
    for peer in (one, other):
        peer.close()
    await kubelet.wait_for(lambda: (registered(kubelet, R), registered(kubelet, S)) == (2, 2))
    await offered(kubelet, R, S)
    assert await kubelet.allocate(R, ["a"])


async def test_a_part_that_is_let_go_takes_the_pool_back(
    make: Callable[[], Inside], kubelet: Kubelet, ask: Callable[[Inside], Awaitable[list[Peer]]]
) -> None:
    """As when a resource whose list the kubelet has is restarted in the newer gateway."""
    _, one, other = await registering(make, ask)
    one.close()
    other.send("listed")
    assert await heard(other) == "back"
    other.close()
    await kubelet.wait_for(lambda: (registered(kubelet, R), registered(kubelet, S)) == (2, 2))
    await offered(kubelet, R, S)


async def test_slow_registrations_keep_a_pool_whole(make, kubelet, caplog):
    caplog.set_level("INFO", "dpgateway")
    older, newer = make(), make()
    older.serve(*BOTH)
    await offered(kubelet, R, S)
    kubelet.misbehaviour.stall_register(S)
    with slowly():  # it has 2 s until it serves
        newer.serve(*BOTH)
        await kubelet.wait_for(lambda: registered(kubelet, R) == 2)
    await turns(500)
    assert not any(text.startswith("handed over") for text in caplog.messages)
    kubelet.misbehaviour.behave()
    await until(lambda: sum(text.startswith("handed over") for text in caplog.messages) == 2)
    await offered(kubelet, R, S)
    assert not any("took it back" in text for text in caplog.messages)


@pytest.mark.parametrize("kubelet", ["1.8", "1.9.5", "1.37"], indirect=True)
async def test_forwarded_calls_are_answered_in_their_api(make: Callable[[], Inside], kubelet: Kubelet) -> None:
    """By a gateway that hasn't registered yet: 1.8 and 1.9 share a path, but not the format of the answer."""
    older, newer = make(), make()
    kinds = [scripted(allocate=lambda _, who=who: Allocation(env={"BY": who})) for who in ("older", "newer")]
    pools = [[configured(name=name, driver_class=kind, pool="p") for name in (R, S)] for kind in kinds]
    older.serve(*pools[0])
    await offered(kubelet, R, S)
    kubelet.misbehaviour.stall_register(R)
    since = len(kubelet.events)
    newer.serve(*pools[1])
    await kubelet.wait_for(lambda: any(event.kind == "register" for event in kubelet.events[since:]))
    answer = await kubelet.allocate(S, ["a"])
    assert answer is not None
    assert dict(answer.envs) == {"BY": "newer"}
    kubelet.misbehaviour.behave()


async def test_an_older_gateway_that_ends_takes_nothing_back(make, kubelet, ask):
    """The newer one has all locks, and goes on alone."""
    older, one, other = await registering(make, ask)
    ending = asyncio.ensure_future(older.end())
    for peer in (one, other):
        with pytest.raises(Gone):
            await heard(peer)
    await ending
    assert [path(older, "lock", name).exists() for name in (R, S)] == [True] * 2


async def test_a_part_of_a_pool_gives_nothing(make, kubelet, holders):
    """An older gateway of the first releases takes the rest back."""
    newer = make()
    newer.serve(*BOTH)
    one, other = await taken(holders, R, S)
    one.send("register")
    assert await heard(one) == "listed"
    one.close()  # it is let go
    other.send("back")
    with pytest.raises(Gone):
        await heard(other)
    await kubelet.wait_for(lambda: kubelet.counts(R) == (2, 0))
    with pytest.raises(Exception, match=f"it may be given away as {S}"):
        await kubelet.allocate(R, ["a"])
    (other,) = await taken(holders, S)
    other.send("register")
    assert await heard(other) == "listed"
    other.close()
    await offered(kubelet, R, S)


async def test_the_rest_of_a_pool_is_handed_over(make, kubelet, holders, dial):
    """It will never ask for that."""
    older = make()
    older.serve(*BOTH)
    one, other = await taken(holders, R, S)
    other.send("register")
    assert await heard(other) == "listed"
    one.send("back")
    with pytest.raises(Gone):
        await heard(one)
    path(older, "next", S).unlink()
    other.close()
    newer = await dial(older, S)
    newer.send("ask 1")
    assert await heard(newer) == "take v1beta1"


async def test_a_resource_that_ends_breaks_its_pool_off(make, kubelet, ask):
    """The rest serves on."""
    older, one, other = await giving(make, ask)
    call = asyncio.ensure_future(kubelet.allocate(S, ["a"]))
    with slowly():  # else the time in which the newer one has to serve may be over by then
        older.reload(older.configuration(BOTH[1]))
        await until(ends)
    assert await heard(other) == "back"
    one.close()  # else it has the lock, and so a part of the pool
    await asyncio.wait([call])  # it may be cut off by the end of its stream
    await kubelet.wait_for(lambda: registered(kubelet, S) == 2)
    await offered(kubelet, S)
    assert await kubelet.allocate(S, ["b"])


async def test_a_pool_may_be_asked_for_again(make, kubelet, dial, gate):
    """One of its resources ended before the handover began."""
    slow, older = gate(Allocation()), make()
    both = [configured(name=name, driver_class=scripted(allocate=slow), pool="p") for name in (R, S)]
    older.serve(*both)
    await offered(kubelet, R, S)
    call = asyncio.ensure_future(kubelet.allocate(S, ["a"]))
    await slow.entered()
    peers = [await dial(older, name) for name in (R, S)]
    for peer in peers:
        peer.send("ask 1")
    await turns(200)
    older.reload(older.configuration(both[1]))
    with pytest.raises(Gone):
        await heard(peers[1])
    slow.open()
    await call
