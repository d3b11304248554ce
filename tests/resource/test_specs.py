"""The gateway's own CDI specs stay as long as containers need them, and no longer."""

import asyncio
import os
import time
from contextlib import suppress

import pytest

from dpgateway.cdi.own import OwnSpecs
from dpgateway.deviceplugin.holdings.observed import ResourceHoldings
from dpgateway.deviceplugin.holdings.values import Holdings
from dpgateway.kit.threads import Threads
from dpgateway.model import Allocation
from dpgateway.node.holders import Container, Noted
from dpgateway.resource.specs import SpecKeeper
from tests.support.logs import complaint
from tests.support.time import advance, in_virtual_time
from tests.support.waiting import until

R = "example.com/thing"
FREE = Holdings().remembered({}).noted({}, 0.0, 0.0)


def held(**containers):
    """The ids, and the containers that have them."""
    note = {
        id_: Noted(containers=frozenset(Container("pod", name) for name in names)) for id_, names in containers.items()
    }
    return Holdings().remembered({}).noted(note, 0.0, 0.0)


HELD = held(a=["c"])


@pytest.fixture
def specs(tmp_path):
    return OwnSpecs(tmp_path / "state", tmp_path / "run", tmp_path / "dp", complaint([]))


@pytest.fixture
def given(specs):
    """Writes a spec as it was written some time ago."""

    def given(*ids, resource=R, ago=100.0):
        name = specs.write(resource, ids, Allocation({"A": ",".join(ids)})).cdi_devices[0]
        (one,) = (one for one in specs.all() if one.given.name == name)
        os.utime(one.record, (time.time() - ago,) * 2)
        return one

    return given


class Journals:
    """What is known of resources that aren't configured any more."""

    def __init__(self):
        self.known = asyncio.Event()
        self.known.set()
        self.looks = 0
        self.found = lambda: True

    async def look(self):
        self.looks += 1
        return self.found()


@pytest.fixture
async def left():
    return Journals()


@pytest.fixture
async def keep(specs, left):
    """Keeps them, until the test's end."""
    tasks = []

    async def keep(holdings):
        keeping = SpecKeeper(specs, [holdings], left, Threads(), pause=0.01)
        tasks.append(asyncio.create_task(keeping.run()))

    yield keep
    for task in tasks:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_a_spec_goes_with_its_last_held_device(keep, given):
    one, two, other = given("a"), given("b", "c"), given("d")
    holdings = ResourceHoldings(held(a=["x"], b=["x", "y"], c=["y"]))
    await keep({R: holdings})
    await until(lambda: not other.spec.exists() and not other.record.exists())
    assert one.spec.exists()
    assert two.spec.exists()
    holdings.set(FREE)
    await until(lambda: not one.spec.exists() and not two.spec.exists())


@pytest.mark.parametrize(
    "holdings",
    [
        held(a=["x"], b=["x"]),
        held(a=["x", "y"], b=["y"]),
        held(a=["x"]).began(("b",)).gave(("b",), 0.0),
        held(a=[], b=["x"]),
    ],
    ids=["one container", "one of two", "too new for the note", "nobody knows which"],
)
async def test_a_spec_stays_while_one_container_may_have_all(keep, given, holdings):
    needed, over = given("a", "b"), given("a", "z")
    await keep({R: ResourceHoldings(holdings)})
    await until(lambda: not over.spec.exists())
    assert needed.spec.exists()


async def test_a_spec_goes_once_no_container_has_all(keep, given):
    over = given("a", "b")
    await keep({R: ResourceHoldings(held(a=["x"], b=["y"]))})
    await until(lambda: not over.spec.exists())


async def test_specs_of_removed_resources_go_with_their_holders(keep, given, left):
    gone, used = given("a", resource="example.com/gone"), given("a", resource="example.com/left")
    gone.spec.unlink()
    left.known.clear()
    await keep({"example.com/left": ResourceHoldings(HELD)})
    await until(gone.spec.exists)  # at the start all are needed
    left.known.set()
    await until(lambda: not gone.spec.exists() and not gone.record.exists())
    assert used.spec.exists()


async def test_a_spec_granted_by_another_gateway_stays(keep, given, left):
    """Of a resource that only that gateway serves."""
    later, over = given("a", resource="example.com/later"), given("b")
    holdings = {R: ResourceHoldings(FREE)}
    left.found = lambda: bool(holdings.setdefault("example.com/later", ResourceHoldings(HELD)))
    await keep(holdings)
    await until(lambda: not over.spec.exists() and left.looks)
    assert later.spec.exists()


async def test_an_unreadable_journal_keeps_specs(keep, given, left):
    unsure, over = given("a", resource="example.com/unsure"), given("b")
    left.found = lambda: False
    await keep({R: ResourceHoldings(FREE)})
    await until(lambda: not over.spec.exists() and left.looks > 1)
    assert unsure.spec.exists()
    left.found = lambda: True
    await until(lambda: not unsure.spec.exists())


@pytest.mark.parametrize(
    "unknown", [Holdings(), Holdings().remembered({}), Holdings().noted({}, 0.0, 0.0)], ids=["both", "note", "journal"]
)
async def test_unknown_holdings_keep_specs(keep, given, unknown):
    unsure, over = given("a"), given("a", resource="example.com/free")
    await keep({R: ResourceHoldings(unknown), "example.com/free": ResourceHoldings(FREE)})
    await until(lambda: not over.spec.exists())
    assert unsure.spec.exists()


async def test_a_young_spec_stays(keep, given):
    young, old = given("a", ago=1), given("b")
    await keep({R: ResourceHoldings(FREE)})
    await until(lambda: not old.spec.exists())
    assert young.spec.exists()


async def test_a_deleted_spec_is_repaired(keep, given):
    one = given("a")
    await keep({R: ResourceHoldings(HELD)})
    for _ in range(2):
        one.spec.unlink()
        await until(one.spec.exists)


async def test_an_unwritable_directory_is_logged_once(keep, given, caplog):
    one = given("a")
    one.spec.unlink()
    one.spec.parent.rmdir()
    one.spec.parent.write_text("")
    await keep({R: ResourceHoldings(HELD)})
    await until(lambda: caplog.messages)
    one.spec.parent.unlink()
    await until(one.spec.exists)
    (told,) = caplog.messages
    assert "containers whose CDI specs aren't right can't start again" in told


class Hanging(Threads):
    """On a disk that doesn't answer, until the first call gets its ``answer``."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def call(self, name, function, seconds=0.0):
        self.calls.append(asyncio.get_running_loop().create_future())
        return self.calls[-1]


@in_virtual_time
async def test_a_disk_that_hangs_takes_one_thread(specs, left):
    """For hours, perhaps: threads may be limited, and Allocates need some."""
    threads = Hanging()
    keeping = asyncio.create_task(SpecKeeper(specs, [], left, threads).run())
    await advance(3600)
    (first,) = threads.calls
    first.set_result(None)
    await advance(60)
    assert len(threads.calls) == 2
    keeping.cancel()
