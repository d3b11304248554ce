"""The newer gateway, and a test that plays the older one, step by step."""

import asyncio
import contextlib
import itertools
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest

from dpgateway import Device
from dpgateway.kit.seqpacket import Gone, Peer
from dpgateway.resource.ownership import Ownership
from dpgateway_simulator import Kubelet
from tests.support.full import SmallDisk, small_disk
from tests.support.handover import R, S, asked, heard, offered, path
from tests.support.inside import Inside
from tests.support.kubelet import registered
from tests.support.resources import Scripted, configured, scripted
from tests.support.waiting import turns, until


@pytest.fixture
def disk(short_path: Path) -> Iterator[SmallDisk]:
    """The disk of the kubelet's directory."""
    with small_disk(short_path / "device-plugins") as disk:
        yield disk


@pytest.fixture
def newer(make):
    """It serves, as soon as it has asked the older one."""
    newer = make()
    newer.serve(configured(driver_class=Scripted))
    return newer


@pytest.fixture
async def older(newer, holder):
    """It was asked, and has given its lock."""
    lock, peers = holder
    older = await asked(peers)
    older.send("take v1beta1", lock.fileno())
    return older


@pytest.fixture
async def left(older):
    """The older one, which the newer one has told that it serves."""
    assert await heard(older) == "serves"
    return older


async def test_the_older_gateway_dies_after_take(older, kubelet):
    older.close()
    await offered(kubelet)


@pytest.mark.parametrize(
    ("answer", "locks"), [("take v1beta1", 0), ("take v1beta1", 2), ("takes v1beta1", 1), ("register", 0), ("no", 253)]
)
async def test_an_answer_that_is_no_take(newer, kubelet, holder, answer, locks):
    lock, peers = holder
    older = await asked(peers)
    older.send(answer, *[lock.fileno()] * locks)
    with pytest.raises(Gone):
        await heard(older)
    older.close()
    assert registered(kubelet, R) == 0


async def test_back_means_to_let_go_and_ask_again(left, kubelet, holder):
    left.send("back")
    again = await asked(holder[1])
    assert registered(kubelet, R) == 0
    left.close()
    again.close()


async def test_back_instead_of_take_means_to_ask_again(newer, holder, caplog):
    """As from a gateway whose disk hangs: nothing is wrong with its protocol."""
    older = await asked(holder[1])
    older.send("back")
    older.close()
    (await asked(holder[1])).close()
    assert "can't hand it over" not in caplog.text


async def test_who_can_not_bind_lets_go_and_asks_again(
    newer: Inside, holder: tuple[IO[str], asyncio.Queue[Peer]], caplog: pytest.LogCaptureFixture
) -> None:
    """As with a full disk: the older one takes it back, and nothing of it is removed once there is room again."""
    lock, peers = holder
    older, bound = await asked(peers), path(newer, "sock")
    bound.mkdir()
    older.send("take v1beta1", lock.fileno())
    with pytest.raises(Gone):
        await heard(older)
    older.close()
    bound.rmdir()
    bound.touch()
    again = await asked(peers)
    assert bound.is_file()
    assert any("took it back" in text for text in caplog.messages)
    again.send("take v1beta1", lock.fileno())
    assert await heard(again) == "serves"
    again.close()


async def test_it_asks_once_the_lock_can_be_used(
    make: Callable[[], Inside], holder: tuple[IO[str], asyncio.Queue[Peer]], caplog: pytest.LogCaptureFixture
) -> None:
    """Its own trouble before that has nothing to do with the devices that it could serve."""
    lock, peers = holder
    newer, planted = make(), Path(lock.name).with_name("planted")
    planted.hardlink_to(lock.name)
    newer.serve(configured(driver_class=Scripted))
    await until(lambda: any("can't be served" in text for text in caplog.messages))
    planted.unlink()
    (await asked(peers)).close()


async def test_names_stay_until_the_socket_is_bound(
    disk: SmallDisk, newer: Inside, holder: tuple[IO[str], asyncio.Queue[Peer]]
) -> None:
    """The older one has to serve on with them, and to register with a kubelet that restarts."""
    lock, peers = holder
    older, bound = await asked(peers), path(newer, "sock")
    with socket.socket(socket.AF_UNIX) as its:
        its.bind(str(bound))
        disk.fill()
        older.send("take v1beta1", lock.fileno())
        with pytest.raises(Gone):
            await heard(older)
        older.close()
        assert bound.exists()
        disk.free()
        link = bound.with_name(f"{bound.stem}-1.sock")
        link.hardlink_to(bound)
        again = await asked(peers)
        again.send("take v1beta1", lock.fileno())
        assert await heard(again) == "serves"
        assert not link.exists()
        again.close()


@pytest.mark.parametrize("turn", range(24))
async def test_stopped_while_it_begins_again(newer, left, turn):
    """Its tasks end because of the one, and it because of the other."""
    left.send("back")
    left.close()
    await turns(turn)
    await newer.end()


async def test_stopped_before_the_older_gateway_ends(newer, left, holder):
    """That one takes the resource back, and still has the lock that others find."""
    lock, _ = holder
    left.send("register")
    assert await heard(left) == "listed"
    newer.reload(newer.configuration(configured(name=S, driver_class=Scripted)))
    with pytest.raises(Gone):
        await heard(left)
    left.close()
    assert path(newer, "lock").stat().st_ino == os.fstat(lock.fileno()).st_ino
    assert path(newer, "next").exists(), "where gateways ask the older one"


@pytest.mark.parametrize("step", ["serves", "listed"])
async def test_started_again_before_the_older_gateway_ends(newer, older, holder, step):
    """That one takes the resource back. With the lock kept for the new driver, both would serve."""
    lock, peers = holder
    assert await heard(older) == "serves"
    if step == "listed":
        older.send("register")
        assert await heard(older) == "listed"
    newer.reload(newer.configuration(configured(driver_class=scripted())))
    with pytest.raises(Gone):
        await heard(older)
    (await asked(peers)).close()
    assert path(newer, "lock").stat().st_ino == os.fstat(lock.fileno()).st_ino
    older.close()


async def test_started_again_after_the_older_gateway_ended(newer, left, holder, kubelet):
    """The lock is its own by then, and no other gateway gets in between."""
    lock, _ = holder
    left.send("register")
    assert await heard(left) == "listed"
    before = path(newer, "next").stat().st_ino
    lock.close()
    left.close()
    await until(lambda: path(newer, "next").stat().st_ino != before)
    other = Ownership(newer.directory, R)
    waiting = asyncio.ensure_future(other.acquire())
    await until(lambda: other.other.value)
    newer.reload(newer.configuration(configured(driver_class=scripted())))
    await kubelet.wait_for(lambda: registered(kubelet, R) == 2)
    assert not waiting.done()
    await newer.end()
    await waiting
    other.end()
    assert not other.path.exists()


def running(name):
    return [task for task in asyncio.all_tasks() if task.get_name() == name]


@pytest.mark.parametrize("turn", range(6))
async def test_stopped_once_its_parts_have_ended(make, holder, gate, turn):
    """Only its tasks have to end then, and their group tells why it ended them, not that it was stopped meanwhile."""
    lock, peers = holder
    newer, closing = make(), gate()
    newer.serve(configured(driver_class=scripted(close=closing)))
    older = await asked(peers)
    older.send("take v1beta1", lock.fileno())
    assert await heard(older) == "serves"
    (resource,) = running(R)
    older.send("back")
    await closing.entered()
    closing.open()
    while running("what is done whole"):
        await turns(1)
    await turns(turn)
    resource.cancel()
    await asyncio.wait({resource}, timeout=60)
    assert resource.done()
    older.close()


async def test_back_before_serves_is_heard(older, kubelet, holder):
    """Although the older gateway has closed the connection."""
    older.send("back")
    older.close()
    (await asked(holder[1])).close()
    assert registered(kubelet, R) == 0


async def test_back_after_register_is_heard(left, kubelet, caplog):
    """Although the older gateway has closed the connection."""
    left.send("register")
    await offered(kubelet)
    await turns()  # it says so, and isn't heard
    left.send("back")
    left.close()
    await until(lambda: any("took it back" in text for text in caplog.messages))


async def test_nobody_may_ask_before_the_end(make, left, kubelet, holder):
    """It could want it back; and a kubelet 1.37 that loses one of three streams may call either of the others."""
    newest = make()
    left.send("register")
    assert await heard(left) == "listed"
    newest.serve(configured(driver_class=Scripted))
    (await asked(holder[1])).close()  # whoever asks still asks the older one
    await offered(kubelet)
    assert (registered(kubelet, R), kubelet.counts(R)) == (1, (2, 2))
    left.close()
    await kubelet.wait_for(lambda: registered(kubelet, R) == 2)


async def test_nothing_is_released_before_the_end(
    make: Callable[[], Inside], kubelet: Kubelet, holder: tuple[IO[str], asyncio.Queue[Peer]]
) -> None:
    """The older one could want it back, and give it to a container."""
    lock, peers = holder
    newer, told = make(), list[str]()
    both = [
        configured(name=name, driver_class=scripted(release=lambda devices, name=name: told.append(name)))
        for name in (R, S)
    ]
    newer.serve(*both)
    older = await asked(peers)
    older.send("take v1beta1", lock.fileno())
    assert await heard(older) == "serves"
    older.send("register")
    assert await heard(older) == "listed"
    await offered(kubelet, R, S)
    for pod in "pq":
        assert (await kubelet.admit(pod, {"c": {R: 1, S: 1}}))["ok"]
    kubelet.remove("p")
    await until(lambda: told)
    await turns(500)
    assert told == [S]
    older.close()
    await until(lambda: told == [S, R])


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (["registers"], "expected register, found 'registers'"),
        (["register", "listen"], "expected nothing more, found 'listen'"),
    ],
)
async def test_an_unknown_message_means_to_ask_again(older, holder, caplog, said, why):
    for text in said:
        assert await heard(older) in {"serves", "listed"}
        older.send(text)
    (await asked(holder[1])).close()
    assert any(f"took it back: {why}" in text for text in caplog.messages)
    older.close()


async def test_who_took_over_reads_no_other_journals(make, kubelet, holder, caplog):
    """Neither when it fails afterwards, and is tried again."""
    lock, peers = holder
    newer = make()
    newer.serve(configured(driver_class=Scripted))
    older = await asked(peers)
    path(newer, "next").unlink()
    path(newer, "next").mkdir()
    older.send("take v1beta1", lock.fileno())
    assert await heard(older) == "serves"
    (newer.directory.parent / "state").mkdir(mode=0o700, exist_ok=True)
    (newer.directory.parent / "state" / "0123456789abcdef.json").write_text("damaged")
    older.send("register")
    older.close()
    await until(lambda: any("can't be served" in text for text in caplog.messages))
    path(newer, "next").rmdir()
    await until(path(newer, "next").exists)
    assert not any("0123456789abcdef" in text for text in caplog.messages)


async def asked_again(peers, fails, times=3):
    """How many seconds pass between the times that an older gateway is asked, which fails each time."""
    asks = []
    for _ in range(times):
        peer = await asked(peers)
        asks.append(asyncio.get_running_loop().time())
        await fails(peer)
        peer.close()
    return [later - earlier for earlier, later in itertools.pairwise(asks)]


async def test_back_at_once_is_asked_less_and_less(newer, holder, caplog):
    lock, peers = holder

    async def takes_back(older):
        older.send("take v1beta1", lock.fileno())
        older.send("back")
        with contextlib.suppress(OSError):
            while True:
                await heard(older)

    first, second = await asked_again(peers, takes_back)
    assert first >= 1
    assert second >= 2
    assert len([text for text in caplog.messages if "took it back" in text]) == 1


def another_lock(name):
    return Path(name).open()


@pytest.mark.parametrize("passes", ["another file", "the same file, not locked", "nothing"])
async def test_no_lock_is_asked_less_and_less(newer, holder, caplog, passes):
    lock, peers = holder

    with another_lock("/dev/null" if passes == "another file" else lock.name) as other:
        descriptors = [] if passes == "nothing" else [other.fileno()]

        async def fails(older):
            older.send("take v1beta1", *descriptors)
            with pytest.raises(Gone):
                await heard(older)

        (first,) = await asked_again(peers, fails, times=2)
    assert first >= 1
    assert len([text for text in caplog.messages if "can't hand it over" in text]) == 1


async def test_a_gateway_asks_once_it_has_a_list(make, kubelet, holder, gate):
    _, peers = holder
    slow, newer = gate([Device("a")]), make()
    newer.serve(configured(driver_class=scripted(devices=slow)))
    await slow.entered()
    await turns(200)
    assert peers.empty()
    slow.open()
    (await asked(peers)).close()
