"""Two gateways in one process, or one and a test that plays the other, step by step."""

import asyncio
import contextlib
import errno
import fcntl
import hashlib
import itertools
import os
import socket
from functools import partial
from pathlib import Path

import grpc
import pytest

from dpgateway import Allocation, Device, Health
from dpgateway.deviceplugin.handover.protocol import keeps_one_client
from dpgateway.deviceplugin.wire import v1beta1_pb2
from dpgateway.kit.seqpacket import Gone, Listener, Peer
from dpgateway_simulator import Kubelet
from tests.support.inside import Inside
from tests.support.resources import Scripted, configured, scripted
from tests.support.serving import Client, status
from tests.support.waiting import turns, until

R, S, T = "example.com/thing", "example.com/other", "example.com/third"


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
    """What a newer gateway says, which the test plays."""
    return await dial(older)


def path(gateway, suffix, name=R):
    return gateway.directory / "dpgateway" / f"{hashlib.sha256(name.encode()).hexdigest()[:16]}.{suffix}"


def registered(kubelet, name=R):
    return sum(event.kind == "registered" and event.fields["resource"] == name for event in kubelet.events)


async def offered(kubelet, *names):
    for name in names or (R,):
        await kubelet.wait_for(lambda name=name: kubelet.counts(name)[1] == 2)


async def heard(peer, seconds=20):
    async with asyncio.timeout(seconds):
        return await peer.hear()


def serves(newer, gateway, name=R):
    """It binds its socket, and says so."""
    bound = path(gateway, "sock", name)
    with socket.socket(socket.AF_UNIX) as its:
        its.bind(str(bound.with_suffix(".new")))
    bound.with_suffix(".new").rename(bound)
    newer.send("serves")


@contextlib.contextmanager
def passed(peer):
    (descriptor,) = peer.passed()
    yield descriptor
    os.close(descriptor)


@pytest.mark.parametrize("kubelet", ["1.8", "1.9.5", "1.10", "1.24", "1.37"], indirect=True)
async def test_a_newer_gateway_registers_and_the_older_one_waits_for_its_end(make, kubelet, older, caplog):
    caplog.set_level("INFO", "dpgateway")
    newer = make()
    newer.serve(configured(driver_class=Scripted))
    await until(lambda: any("handed over" in text for text in caplog.messages))
    await offered(kubelet)
    assert registered(kubelet) == 2
    assert await kubelet.allocate(R, ["a"])
    await newer.end()
    await kubelet.wait_for(lambda: registered(kubelet) == 3)
    await offered(kubelet)


async def test_what_is_asked_of_the_older_one_is_answered_before_it_hands_over(make, kubelet, gate):
    slow, older, newer = gate(Allocation(env={"A": "1"})), make(), make()
    older.serve(configured(driver_class=scripted(allocate=slow)))
    await offered(kubelet)
    call = asyncio.ensure_future(kubelet.allocate(R, ["a"]))
    await slow.entered()
    newer.serve(configured(driver_class=Scripted))
    await turns(200)
    assert registered(kubelet) == 1
    slow.open()
    await call
    await kubelet.wait_for(lambda: registered(kubelet) == 2)


async def test_the_driver_of_a_gateway_that_prepares_ends_that_first(make, kubelet, gate):
    slow, older, newer = gate(), make(), make()
    older.serve(configured(driver_class=scripted(prepare=slow), timeouts={"prepare": 0.01}))
    await offered(kubelet)
    with contextlib.suppress(Exception):  # the call goes on after its deadline
        await kubelet.pre_start(R, ["a"])
    newer.serve(configured(driver_class=Scripted))
    await turns(200)
    assert registered(kubelet) == 1
    slow.open()
    await kubelet.wait_for(lambda: registered(kubelet) == 2)


async def test_a_gateway_without_a_list_takes_nothing_over(make, kubelet, older, gate):
    hangs, newer = gate([]), make()
    newer.serve(configured(driver_class=scripted(devices=hangs), timeouts={"list": 0.01}))
    await hangs.entered()
    await asyncio.sleep(0.05)  # past its deadline; nothing happens, and there is nothing to wait for
    assert registered(kubelet) == 1
    assert await kubelet.allocate(R, ["a"])


@pytest.mark.parametrize("devices", [[], [Device("a", Health.unhealthy("no power"))]], ids=["none", "unhealthy"])
async def test_a_gateway_without_a_healthy_device_takes_none_away(make, kubelet, older, caplog, devices):
    newer, found = make(), list(devices)
    newer.serve(configured(driver_class=scripted(devices=lambda: list(found)), refresh=0.05))
    await until(lambda: any("this one has no healthy device" in text for text in caplog.messages))
    assert (registered(kubelet), kubelet.counts(R)) == (1, (2, 2))
    assert await kubelet.allocate(R, ["a"])
    found[:] = [Device("a"), Device("b")]
    await kubelet.wait_for(lambda: registered(kubelet) == 2)
    await offered(kubelet)


async def test_where_no_device_is_healthy_a_newer_gateway_may_have_none(make, kubelet, caplog):
    caplog.set_level("INFO", "dpgateway")
    older, newer = make(), make()
    older.serve(configured(driver_class=scripted(devices=lambda: [Device("a", Health.unhealthy("no power"))])))
    await kubelet.wait_for(lambda: kubelet.counts(R) == (1, 0))
    newer.serve(configured(driver_class=scripted(devices=list)))
    await until(lambda: any("handed over" in text for text in caplog.messages))


async def test_only_the_gateway_that_serves_tells_its_driver_what_is_free(make, kubelet, caplog):
    caplog.set_level("INFO", "dpgateway")
    told: dict[str, list[str]] = {"older": [], "newer": []}
    drivers = [scripted(release=lambda devices, who=who: told[who].append(devices[0].id)) for who in told]
    older, newer = make(), make()
    older.serve(configured(driver_class=drivers[0]))
    await offered(kubelet)
    for pod in "pq":
        assert (await kubelet.admit(pod, {"c": {R: 1}}))["ok"]
    newer.serve(configured(driver_class=drivers[1]))
    await until(lambda: any("handed over" in text for text in caplog.messages))
    kubelet.remove("p")
    await until(lambda: told["newer"])
    assert [len(devices) for devices in told.values()] == [0, 1]


# the test plays the newer gateway


async def test_a_newer_gateway_that_dies_before_it_serves_is_as_if_it_had_never_asked(kubelet, older, newer):
    newer.send("ask 1")
    assert await heard(newer) == "take v1beta1"
    with passed(newer) as lock:
        os.pwrite(lock, b"pid 1\n", 0)
    newer.close()
    assert await kubelet.allocate(R, ["a"])
    assert (registered(kubelet), kubelet.counts(R)) == (1, (2, 2))
    assert path(older, "lock").read_text().startswith(f"pid {os.getpid()} on ")


async def test_calls_wait_for_a_newer_gateway_that_hangs_only_for_two_seconds(kubelet, older, newer, caplog):
    newer.send("ask 1")
    assert await heard(newer) == "take v1beta1"
    call = asyncio.ensure_future(kubelet.allocate(R, ["a"]))
    assert await heard(newer) == "back"
    await call
    assert (registered(kubelet), kubelet.counts(R)) == (1, (2, 2))
    failed = f"the gateway that takes {R} over failed, so this one serves on: it hasn't served within 2 s"
    assert failed in caplog.messages


async def test_the_older_gateway_registers_again_if_the_newer_one_dies_while_it_does(kubelet, older, newer):
    newer.send("ask 1")
    assert await heard(newer) == "take v1beta1"
    serves(newer, older)
    assert await heard(newer) == "register"
    newer.close()
    await kubelet.wait_for(lambda: registered(kubelet) == 2)
    await offered(kubelet)


async def test_the_lock_stays_with_whoever_of_the_two_is_left(older, newer):
    newer.send("ask 1")
    await heard(newer)
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


async def test_the_older_gateway_ends_the_connection_after_its_streams(kubelet, older, newer):
    newer.send("ask 1")
    await heard(newer)
    serves(newer, older)
    await heard(newer)
    assert connected(older)
    newer.send("listed")
    with pytest.raises(Gone):
        await heard(newer)
    assert not connected(older)


def connected(gateway):
    """The connections that its server has accepted (proc_net(5): in state 3)."""
    lines = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()]
    bound = str(path(gateway, "sock")).removesuffix(".sock")
    return [line for line in lines if line[5] == "03" and line[-1].startswith(bound) and line[-1].endswith(".new")]


async def test_a_gateway_whose_register_is_in_flight_hands_over_once_it_has_a_stream(make, kubelet, dial):
    """A kubelet opens the stream of a Register that was given up."""
    kubelet.misbehaviour.stall_register()
    older = make()
    older.serve(configured(driver_class=Scripted))
    newer = await dial(older)
    newer.send("ask 1")
    taken = asyncio.ensure_future(heard(newer))
    await turns(200)
    assert not taken.done()
    kubelet.misbehaviour.behave()
    assert await taken == "take v1beta1"
    assert (registered(kubelet), kubelet.counts(R)) == (1, (2, 2))


async def test_the_older_gateway_gives_nothing_once_the_newer_one_owns_the_lock(make, kubelet, dial):
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


async def test_an_older_gateway_that_ends_meanwhile_finishes_what_it_began(kubelet, older, newer):
    newer.send("ask 1")
    await heard(newer)
    serves(newer, older)
    assert await heard(newer) == "register"
    ending = asyncio.ensure_future(older.end())
    await turns()
    assert kubelet.counts(R) == (2, 2)
    newer.send("listed")
    await ending


async def test_an_older_gateway_that_ends_meanwhile_leaves_the_names_to_the_newer_one(older, newer):
    newer.send("ask 1")
    assert await heard(newer) == "take v1beta1"
    older.ending.tell()
    await older.task
    assert [path(older, suffix).exists() for suffix in ("lock", "sock", "next")] == [True] * 3


@pytest.mark.parametrize("text", ["ask 2", "ask", "ask 1 please", "take v1beta1", "\0\x1b\N{SNOWMAN}", "ask 1" * 1000])
async def test_whoever_asks_for_something_else_is_left_alone(kubelet, older, newer, text):
    newer.send(text)
    with pytest.raises(Gone):
        await heard(newer)
    assert await kubelet.allocate(R, ["a"])


@pytest.mark.parametrize("answer", ["ask 1", "serves 2", "listed", "s" * 5000])
async def test_the_older_gateway_serves_on_if_it_does_not_understand_the_newer_one(kubelet, older, newer, answer):
    newer.send("ask 1")
    assert await heard(newer) == "take v1beta1"
    call = asyncio.ensure_future(kubelet.allocate(R, ["a"]))
    newer.send(answer)
    assert await heard(newer) == "back"
    await call
    assert (registered(kubelet), kubelet.counts(R)) == (1, (2, 2))


async def link_to_the_older_one(older):
    path(older, "link").hardlink_to(path(older, "sock"))
    path(older, "link").rename(path(older, "sock"))


async def no_socket(older):
    path(older, "sock").unlink()


async def no_other_socket(older):
    """The older one would ask itself."""


@pytest.mark.parametrize("at_its_place", [no_other_socket, no_socket, link_to_the_older_one])
async def test_nothing_is_passed_on_to_a_newer_gateway_that_says_it_serves_and_does_not(
    kubelet, older, newer, caplog, at_its_place
):
    newer.send("ask 1")
    assert await heard(newer) == "take v1beta1"
    await at_its_place(older)
    newer.send("serves")
    assert await heard(newer) == "back"
    assert await kubelet.allocate(R, ["a"])
    assert registered(kubelet) == 1


async def test_a_newer_gateway_that_asks_again_at_once_after_a_failure_is_not_heard(kubelet, older, dial, caplog):
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
    await kubelet.wait_for(lambda: registered(kubelet) == 2)
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


# the test plays the older gateway


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


async def asked(peers):
    async with asyncio.timeout(20):
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


@pytest.fixture
async def holders(make):
    holders = Holders(make(), (R, S))
    yield holders
    for name in list(holders.locks):
        holders.let_go(name)
    for peer in holders.met:
        peer.close()


async def taken(holders, *names):
    """A newer gateway serves them."""
    peers = [await asked(holders.peers[name]) for name in names]
    for name, peer in zip(names, peers, strict=True):
        peer.send("take v1beta1", holders.locks[name].fileno())
    assert [await heard(peer) for peer in peers] == ["serves"] * len(names)
    return peers


async def test_a_gateway_goes_on_alone_if_the_older_one_dies_after_it_gave_the_lock(make, kubelet, holder):
    lock, peers = holder
    newer = make()
    newer.serve(configured(driver_class=Scripted))
    older = await asked(peers)
    older.send("take v1beta1", lock.fileno())
    older.close()
    await offered(kubelet)


@pytest.mark.parametrize(
    ("answer", "locks"), [("take v1beta1", 0), ("take v1beta1", 2), ("takes v1beta1", 1), ("register", 0), ("no", 253)]
)
async def test_what_a_gateway_does_not_understand_leaves_the_older_one_alone(make, kubelet, holder, answer, locks):
    lock, peers = holder
    newer = make()
    newer.serve(configured(driver_class=Scripted))
    older = await asked(peers)
    older.send(answer, *[lock.fileno()] * locks)
    with pytest.raises(Gone):
        await heard(older)
    older.close()
    assert registered(kubelet) == 0


async def test_a_gateway_that_was_too_slow_lets_go_and_asks_again(make, kubelet, holder):
    lock, peers = holder
    newer = make()
    newer.serve(configured(driver_class=Scripted))
    older = await asked(peers)
    older.send("take v1beta1", lock.fileno())
    assert await heard(older) == "serves"
    older.send("back")
    again = await asked(peers)
    assert registered(kubelet) == 0
    older.close()
    again.close()


@pytest.mark.parametrize("turn", range(24))
async def test_a_gateway_that_is_stopped_just_as_it_begins_again_is_stopped(make, holder, turn):
    """Its tasks end because of the one, and it because of the other."""
    lock, peers = holder
    newer = make()
    newer.serve(configured(driver_class=Scripted))
    older = await asked(peers)
    older.send("take v1beta1", lock.fileno())
    assert await heard(older) == "serves"
    older.send("back")
    older.close()
    await turns(turn)
    await newer.end()


def running(name):
    return [task for task in asyncio.all_tasks() if task.get_name() == name]


@pytest.mark.parametrize("turn", range(6))
async def test_a_resource_that_is_stopped_once_its_parts_have_ended_does_not_begin_again(make, holder, gate, turn):
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
    await asyncio.wait({resource}, timeout=5)
    assert resource.done()
    older.close()


async def test_a_gateway_that_was_too_slow_to_serve_hears_so_although_nobody_listens_any_more(make, kubelet, holder):
    lock, peers = holder
    newer = make()
    newer.serve(configured(driver_class=Scripted))
    older = await asked(peers)
    older.send("take v1beta1", lock.fileno())
    older.send("back")
    older.close()
    (await asked(peers)).close()
    assert registered(kubelet) == 0


async def test_a_gateway_that_was_too_slow_to_list_lets_go_although_nobody_listens_any_more(
    make, kubelet, holder, caplog
):
    lock, peers = holder
    newer = make()
    newer.serve(configured(driver_class=Scripted))
    older = await asked(peers)
    older.send("take v1beta1", lock.fileno())
    assert await heard(older) == "serves"
    older.send("register")
    await offered(kubelet)
    await turns()  # it says so, and isn't heard
    older.send("back")
    older.close()
    await until(lambda: any("took it back" in text for text in caplog.messages))


async def test_a_gateway_hands_nothing_on_before_the_older_one_has_ended_its_streams(make, kubelet, holder):
    """It could want it back; and a kubelet 1.37 that loses one of three streams may call either of the others."""
    lock, peers = holder
    newer, newest = make(), make()
    newer.serve(configured(driver_class=Scripted))
    older = await asked(peers)
    older.send("take v1beta1", lock.fileno())
    assert await heard(older) == "serves"
    older.send("register")
    assert await heard(older) == "listed"
    newest.serve(configured(driver_class=Scripted))
    (await asked(peers)).close()  # whoever asks still asks the older one
    assert (registered(kubelet), kubelet.counts(R)) == (1, (2, 2))
    older.close()
    await kubelet.wait_for(lambda: registered(kubelet) == 2)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (["registers"], "expected register, found 'registers'"),
        (["register", "listen"], "expected nothing more, found 'listen'"),
    ],
)
async def test_a_gateway_that_does_not_understand_the_older_one_lets_go_and_asks_again(make, holder, caplog, said, why):
    lock, peers = holder
    newer = make()
    newer.serve(configured(driver_class=Scripted))
    older = await asked(peers)
    older.send("take v1beta1", lock.fileno())
    for text in said:
        assert await heard(older) in {"serves", "listed"}
        older.send(text)
    again = await asked(peers)
    assert any(f"took it back: {why}" in text for text in caplog.messages)
    older.close()
    again.close()


async def test_who_took_over_does_not_look_for_what_an_ended_gateway_left_when_it_fails_and_is_tried_again(
    make, kubelet, holder, caplog
):
    lock, peers = holder
    newer = make()
    newer.serve(configured(driver_class=Scripted))
    older = await asked(peers)
    path(newer, "next").unlink()
    path(newer, "next").mkdir()
    older.send("take v1beta1", lock.fileno())
    assert await heard(older) == "serves"
    (newer.directory.parent / "state").mkdir(mode=0o700, exist_ok=True)
    (newer.directory.parent / "state" / "of-another-resource.json").write_text("damaged")
    older.send("register")
    older.close()
    await until(lambda: any("can't be served" in text for text in caplog.messages))
    path(newer, "next").rmdir()
    await until(path(newer, "next").exists)
    assert not any("of-another-resource" in text for text in caplog.messages)


async def asked_again(peers, fails, times=3):
    """How many seconds pass between the times that an older gateway is asked, which fails each time."""
    asks = []
    for _ in range(times):
        peer = await asked(peers)
        asks.append(asyncio.get_running_loop().time())
        await fails(peer)
        peer.close()
    return [later - earlier for earlier, later in itertools.pairwise(asks)]


async def test_an_older_gateway_that_takes_back_at_once_is_asked_less_and_less_and_logged_once(make, holder, caplog):
    lock, peers = holder
    newer = make()
    newer.serve(configured(driver_class=Scripted))

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
async def test_a_gateway_that_passes_no_lock_is_asked_less_and_less_and_logged_once(make, holder, caplog, passes):
    lock, peers = holder
    newer = make()
    newer.serve(configured(driver_class=Scripted))

    with another_lock("/dev/null" if passes == "another file" else lock.name) as other:
        descriptors = [] if passes == "nothing" else [other.fileno()]

        async def fails(older):
            older.send("take v1beta1", *descriptors)
            with pytest.raises(Gone):
                await heard(older)

        first, second = await asked_again(peers, fails)
    assert first >= 1
    assert second >= 2
    assert len([text for text in caplog.messages if "can't hand it over" in text]) == 1


async def test_a_gateway_asks_once_it_has_a_list_and_not_before(make, kubelet, holder, gate):
    _, peers = holder
    slow, newer = gate([Device("a")]), make()
    newer.serve(configured(driver_class=scripted(devices=slow)))
    await slow.entered()
    await turns(200)
    assert peers.empty()
    slow.open()
    (await asked(peers)).close()


# pools


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


BOTH = [configured(name=name, driver_class=Scripted, pool="p") for name in (R, S)]


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


async def test_no_call_is_passed_on_before_the_whole_pool_is_served(make, kubelet, ask):
    older = make()
    older.serve(*BOTH)
    one, other = await ask(older)
    assert [await heard(peer) for peer in (one, other)] == ["take v1beta1"] * 2
    serves(other, older, S)
    call = asyncio.ensure_future(kubelet.allocate(S, ["a"]))
    await turns(200)
    one.send("no")
    assert [await heard(peer) for peer in (one, other)] == ["back"] * 2
    assert await call


async def registering(older, ask):
    """Whether the newer gateway, which the test plays, has the list of one resource of the pool at the kubelet."""
    one, other = await ask(older)
    assert [await heard(peer) for peer in (one, other)] == ["take v1beta1"] * 2
    serves(one, older, R)
    serves(other, older, S)
    assert await heard(one) == "register"
    one.send("listed")
    assert await heard(other) == "register"
    return one, other


async def test_a_pool_is_let_go_only_once_the_kubelet_has_the_list_of_its_last_resource(make, kubelet, ask):
    older = make()
    older.serve(*BOTH)
    one, other = await registering(older, ask)
    await turns(200)
    assert not one.gone
    other.send("listed")
    for peer in (one, other):
        with pytest.raises(Gone):
            await heard(peer)


async def test_a_pool_is_taken_back_as_one_if_any_of_it_fails(make, kubelet, ask):
    older = make()
    older.serve(*BOTH)
    one, other = await registering(older, ask)
    other.send("no")
    assert [await heard(peer) for peer in (one, other)] == ["back"] * 2
    for peer in (one, other):
        peer.close()
    await kubelet.wait_for(lambda: (registered(kubelet, R), registered(kubelet, S)) == (2, 2))
    await offered(kubelet, R, S)
    assert await kubelet.allocate(R, ["a"])


async def test_a_pool_whose_registrations_take_long_is_handed_over_as_one(make, kubelet, caplog):
    caplog.set_level("INFO", "dpgateway")
    older, newer = make(), make()
    older.serve(*BOTH)
    await offered(kubelet, R, S)
    kubelet.misbehaviour.stall_register(S)
    newer.serve(*BOTH)
    await kubelet.wait_for(lambda: registered(kubelet, R) == 2)
    await turns(500)
    assert not any(text.startswith("handed over") for text in caplog.messages)
    kubelet.misbehaviour.behave()
    await until(lambda: sum(text.startswith("handed over") for text in caplog.messages) == 2)
    await offered(kubelet, R, S)
    assert not any("took it back" in text for text in caplog.messages)


async def test_a_pool_goes_on_with_the_newer_gateway_if_the_older_one_ends_before_all_of_it_is_registered(
    make, kubelet, ask
):
    older = make()
    older.serve(*BOTH)
    one, other = await registering(older, ask)
    ending = asyncio.ensure_future(older.end())
    for peer in (one, other):
        with pytest.raises(Gone):
            await heard(peer)
    await ending
    assert [path(older, "lock", name).exists() for name in (R, S)] == [True] * 2


async def test_the_part_of_a_pool_that_a_newer_gateway_has_gives_nothing_away_until_it_has_the_whole(
    make, kubelet, holders
):
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


async def test_what_another_gateway_has_of_a_pool_is_not_waited_for(make, kubelet, holders, dial):
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


async def test_the_rest_of_a_pool_serves_on_if_one_of_it_ends_while_it_is_handed_over(make, kubelet, ask):
    older = make()
    older.serve(*BOTH)
    one, other = await ask(older)
    assert [await heard(peer) for peer in (one, other)] == ["take v1beta1"] * 2
    call = asyncio.ensure_future(kubelet.allocate(S, ["a"]))
    older.reload(older.configuration(BOTH[1]))
    assert await heard(other) == "back"
    one.close()  # else it has the lock, and so a part of the pool
    await asyncio.wait([call])  # it may be cut off by the end of its stream
    await kubelet.wait_for(lambda: registered(kubelet, S) == 2)
    await offered(kubelet, S)
    assert await kubelet.allocate(S, ["b"])


async def test_a_newer_gateway_may_ask_again_if_one_of_a_pool_ends_before_it_is_handed_over(make, kubelet, ask, gate):
    slow, older = gate(Allocation()), make()
    both = [configured(name=name, driver_class=scripted(allocate=slow), pool="p") for name in (R, S)]
    older.serve(*both)
    await offered(kubelet, R, S)
    call = asyncio.ensure_future(kubelet.allocate(S, ["a"]))
    await slow.entered()
    _, other = await ask(older)
    await turns(200)
    older.reload(older.configuration(both[1]))
    with pytest.raises(Gone):
        await heard(other)
    slow.open()
    await call


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
def test_which_kubelets_end_a_newer_stream_with_an_older_one(agent, one):
    assert keeps_one_client(agent) == one


async def test_what_is_given_of_a_resource_that_only_the_older_gateway_has_stays_taken(make, kubelet):
    """The newer one has read all journals before that, and must know it of the same hardware under another name."""
    older, newer = make(), make()
    older.serve(*BOTH)
    await offered(kubelet, R, S)
    newer.serve(BOTH[1])
    await turns(500)
    assert (await kubelet.admit("p", {"c": {R: 1}}))["ok"]
    await older.end()
    await kubelet.wait_for(lambda: registered(kubelet, S) == 2)
    await kubelet.wait_for(lambda: kubelet.counts(S) == (2, 1))
    assert all_healthy(kubelet, S) == 1


async def test_what_the_older_gateway_gives_while_it_ends_stays_taken(make, kubelet, gate):
    slow, older, newer = gate(Allocation(env={"A": "1"})), make(), make()
    older.serve(configured(name=R, driver_class=scripted(allocate=slow), pool="p"), BOTH[1])
    await offered(kubelet, R, S)
    newer.serve(BOTH[1])
    admitted = asyncio.ensure_future(kubelet.admit("p", {"c": {R: 1}}))
    await slow.entered()
    served = path(older, "sock", S).stat().st_ctime_ns
    older.ending.tell()
    await until(lambda: path(newer, "sock", S).exists() and path(newer, "sock", S).stat().st_ctime_ns != served)
    await turns(200)
    slow.open()
    given = (await admitted)["stage"] == "start"  # unless the older one had no time left
    await kubelet.wait_for(lambda: registered(kubelet, S) == 2)
    await kubelet.wait_for(lambda: kubelet.counts(S) == (2, 1 if given else 2))
    assert all_healthy(kubelet, S) == 1 or not given


# a resource that has another name in the newer gateway


async def admitted(kubelet, pod, name):
    return (await kubelet.admit(pod, {"c": {name: 1}}))["ok"]


async def test_a_renamed_resource_of_a_pool_is_given_by_nobody_while_the_gateway_with_the_old_name_serves(
    make, kubelet
):
    older, newer = make(), make()
    older.serve(BOTH[0])
    await offered(kubelet, R)
    assert await admitted(kubelet, "p", R)
    newer.serve(BOTH[1])
    await kubelet.wait_for(lambda: kubelet.counts(S) == (2, 0))
    with pytest.raises(Exception, match=f"another gateway serves {R}: pid {os.getpid()} on "):
        await kubelet.allocate(S, ["b"])
    await older.end()
    await kubelet.wait_for(lambda: kubelet.counts(S) == (2, 1))
    assert all_healthy(kubelet, S) == 0


async def test_what_is_given_under_an_old_name_after_the_start_of_the_newer_gateway_stays_taken(make, kubelet):
    """Its journal has that, the newer one's first look at the journals hadn't."""
    older, newer = make(), make()
    older.serve(configured(name=R, driver_class=Scripted, pool="p"))
    await offered(kubelet, R)
    newer.serve(configured(name=S, driver_class=Scripted))
    await offered(kubelet, S)
    assert await admitted(kubelet, "p", R)
    await kubelet.wait_for(lambda: kubelet.counts(S) == (2, 1))
    await older.end()
    assert await admitted(kubelet, "q", S)
    assert not await admitted(kubelet, "r", S)


async def test_a_renamed_resource_of_another_pool_keeps_nothing_from_this_one(make, kubelet):
    """A release that adds a resource costs the others no pod."""
    older, newer = make(), make()
    older.serve(configured(name=R, driver_class=Scripted, pool="q"))
    await offered(kubelet, R)
    newer.serve(BOTH[1])
    await offered(kubelet, S)
    assert await admitted(kubelet, "p", R)
    await kubelet.wait_for(lambda: kubelet.counts(S) == (2, 1))


@contextlib.contextmanager
def served_by_pod(gateway, name, pod="a/b"):
    """Another gateway, of another pid namespace, has the lock of a resource that is in no pool."""
    lock = path(gateway, "lock", name)
    lock.parent.mkdir(mode=0o700, exist_ok=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(f"pid 7 in pod {pod}, since 2026-01-31T12:00:00Z\n{name}\npool \n")
        file.flush()
        yield


@pytest.mark.parametrize("pod", ["a/b", "a/another"])
async def test_a_renamed_resource_in_no_pool_waits_for_the_gateway_from_which_the_others_come(make, kubelet, pod):
    """A gateway of another kind, with resources of its own, keeps nothing from this one."""
    newer = make()
    newer.directory.mkdir(exist_ok=True)
    with served_by_pod(newer, T):
        with served_by_pod(newer, R, pod):
            newer.serve(*(configured(name=name, driver_class=Scripted) for name in (S, T)))
            await kubelet.wait_for(lambda: kubelet.counts(S) == (2, 0 if pod == "a/b" else 2))
        await offered(kubelet, S)


@pytest.mark.parametrize("pool", [None, "p"])
async def test_what_is_held_under_a_name_that_went_is_not_given_under_another_one(make, kubelet, pool):
    gateway = make()
    gateway.serve(configured(driver_class=Scripted, pool=pool))
    await offered(kubelet)
    assert await admitted(kubelet, "p", R)
    gateway.reload(gateway.configuration(configured(name=S, driver_class=Scripted, pool=pool)))
    await kubelet.wait_for(lambda: kubelet.counts(S) == (2, 1))
    assert await admitted(kubelet, "q", S)
    assert not await admitted(kubelet, "r", S)
    kubelet.remove("p")
    await offered(kubelet, S)


def all_healthy(kubelet, name):
    """How many of its lists said so."""
    lists = [event.fields for event in kubelet.events if event.kind == "list received"]
    return sum(fields["resource"] == name and fields["healthy"] == 2 for fields in lists)
