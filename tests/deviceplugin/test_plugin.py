"""One resource from its driver to its socket, with no kubelet."""

import asyncio
import hashlib
import json
import time
from functools import partial

import pytest

from dpgateway import Allocation, Device
from dpgateway.deviceplugin.api import APIS, LIST_LIMIT
from dpgateway.deviceplugin.handover.coordinator import Coordinator
from dpgateway.deviceplugin.handover.protocol import BACK, REGISTER, SERVES, TAKE
from dpgateway.deviceplugin.holdings.values import Holdings
from dpgateway.deviceplugin.plugin import Front, Plugin
from dpgateway.deviceplugin.registration.client import KubeletClient
from dpgateway.deviceplugin.registration.lifecycle import State
from dpgateway.deviceplugin.server.streams import ListThrottle
from dpgateway.deviceplugin.wire import v1beta1_pb2
from dpgateway.drivers.running import CallsAfterClose, RunningDriver
from dpgateway.kit.observable import Observable
from dpgateway.kit.seqpacket import Listener, Peer
from dpgateway.kit.threads import Threads
from dpgateway.node.checkpoint import WRITING
from dpgateway.node.holders import Container, Noted
from dpgateway.resource.front import Unreleased
from dpgateway.resource.journal import Journal
from dpgateway.resource.orphans import Orphans
from dpgateway.resource.ownership import Ownership
from dpgateway.resource.pools import Pools
from dpgateway.resource.resource import Common, Resource
from tests.support.holdings import node_holdings, run_both
from tests.support.resources import NAME, configured, scripted
from tests.support.serving import Client, health, status
from tests.support.specs import cdi
from tests.support.threads import StuckDisk
from tests.support.time import advance, in_virtual_time, slowly
from tests.support.waiting import turns, until


class Running:
    """A plugin that runs until the test ends."""

    def __init__(self, directory, log, group, config, threads=None):
        threads, self.config = threads or Threads(), Observable(config)
        self.holdings = holdings = node_holdings(directory, [NAME], threads)
        self.node = holdings.node
        self.driver = RunningDriver(self.config, "node-a", threads, log)
        state, client = directory / "state", KubeletClient(directory, APIS, group)
        pools = Pools(Orphans(holdings, directory, state, threads), CallsAfterClose())
        throttle = ListThrottle(holdings.node.written)
        self.common = common = Common(directory, state, threads, pools, LIST_LIMIT)
        front = Front(common, holdings, client, Coordinator(pools.together, group), cdi(), throttle)
        self.plugin = Plugin(self.config, self.driver, front, group)
        for runs in (partial(run_both, holdings), pools.run, self.driver.run, self.plugin.run):
            group.create_task(runs())
        self.directory = directory

    async def client(self):
        """A kubelet, which is told of the resource once this is ready."""
        await until(lambda: self.plugin.registrar.standing.value.state is not State.UNREADY)
        return Client(self.directory / "dpgateway" / f"{hashlib.sha256(NAME.encode()).hexdigest()[:16]}.sock")

    async def list(self):
        """The first list that a kubelet would get."""
        client = await self.client()
        stream = client.watch()
        first = health(await stream.read())
        await client.close()
        return first


class Ended(Exception):
    """Raised in a task group, it cancels all tasks of the group."""


async def end(running):
    for one in running:
        await one.plugin.drain(0)
        await one.plugin.close()
    raise Ended


@pytest.fixture
async def run(short_path, log):
    running = []
    try:
        async with asyncio.TaskGroup() as group:

            def make(driver_class=None, directory=short_path, threads=None, **config):
                configuration = configured(driver_class=driver_class, **config)
                running.append(Running(directory, log, group, configuration, threads))
                return running[-1]

            yield make
            await end(running)
    except* Ended:
        pass


@in_virtual_time
async def test_a_failure_is_repeated(short_path, log, caplog):
    try:
        async with asyncio.TaskGroup() as group:
            one = Running(short_path / "absent", log, group, configured(failure="it isn't installed"))
            await advance(1500)
            await end([one])
    except* Ended:
        pass
    await advance(1500)
    again = [record for record in caplog.records if "has failed for" in record.getMessage()]
    reason = "the driver scripted isn't running: it isn't installed"
    assert [(record.getMessage(), record.reason, round(record.seconds, -1)) for record in again] == [
        (f"the resource has failed for {minutes} min: {reason}", reason, 60 * minutes) for minutes in (10, 20)
    ]


def write_checkpoint(directory, *ids):
    entry = {"PodUID": "1a", "ContainerName": "c", "ResourceName": NAME, "DeviceIDs": {"0": list(ids)}, "AllocResp": ""}
    data = {"Data": {"PodDeviceEntries": [entry], "RegisteredDevices": {}}, "Checksum": 1}
    (directory / "kubelet_internal_checkpoint").write_text(json.dumps(data))


async def test_the_first_list_has_held_ids(run, short_path):
    write_checkpoint(short_path, "a", "gone")
    assert await run(scripted()).list() == {"a": "Healthy", "b": "Healthy", "gone": "Unhealthy"}


async def test_without_a_driver_held_ids_are_listed(run, short_path):
    """At the list's deadline, Unhealthy."""
    write_checkpoint(short_path, "a")
    assert await run(None, failure="its options are wrong", timeouts={"list": 0.05}).list() == {"a": "Unhealthy"}


async def test_a_driver_that_hangs_at_first(run, gate):
    """It is listed at the deadline, and as it is once it answers."""
    slow = gate([Device("a")])
    one = run(scripted(devices=slow), timeouts={"list": 0.05})
    assert await one.list() == {}
    slow.open()
    await until(lambda: one.plugin.resource.inventory.list.value)
    assert await one.list() == {"a": "Healthy"}


async def test_a_resource_tells_its_trouble(run, short_path):
    blocking = short_path / "dpgateway"
    blocking.write_text("in the way")
    plugin, told = run(scripted()).plugin, []
    for value in plugin.values:
        value.subscribe(lambda: told.append(plugin.resource.failure))
    await until(lambda: any("dpgateway" in failure for failure in told))
    blocking.unlink()
    await until(lambda: not told[-1])


async def test_other_shares_are_offered_at_once(run):
    driver = scripted()
    one = run(driver, refresh=3600)
    await until(lambda: one.plugin.resource.inventory.list.value)
    one.config.set(configured(driver_class=driver, refresh=3600, shares=2))
    assert one.plugin.resource.inventory.list.value.keys() == {"a", "a::1", "b", "b::1"}


async def test_what_no_container_holds_any_more_is_released(run, short_path):
    released: list[tuple[Device, ...]] = []
    write_checkpoint(short_path, "a", "b")
    one = run(scripted(release=released.append))
    await one.list()
    write_checkpoint(short_path, "b")
    await until(lambda: released == [(Device("a"),)])


async def test_a_hung_preparation_delays_no_device_freed_with_its_own(run, short_path, gate):
    hangs, released = gate(), list[tuple[Device, ...]]()
    write_checkpoint(short_path, "a", "b")
    driver = scripted(prepare=lambda devices: devices == (Device("b"),) and hangs(), release=released.append)
    client = await (one := run(driver, timeouts={"prepare": 0.1})).client()
    _, text = await status(client.call("PreStartContainer", starts("b")))
    assert "prepare() of b hasn't finished" in text
    one.config.set(configured(driver_class=driver))  # other devices have as long as usual

    # Both pods are deleted, and another one gets a.
    write_checkpoint(short_path)
    await until(lambda: released == [(Device("a"),)])
    await client.call("Allocate", v1beta1_pb2.AllocateRequest(container_requests=[{"devices_ids": ["a"]}]))
    await client.call("PreStartContainer", starts("a"))
    hangs.open()
    await until(lambda: released[1:] == [(Device("b"),)])
    await client.close()


def starts(*ids):
    return v1beta1_pb2.PreStartContainerRequest(devices_ids=ids)


async def until_ready(one):
    """Seconds."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    await until(lambda: one.plugin.registrar.state.value != "unready")
    return loop.time() - began


@pytest.mark.parametrize("readable", [True, False])
async def test_a_damaged_checkpoint_is_waited_for(run, short_path, readable):
    """And not for long."""
    if readable:
        write_checkpoint(short_path, "a")
    else:
        (short_path / "kubelet_internal_checkpoint").write_text("{")
    took = await until_ready(run(scripted()))
    if readable and took >= WRITING:  # a machine may stall, but not each time
        again = short_path / "again"
        again.mkdir()
        write_checkpoint(again, "a")
        took = await until_ready(run(scripted(), again))
    assert (took < WRITING) == readable


async def test_a_checkpoint_is_waited_for(run, short_path):
    """The first list has what it says."""

    async def in_time(directory):
        """Whether the list was complete before the gateway would have waited no longer."""
        directory.mkdir()
        (directory / "kubelet_internal_checkpoint").write_text("{")
        one = run(scripted(), directory)
        await until(lambda: one.plugin.resource.inventory.list.value is not None)
        write_checkpoint(directory, "a", "gone")
        took = await until_ready(one)
        return took < WRITING and one.plugin.resource.inventory.list.value.keys() == {"a", "b", "gone"}

    assert await in_time(short_path / "1") or await in_time(short_path / "2")  # a machine may stall, but not each time


async def test_who_takes_over_prepares_what_the_kubelet_asks_no_start_for(run):
    """As the older gateway has told it, because claims had devices then."""
    prepared = list[Device]()
    older = run(driver := scripted(prepare=prepared.extend))
    client, left = await older.client(), older.common.pools.left
    for claims in ({NAME: Holdings().noted({}, 0.0, 0.0)}, {}):
        left.set(claims)
        options = v1beta1_pb2.DevicePluginOptions.FromString(await client.call("GetDevicePluginOptions"))
        assert not options.pre_start_required
    newer = run(driver)
    await until(lambda: not older.plugin.resource.ownership.undivided)
    await client.call("Allocate", v1beta1_pb2.AllocateRequest(container_requests=[{"devices_ids": ["a"]}]))
    assert [device.id for device in prepared] == ["a"]
    assert newer.holdings.by_resource[NAME].value.held == {"a"}
    await client.close()


@pytest.mark.parametrize("how", ["close", "abandon"])
async def test_the_lock_stays_while_a_write_of_the_journal_hangs(run, short_path, how):
    """Else it would come after what the next owner has written."""
    disk = StuckDisk("journal")
    one = await hangs_at_the_end(run, disk)
    if how == "abandon":
        one.plugin.abandon()
    waits = Ownership(short_path, NAME)
    assert waits.owner() is not None
    waiting = asyncio.create_task(waits.acquire())
    disk.go_on()
    await waiting
    journal = Journal(short_path / "state", short_path, NAME)
    assert set(journal.load()) == {"a"}
    waits.end()


async def test_an_allocate_that_outlasts_the_grace_is_written_down(run, short_path, gate):
    """The server answers it in its last moments, when the journal had its last write before."""
    slow = gate(Allocation())
    plugin = (one := run(scripted(allocate=slow))).plugin
    client = await one.client()
    call = client.call("Allocate", v1beta1_pb2.AllocateRequest(container_requests=[{"devices_ids": ["a"]}]))
    await slow.entered()
    await plugin.drain(0)
    with slowly(20):  # its grace is some tenths of a second
        closing = asyncio.create_task(plugin.close())
        await turns()
        slow.open()
        await closing
    journal = Journal(short_path / "state", short_path, NAME).load()
    await call
    assert journal.keys() == {"a"}
    await client.close()


async def test_an_allocate_that_outlasts_the_grace_on_a_disk_that_hangs(run, short_path, gate):
    """The lock stays until the disk has it, too."""
    slow, disk = gate(Allocation()), StuckDisk("journal")
    driver = scripted(allocate=lambda devices: slow(devices) if devices[0].id == "b" else Allocation())
    plugin = (one := run(driver, threads=disk)).plugin
    client = await one.client()
    disk.stick()
    first, late = (v1beta1_pb2.AllocateRequest(container_requests=[{"devices_ids": [id_]}]) for id_ in "ab")
    await client.call("Allocate", first)
    await until(lambda: disk.hanging)
    call = client.call("Allocate", late)
    await slow.entered()
    await plugin.drain(0)
    with slowly(20):  # its grace is some tenths of a second
        closing = asyncio.create_task(plugin.close())
        await turns()
        slow.open()
        await call
    await closing
    await client.close()
    lock = Ownership(short_path, NAME)
    assert lock.owner() is not None
    disk.go_on()
    await until(lambda: lock.owner() is None)
    assert Journal(short_path / "state", short_path, NAME).load().keys() == {"a", "b"}


async def hangs_at_the_end(run, disk):
    """A plugin that has ended, but for a write of its journal."""
    one = run(scripted(release=lambda _: None), threads=disk)
    client = await one.client()
    disk.stick()
    await client.call("Allocate", v1beta1_pb2.AllocateRequest(container_requests=[{"devices_ids": ["a"]}]))
    await client.close()
    await one.plugin.drain(0)
    await one.plugin.close()
    return one


async def test_a_removed_resource_whose_last_write_hangs_is_no_stranger(run, short_path):
    """Its lock stays, but its grants are known here, so no pool waits for its end."""
    disk = StuckDisk("journal")
    one = await hangs_at_the_end(run, disk)
    pools, lock = one.common.pools, Ownership(short_path, NAME)
    pools.remove(NAME)
    assert lock.owner() is not None
    assert not pools.elsewhere.stranger("")
    disk.go_on()
    await until(lambda: lock.owner() is None)
    other = Ownership(short_path, NAME)
    await other.acquire()
    assert pools.elsewhere.stranger("")  # its next owner is one
    other.end()


async def test_a_removed_resource_is_back_while_its_last_write_hangs(run, log):
    """It has its lock at once, not after the write, and keeps it after that."""
    disk = StuckDisk("journal")
    one = await hangs_at_the_end(run, disk)
    again = Resource(one.config, one.driver, one.holdings.by_resource[NAME], one.common, log)
    async with asyncio.timeout(5):
        await again.ownership.acquire()
    assert not again.ownership.waited
    disk.go_on()
    await until(lambda: not one.common.pools.journals.lanes.running)
    await turns()
    assert again.ownership.undivided
    again.ownership.end()
    assert again.ownership.owner() is None


@pytest.mark.parametrize("serves", [True, False])
async def test_a_resource_that_is_taken_back_leaves_the_journal_alone(run, short_path, serves):
    """The other gateway grants at once, and writes that down; this one may hear of it only when it says SERVES."""
    lock, asked = Ownership(short_path, NAME), asyncio.Queue[Peer]()
    await lock.acquire()
    listener = Listener(lock.next, asked.put_nowait)
    one = run(scripted(release=lambda _: None), pool="p")
    for name in (NAME,) if serves else (NAME, "example.com/unknown"):  # this one waits for what isn't known
        one.common.pools.add(configured(name=name, pool="p"))
    older = await asked.get()
    await older.receive()
    older.send(f"{TAKE} v1beta1", lock.lend())
    journal, usage = Journal(short_path / "state", short_path, NAME), one.holdings.by_resource[NAME]
    await until(lambda: usage.value.remembers)
    if serves:
        assert await older.receive() == SERVES
    older.send(BACK)
    lock.take_back()
    if serves:
        await until(lambda: one.plugin.taken_back)
    theirs = {"a": Unreleased("1", hardware=frozenset({"theirs"}))}
    journal.save(theirs)
    noted = {"a": Noted((), frozenset([Container("1a", "c")]))}  # the kubelet's note of that grant
    usage.set(usage.value.noted(noted, time.monotonic(), time.monotonic()))
    await until(lambda: one.plugin.taken_back)
    await one.plugin.drain(0)
    await one.plugin.close()
    assert journal.load() == theirs
    older.close()
    listener.close()
    lock.end()


async def test_an_allocate_under_way_fails_if_the_resource_is_taken_back(run, short_path, gate):
    """The other gateway wouldn't know of it before it gives the hardware away under another name of the pool."""
    slow, lock, asked = gate(Allocation()), Ownership(short_path, NAME), asyncio.Queue[Peer]()
    await lock.acquire()
    listener = Listener(lock.next, asked.put_nowait)
    one = run(scripted(allocate=slow))
    older = await asked.get()
    await older.receive()
    older.send(f"{TAKE} v1beta1", lock.lend())
    assert await older.receive() == SERVES
    older.send(REGISTER)
    client = await one.client()
    call = client.call("Allocate", v1beta1_pb2.AllocateRequest(container_requests=[{"devices_ids": ["a"]}]))
    await slow.entered()
    older.send(BACK)
    lock.take_back()
    await until(lambda: one.plugin.taken_back)
    slow.open()
    _, text = await status(call)
    assert text == f"resource {NAME}: another gateway serves it"
    assert not one.holdings.by_resource[NAME].value.granted
    await client.close()
    older.close()
    listener.close()
    lock.end()


@pytest.mark.parametrize("then", ["takes it back", "lets it register", "ends"])
async def test_what_is_free_is_released_once_the_older_gateway_decides_nothing(run, short_path, then):
    """Until then that one may take the resource back, and give the device to another container."""
    released: list[tuple[Device, ...]] = []
    lock, asked = Ownership(short_path, NAME), asyncio.Queue[Peer]()
    await lock.acquire()
    listener = Listener(lock.next, asked.put_nowait)
    write_checkpoint(short_path, "a", "b")
    one = run(scripted(release=released.append))
    older = await asked.get()
    await older.receive()
    write_checkpoint(short_path, "b")
    usage = one.holdings.by_resource[NAME]
    await until(lambda: usage.value.freed)

    older.send(f"{TAKE} v1beta1", lock.lend())
    if then == "takes it back":
        older.send(BACK)
        lock.take_back()
        await until(lambda: one.plugin.taken_back)
        await one.plugin.drain(0)
        await one.plugin.close()
        assert (released, set(usage.value.freed)) == ([], {"a"})
    else:
        assert await older.receive() == SERVES
        await turns()
        assert not released
        if then == "lets it register":
            older.send(REGISTER)
            await until(lambda: one.plugin.standing.value.state != "unready")
            await turns()
            assert not released
        older.close()
        await until(lambda: released == [(Device("a"),)])
    older.close()
    listener.close()
    lock.end()
