"""Resources of one pool: whatever happens, one piece of hardware has one holder."""

import asyncio
import fcntl
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import ANY

import pytest

from dpgateway.deviceplugin.api import APIS
from dpgateway.deviceplugin.holdings.observed import ResourceHoldings
from dpgateway.deviceplugin.holdings.values import Holdings
from dpgateway.drivers.lanes import Lanes
from dpgateway.drivers.running import CallsAfterClose
from dpgateway.errors import DriverTimeout, RequestError
from dpgateway.kit.observable import Observable
from dpgateway.kit.threads import Threads
from dpgateway.model import Allocation, Device
from dpgateway.node.holders import Container, Noted
from dpgateway.resource.exclusion import Pool
from dpgateway.resource.front import Unreleased
from dpgateway.resource.inventory import Inventory
from dpgateway.resource.offered import SETTLING
from dpgateway.resource.orphans import Orphans
from dpgateway.resource.pools import Pools
from dpgateway.resource.use import worked_on
from tests.deviceplugin.pool_life import Life, Setting, Truth
from tests.support.holdings import Told
from tests.support.inline import Inline
from tests.support.resource import LOG, FakeLanes, FakeResource
from tests.support.resources import NoOptions, configured, scripted
from tests.support.time import Clock, advance, in_virtual_time
from tests.support.waiting import turns, until

AES, FFT, RAW = "example.com/aes", "example.com/fft", "example.com/raw"
BOARDS = [Device(f"b{number}") for number in range(4)]
BOTH = Device("both", hardware=("b0", "b1"))


def served(name, pool, clock, devices=BOARDS, **config):
    """One resource of the pool while a gateway lives. Its driver answers when it is told to."""
    lanes = FakeLanes("prepare", "release", waits=True)
    one = FakeResource(configured(name=name, **config), lanes, clock, devices=devices)
    one.inventory.exclusion.join(pool)
    one.follow()
    return one


@pytest.fixture
async def pool():
    return Pool()


@pytest.fixture
async def make(pool):
    made = []

    async def make(name, known=True, **more):
        made.append(one := served(name, pool, Clock(), **more))
        one.list()
        if known:
            one.remember()
            one.note()
        await turns()
        return one

    yield make
    for one in made:
        one.end()


async def test_in_flight_is_unhealthy_in_the_others(make):
    aes, fft = await make(AES), await make(FFT, shares=2)
    given = aes.allocate("b0")
    await asyncio.sleep(0)
    reason = "held as example.com/aes by a container"
    assert fft.reasons == {"b0": reason, "b0::1": reason}
    assert await fft.refusal("b0::1") == f"resource example.com/fft: device b0::1 is unhealthy: {reason}"
    aes.lanes.answer("b0", error=RequestError("no"))
    with pytest.raises(RequestError):
        await given
    assert fft.reasons == {}


async def pair():
    """For a test in virtual time, whose loop no fixture has."""
    pool = Pool()
    both = served(AES, pool, Clock()), served(FFT, pool, Clock())
    for one in both:
        one.list()
        one.remember()
        one.note()
    await turns()
    return both


@in_virtual_time
async def test_the_list_waits_for_a_quick_allocate():
    aes, fft = await pair()
    lists = fft.inventory.list
    version = lists.version
    given = aes.allocate("b0")
    await turns()
    assert lists.version == version
    aes.lanes.answer("b0")
    await given
    await advance(2 * SETTLING)
    assert lists.version == version + 1
    assert lists.value["b0"].health.reason == "held as example.com/aes by a container"
    aes.end()
    fft.end()


@in_virtual_time
async def test_an_allocate_that_fails_at_once():
    aes, fft = await pair()
    lists = fft.inventory.list
    version = lists.version
    given = aes.allocate("b0")
    await turns()
    assert fft.reasons
    aes.lanes.answer("b0", error=RequestError("no"))
    await asyncio.wait([given])
    await advance(2 * SETTLING)
    assert (lists.version, fft.reasons) == (version, {})
    aes.end()
    fft.end()


async def test_of_two_allocates_at_once_one_wins(make):
    aes, fft = await make(AES), await make(FFT, devices=[BOTH])
    first, second = aes.allocate("b1"), fft.allocate("both")
    await turns()
    reason = "resource example.com/fft: device both is unhealthy: b1 is held as example.com/aes by a container"
    with pytest.raises(RequestError, match=reason):
        await asyncio.wait_for(second, 20)
    aes.lanes.answer("b1")
    await first
    assert fft.reasons.keys() == {"both"}


async def test_free_again_after_its_driver_was_told(make):
    aes, fft = await make(AES), await make(FFT)
    await aes.give("b0")
    aes.note("b0")
    await turns()
    assert fft.reasons == {"b0": "held as example.com/aes by pod 1a"}
    aes.holdings.set(aes.holdings.value.ended(frozenset(["1a"])))
    await turns()
    assert (aes.lanes.released, fft.lanes.released) == (["b0"], [])
    assert fft.reasons == {}
    await fft.give("b0")


async def test_shares_under_one_name(make):
    aes, fft = await make(AES, shares=3), await make(FFT)
    await aes.give("b0")
    await aes.give("b0::2")
    assert aes.reasons == {}
    assert fft.reasons.keys() == {"b0"}


async def test_the_list_again_after_a_refused_pod(make):
    aes = await make(AES)
    await aes.give("b0")
    aes.note("b0", pod="refused")
    aes.holdings.set(aes.holdings.value.ended(frozenset(), frozenset(["refused"])))
    await turns()
    lists, listed = aes.inventory.list.version, aes.inventory.list.value
    aes.holdings.set(aes.holdings.value.heard({}, aes.clock.monotonic() + 1))
    await turns()
    assert (aes.inventory.list.version, aes.inventory.list.value) == (lists + 1, listed)
    aes.holdings.set(aes.holdings.value.heard({}, aes.clock.monotonic() + 1.1))
    await turns()
    assert aes.inventory.list.version == lists + 1


async def test_nothing_is_given_of_an_unknown_pool(make, pool):
    aes = await make(AES)
    assert pool.known.is_set()
    fft = await make(FFT, known=False)
    reason = "it isn't known yet what containers hold as example.com/fft"
    assert await aes.refusal("b0") == f"resource example.com/aes: device b0 is unhealthy: {reason}"
    fft.remember()
    fft.note("b0")
    await turns()
    assert aes.reasons == {"b0": "held as example.com/fft by pod 1a"}


async def test_hardware_of_a_removed_resource(tmp_path):
    threads = Threads()
    told = Told([AES, FFT])
    pools = Pools(Orphans(told, tmp_path / "device-plugins", tmp_path, threads), CallsAfterClose())
    following = asyncio.ensure_future(pools.run())
    gave = {AES: {"b0": Unreleased("1", frozenset(["1a"]), frozenset(["b0"]))}, FFT: {}}
    inventories = {}
    for name, unreleased in gave.items():
        pools.add(configured(name=name, pool="boards"))
        holdings = told.by_resource[name]
        inventories[name] = Inventory(Observable(configured(name=name)), holdings, LOG, Clock())
        pools.join(inventories[name].exclusion)
        inventories[name].take(tuple(BOARDS))
        noted, now = Noted((), frozenset([Container("1a", "c")])), time.monotonic()
        holdings.set(holdings.value.remembered(unreleased).noted(dict.fromkeys(unreleased, noted), now, now))
    await asyncio.wait_for(pools.known(FFT), 5)
    pools.remove(AES)
    await turns()
    assert not inventories[FFT].ledger.offers()["b0"].health.ok
    assert inventories[FFT].ledger.offers()["b1"].health.ok
    later = time.monotonic() + 60
    told.by_resource[AES].set(told.by_resource[AES].value.noted({}, later, later))
    await until(lambda: inventories[FFT].ledger.offers()["b0"].health.ok)
    for inventory in inventories.values():
        inventory.close()
    following.cancel()


@pytest.mark.parametrize(
    ("driver", "elsewhere", "owed", "logged"),
    [
        ("scripted", "", True, False),
        ("other", "", False, True),
        ("scripted", "another gateway serves it", False, False),
    ],
)
async def test_what_another_front_gave_is_owed_to_the_same_driver(tmp_path, caplog, driver, *, elsewhere, owed, logged):
    told = Told([])
    pools = Pools(Orphans(told, tmp_path / "device-plugins", tmp_path, Threads()), CallsAfterClose())
    following = asyncio.ensure_future(pools.run())
    config = configured(name=AES, front="dra")
    pools.add(config)
    own = ResourceHoldings(Holdings().remembered({}).given_by("scripted"))
    inventory = Inventory(Observable(config), own, LOG, Clock())
    pools.join(inventory.exclusion)
    inventory.take(tuple(BOARDS))
    if elsewhere:
        pools.elsewhere.add(AES, elsewhere)
    there, now = told.by_resource[AES], time.monotonic()
    gave = {"b0": Unreleased("1", frozenset(["1a"]), frozenset(["b0"]), device="b0", driver=driver)}
    noted = {"b0": Noted((), frozenset([Container("1a", "c")]))}
    there.set(there.value.remembered(gave).noted(noted, now, now))
    await turns()
    assert own.value.unreleased == {}
    there.set(there.value.noted({}, now + 60, now + 60))
    if elsewhere:  # until that gateway has ended, it isn't known
        await turns()
        assert AES in told.by_resource
    else:
        await until(lambda: AES not in told.by_resource)
    assert ("b0" in inventory.exclusion.used().behind) is owed
    assert ("isn't told" in caplog.text) is logged
    inventory.close()
    following.cancel()


async def test_hardware_of_another_is_not_prepared(make):
    aes, fft = await make(AES), await make(FFT, known=False)
    await asyncio.wait_for(aes.calls.prepare(["b0"]), 20)
    fft.remember()
    fft.note("b0")
    await turns()
    with pytest.raises(RequestError, match=r"device b0 can't be prepared: held as example.com/fft by pod 1a"):
        await aes.calls.prepare(["b0"])
    await fft.calls.prepare(["b0"])
    assert (aes.lanes.prepared, fft.lanes.prepared) == (["b0"], ["b0"])


async def test_a_driver_that_is_not_there(make):
    aes, fft = await make(AES), await make(FFT)
    await aes.give("b0")
    aes.driver.calls = None
    aes.note()
    aes.inventory.fail("it crashed", overdue=False, deaf=True)
    await turns()
    aes.holdings.set(aes.holdings.value.noted({}, 1e6, 1e6))  # long after the Allocate
    await turns()
    assert fft.reasons == {}
    await fft.give("b0")
    aes.driver.calls = aes.lanes
    aes.list()
    await turns()
    assert aes.lanes.released == []
    assert aes.reasons == {"b0": "held as example.com/fft by a container"}


@pytest.fixture
async def slow(make, gate):
    """A resource of the pool, and what its driver waits for whenever it prepares devices."""
    held = gate()
    kind = scripted(allocate=lambda devices: Allocation(), prepare=held, release=lambda devices: None)
    async with asyncio.TaskGroup() as group:
        one = await make(AES)
        driver: Any = kind(NoOptions(), None)
        config = configured(name=AES, timeouts={"prepare": 0.01})
        one.lanes = one.driver.calls = Lanes(driver, Observable(config), Threads(), group, LOG)
        yield one, held
        held.open()


async def test_a_prepare_that_outlived_its_allocate(make, slow):
    (aes, held), fft = slow, await make(FFT)
    with pytest.raises(DriverTimeout):
        await aes.calls.allocate([["b0"]], APIS[1])
    await held.entered()  # a busy machine begins a thread after the deadline
    assert held.running == 1
    reason = "held as example.com/aes by a container"
    assert fft.reasons == {"b0": reason}
    assert await fft.refusal("b0") == f"resource example.com/fft: device b0 is unhealthy: {reason}"
    with pytest.raises(RequestError, match=r"device b0 can't be prepared: held as example.com/aes"):
        await fft.calls.prepare(["b0"])
    held.open()
    await until(lambda: not fft.reasons)
    await fft.give("b0")


async def test_a_prepare_that_outlived_its_deadline(make, slow):
    (aes, held), fft = slow, await make(FFT)
    await aes.calls.allocate([["b0"]], APIS[0])
    with pytest.raises(DriverTimeout):
        await aes.calls.prepare(["b0"])
    await held.entered()
    aes.note("b0")
    aes.holdings.set(aes.holdings.value.ended(frozenset(["1a"])))
    await turns()
    assert (held.running, fft.reasons.keys()) == (1, {"b0"})
    held.open()
    await until(lambda: not fft.reasons)


async def test_a_failed_allocate_before_its_release(make):
    """What a driver does at a release it may do to another container otherwise."""
    aes, fft = await make(AES), await make(FFT)
    told = []
    aes.lanes.release = lambda devices, free, telling: told.append(telling)
    given = aes.allocate("b0")
    await turns()
    aes.inventory.take(())  # the board is gone when its driver answers
    aes.lanes.answer("b0")
    with pytest.raises(RequestError):
        await given
    assert fft.reasons.keys() == {"b0"}
    aes.list()
    assert fft.reasons.keys() == {"b0"}
    told.pop()()
    await turns()
    assert fft.reasons == {}


LINK, NODE = (Device(name, hardware=("char 188:0",)) for name in ("by-id-1", "ttyUSB0"))


@pytest.mark.parametrize("free", ["by-id-1", "ttyUSB0"])
async def test_two_that_have_the_same_hardware(make, free):
    """A gateway that knew nothing of hardware gave it away under both names, and nobody wrote down what it was."""
    serial = await make(AES, devices=[LINK, NODE], shares=2)
    serial.note("by-id-1", "ttyUSB0")
    await turns()
    held = {name: f"char 188:0 is held as {other}" for name, other in (("by-id-1", "ttyUSB0"), ("ttyUSB0", "by-id-1"))}
    for name, reason in held.items():
        assert await serial.refusal(f"{name}::1") == f"resource {AES}: device {name}::1 is unhealthy: {reason}"
    serial.holdings.set(serial.holdings.value.noted({}, 1e6, 1e6))
    serial.note(*held.keys() - {free})
    await turns()
    assert serial.reasons == dict.fromkeys((free, f"{free}::1"), held[free])
    serial.note()
    await turns()
    assert serial.reasons == {}


async def test_of_two_holders_the_last_is_named(make):
    aes, fft = await make(AES, shares=2), await make(FFT)
    aes.lanes.release = lambda devices, free, told: None  # it takes its time
    for number in (0, 1):
        noted = {f"b0{'::1' * share}": Noted((), frozenset([Container(str(share), "c")])) for share in (0, 1)}
        now = aes.clock.monotonic()
        aes.holdings.set(aes.holdings.value.noted(noted, now, now).ended(frozenset([str(1 - number)])))
        await turns()
        assert fft.reasons == {"b0": f"held as example.com/aes by pod {number}"}


@pytest.mark.parametrize("board", ["b0", "b1"])
async def test_an_earlier_drivers_call_hides_no_holder(pool, make, board):
    """They were given away while these resources were in no pool."""
    pool._besides = lambda: [worked_on(FFT, "prepare", [BOTH])]
    aes, fft = await make(AES), await make(FFT, devices=[BOTH], shares=2)
    aes.note(board)
    fft.note("both")
    await turns()
    assert fft.reasons["both::1"] == f"{board} is held as example.com/aes by pod 1a"


async def test_a_name_behind_a_device(make):
    aes = await make(AES, devices=[BOARDS[0], BOTH])
    await aes.give("both")
    assert aes.reasons == {"b0": "b0 is held as both"}


@pytest.mark.parametrize("known", ["a list", "a journal"])
async def test_a_grant_under_a_name_that_is_gone(make, known):
    if known == "a list":
        aes = await make(AES, devices=[BOTH])
        await aes.give("both")
        aes.devices = BOARDS
        aes.list()
    else:
        aes = await make(AES, known=False)
        aes.remember({"both": Unreleased("", frozenset(["1a"]), frozenset({"b0", "b1"}))})
    aes.note("both")
    await turns()
    assert aes.reasons == {"both": ANY, "b0": "b0 is held as both", "b1": "b1 is held as both"}
    assert "b0 is held as both" in await aes.refusal("b0")


async def test_hardware_of_another_name(make):
    """The link means another port by now, which a container has under the port's own name."""
    serial = await make(AES, devices=[replace(LINK, hardware=("char 188:1",)), NODE])
    await serial.give("by-id-1")
    await serial.give("ttyUSB0")
    serial.note("by-id-1", "ttyUSB0")
    serial.devices = [LINK, NODE]
    serial.list()
    with pytest.raises(RequestError, match="by-id-1 can't be prepared: char 188:0 is held as ttyUSB0"):
        await serial.calls.prepare(["by-id-1"])
    await serial.calls.prepare(["ttyUSB0"])
    serial.holdings.set(serial.holdings.value.noted({}, 1e6, 1e6))
    serial.note("ttyUSB0")
    await turns()
    serial.note()
    await turns()
    assert (serial.lanes.prepared, serial.lanes.released) == (["ttyUSB0"], ["ttyUSB0"])
    assert serial.reasons == {}


@pytest.mark.parametrize(("others", "excluded"), [((), {"ttyUSB0"}), (("init",), {"ttyUSB0", "ttyUSB1"})])
async def test_a_restarted_container_has_what_its_name_means_now(make, others, excluded):
    """What it had before runs no more, unless another container has that id, too."""
    serial = await make(AES, devices=[replace(LINK, hardware=("char 188:1",)), NODE])
    await serial.give("by-id-1")
    write_down(serial, {"by-id-1": ("c", *others)})
    serial.devices = [LINK, NODE, Device("ttyUSB1", hardware=("char 188:1",))]
    serial.list()
    await turns()
    assert serial.reasons.keys() == {"ttyUSB1"}
    await serial.calls.prepare(["by-id-1"])
    assert serial.reasons.keys() == excluded


async def test_two_links_that_swap(make):
    """Each wants what the other one had. Who is refused doesn't run, so the other one may start."""
    one, two = ("char 188:0",), ("char 188:1",)
    serial = await make(AES, devices=[Device("a", hardware=one), Device("b", hardware=two)])
    await serial.give("a")
    await serial.give("b")
    write_down(serial, {"a": ("c",), "b": ("d",)})
    serial.devices = [Device("a", hardware=two), Device("b", hardware=one)]
    serial.list()
    await turns()
    with pytest.raises(RequestError, match="device a can't be prepared: char 188:1 is held as b"):
        await serial.calls.prepare(["a"])
    await serial.calls.prepare(["b"])
    await serial.calls.prepare(["a"])


def write_down(member, containers):
    """The kubelet writes down which containers have which ids."""
    now = member.clock.monotonic()
    noted = {id_: Noted((), frozenset(Container("1a", name) for name in names)) for id_, names in containers.items()}
    member.holdings.set(member.holdings.value.noted(noted, now, now))


async def test_other_hardware_waits_for_the_pool(make):
    aes, fft = await make(AES), await make(FFT, known=False)
    aes.remember({"b0": Unreleased("", frozenset(["1a"]), frozenset(["b1"]))})
    aes.note("b0")
    await turns()
    with pytest.raises(RequestError, match="b0 can't be prepared: they became other hardware, and it isn't known yet"):
        await aes.calls.prepare(["b0"])
    fft.remember()
    fft.note()
    await turns()
    await aes.calls.prepare(["b0"])


async def test_in_flight_is_what_the_driver_was_asked(make):
    serial = await make(AES, devices=[LINK, NODE])
    given = serial.allocate("by-id-1")
    await turns()
    serial.devices = [replace(LINK, hardware=("char 188:1",)), NODE]
    serial.list()
    assert "char 188:0 is held as by-id-1" in await serial.refusal("ttyUSB0")
    serial.lanes.answer("by-id-1")
    with pytest.raises(RequestError, match=r"by-id-1 became other hardware .*: char 188:1 instead of char 188:0"):
        await given


async def test_a_device_that_got_more_hardware(make):
    serial = await make(AES, devices=[LINK, replace(NODE, hardware=("char 188:1",))])
    given = serial.allocate("by-id-1")
    await turns()
    serial.devices = [replace(LINK, hardware=("char 188:0", "char 188:1")), *serial.devices[1:]]
    serial.list()
    serial.lanes.answer("by-id-1")
    await given
    serial.devices = [LINK, *serial.devices[1:]]
    serial.list()
    assert serial.reasons == {"ttyUSB0": "char 188:1 is held as by-id-1"}


@in_virtual_time
async def test_what_is_gone_and_whose_pod_ended():
    """A kubelet of an idle node writes its checkpoint again when the next pod comes, and none fits until then."""
    loop: Any = asyncio.get_running_loop()
    aes = served(AES, Pool(), loop.clock, [BOTH], keep_lost=60)
    aes.list()
    aes.remember()
    aes.note()
    await aes.give("both")
    aes.note("both")
    aes.devices = BOARDS
    aes.list()
    aes.holdings.set(aes.holdings.value.ended(frozenset(["1a"])))
    await advance(59)
    assert aes.reasons.keys() == {"both", "b0", "b1"}
    await advance(2)
    assert aes.reasons.keys() == {"both"}
    aes.end()


async def test_a_name_of_other_hardware_waits(make):
    """A gateway was killed, and what the name means changed meanwhile."""
    aes, fft = await make(AES, known=False, shares=2), await make(FFT, known=False)
    aes.remember({"b0": Unreleased("", frozenset(["1a"]), frozenset(["b1"]))})
    aes.note("b0")
    await turns()
    assert "it isn't known yet what containers hold as example.com/fft" in await aes.refusal("b0::1")
    fft.remember()
    fft.note("b0")
    await turns()
    assert "held as example.com/fft by pod 1a" in await aes.refusal("b0::1")


async def test_what_only_an_old_journal_knows(make):
    """A gateway was killed before it wrote down that the driver had been told, and that another name was given away."""
    raw, aes = await make(RAW, known=False, devices=[BOTH]), await make(AES, known=False)
    raw.remember({"both": Unreleased("", hardware=frozenset({"b0", "b1"}))})
    raw.note()
    assert "it isn't known yet what containers hold as example.com/aes" in await raw.refusal("both")
    aes.remember()
    aes.note("b0")
    await turns()
    assert "b0 is held as example.com/aes" in await raw.refusal("both")


# what becomes of the pool when its resources change


@pytest.fixture
async def live(tmp_path):
    """Makes a gateway that serves these resources, and knows what containers hold."""
    made = []

    async def live(*names, threads=None):
        loop: Any = SimpleNamespace(clock=Clock())
        loop.clock.now = time.monotonic()  # journals have dates
        truth = Truth({name: Setting(tuple(BOARDS)) for name in names})
        life = Life(loop, tmp_path, truth, lambda _: None, threads or Inline())
        made.append(life)
        for name in names:
            await know(life, name)
        return life

    yield live
    for life in made:
        await life.end(killed=True)


async def know(life, name, **pods):
    served = life.served[name]
    await served.remembering.load()
    note(life, name, **pods)
    served.list()
    served.ready()
    await turns()


def note(life, name, *gone, **pods):
    life.loop.clock.now += 1
    now, holdings = life.loop.clock.now, life.usages.by_resource[name]
    noted = {id_: Noted((), frozenset([Container(pod, "c")])) for id_, pod in pods.items()}
    holdings.set(holdings.value.noted(noted, now, now).ended(frozenset(gone)))


async def give(life, name, *ids):
    given = life.served[name].allocate(*ids)
    await turns()
    life.served[name].lanes.asked[-1][1].set_result(None)
    await given
    note(life, name, **dict.fromkeys(ids, "1a"))
    await turns()


async def refusal(life, name):
    with pytest.raises(RequestError) as caught:
        async with asyncio.timeout(5):
            await life.served[name].allocate("b0")
    return str(caught.value)


async def remove(life, name):
    await life.stop(name)
    del life.truth.settings[name]
    life.pools.remove(name)
    await turns()


async def test_a_resource_that_leaves_the_pool(live):
    life = await live(AES, FFT)
    await give(life, AES, "b0")
    assert life.served[FFT].reasons.keys() == {"b0"}
    life.truth.settings[AES] = replace(life.truth.settings[AES], pool=None)
    life.amend(AES)
    assert life.served[FFT].reasons == {}
    await give(life, FFT, "b0", "b1")
    assert life.served[AES].reasons == {}


async def test_resources_that_come_into_one_pool(live):
    life = await live(AES, FFT)
    life.truth.settings[AES] = replace(life.truth.settings[AES], pool=None)
    life.amend(AES)
    await give(life, AES, "b0")
    life.truth.settings[AES] = replace(life.truth.settings[AES], pool="boards")
    life.amend(AES)
    assert life.served[FFT].reasons == {"b0": "held as example.com/aes by pod 1a"}


async def test_a_new_resource_of_a_pool(live):
    life = await live(FFT)
    life.usages.add(AES)
    life.pools.add(configured(name=AES, pool="boards"))
    assert "it isn't known yet what containers hold as example.com/aes" in await refusal(life, FFT)


class Slow(Inline):
    """The disk with the journals doesn't answer."""

    def call(self, name, function, seconds=0.0):
        return asyncio.get_running_loop().create_future() if name == "journals" else super().call(name, function)


async def test_a_pool_waits_for_all_journals(live):
    life = await live(FFT, threads=Slow())
    assert "a resource that isn't configured any more" in await refusal(life, FFT)


class Counted(Inline):
    """Counts the looks at the journals, of which each ends when it may."""

    def __init__(self):
        super().__init__()
        self.looks = []

    def call(self, name, function, seconds=0.0):
        done = super().call(name, function)
        if name != "journals":
            return done
        self.looks.append(asyncio.get_running_loop().create_future())
        return self.looks[-1]

    def answer(self):
        for look in self.looks:
            if not look.done():
                look.set_result(({}, []))


@pytest.fixture
async def waiting(live, tmp_path):
    """Resources that have waited for another gateway, of which one that isn't configured here is served still."""
    threads = Counted()
    life = await live(FFT, threads=threads)
    threads.answer()
    await turns()
    threads.looks.clear()
    folder = tmp_path / "device-plugins" / "dpgateway"
    folder.mkdir(parents=True)
    with (folder / f"{'0' * 16}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        tasks = [asyncio.create_task(life.pools.others_ended()) for _ in range(64)]
        await turns()
        yield SimpleNamespace(life=life, lock=lock, tasks=tasks, threads=threads)


async def test_one_look_for_many_that_wait(waiting):
    waiting.lock.close()
    await until(lambda: waiting.threads.looks)
    await turns()
    waiting.threads.answer()
    await asyncio.gather(*waiting.tasks)
    assert len(waiting.threads.looks) == 1


async def test_a_resource_that_comes_during_a_look(waiting):
    """The other gateway may have written since."""
    waiting.lock.close()
    await until(lambda: waiting.threads.looks)
    late = asyncio.create_task(waiting.life.pools.others_ended())
    await turns()
    waiting.threads.answer()
    await asyncio.gather(*waiting.tasks)
    await until(lambda: len(waiting.threads.looks) == 2)
    assert not late.done()
    waiting.threads.answer()
    await late


@pytest.mark.parametrize("reading", [False, True])
async def test_a_resource_that_stops_during_a_look(waiting, reading):
    if reading:
        waiting.lock.close()
        await until(lambda: waiting.threads.looks)
    first, *others = waiting.tasks
    first.cancel()
    await asyncio.wait([first])
    waiting.lock.close()
    await until(lambda: len(waiting.threads.looks) == 1 + reading)
    assert not any(task.done() for task in others)
    waiting.threads.answer()
    await asyncio.gather(*others)


async def test_free_hardware_of_a_removed_resource(live):
    life = await live(AES, FFT)
    await give(life, AES, "b0", "b1")
    await remove(life, AES)
    assert life.served[FFT].reasons.keys() == {"b0", "b1"}
    note(life, AES, "1a", b0="1a", b1="2b")
    await turns()
    assert life.served[FFT].reasons == {"b1": "held as example.com/aes by pod 2b"}


async def test_a_removed_resource_that_is_back(live):
    life = await live(AES, FFT)
    await give(life, AES, "b0")
    await remove(life, AES)
    life.truth.settings[AES] = Setting(tuple(BOARDS))
    await life.begin(AES)
    await know(life, AES, b0="1a")
    note(life, AES, "1a", b0="1a")
    await turns()
    assert AES in life.usages.by_resource
    assert life.served[FFT].reasons == {"b0": "held as example.com/aes by a container"}, "its driver wasn't told yet"
    life.served[AES].lanes.tell()
    await turns()
    assert life.served[FFT].reasons == {} == life.served[AES].reasons


async def test_a_prepare_of_a_driver_that_has_ended(live):
    life = await live(AES, FFT)
    await give(life, AES, "b0")
    preparing = asyncio.ensure_future(life.served[AES].calls.prepare(["b0"]))
    await turns()
    await remove(life, AES)
    note(life, AES, "1a")
    await turns()
    holder = "prepare() of its driver, which ended before that call did"
    assert life.served[FFT].reasons == {"b0": f"held as example.com/aes by {holder}"}
    for ended in life.truth.preparing.values():
        ended.set_result(None)
    await turns()
    assert life.served[FFT].reasons == {}
    await preparing
