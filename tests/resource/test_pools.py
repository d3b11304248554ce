"""The pools of a gateway: what becomes of one when its resources come, change and go."""

import asyncio
import fcntl
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from dpgateway.deviceplugin.holdings.observed import ResourceHoldings
from dpgateway.deviceplugin.holdings.values import Holdings
from dpgateway.drivers.running import CallsAfterClose
from dpgateway.errors import RequestError
from dpgateway.kit.observable import Observable
from dpgateway.kit.threads import Threads
from dpgateway.model import Device
from dpgateway.node.holders import Container, Noted
from dpgateway.resource.front import Unreleased
from dpgateway.resource.inventory import Inventory
from dpgateway.resource.journal import Journal
from dpgateway.resource.orphans import Orphans
from dpgateway.resource.pools import Pools
from tests.deviceplugin.pool_life import Life, Setting, Truth
from tests.support.holdings import Told
from tests.support.inline import Inline
from tests.support.resource import LOG
from tests.support.resources import configured
from tests.support.time import Clock
from tests.support.waiting import turns, until

AES, FFT, RAW = "example.com/aes", "example.com/fft", "example.com/raw"
BOARDS = [Device(f"b{number}") for number in range(4)]


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
        inventory.list.close()
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
    assert ("b0" in inventory.exclusion.own_use().by_hardware) is owed
    assert ("isn't told" in caplog.text) is logged
    inventory.list.close()
    following.cancel()


async def test_nobody_gets_what_another_front_gave_before_it_is_owed(tmp_path):
    """The driver that has to release it, on the resource's front of now, doesn't run yet."""
    told = Told([FFT])
    pools = Pools(Orphans(told, tmp_path / "device-plugins", tmp_path, Threads()), CallsAfterClose())
    following, inventories = asyncio.ensure_future(pools.run()), {}
    own = ResourceHoldings(Holdings().remembered({}).noted({}, 0.0, 0.0))
    for name, front, usage in ((AES, "dra", own), (FFT, "deviceplugin", told.by_resource[FFT])):
        pools.add(configured(name=name, front=front, pool="boards"))
        inventories[name] = Inventory(Observable(configured(name=name)), usage, LOG, Clock())
        pools.join(inventories[name].exclusion)
        inventories[name].take(tuple(BOARDS))
    there, now, offers = told.by_resource[AES], time.monotonic(), inventories[FFT].ledger.offers
    told.by_resource[FFT].set(told.by_resource[FFT].value.remembered({}).noted({}, now, now))
    gave = {"b0": Unreleased("1", frozenset(["1a"]), frozenset(["b0"]), device="b0", driver="scripted")}
    there.set(there.value.remembered(gave).noted({"b0": Noted((), frozenset([Container("1a", "c")]))}, now, now))
    await asyncio.wait_for(pools.known(FFT), 5)

    there.set(there.value.noted({}, now + 60, now + 60))
    await turns(50)
    assert [id_ for id_, offer in offers().items() if not offer.health.ok] == ["b0"]
    own.set(own.value.given_by("scripted"))
    await until(lambda: AES not in told.by_resource)
    assert "b0" in own.value.unreleased
    assert not offers()["b0"].health.ok
    own.set(own.value.released(["b0"]))
    inventories[FFT].exclusion.exclude()
    assert offers()["b0"].health.ok
    for inventory in inventories.values():
        inventory.list.close()
    following.cancel()


async def test_a_call_that_fails_while_its_resource_ends(tmp_path):
    """Its hardware is free for all others from the resource's end on."""
    told = Told([])
    pools = Pools(Orphans(told, tmp_path / "device-plugins", tmp_path, Threads()), CallsAfterClose())
    inventories = {}
    for name in (AES, FFT):
        pools.add(configured(name=name, front="dra"))
        nothing = Holdings().remembered({}).noted({}, 0.0, 0.0)
        told.by_resource[name].set(nothing)
        inventories[name] = Inventory(Observable(configured(name=name)), ResourceHoldings(nothing), LOG, Clock())
        pools.join(inventories[name].exclusion)
        inventories[name].take(tuple(BOARDS))
    ends, offers = inventories[AES].usage, inventories[FFT].ledger.offers
    ends.set(ends.value.began(("b0",)))
    pools.end([AES])
    assert not offers()["b0"].health.ok
    ends.set(ends.value.failed(("b0",)))
    pools.remove(AES)
    assert offers()["b0"].health.ok
    for inventory in inventories.values():
        inventory.list.close()


@pytest.mark.parametrize(
    ("places", "then", "counts"),
    [
        (("boards", "boards"), lambda _: None, True),
        (("boards", None), lambda _: None, False),
        (("boards", None), lambda pools: pools.end([AES]), True),
        (("boards", "new"), lambda pools: pools.follow(configured(name=AES, front="dra", pool="new")), True),
        (("new", "boards"), lambda pools: pools.follow(configured(name=FFT, front="dra", pool="new")), True),
    ],
    ids=["in its pool", "beside it", "it ends", "it goes there", "another one comes"],
)
@pytest.mark.parametrize("orphan", [True, False])
async def test_where_counts_what_another_front_gave(tmp_path, places, then, counts, orphan):
    told = Told([])
    pools = Pools(Orphans(told, tmp_path / "device-plugins", tmp_path, Threads()), CallsAfterClose())
    following, now = asyncio.ensure_future(pools.run()), time.monotonic()
    inventories = {}
    for name, pool in zip((AES, FFT), places, strict=True):
        pools.add(configured(name=name, front="dra", pool=pool))
        own = ResourceHoldings(Holdings().remembered({}).noted({}, now, now).given_by("scripted"))
        inventories[name] = Inventory(Observable(configured(name=name)), own, LOG, Clock())
        pools.join(inventories[name].exclusion)
        inventories[name].take(tuple(BOARDS))
    gave = {"b0": Unreleased("1", frozenset(["1a"]), frozenset(["b0"]), device="b0", driver="scripted")}
    noted, nothing = {"b0": Noted((), frozenset([Container("1a", "c")]))}, Holdings().remembered({}).noted({}, now, now)
    given = Holdings().remembered(gave).noted(noted, now, now)
    for name in (AES, FFT):
        told.by_resource[name].set(given if orphan and name == AES else nothing)
    if not orphan:
        pools.left.set({AES: given})
    await asyncio.wait_for(pools.known(FFT), 5)
    then(pools)
    await turns()
    offers = inventories[FFT].ledger.offers()
    assert [id_ for id_, offer in offers.items() if not offer.health.ok] == (["b0"] if counts else [])
    for inventory in inventories.values():
        inventory.list.close()
    following.cancel()


@pytest.mark.parametrize(("orphan", "removed"), [(True, True), (False, True), (True, False), (False, False)])
async def test_a_removed_resource_has_no_other_front(tmp_path, *, orphan, removed):
    told, now = Told([]), time.monotonic()
    pools = Pools(Orphans(told, tmp_path / "device-plugins", tmp_path, Threads()), CallsAfterClose())
    for name in (AES, FFT):
        pools.add(configured(name=name, front="dra", pool="boards"))
    inventory = Inventory(Observable(configured(name=FFT)), ResourceHoldings(Holdings()), LOG, Clock())
    pools.join(inventory.exclusion)
    inventory.take(tuple(BOARDS))
    gave = {"b0": Unreleased("1", frozenset(["1a"]), frozenset(["b0"]), device="b0", driver="scripted")}
    given = Holdings().remembered(gave).noted({"b0": Noted((), frozenset([Container("1a", "c")]))}, now, now)
    if orphan:
        told.by_resource[AES].set(given)
    else:
        pools.left.set({AES: given})
    if removed:
        pools.remove(AES)
    reason = inventory.exclusion.conflicts(BOARDS)["b0"]
    assert f"held as {AES}{'' if removed else ' on the other front'} by " in reason
    inventory.list.close()


async def test_a_resource_that_leaves_its_front_takes_no_debt(tmp_path):
    """It is in its pool until its successor on the other front takes its place: the debt would end with it."""
    told, directory = Told([AES]), tmp_path / "device-plugins"
    orphans, journal = Orphans(told, directory, tmp_path, Threads()), Journal(tmp_path, directory, AES)
    pools = Pools(orphans, CallsAfterClose())

    async def record(_):
        return True

    pools.record = record
    leaves = Inventory(Observable(configured(name=AES)), there := told.by_resource[AES], LOG, Clock())
    pools.add(configured(name=AES))
    pools.join(leaves.exclusion)
    leaves.take(tuple(BOARDS))
    gave, now = {"b0": Unreleased("1", frozenset(["1a"]), frozenset(["b0"]), device="b0", driver="scripted")}, 60.0
    journal.save(gave)
    there.set(there.value.remembered(gave).given_by("scripted"))
    pools.add(configured(name=AES, front="dra"))
    following = asyncio.ensure_future(pools.run())
    there.set(there.value.noted({}, now, now).ended(frozenset(["1a"])))
    await orphans.known.wait()
    await turns(50)
    assert journal.load() == gave

    own = ResourceHoldings(Holdings().remembered({}).given_by("scripted"))
    follows = Inventory(Observable(configured(name=AES, front="dra")), own, LOG, Clock())
    pools.join(follows.exclusion)
    follows.take(tuple(BOARDS))
    await until(lambda: not journal.load())
    assert "b0" in own.value.unreleased
    for inventory in (leaves, follows):
        inventory.list.close()
    following.cancel()


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


async def test_a_resource_that_goes_to_another_pool_and_starts_again_before(live):
    """On another front for example, with its earlier configuration until the new driver has devices."""
    life = await live(AES, FFT)
    life.truth.settings[FFT] = replace(life.truth.settings[FFT], pool="new")
    life.amend(FFT)
    life.pools.follow(configured(name=AES, pool="new"))
    life.pools.add(configured(name=AES, pool="boards"))
    await give(life, AES, "b0")
    assert life.served[FFT].reasons.keys() == {"b0"}
    life.pools.add(configured(name=AES, pool="new"))
    assert life.served[FFT].reasons.keys() == {"b0"}


async def test_resources_that_come_to_a_pool_before_one_and_leave_it(live):
    life = await live(AES, RAW)
    life.truth.settings[RAW] = replace(life.truth.settings[RAW], pool=None)
    life.amend(RAW)
    await give(life, RAW, "b0")
    life.pools.follow(configured(name=AES, pool="new"))
    for pool in ("new", None):
        life.truth.settings[RAW] = replace(life.truth.settings[RAW], pool=pool)
        life.amend(RAW)
        assert life.served[AES].reasons.keys() == ({"b0"} if pool else set())


async def test_a_resource_that_goes_to_another_pool_and_then_to_a_third(live):
    life = await live(AES, FFT, RAW)
    life.truth.settings[FFT] = replace(life.truth.settings[FFT], pool="new")
    life.amend(FFT)
    life.pools.follow(configured(name=AES, pool="new"))
    life.pools.left.set({FFT: Holdings().remembered({}).noted({}, 0.0, 0.0).began(("b1",), {"b1": frozenset({"b1"})})})
    life.truth.settings[AES] = replace(life.truth.settings[AES], pool="third")
    life.amend(AES)
    life.pools.follow(configured(name=AES, pool="third"))
    await give(life, AES, "b0")
    assert "b0" not in life.served[FFT].reasons


async def test_a_resource_that_goes_to_another_pool_is_handed_over_with_both(live):
    """Else the newer gateway would give nothing of the new pool as long as this one has the resource."""
    life = await live(AES, FFT, RAW)
    assert set(life.pools.together(RAW)) == {AES, FFT, RAW}
    life.truth.settings[FFT] = replace(life.truth.settings[FFT], pool="new")
    life.amend(FFT)
    assert life.pools.together(FFT) == (FFT,)
    life.pools.follow(configured(name=AES, pool="new"))
    for name in (AES, FFT, RAW):
        assert set(life.pools.together(name)) == {AES, FFT, RAW}


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


@pytest.mark.parametrize("front", ["deviceplugin", "dra"])
async def test_a_removed_resource_that_is_back_counts_in_its_pool_alone(live, front):
    """Nothing else happens that would have the other pool look again."""
    life = await live(AES, FFT)
    life.truth.settings[FFT] = replace(life.truth.settings[FFT], pool="others")
    life.amend(FFT)
    await give(life, AES, "b0")
    await remove(life, AES)
    assert life.served[FFT].reasons == {"b0": "held as example.com/aes by pod 1a"}
    life.pools.add(configured(name=AES, pool="boards", front=front))
    await turns()
    assert life.served[FFT].reasons == {}


async def test_who_was_refused_may_have_started_on_another_front(live):
    """There the kubelet asks nobody before a start."""
    life = await live(AES, FFT)
    for pool in None, "boards":
        life.truth.settings[FFT] = replace(life.truth.settings[FFT], pool=pool)
        life.amend(FFT)
        if pool is None:
            await give(life, AES, "b0")
            await give(life, FFT, "b0")
    with pytest.raises(RequestError, match=r"b0 can't be prepared: held as example.com/aes"):
        await life.served[FFT].calls.prepare(["b0"])
    await life.stop(FFT)
    moved = Inventory(Observable(configured(name=FFT)), ResourceHoldings(Holdings().remembered({})), LOG, Clock())
    life.pools.add(configured(name=FFT, pool="boards", front="dra"))
    life.pools.join(moved.exclusion)
    with pytest.raises(RequestError, match=r"b0 can't be prepared: held as example.com/fft"):
        async with asyncio.timeout(1):
            await life.served[AES].calls.prepare(["b0"])
    moved.list.close()
