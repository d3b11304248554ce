"""The older gateway, and a test that plays the newer one, step by step."""

import asyncio
import contextlib
import errno
import fcntl
import os
import select
import socket
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc
import pytest

from dpgateway.deviceplugin.server.endpoint import HEARING
from dpgateway.deviceplugin.wire import v1beta1_pb2
from dpgateway.kit.seqpacket import Gone, Peer
from dpgateway_simulator import Kubelet, PluginError
from tests.support.full import small_disk
from tests.support.handover import R, ends, heard, offered, passed, path, serves
from tests.support.inside import Inside
from tests.support.kubelet import registered
from tests.support.resources import Scripted, configured, scripted
from tests.support.serving import Client, status
from tests.support.time import slowly
from tests.support.waiting import turns, until


async def test_the_newer_gateway_dies_before_it_serves(kubelet, older, newer):
    with passed(newer) as lock:
        os.pwrite(lock, b"pid 1\n", 0)
    newer.close()
    assert await kubelet.allocate(R, ["a"])
    assert (registered(kubelet, R), kubelet.counts(R)) == (1, (2, 2))
    assert path(older, "lock").read_text().startswith(f"pid {os.getpid()} on ")


async def test_calls_wait_two_seconds_for_serves(kubelet, older, newer, caplog):
    call = asyncio.ensure_future(kubelet.allocate(R, ["a"]))
    assert await heard(newer) == "back"
    await call
    assert (registered(kubelet, R), kubelet.counts(R)) == (1, (2, 2))
    failed = f"the gateway that takes {R} over failed, so this one serves on: it hasn't served within 2 s"
    assert failed in caplog.messages


async def test_the_newer_gateway_dies_while_it_registers(kubelet, older, newer):
    serves(newer, older)
    assert await heard(newer) == "register"
    newer.close()
    await kubelet.wait_for(lambda: registered(kubelet, R) == 2)
    await offered(kubelet)


@pytest.mark.parametrize(("kubelet", "connections"), [("1.24", 0), ("1.31", 1), ("1.37", 0)], indirect=["kubelet"])
async def test_register_passes_the_streams_connection(kubelet, older, newer, connections):
    """If the kubelet keeps one client for each resource."""
    with passed(newer):
        serves(newer, older)
        assert await heard(newer) == "register"
    descriptors = newer.take_descriptors()
    assert len(descriptors) == connections
    for descriptor in descriptors:
        os.close(descriptor)
    newer.close()
    await kubelet.wait_for(lambda: registered(kubelet, R) == 2)  # a gateway that ends before keeps its server for ever


async def test_the_lock_stays_with_the_one_left(older, newer):
    with passed(newer) as lock, path(older, "lock").open() as another:
        serves(newer, older)
        await heard(newer)
        newer.send("listed")
        with pytest.raises(Gone):
            await heard(newer)
        await older.end()
        with pytest.raises(BlockingIOError):
            fcntl.flock(another, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert os.path.samestat(os.fstat(lock), os.fstat(another.fileno()))


async def test_the_connection_ends_after_the_streams(kubelet, older, newer):
    """Which end once whoever is connected has read all, or had the time for it."""
    with socket.socket(socket.AF_UNIX) as reads_nothing:
        reads_nothing.connect(str(path(older, "sock")))
        await until(lambda: select.select([reads_nothing], [], [], 0)[0])
        serves(newer, older)
        await heard(newer)
        assert len(connected(older)) == 2
        began = time.monotonic()
        newer.send("listed")
        with pytest.raises(Gone):
            await heard(newer)
        assert time.monotonic() - began >= HEARING
        await until(lambda: not connected(older))


def connected(gateway):
    """The connections that its server has accepted (proc_net(5): in state 3)."""
    lines = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()]
    bound = str(path(gateway, "sock")).removesuffix(".sock")
    return [line for line in lines if line[5] == "03" and line[-1].startswith(bound) and line[-1].endswith(".new")]


async def test_a_handover_waits_for_a_register(make, kubelet, dial):
    """A kubelet opens the stream of a Register that was given up."""
    kubelet.misbehaviour.stall_register()
    older = make()
    older.serve(configured(driver_class=Scripted))
    await kubelet.wait_for(lambda: any(event.kind == "register" for event in kubelet.events))
    newer = await dial(older)
    newer.send("ask 1")
    taken = asyncio.ensure_future(heard(newer))
    await turns(200)
    assert not taken.done()
    kubelet.misbehaviour.behave()
    assert await taken == "take v1beta1"
    await offered(kubelet)  # a stream is open, and its list comes
    assert registered(kubelet, R) == 1


async def test_nothing_is_given_after_register(make, kubelet, dial):
    given: list[object] = []
    older = make()
    older.serve(configured(driver_class=scripted(allocate=given.append)))
    await offered(kubelet)
    newer, client = await dial(older), Client(path(older, "sock"))
    await client.call("GetDevicePluginOptions")
    newer.send("ask 1")
    assert await heard(newer) == "take v1beta1"
    serves(newer, older)  # and has died since
    assert await heard(newer) == "register"
    newer.send("listed")
    with pytest.raises(Gone):
        await heard(newer)
    request = v1beta1_pb2.AllocateRequest(container_requests=[{"devices_ids": ["a"]}])
    code, _ = await status(client.call("Allocate", request))
    assert (code, given) == (grpc.StatusCode.UNAVAILABLE, [])
    await client.close()


async def test_a_gateway_that_ends_finishes_its_handover(kubelet, older, newer):
    serves(newer, older)
    assert await heard(newer) == "register"
    ending = asyncio.ensure_future(older.end())
    await turns()
    assert kubelet.counts(R) == (2, 2)
    newer.send("listed")
    await ending


async def test_a_gateway_that_ends_gives_nothing_more(
    make: Callable[[], Inside], kubelet: Kubelet, dial: Callable[[Inside], Awaitable[Peer]]
) -> None:
    """The newer one has the lock, and has perhaps read the journal."""
    given: list[object] = []
    older = make()
    older.serve(configured(driver_class=scripted(allocate=given.append)))
    await offered(kubelet)
    newer = await dial(older)
    newer.send("ask 1")
    assert await heard(newer) == "take v1beta1"
    with slowly():  # else the handover may be over by then
        call = asyncio.ensure_future(kubelet.allocate(R, ["a"]))
        await turns(200)
        ending = asyncio.ensure_future(older.end())
        await until(ends)
    with passed(newer):
        await ending
    with pytest.raises(PluginError, match="the gateway is ending"):
        await call
    assert not given


async def test_what_is_not_on_disk_is_not_handed_over(
    short_path: Path, make: Callable[[], Inside], kubelet: Kubelet, dial: Callable[[Inside], Awaitable[Peer]]
) -> None:
    """The newer gateway would read the journal without it."""

    async def answer() -> str:
        newer = await dial(older)
        newer.send("ask 1")
        try:
            said: str = await heard(newer)
        except Gone:
            said = ""  # so soon after a failure
        newer.close()
        return said

    with small_disk(short_path / "state") as disk:
        older = make()
        older.serve(configured(driver_class=Scripted))
        await offered(kubelet)
        disk.fill()
        assert (await kubelet.admit("p", {"c": {R: 1}}))["ok"]
        assert await answer() == "back"
        assert kubelet.counts(R) == (2, 2)
        disk.free()
        assert await until(answer) == "take v1beta1"
        await older.end()


async def test_it_listens_once_it_can_again(
    kubelet: Kubelet, older: Inside, dial: Callable[[Inside], Awaitable[Peer]], caplog: pytest.LogCaptureFixture
) -> None:
    """Until then it is served and registered all the same."""
    await until(path(older, "next").exists)
    path(older, "sock").unlink()
    path(older, "next").unlink()
    path(older, "next").mkdir()
    await kubelet.restart()
    await offered(kubelet)
    assert any("no newer gateway can take it over: can't listen" in text for text in caplog.messages)
    assert "registering failed" not in caplog.text
    path(older, "next").rmdir()
    newer = await dial(older)
    newer.send("ask 1")
    assert await heard(newer) == "take v1beta1"


@pytest.mark.parametrize("step", ["take v1beta1", "register"])
async def test_started_again_during_a_handover(kubelet, older, newer, caplog, step):
    """The newer gateway has the resource when the new driver's plugin begins. Asked for it, that one would give it
    back, and not ask again.
    """
    if step == "register":
        serves(newer, older)
        assert await heard(newer) == "register"
    with slowly():  # else the handover may be over by then
        older.reload(older.configuration(configured(driver_class=scripted())))
        await until(ends)
    if step == "register":  # it ends only once it has heard that
        newer.send("listed")
    with pytest.raises(Gone):
        await heard(newer)
    await until(lambda: any("waiting because" in text for text in caplog.messages))
    assert any("this one takes over when that one ends" in text for text in caplog.messages)


async def test_a_gateway_that_ends_leaves_the_names(older, newer):
    older.ending.tell()
    await older.task
    assert [path(older, suffix).exists() for suffix in ("lock", "sock", "next")] == [True] * 3


@pytest.mark.parametrize("text", ["ask 2", "ask", "ask 1 please", "take v1beta1", "\0\x1b\N{SNOWMAN}", "ask 1" * 1000])
async def test_another_question_is_hung_up_on(kubelet, older, dial, text):
    newer = await dial(older)
    newer.send(text)
    with pytest.raises(Gone):
        await heard(newer)
    assert await kubelet.allocate(R, ["a"])


@pytest.mark.parametrize("answer", ["ask 1", "serves 2", "listed", "s" * 5000])
async def test_an_unknown_message_takes_back(kubelet, older, newer, answer):
    call = asyncio.ensure_future(kubelet.allocate(R, ["a"]))
    newer.send(answer)
    assert await heard(newer) == "back"
    await call
    assert (registered(kubelet, R), kubelet.counts(R)) == (1, (2, 2))


async def link_to_the_older_one(older):
    path(older, "link").hardlink_to(path(older, "sock"))
    path(older, "link").rename(path(older, "sock"))


async def no_socket(older):
    path(older, "sock").unlink()


async def no_other_socket(older):
    """The older one would ask itself."""


@pytest.mark.parametrize("at_its_place", [no_other_socket, no_socket, link_to_the_older_one])
async def test_serves_without_a_socket_takes_back(kubelet, older, newer, caplog, at_its_place):
    await at_its_place(older)
    newer.send("serves")
    assert await heard(newer) == "back"
    assert await kubelet.allocate(R, ["a"])
    assert registered(kubelet, R) == 1


async def test_asking_again_at_once_is_not_heard(kubelet, older, dial, caplog):
    for _ in range(3):
        newer = await dial(older)
        newer.send("ask 1")
        with contextlib.suppress(Gone):
            if await heard(newer) == "take v1beta1":
                newer.send("no")
                assert await heard(newer) == "back"
    assert len([text for text in caplog.messages if "so this one serves on" in text]) == 1


async def test_many_who_ask_for_nothing_keep_nobody_out(make, kubelet, older):
    idle = [Peer.dial(path(older, "next")) for _ in range(50)]
    newer = make()
    newer.serve(configured(driver_class=Scripted))
    await kubelet.wait_for(lambda: registered(kubelet, R) == 2)
    await offered(kubelet)
    for one in idle:
        one.close()


async def test_another_user_can_not_ask(older):
    for folder in (older.directory.parent, older.directory):
        folder.chmod(0o755)
    assert await dialled_by_nobody(path(older, "next")) == errno.EACCES
    path(older, "next").parent.chmod(0o755)
    assert await dialled_by_nobody(path(older, "next")) == errno.EACCES
    path(older, "next").chmod(0o666)
    assert await dialled_by_nobody(path(older, "next")) == 0


async def dialled_by_nobody(socket):
    """The error. The tests' Python may be in a directory of root's, so it is Perl, which every Debian has.

    It changes its user itself: for ``user=`` Python forks, and gRPC's threads can crash the child before it is Perl.
    """
    dial = "socket(S, AF_UNIX, SOCK_SEQPACKET, 0) && connect(S, sockaddr_un($ARGV[0])) or exit $!"
    dial = f"use Socket; ($<, $>) = (65534, 65534); {dial}"
    perl = await asyncio.create_subprocess_exec("perl", "-e", dial, str(socket))
    return await perl.wait()
