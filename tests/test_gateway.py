"""All parts together, in one process with simulated kubelets."""

import asyncio
import gc
import logging
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dpgateway import Allocation, Device
from dpgateway.config import Shares
from dpgateway.config.values import DraSettings, RuntimeSettings
from dpgateway.gateway import SETTLED
from dpgateway.resource.ownership import Ownership, hash_of
from dpgateway_simulator import Kubelet
from tests.support.counting import descriptors
from tests.support.heap import hole, resident
from tests.support.hung import hung_disk
from tests.support.inside import Inside
from tests.support.kubelet import registered
from tests.support.resources import Scripted, configured, scripted
from tests.support.scraped import Node
from tests.support.specs import spec, write
from tests.support.time import advance, in_virtual_time, slowly
from tests.support.waiting import turns, until

R, S = "example.com/thing", "example.com/other"


class Running(Inside):
    def start(self, *drivers):
        pairs = zip((R, S), drivers, strict=False)
        self.serve(*(configured(name=name, driver_class=driver) for name, driver in pairs))


@pytest.fixture
async def gateway(short_path):
    running = Running(short_path)
    yield running
    await running.close()


@pytest.fixture
async def kubelet(short_path):
    async with Kubelet("1.31", short_path) as kubelet:
        yield kubelet


async def offered(kubelet, *resources):
    for resource in resources or (R,):
        await kubelet.wait_for(lambda name=resource: kubelet.counts(name)[1] == 2)


def names(directory):
    return sorted(path.suffix for path in (directory / "dpgateway").iterdir())


async def test_a_gateway_that_ended_lets_its_process_live(gateway, kubelet):
    before = set(threading.enumerate())
    gateway.start(Scripted)
    await offered(kubelet)
    await gateway.end()
    await until(lambda: not any(isinstance(thread, threading.Timer) for thread in set(threading.enumerate()) - before))


@in_virtual_time
async def test_memory_is_given_back_after_a_start(short_path):
    async with Node(short_path).running():
        with hole():
            await advance(SETTLED - 1)
            full = resident()
            await advance(2)
            assert full - resident() > 15


@in_virtual_time
async def test_a_hung_disk_stops_no_resource(short_path: Path) -> None:
    """It has the states of DRA, of which the device plugin's resources have none."""
    directory = short_path / "device-plugins"
    directory.mkdir()
    with hung_disk(short_path / "state/dra") as disk:
        async with Node(directory, configured(driver_class=Scripted)).running() as node:
            await until(lambda: node.gateway.serves)
            await until(disk.asked.is_set)
            assert disk.hangs


class OnAnyFront(Inside):
    """It has a DRA driver."""

    def configuration(self, *resources):
        return replace(super().configuration(*resources), dra=DraSettings("dra.example.com"))


async def test_told_to_end_while_it_reads_its_states_it_starts_nothing_more(short_path: Path) -> None:
    """Neither is it left to the event loop that it can't be started any more."""
    directory, unnoticed = short_path / "device-plugins", list[Any]()
    directory.mkdir()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unnoticed.append(context))
    with hung_disk(short_path / "state/dra") as disk:
        gateway = OnAnyFront(directory)
        gateway.serve(configured(driver_class=Scripted, front="auto"))
        await until(disk.asked.is_set)
        await gateway.end()
        assert disk.hangs
    gc.collect()
    assert unnoticed == []


async def test_every_resource_is_offered(gateway, kubelet):
    gateway.start(Scripted, Scripted)
    await offered(kubelet, R, S)
    assert (await kubelet.admit("p", {"c": {R: 2, S: 1}}))["ok"]


async def test_no_other_gateway_has_what_the_driver_still_works_on(gateway, kubelet):
    """A call goes on after its driver, and after its resource: until it returns."""
    begun, go_on = threading.Event(), threading.Event()

    def prepare(_devices):
        begun.set()
        assert go_on.wait(60)

    gateway.start(scripted(prepare=prepare), Scripted)
    await offered(kubelet, R, S)
    starting = asyncio.ensure_future(kubelet.admit("p", {"c": {R: 1}}))
    await until(begun.is_set)
    gateway.reload(gateway.configuration(configured(name=S, driver_class=Scripted)))
    await starting
    await until(
        lambda: (
            list((gateway.directory / "dpgateway").glob(f"{hash_of(R)}*"))
            == [gateway.directory / "dpgateway" / f"{hash_of(R)}.lock"]
        )
    )
    other = Ownership(gateway.directory, R)
    assert not other.try_to_acquire()
    go_on.set()
    await until(other.try_to_acquire)


@pytest.mark.parametrize("shares", [1, Shares(1, ids="board-{id}")])
async def test_a_device_is_healthy_once_its_cdi_spec_is_there(gateway, kubelet, short_path, shares):
    """A vendor's tool may write it later than the gateway starts, and remove it again. What a pod has stays Healthy:
    after a boot the kubelet wouldn't readmit the pod, whose containers start once the spec is there.
    """
    gateway.runtime = RuntimeSettings(cdi_dirs=(short_path / "cdi",))

    def allocate(devices):
        return Allocation(cdi_devices=tuple(f"vendor.example/gpu={one.id}" for one in devices))

    driver = scripted(allocate=allocate, preview=lambda one: allocate([one]))
    gateway.serve(configured(driver_class=driver, refresh=0.05, shares=shares))
    await kubelet.wait_for(lambda: kubelet.counts(R) == (2, 0))
    written = write(short_path / "cdi" / "a.json", spec(a={"env": ["A=1"]}, b={"env": ["B=1"]}))
    await kubelet.wait_for(lambda: kubelet.counts(R) == (2, 2))
    assert (await kubelet.admit("p", {"c": {R: 1}}))["ok"]
    written.unlink()
    await kubelet.wait_for(lambda: kubelet.counts(R) == (2, 1))
    assert [one["health"] for one in kubelet.resources()[R]["devices"] if one["holders"]] == ["Healthy"]


async def test_a_kubelet_that_comes_later_gets_every_resource_too(gateway, short_path):
    gateway.start(Scripted, Scripted)
    await asyncio.sleep(0)
    async with Kubelet("1.31", short_path) as kubelet:
        await offered(kubelet, R, S)


async def test_no_kubelet_is_told_of_a_resource_without_a_list(gateway, kubelet, gate):
    slow = gate([])
    gateway.start(scripted(devices=slow), Scripted)
    await offered(kubelet, S)
    assert registered(kubelet, R) == 0
    slow.open()
    await kubelet.wait_for(lambda: registered(kubelet, R))


@pytest.mark.parametrize("change", ["touched", "renamed away and back", "deleted"])
async def test_a_live_stream_outweighs_the_file(gateway, kubelet, short_path, change):
    gateway.start(Scripted, Scripted)
    await offered(kubelet, R, S)
    if change == "touched":
        kubelet.touch_socket()
    elif change == "deleted":
        kubelet.delete_socket()
    else:
        kubelet.rename_socket()
    (short_path / "kubelet_internal_checkpoint.other").touch()
    assert (await kubelet.admit("p", {"c": {R: 1}}))["ok"]
    await asyncio.sleep(0.1)  # nothing happens, and there is nothing to wait for
    assert (registered(kubelet, R), registered(kubelet, S)) == (1, 1)


async def test_a_file_of_the_same_kubelet_that_is_back(gateway, kubelet, short_path, caplog):
    caplog.set_level(logging.DEBUG, "dpgateway")
    gateway.start(Scripted, Scripted)
    await offered(kubelet, R, S)
    with slowly():  # else it may be registered again before that
        kubelet.drop_streams(R)
        await until(lambda: any("last stream ended" in text for text in caplog.messages))
        aside = (short_path / "kubelet.sock").rename(short_path / "aside")
        await until(lambda: any("kubelet.sock is gone: away" in text for text in caplog.messages))
    aside.rename(short_path / "kubelet.sock")
    await kubelet.wait_for(lambda: registered(kubelet, R) == 2)
    await offered(kubelet, R)
    assert registered(kubelet, S) == 1


async def test_a_socket_made_anew_is_a_new_kubelet(gateway, kubelet):
    gateway.start(Scripted)
    await offered(kubelet)
    for count in range(2, 12):
        await kubelet.recreate_socket()
        await kubelet.wait_for(lambda count=count: registered(kubelet, R) >= count)


async def test_a_lost_stream_is_registered_anew(gateway, kubelet):
    gateway.start(Scripted, Scripted)
    await offered(kubelet, R, S)
    kubelet.drop_streams(R)
    await kubelet.wait_for(lambda: registered(kubelet, R) == 2)
    await offered(kubelet, R)
    assert registered(kubelet, S) == 1


async def test_a_driver_that_fails_in_every_way(gateway, kubelet, gate):
    def fails(*_):
        raise BaseExceptionGroup("everything", [SystemExit(1), KeyboardInterrupt()])

    gateway.start(scripted(devices=fails, allocate=fails, close=fails), Scripted)
    await offered(kubelet, S)
    assert (await kubelet.admit("p", {"c": {S: 1}}))["ok"]
    await gateway.end()


def of(resource):
    """Tasks of one resource, by name."""
    return [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith(resource)]


async def test_one_resource_that_is_stopped(gateway, kubelet, short_path):
    closed = threading.Event()
    gateway.start(Scripted, scripted(prepare=lambda _: None, release=lambda _: None, close=closed.set))
    await offered(kubelet, R, S)
    assert (await kubelet.admit("p", {"c": {R: 1, S: 1}}))["ok"]
    kubelet.drop_streams(S)  # with a timer for its next registration
    await kubelet.wait_for(lambda: kubelet.counts(S)[1] == 0)
    before = descriptors()
    (task,) = [task for task in asyncio.all_tasks() if task.get_name() == S]
    times = registered(kubelet, S)
    task.cancel()
    await asyncio.wait({task}, timeout=60)
    assert task.cancelled()
    await until(lambda: not of(S))
    await until(closed.is_set)
    await until(lambda: names(short_path) == [".lock", ".next", ".sock", ".sock"])
    await until(lambda: descriptors() < before)
    assert (registered(kubelet, R), registered(kubelet, S)) == (1, times)
    assert (await kubelet.admit("q", {"c": {R: 1}}))["ok"]


async def test_a_stop_that_is_interrupted_leaves_nothing_either(gateway, kubelet, short_path, gate):
    slow = gate(Allocation())
    gateway.start(Scripted, scripted(allocate=slow))
    await offered(kubelet, R, S)
    admission = asyncio.ensure_future(kubelet.admit("p", {"c": {S: 1}}))
    await slow.entered()
    (task,) = [task for task in asyncio.all_tasks() if task.get_name() == S]
    for _ in range(2):  # the second time while it waits for the Allocate
        task.cancel()
        await turns()
    await asyncio.wait({task}, timeout=60)
    assert task.cancelled()
    await until(lambda: names(short_path) == [".lock", ".next", ".sock", ".sock"])
    slow.open()
    assert not (await admission)["ok"]
    assert (await kubelet.admit("q", {"c": {R: 1}}))["ok"]


async def test_a_resource_that_fails_by_a_bug(gateway, kubelet, caplog):
    bugs: list[Exception] = []
    contexts, more = [], [0]

    def buggy(record):
        if bugs and "the list of" in record.getMessage():
            more[0] = 0  # before its next driver lists
            raise bugs.pop()
        return True

    class Driver(Scripted):
        def __init__(self, options, context):
            contexts.append(context)

        def devices(self):
            return [Device("a"), Device("b"), *(Device(f"{number:01000}") for number in range(more[0]))]

    gateway.start(Scripted, Driver)
    await offered(kubelet, R, S)
    bugs.append(LookupError("the line can't be logged"))
    logger = logging.getLogger("dpgateway.deviceplugin.plugin")
    logger.addFilter(buggy)  # there is no other code of somebody else's in a resource's tasks
    try:
        more[0] = 5000  # too many for a list, which is said where it is taken
        contexts[0].changed()
        await until(lambda: f"a bug: {S} failed, and starts again" in caplog.messages)
    finally:
        logger.removeFilter(buggy)
    await kubelet.wait_for(lambda: registered(kubelet, S) == 2)
    await offered(kubelet, R, S)
    assert len(contexts) == 2
    assert registered(kubelet, R) == 1


async def test_restarts_leave_no_task_thread_or_name_behind(gateway, kubelet, short_path):
    gateway.start(Scripted, Scripted)
    await offered(kubelet, R, S)

    async def restart(count):
        for _ in range(count):
            await kubelet.restart()
            await offered(kubelet, R, S)

    await restart(5)
    tasks, threads = len(asyncio.all_tasks()), threading.active_count()
    await restart(30)
    await until(lambda: len(asyncio.all_tasks()) <= tasks + 5)  # some come and go
    await until(lambda: threading.active_count() <= threads + 1)  # a busy machine needs more for a while
    await until(lambda: names(short_path) == [".lock"] * 2 + [".next"] * 2 + [".sock"] * 4)


async def test_a_folder_that_cannot_be_used(gateway, kubelet, short_path, caplog):
    blocking = short_path / "dpgateway"
    blocking.write_text("in the way")
    gateway.start(Scripted)
    await until(lambda: any("can't be served" in text for text in caplog.messages))
    blocking.unlink()
    await offered(kubelet)


async def test_ready_through_a_restart_of_the_kubelet(short_path):
    node = Node(short_path, configured(name=R, driver_class=Scripted), configured(name=S, driver_class=Scripted))
    seen = []

    async def look():
        version = 0
        while version := await node.gateway.changed.wait(version):
            seen.append(readiness())

    async with node.running(), Kubelet("1.31", short_path) as kubelet:
        readiness = node.gateway.overview.readiness
        assert not readiness().ready  # nobody serves yet
        await until(lambda: readiness().ready)
        looking = asyncio.create_task(look())
        for graceful in (True, False, True):
            await kubelet.restart(graceful=graceful)
            await offered(kubelet, R, S)
        looking.cancel()
    assert any(one.reason for found in seen for one in found.resources)
    assert all(found.ready for found in seen)


async def test_all_who_ask_hear_that_it_lingers(short_path):
    async with (node := Node(short_path, configured(driver_class=Scripted))).running():
        overview = node.gateway.overview
        overview.linger(time.monotonic() + 60)
        until_when = overview.readiness().lingers
        assert until_when is not None
        assert (
            f"serves on until another one has taken over, but until {until_when} at"
            in overview.status().troubles[-1].reason
        )


async def test_a_driver_that_fails_after_devices(short_path):
    contexts, broken = [], threading.Event()

    class Driver(Scripted):
        def __init__(self, options, context):
            contexts.append(context)

        def devices(self):
            if broken.is_set():
                raise OSError("no bus")
            return [Device("a"), Device("b")]

    node = Node(short_path, configured(driver_class=Driver))
    async with node.running(), Kubelet("1.31", short_path) as kubelet:

        def reason():
            return node.gateway.overview.readiness().resources[0].reason

        await offered(kubelet)
        await until(lambda: reason() is None)
        broken.set()
        contexts[0].changed()
        told = await until(reason)
        assert told.startswith("no device is Healthy any more: ")
        assert "no bus" in told
        broken.clear()
        contexts[0].changed()
        await until(lambda: reason() is None)


async def test_ready_while_a_change_is_not_served_yet(short_path):
    node = Node(short_path, configured(driver_class=Scripted))
    async with node.running(), Kubelet("1.31", short_path) as kubelet:
        overview = node.gateway.overview
        await until(lambda: overview.readiness().ready)
        await node.reload(configured(driver_class=scripted(devices=list)))

        def told(text):
            return [one for one in overview.status().troubles if text in one.reason]

        await until(lambda: not told("it hasn't listed its devices yet"))  # a reload doesn't wait for that for ever
        (trouble,) = told("its new configuration")
        assert trouble.reason.endswith("so the old one serves on: it lists no Healthy device")
        assert overview.readiness().resources[0].reason is None
        await node.reload(configured(driver_class=scripted(devices=lambda: [Device("c")])))
        await kubelet.wait_for(lambda: kubelet.counts(R)[1] == 1)
        assert not told("its new configuration")


async def test_a_new_name_while_the_old_one_ends(short_path, gate):
    """What containers have under a name that was removed counts from the reload on, not from that name's end."""
    closing = gate()
    node = Node(short_path, configured(driver_class=scripted(close=closing)))
    async with node.running(), Kubelet("1.31", short_path) as kubelet:
        await offered(kubelet)
        assert (await kubelet.admit("p", {"c": {R: 2}}))["ok"]
        reloading = asyncio.ensure_future(node.reload(configured(name=S, driver_class=Scripted)))
        await closing.entered()
        await kubelet.wait_for(lambda: kubelet.counts(S)[0] == 2)
        assert not (await kubelet.admit("q", {"c": {S: 1}}))["ok"]
        assert not reloading.done()
        closing.open()
        await reloading
        assert not (await kubelet.admit("r", {"c": {S: 1}}))["ok"]


async def test_a_new_name_while_a_new_driver_of_the_old_one_ends(short_path, gate):
    """The old driver gives nothing away meanwhile: the new name may have given it already."""
    closing = gate()
    node = Node(short_path, configured(driver_class=Scripted))
    async with node.running(), Kubelet("1.31", short_path) as kubelet:
        await offered(kubelet)
        await node.reload(configured(driver_class=scripted(devices=list, close=closing)))
        reloading = asyncio.ensure_future(node.reload(configured(name=S, driver_class=Scripted)))
        await closing.entered()
        await offered(kubelet, S)
        assert (await kubelet.admit("p", {"c": {S: 2}}))["ok"]
        assert not (await kubelet.admit("q", {"c": {R: 1}}))["ok"]
        assert not reloading.done()
        closing.open()
        await reloading


async def test_the_end_while_a_new_driver_of_a_removed_resource_ends(short_path, gate):
    closing = gate()
    node = Node(short_path, configured(driver_class=Scripted))
    async with node.running(), Kubelet("1.31", short_path) as kubelet:
        await offered(kubelet)
        await node.reload(configured(driver_class=scripted(devices=list, close=closing)))
        reloading = asyncio.ensure_future(node.reload())
        await closing.entered()
        await node.gateway.close()
        assert not of(R)
        closing.open()
        await reloading


@pytest.mark.parametrize("order", [(R, S), (S, R)])
async def test_a_new_name_of_a_pool_that_not_all_have_yet(short_path, gate, order):
    """One is to be restarted, and its new driver takes its time."""

    def thing(name, pool, **methods):
        one = scripted(**{"devices": lambda: [Device("a")], **methods})
        return configured(name=name, pool=pool, driver_class=one)

    first, listing = thing(R, "old"), gate([Device("a")])
    node = Node(short_path, first, thing(S, "old"))
    async with node.running(), Kubelet("1.31", short_path) as kubelet:
        await kubelet.wait_for(lambda: kubelet.counts(R)[1] == kubelet.counts(S)[1] == 1)
        await node.reload(replace(first, pool="new"), thing(S, "new", devices=listing))
        one, other = order
        assert (await kubelet.admit("p", {"c": {one: 1}}))["ok"]
        assert not (await kubelet.admit("q", {"c": {other: 1}}))["ok"]
        listing.open()
        await until(lambda: node.gateway.serving[S].next is None and node.gateway.serving[S].succeeded.is_set())
        assert not (await kubelet.admit("r", {"c": {other: 1}}))["ok"]


@pytest.mark.parametrize("order", [(R, S), (S, R)])
@pytest.mark.parametrize("pool", ["old", None])
async def test_a_list_while_not_all_have_a_new_name_of_a_pool(short_path, order, pool):
    """The kubelet chooses no device that would be refused then."""
    driver = scripted(devices=lambda: [Device("a")])
    one, other = (configured(name=name, pool=pool, driver_class=driver) for name in (R, S))
    node = Node(short_path, one, other)
    async with node.running(), Kubelet("1.31", short_path) as kubelet:
        await kubelet.wait_for(lambda: kubelet.counts(R)[1] == kubelet.counts(S)[1] == 1)
        await node.reload(replace(one, pool="new"), replace(other, pool="new", driver_class=None, failure="it's gone"))
        gives, has = order
        assert (await kubelet.admit("p", {"c": {gives: 1}}))["ok"]
        await kubelet.wait_for(lambda: kubelet.counts(has)[1] == 0)


async def test_a_new_name_of_a_pool_that_one_can_not_take(short_path):
    """Its new configuration can't be used, so it goes on as before."""
    driver = scripted(devices=lambda: [Device("a")])
    one, other = (configured(name=name, pool="old", driver_class=driver) for name in (R, S))
    node = Node(short_path, one, other)
    async with node.running(), Kubelet("1.31", short_path) as kubelet:
        await kubelet.wait_for(lambda: kubelet.counts(R)[1] == kubelet.counts(S)[1] == 1)
        await node.reload(replace(one, pool="new"), replace(other, pool="new", driver_class=None, failure="it's gone"))
        assert (await kubelet.admit("p", {"c": {R: 1}}))["ok"]
        assert not (await kubelet.admit("q", {"c": {S: 1}}))["ok"]
        await node.reload(replace(one, pool="new"), replace(other, pool="new"))
        assert not (await kubelet.admit("r", {"c": {S: 1}}))["ok"]


async def test_a_pool_that_one_can_not_take_and_need_not_any_more(short_path):
    driver = scripted(devices=lambda: [Device("a")])
    one, other = (configured(name=name, pool="old", driver_class=driver) for name in (R, S))
    node = Node(short_path, one, other)
    async with node.running(), Kubelet("1.31", short_path) as kubelet:
        await kubelet.wait_for(lambda: kubelet.counts(R)[1] == kubelet.counts(S)[1] == 1)
        one = replace(one, pool="new")
        await node.reload(one, replace(other, pool="new", driver_class=None, failure="it's gone"))
        await node.reload(one, replace(other, env={"A": "1"}))
        for name in (R, S):
            assert (await kubelet.admit(name, {"c": {name: 1}}))["ok"]


async def test_it_ends_and_leaves_nothing(gateway, kubelet, short_path):
    before = len(asyncio.all_tasks())
    gateway.start(Scripted, Scripted)
    await offered(kubelet, R, S)
    await gateway.end()
    assert list((short_path / "dpgateway").iterdir()) == []
    await kubelet.wait_for(lambda: kubelet.counts(R)[1] == 0)
    await until(lambda: not [task for task in asyncio.all_tasks() if "example.com" in task.get_name()])
    await until(lambda: len(asyncio.all_tasks()) <= before + 3)  # the simulator's, and gRPC's poller


async def test_leftovers_are_removed(gateway, kubelet, caplog):
    left = gateway.directory / "dpgateway" / "0123456789abcdef.sock"
    left.parent.mkdir(mode=0o700)
    left.touch()
    with caplog.at_level(logging.INFO):
        gateway.start(Scripted)
        await offered(kubelet)
        await until(lambda: not left.exists())
    await until(lambda: "of resources that aren't configured: 1" in caplog.text)
    await gateway.end()
    assert names(gateway.directory) == []


async def test_leftovers_before_the_kubelet_comes(gateway, short_path):
    folder = short_path / "later/dpgateway"
    folder.mkdir(mode=0o700, parents=True)
    (folder / "0123456789abcdef.sock").touch()
    gateway.directory = short_path / "device-plugins"
    gateway.start(Scripted)
    await turns(200)
    (short_path / "later").rename(gateway.directory)
    await until(lambda: not (gateway.directory / "dpgateway/0123456789abcdef.sock").exists())


async def test_leftovers_that_cannot_be_removed(gateway, kubelet, caplog):
    folder = gateway.directory / "dpgateway"
    stays, left = folder / "0123456789abcdef.lock", folder / "fedcba9876543210-1.new"
    folder.mkdir(mode=0o700)
    stays.mkdir()
    left.touch()
    gateway.start(Scripted)
    await offered(kubelet)
    await until(lambda: not left.exists())
    await until(lambda: f"what an earlier gateway left behind stays: {stays}: expected a lock" in caplog.text)
    assert stays.exists()
