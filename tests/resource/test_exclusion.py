"""Resources of one pool: whatever happens, one piece of hardware has one holder."""

import asyncio
import gc
import weakref
from dataclasses import replace
from typing import Any
from unittest.mock import ANY

import pytest

from dpgateway.deviceplugin.api import APIS
from dpgateway.deviceplugin.calls import KubeletCalls
from dpgateway.deviceplugin.holdings.observed import ResourceHoldings
from dpgateway.deviceplugin.holdings.values import Holdings
from dpgateway.drivers.lanes import Lanes
from dpgateway.errors import DriverError, DriverTimeout, RequestError
from dpgateway.kit.observable import Observable
from dpgateway.kit.threads import Threads
from dpgateway.model import Allocation, Device
from dpgateway.node.holders import Container, Noted
from dpgateway.resource.exclusion import Pool
from dpgateway.resource.front import Unreleased
from dpgateway.resource.ledger import LEAVING
from dpgateway.resource.offered import PUBLISH_DELAY
from dpgateway.resource.use import worked_on
from tests.support.resource import LOG, FakeLanes, FakeResource
from tests.support.resources import NoOptions, configured, scripted
from tests.support.specs import cdi
from tests.support.time import Clock, advance, in_virtual_time
from tests.support.waiting import turns, until

AES, FFT, RAW = "example.com/aes", "example.com/fft", "example.com/raw"
BOARDS = [Device(f"b{number}") for number in range(4)]
BOTH = Device("both", hardware=("b0", "b1"))


def served(name, pool, clock, devices=BOARDS, holdings=None, **config):
    """One resource of the pool while a gateway lives. Its driver answers when it is told to."""
    lanes = FakeLanes("prepare", "release", waits=True)
    one = FakeResource(configured(name=name, **config), lanes, clock, devices=devices, holdings=holdings)
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


async def test_what_another_front_gave_is_released_at_once(make):
    """Nothing else happens: the kubelet writes nothing, and the driver has no news."""
    aes = await make(AES)
    aes.holdings.set(aes.holdings.value.owed(("b0",), {"b0": frozenset(["b0"])}, {"b0": "b0"}))
    await turns()
    assert aes.lanes.released == ["b0"]


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


async def test_a_use_is_no_fault_once_all_uses_are_known(make):
    """A gateway that starts hears of one resource's holdings after the other."""
    raw, aes, fft = await make(RAW, known=False), await make(AES), await make(FFT)
    aes.note("b0")
    await turns()
    assert fft.reasons["b0"] == "held as example.com/aes by pod 1a"
    assert not fft.inventory.ledger.offers()["b0"].taken, "raw may have it, too"
    raw.remember()
    raw.note()
    await turns()
    assert fft.reasons == {"b0": "held as example.com/aes by pod 1a"}
    assert fft.inventory.ledger.offers()["b0"].taken


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
    await advance(2 * PUBLISH_DELAY)
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
    await advance(2 * PUBLISH_DELAY)
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


@pytest.mark.parametrize("hardware", [None, ("pci 3b",)])
async def test_who_is_refused_does_not_run(make, hardware):
    """Two containers had the same board before there was a pool. Who starts again is refused, the other one goes on."""
    aes, fft = [await make(name, known=False, devices=[Device("b0", hardware=hardware)]) for name in (AES, FFT)]
    raw = await make(RAW, devices=[Device("b0", hardware=("b0",))])
    given = Unreleased("", frozenset(["1a"]), frozenset(hardware or ["b0"]), device="b0")
    for one in aes, fft:
        one.remember({"b0": given})
        one.note("b0")
    await turns()
    with pytest.raises(RequestError, match=r"device b0 can't be prepared: .*held as example.com/fft by pod 1a"):
        await aes.calls.prepare(["b0"])
    assert aes.holdings.value.unreleased["b0"].hardware == given.hardware, "it is what the container was given"
    assert raw.reasons.keys() == (set() if hardware else {"b0"}), "its board isn't in use by its id"
    await fft.calls.prepare(["b0"])
    assert fft.reasons.keys() == {"b0"}, "it is kept for both"
    with pytest.raises(RequestError, match=r"device b0 can't be prepared: .*held as example.com/fft by pod 1a"):
        await aes.calls.prepare(["b0"])
    fft.holdings.set(fft.holdings.value.noted({}, 1e6, 1e6).released({"b0"}))
    await aes.calls.prepare(["b0"])
    with pytest.raises(RequestError, match=r"device b0 can't be prepared: .*held as example.com/aes by pod 1a"):
        await fft.calls.prepare(["b0"])


@pytest.mark.parametrize("by", ["another kubelet", "another gateway", "a kubelet that doesn't ask any more"])
async def test_others_may_have_started_who_was_refused(make, by):
    """A kubelet asks only once the resource is registered again. A gateway that lent the resource has it back."""
    aes, fft = [await make(name, known=False) for name in (AES, FFT)]
    for one in aes, fft:
        one.remember({"b0": Unreleased("", frozenset(["1a"]), frozenset(["b0"]), device="b0")})
        one.note("b0")
    await turns()
    with pytest.raises(RequestError, match="b0 can't be prepared"):
        await aes.calls.prepare(["b0"])
    before = aes.holdings.value
    if by == "another kubelet":
        aes.holdings.set(before.new_kubelet(1e6, "new"))
    elif by == "a kubelet that doesn't ask any more":
        claims = KubeletCalls(aes.calls.granting, aes.holdings, cdi(), APIS[0], claimed=lambda: True)
        assert not claims.options().prepare
    else:
        aes.remember(before.unreleased)
    with pytest.raises(RequestError, match=r"b0 can't be prepared: held as example.com/aes"):
        await fft.calls.prepare(["b0"])


async def test_a_driver_that_is_not_there(make):
    aes, fft = await make(AES), await make(FFT)
    await aes.give("b0")
    aes.driver.lanes = None
    aes.note()
    aes.inventory.fail("it crashed", overdue=False, deaf=True)
    await turns()
    aes.holdings.set(aes.holdings.value.noted({}, 1e6, 1e6))  # long after the Allocate
    await turns()
    assert fft.reasons == {}
    await fft.give("b0")
    aes.driver.lanes = aes.lanes
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
        one.lanes = one.driver.lanes = Lanes(driver, Observable(config), Threads(), group, LOG)
        yield one, held
        held.open()


class SlowAllocates:
    """A resource of the pool whose driver waits for ``held`` in each allocate."""

    def __init__(self, one, held, group, prepare):
        self.held = held
        self.told: list[list[str]] = []
        released = self.told.append
        methods = {} if prepare is None else {"prepare": prepare}
        kind = scripted(allocate=held, release=lambda devices: released([one.id for one in devices]), **methods)
        driver: Any = kind(NoOptions(), None)
        self.config = Observable(configured(name=AES))
        one.lanes = one.driver.lanes = Lanes(driver, self.config, Threads(), group, LOG)
        self.one = one

    async def give_up(self, *ids, deadline):
        """An Allocate whose allocate() goes on when the kubelet has its answer, or is gone itself."""
        before = self.held.running
        if deadline:
            self.config.set(configured(name=AES, timeouts={"allocate": 0.01}))
            with pytest.raises(DriverTimeout):
                await self.one.allocate(*ids)
            await until(lambda: self.held.running == before + 1)
        else:
            given = self.one.allocate(*ids)
            await until(lambda: self.held.running == before + 1)
            given.cancel()
            await asyncio.wait([given])


@pytest.fixture
async def slowly(make, gate):
    """Makes such a resource, whose driver gives this answer, or raises it."""
    async with asyncio.TaskGroup() as group:
        gates = []

        async def slowly(answer, prepare=None):
            gates.append(gate(answer))
            return SlowAllocates(await make(AES), gates[-1], group, prepare)

        yield slowly
        for one in gates:
            one.open()


@pytest.mark.parametrize("deadline", [True, False], ids=["deadline", "cancelled"])
@pytest.mark.parametrize(
    ("answer", "told"), [(Allocation(), [["b0"]]), (DriverError("no power"), [])], ids=["gave", "failed"]
)
async def test_an_allocate_that_outlived_its_call(make, slowly, answer, told, deadline):
    """Its driver may be programming the hardware."""
    aes, fft = await slowly(answer), await make(FFT)
    await aes.give_up("b0", deadline=deadline)
    reason = "held as example.com/aes by an allocate() of its driver that nobody waits for any more"
    assert fft.reasons == {"b0": reason}
    assert await fft.refusal("b0") == f"resource example.com/fft: device b0 is unhealthy: {reason}"
    assert aes.one.reasons == {}
    aes.held.open()
    await until(lambda: not fft.reasons)
    assert aes.told == told
    await fft.give("b0")


async def test_an_abandoned_allocate_under_the_same_name(make, slowly):
    """The kubelet asks for the device again, and its driver is asked again; it is told when it works on it no more."""
    aes, fft = await slowly(Allocation()), await make(FFT)
    await aes.give_up("b0", deadline=True)
    await aes.give_up("b0", deadline=True)
    assert (aes.held.running, fft.reasons.keys()) == (2, {"b0"})
    aes.held.open()
    await until(lambda: not fft.reasons)
    assert {tuple(ids) for ids in aes.told} == {("b0",)}


async def test_a_release_in_line_before_an_abandoned_allocate(make, slowly, gate):
    """It waits for a prepare of the last container, and then for the allocate."""
    preparing = gate()
    aes, fft = await slowly(Allocation(), preparing), await make(FFT)
    aes.config.set(configured(name=AES, timeouts={"prepare": 0.01}))
    with pytest.raises(DriverTimeout):
        await aes.one.calls.prepare(["b0"])
    await preparing.entered()
    aes.one.holdings.set(aes.one.holdings.value.owed(("b0",), {"b0": frozenset(["b0"])}))
    aes.one.releases.release_due()
    await aes.give_up("b0", deadline=False)
    preparing.open()
    await until(lambda: aes.one.lanes.preparing.idle)
    assert (aes.told, fft.reasons.keys()) == ([], {"b0"})
    aes.held.open()
    await until(lambda: not fft.reasons)
    assert aes.told == [["b0"]]


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


@pytest.mark.parametrize("boot", ["before", "now"])
async def test_a_container_that_was_started_by_a_boot_has_what_its_name_means_now(make, boot):
    """Numbers change with a boot, and a kubelet that has just started asks nobody before it starts containers. A link
    leads to the new number then, any other path to the old one.
    """
    holdings = ResourceHoldings(Holdings(boot="now"))
    serial = await make(AES, known=False, devices=[replace(LINK, hardware=("char 188:1",))], holdings=holdings)
    port, node = (await make(RAW, devices=[Device("ttyUSB1", hardware=("char 188:1",)), NODE])), "ttyUSB0"
    serial.note("by-id-1")
    given = Unreleased("", frozenset(["1a"]), frozenset(["char 188:0"]), device="by-id-1", driver="", boot=boot)
    serial.remember({"by-id-1": given})
    await turns()
    assert port.reasons.keys() == ({node, "ttyUSB1"} if boot == "before" else {node})
    serial.releases.release_due()  # as a resource does once it is served; from then on the journal has both
    (entry,) = serial.holdings.value.unreleased.values()
    assert entry.hardware == {f"char 188:{number}" for number in ((0, 1) if boot == "before" else (0,))}
    write_down(serial, {"by-id-1": ("c",)})
    await serial.calls.prepare(["by-id-1"])
    assert port.reasons.keys() == {"ttyUSB1"}


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


async def test_other_hardware_waits_for_a_call_on_what_it_was(make):
    aes, fft = await make(AES), await make(FFT)
    aes.remember({"b0": Unreleased("", frozenset(["1a"]), frozenset(["b1"]), device="b0")})
    aes.note("b0")
    await turns()
    aes.lanes.busy = frozenset(["b0"])
    with pytest.raises(RequestError, match="other hardware, and the driver still works on what they were before"):
        await aes.calls.prepare(["b0"])
    assert fft.reasons.keys() == {"b1"}
    aes.lanes.busy = frozenset()
    await aes.calls.prepare(["b0"])
    assert fft.reasons.keys() == {"b0"}


@pytest.mark.parametrize("why", ["another has it, too", "it vanished"])
async def test_what_is_freed_stays_in_use_while_the_driver_works_on_it(make, why):
    aes, fft, told = await make(AES, keep_lost=0), await make(FFT), []
    aes.remember({"b0": Unreleased("", frozenset(["1a"]), frozenset(["b0"]), device="b0")})
    aes.note("b0")
    if why == "another has it, too":
        fft.remember({"b0": Unreleased("", frozenset(["2b"]), frozenset(["b0"]), device="b0")})
        fft.note("b0", pod="2b")
    await turns()
    aes.lanes.busy = frozenset(["b0"])
    aes.lanes.release = lambda devices, free, tell: told.append(([one.id for one in devices], free(devices), tell))
    if why == "it vanished":
        aes.devices = BOARDS[1:]
        aes.list()
        aes.clock.now += LEAVING
    aes.holdings.set(aes.holdings.value.ended(frozenset(["1a"])))
    await turns()
    ((waits, called, tell),) = told
    assert (waits, called, aes.holdings.value.freed) == (["b0"], [], {"b0"})
    tell()
    assert aes.holdings.value.freed == frozenset()


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


async def test_a_release_that_an_earlier_drivers_call_holds_up(pool, make):
    """The call ends, and nothing else happens."""
    calls = [worked_on(AES, "prepare", [BOARDS[0]])]
    pool._besides = lambda: calls
    aes, fft = await make(AES), await make(FFT)
    aes.remember({"b0": Unreleased("", frozenset(["1a"]), frozenset(["b0"]), device="b0")})
    aes.note("b0")
    await turns()
    aes.holdings.set(aes.holdings.value.ended(frozenset(["1a"])))
    await turns()
    assert (aes.lanes.released, fft.reasons.keys()) == ([], {"b0"})
    calls.clear()
    pool.tell()
    await turns()
    assert (aes.lanes.released, fft.reasons) == (["b0"], {})


async def test_a_release_that_waits_for_the_whole_pool(pool, make):
    aes, fft = await make(AES), await make(FFT, known=False)
    aes.remember({"b0": Unreleased("", frozenset(["1a"]), frozenset(["b0"]), device="b0")})
    aes.note("b0")
    aes.holdings.set(aes.holdings.value.ended(frozenset(["1a"])))
    await turns()
    assert aes.lanes.released == []
    fft.remember()
    fft.note()
    await turns()
    assert aes.lanes.released == ["b0"]


async def test_other_hardware_while_it_is_prepared(make):
    aes, fft = await make(AES, devices=[Device("b0", hardware=("x",))]), await make(FFT, devices=[Device("y")])
    aes.remember({"b0": Unreleased("", frozenset(["1a"]), frozenset(["x"]), device="b0")})
    aes.note("b0")
    await turns()

    def other():
        aes.devices = [Device("b0", hardware=("y",))]
        aes.list()

    aes.lanes.meanwhile = other
    with pytest.raises(RequestError, match="b0 became other hardware while its container starts: y instead of x"):
        await aes.calls.prepare(["b0"])
    assert fft.reasons == {}
    await aes.calls.prepare(["b0"])
    assert (aes.lanes.prepared, fft.reasons.keys()) == (["b0", "b0"], {"y"})


async def test_a_resource_that_has_ended_waits_for_no_device():
    """It would be kept for ``keep_lost``."""
    aes = served(AES, Pool(), Clock(), devices=BOARDS[1:], keep_lost=3600)
    aes.list()
    aes.remember({"b0": Unreleased("", frozenset(["1a"]), frozenset(["b0"]), device="b0")})
    aes.note()
    aes.holdings.set(aes.holdings.value.ended(frozenset(["1a"])))
    await turns()
    assert aes.holdings.value.freed == {"b0"}
    aes.releases.rest()
    aes.end()
    ended = weakref.ref(aes.releases)
    del aes
    await turns()
    gc.collect()
    assert ended() is None


async def test_a_device_that_is_absent_twice_has_its_time_twice(make):
    """A static pod whose manifest was gone for a while has its device again."""
    aes = await make(AES, devices=BOARDS[1:], keep_lost=60)
    aes.remember({"b0": Unreleased("", frozenset(["1a"]), frozenset(["b0"]), device="b0")})
    aes.note("b0")
    aes.holdings.set(aes.holdings.value.ended(frozenset(["1a"])))
    await turns()
    assert aes.holdings.value.freed == {"b0"}
    aes.holdings.set(aes.holdings.value.ended(frozenset()))
    for devices in BOARDS, BOARDS[1:]:
        aes.devices = devices
        aes.list()
        aes.clock.now += 50
    aes.holdings.set(aes.holdings.value.ended(frozenset(["1a"])))
    await turns()
    assert aes.holdings.value.freed == {"b0"}
    aes.devices = BOARDS
    aes.list()
    assert aes.lanes.released == ["b0"]


async def test_no_release_is_waited_for_that_nobody_owes(make):
    """The driver before had none, and the present one doesn't know the device."""
    aes, fft = await make(AES, devices=BOARDS[1:], keep_lost=60), await make(FFT)
    gave = Unreleased("", frozenset(["1a"]), frozenset(["b0"]), device="b0", driver="")
    aes.remember({"b0": gave})
    aes.note("b0")
    await turns()
    assert fft.reasons.keys() == {"b0"}
    aes.holdings.set(aes.holdings.value.ended(frozenset(["1a"])))
    await turns()
    assert (aes.holdings.value.freed, aes.lanes.released, fft.reasons) == (frozenset(), [], {})
