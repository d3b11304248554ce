"""A new configuration while the gateway runs, under a simulated kubelet."""

import asyncio
import logging
import threading
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from dpgateway import Allocation, Device, Health, Mount
from dpgateway.config import InvalidConfiguration, Place, Problem, WebSettings
from dpgateway.errors import NoThread
from dpgateway_simulator import Kubelet, PluginError
from tests.support.inside import Inside
from tests.support.kubelet import registered
from tests.support.resources import Scripted, configured, scripted
from tests.support.waiting import until

A, B, C = (f"example.com/{name}" for name in "abc")
DONE = "the configuration was read again; "


class Driver(Scripted):
    """``made`` and ``closed`` have the resource of each."""

    made: ClassVar[list[str]] = []
    closed: ClassVar[list[str]] = []

    def __init__(self, options, context):
        super().__init__(options, context)
        self.made.append(context.resource)

    def close(self):
        self.closed.append(self.context.resource)


def resource(name, **keys):
    return configured(**{"name": name, "driver_class": Driver, "refresh": 3600, **keys})


class Reloaded(Inside):
    def __init__(self, directory, log):
        super().__init__(directory)
        self.log = log

    async def says(self, text):
        """Once for each call."""
        await until(lambda: text in self.log.messages, found=lambda: "\n".join(self.log.messages))
        self.log.clear()

    async def takes_over(self, *resources, changes):
        self.reload(self.configuration(*resources))
        await self.says(DONE + changes)


@pytest.fixture(autouse=True)
def nothing_made():
    Driver.made.clear()
    Driver.closed.clear()


@pytest.fixture
async def gateway(short_path, caplog):
    caplog.set_level(logging.INFO, "dpgateway")
    running = Reloaded(short_path, caplog)
    yield running
    await running.close()


@pytest.fixture
async def kubelet(short_path):
    async with Kubelet("1.31", short_path) as kubelet:
        yield kubelet


async def offered(kubelet, *names, count=2):
    for name in names:
        await kubelet.wait_for(lambda name=name: kubelet.counts(name)[1] == count)


async def served(gateway, kubelet, *resources):
    gateway.serve(*resources)
    await offered(kubelet, *(one.name for one in resources))


async def test_resources_come_and_go(gateway, kubelet):
    await served(gateway, kubelet, resource(A), resource(B))
    await gateway.takes_over(resource(A), resource(C), changes=f"added: {C}; removed: {B}")
    await offered(kubelet, C)
    await offered(kubelet, B, count=0)
    assert [registered(kubelet, name) for name in (A, B, C)] == [1, 1, 1]
    assert sorted(Driver.made) == [A, B, C]
    await until(lambda: Driver.closed == [B])
    assert (await kubelet.admit("p", {"c": {A: 1, C: 2}}))["ok"]
    await gateway.takes_over(resource(A), resource(B), resource(C), changes=f"added: {B}")
    await offered(kubelet, B)
    assert [registered(kubelet, name) for name in (A, B, C)] == [1, 2, 1]


async def test_a_restart_touches_no_other(gateway, kubelet):
    await served(gateway, kubelet, resource(A), resource(B))
    three = scripted(devices=lambda: [Device("a"), Device("b"), Device("c")])
    await gateway.takes_over(resource(A), resource(B, driver_class=three), changes=f"restarted: {B} (driver)")
    await offered(kubelet, B, count=3)
    assert [registered(kubelet, name) for name in (A, B)] == [1, 2]


async def test_changes_in_place_keep_driver_and_sockets(gateway, kubelet, short_path):
    # so that the kubelet asks for a preference before and after
    await served(gateway, kubelet, resource(A, preference="packed"), resource(B))
    assert (await kubelet.admit("p", {"c": {A: 1}}))["ok"]
    sockets = sorted((short_path / "dpgateway").iterdir())
    keys = {
        "shares": 2,
        "preference": "spread",
        "pool": "things",
        "keep_lost": 1,
        "refresh": 7,
        "env": {"MORE": "b"},
        "annotations": {"c": "d"},
        "mounts": (Mount("/etc", "/f"),),
        "timeouts": {"allocate": 5},
    }
    await gateway.takes_over(resource(A, **keys), resource(B), changes=f"changed in place: {A} ({', '.join(keys)})")
    await offered(kubelet, A, count=4)
    reply = await kubelet.admit("q", {"c": {A: 2}})
    assert reply["ok"], reply
    (started,) = reply["containers"]
    assert started["options"]["envs"]["MORE"] == "b"
    assert started["options"]["annotations"]["c"] == "d"
    assert [mount["container_path"] for mount in started["options"]["mounts"]] == ["/f"]
    assert [registered(kubelet, name) for name in (A, B)] == [1, 1]
    assert (sorted(Driver.made), Driver.closed) == ([A, B], [])
    assert sorted((short_path / "dpgateway").iterdir()) == sockets


async def test_held_shares_stay_listed(gateway, kubelet):
    gateway.serve(resource(A, shares=2, preference="packed", keep_lost=0))
    await offered(kubelet, A, count=4)
    assert (await kubelet.admit("p", {"c": {A: 4}}))["ok"]
    fewer = resource(A, preference="packed", keep_lost=0)
    await gateway.takes_over(fewer, changes=f"changed in place: {A} (shares)")
    await offered(kubelet, A)
    assert kubelet.counts(A)[0] == 4


async def test_other_options_register_again(gateway, kubelet):
    await served(gateway, kubelet, resource(A))
    gateway.reload(gateway.configuration(resource(A, preference="packed")))
    await gateway.says("the options changed, so the resource is registered again")
    assert Driver.made == [A]
    assert Driver.closed == []


async def test_another_deadline_counts_for_the_next_call(gateway, kubelet, gate):
    slow = gate(Allocation())
    hanging = scripted(allocate=slow)
    await served(gateway, kubelet, resource(A, driver_class=hanging))
    sooner = resource(A, driver_class=hanging, timeouts={"allocate": 0.05})
    await gateway.takes_over(sooner, changes=f"changed in place: {A} (timeouts)")
    assert "allocate() hasn't answered for 0.05 s" in (await kubelet.admit("p", {"c": {A: 1}}))["error"]
    slow.open()


async def test_held_devices_stay_listed_after_a_restart(gateway, kubelet):
    await served(gateway, kubelet, resource(A))
    assert (await kubelet.admit("p", {"c": {A: 2}}))["ok"]
    another = scripted(devices=lambda: [Device("c")])
    await gateway.takes_over(resource(A, driver_class=another), changes=f"restarted: {A} (driver)")
    await offered(kubelet, A, count=1)
    assert kubelet.counts(A)[0] == 3


async def test_held_devices_are_listed_when_added_again(gateway, kubelet):
    await served(gateway, kubelet, resource(A), resource(B))
    assert (await kubelet.admit("p", {"c": {A: 2}}))["ok"]
    await gateway.takes_over(resource(B), changes=f"removed: {A}")
    another = scripted(devices=lambda: [Device("c")])
    await gateway.takes_over(resource(A, driver_class=another), resource(B), changes=f"added: {A}")
    await offered(kubelet, A, count=1)
    assert kubelet.counts(A)[0] == 3


async def test_the_same_configuration_changes_nothing(gateway, kubelet):
    await served(gateway, kubelet, resource(A))
    await gateway.takes_over(resource(A, where=Place("config.yaml", 7)), changes="nothing changed")
    assert registered(kubelet, A) == 1


async def test_no_thread_retries_the_reload(gateway, kubelet):
    await served(gateway, kubelet, resource(A))
    gateway.reload(NoThread("the system has no thread left for that"))
    await gateway.says("reload failed, and starts again: the system has no thread left for that")
    gateway.wanted = gateway.configuration(resource(A), resource(B))
    await offered(kubelet, B)
    assert not any("a bug" in text for text in gateway.log.messages)


async def test_a_wrong_configuration_is_refused(gateway, kubelet):
    await served(gateway, kubelet, resource(A))
    problems = [Problem(Place("config.yaml", line), "one thing", "another") for line in (3, 8)]
    gateway.reload(InvalidConfiguration(problems))
    await until(lambda: str(problems[0]) in gateway.log.messages)
    await until(lambda: str(problems[1]) in gateway.log.messages)
    await gateway.says("the new configuration is refused because of 2 problems; the old one goes on")
    assert (await kubelet.admit("p", {"c": {A: 1}}))["ok"]
    await gateway.takes_over(resource(A), resource(B), changes=f"added: {B}")
    assert registered(kubelet, A) == 1


async def test_a_failed_read_keeps_the_old_configuration(gateway, kubelet):
    await served(gateway, kubelet, resource(A))
    gateway.reload(MemoryError("none"))
    await until(lambda: any("can't be read again" in text for text in gateway.log.messages))
    await gateway.takes_over(resource(A), resource(B), changes=f"added: {B}")


async def test_keys_of_the_next_start_are_named(gateway, kubelet):
    await served(gateway, kubelet, resource(A))
    gateway.reload(replace(gateway.configuration(resource(A)), state_dir=Path("/elsewhere")))
    await gateway.says("state_dir changes with the next start of the gateway only")


async def test_the_pages_come_with_a_new_configuration(gateway, kubelet):
    await served(gateway, kubelet, resource(A))
    gateway.reload(replace(gateway.configuration(resource(A)), web=WebSettings("127.0.0.1:0")))
    await until(lambda: any("the pages are at http://127.0.0.1:" in text for text in gateway.log.messages))
    await gateway.says(f"{DONE}taken over: web")
    assert registered(kubelet, A) == 1


async def test_an_unusable_driver_keeps_the_resource(gateway, kubelet):
    await served(gateway, kubelet, resource(A))
    broken = resource(A, driver_class=None, options=None, failure="it isn't installed")
    gateway.reload(gateway.configuration(broken))
    await gateway.says(
        f"resource {A} goes on as before, because its new configuration can't be used: it isn't installed"
    )
    assert (await kubelet.admit("p", {"c": {A: 1}}))["ok"]
    assert registered(kubelet, A) == 1


def unloaded(load, **keys):
    failure = "it hasn't been imported within 2 s"
    return resource(A, driver_class=None, options=None, failure=failure, load=load, **keys)


async def test_a_late_driver_is_changed_then(gateway, kubelet, gate):
    await served(gateway, kubelet, resource(A))
    load = gate(resource(A, driver_class=scripted(devices=lambda: THREE)))
    gateway.reload(gateway.configuration(unloaded(load, written={"options": {"count": 3}})))
    await gateway.says(f"{DONE}restarted: {A} (options, driver)")
    assert registered(kubelet, A) == 1
    assert (await kubelet.admit("p", {"c": {A: 2}}))["ok"]
    load.open()
    await offered(kubelet, A, count=3)


async def test_hung_options_keep_the_running_driver(gateway, kubelet, gate):
    await served(gateway, kubelet, resource(A))
    again = unloaded(gate(), env={"A": "1"})
    await gateway.takes_over(again, changes=f"changed in place: {A} (env)")
    assert (Driver.made, Driver.closed) == ([A], [])


async def test_a_resource_added_without_a_kubelet(gateway, short_path):
    gateway.serve(resource(A))
    await gateway.takes_over(resource(A), resource(B), changes=f"added: {B}")
    async with Kubelet("1.31", short_path) as kubelet:
        await offered(kubelet, A, B)


THREE = [Device("a"), Device("b"), Device("c")]


def fails(*_):
    raise OSError("no bus")


@pytest.mark.parametrize(
    ("devices", "reason"),
    [
        ("hangs", "it hasn't listed its devices yet"),
        (list, "it lists no Healthy device"),
        (lambda: [Device("a", Health.unhealthy("dry"))], "it lists no Healthy device"),
        (fails, "no bus"),
    ],
)
async def test_a_new_driver_without_devices_waits(gateway, kubelet, gate, devices, reason):
    await served(gateway, kubelet, resource(A), resource(B))
    another = scripted(devices=gate([]) if devices == "hangs" else devices)
    gateway.reload(gateway.configuration(resource(A, driver_class=another), resource(B)))
    goes_on = (
        f"resource {A} goes on as before: the driver of its new configuration has none yet, so the old one serves on"
    )
    await until(lambda: any(one.startswith(goes_on) and reason in one for one in gateway.log.messages))
    await gateway.says(f"{DONE}restarted: {A} (driver)")
    assert [kubelet.counts(name) for name in (A, B)] == [(2, 2), (2, 2)]
    assert (await kubelet.admit("p", {"c": {A: 2, B: 1}}))["ok"]
    assert [registered(kubelet, name) for name in (A, B)] == [1, 1]
    assert Driver.closed == []


async def test_a_new_driver_with_devices_takes_over(gateway, kubelet, gate):
    await served(gateway, kubelet, resource(A))
    slow = gate(THREE)
    gateway.reload(gateway.configuration(resource(A, driver_class=scripted(devices=slow))))
    await until(lambda: any("goes on as before" in text for text in gateway.log.messages))
    assert Driver.closed == []
    slow.open()
    await offered(kubelet, A, count=3)
    await until(lambda: Driver.closed == [A])
    assert registered(kubelet, A) == 2


async def test_an_old_driver_without_devices_ends(gateway, kubelet):
    devices, contexts = [Device("a"), Device("b")], []

    class Old(Driver):
        def __init__(self, options, context):
            super().__init__(options, context)
            contexts.append(context)

        def devices(self):
            return list(devices)

    await served(gateway, kubelet, resource(A, driver_class=Old))
    gateway.reload(gateway.configuration(resource(A, driver_class=scripted(devices=list))))
    await until(lambda: any("goes on as before" in text for text in gateway.log.messages))
    assert Driver.closed == []
    devices.clear()
    contexts[0].changed()
    await until(lambda: Driver.closed == [A])
    await kubelet.wait_for(lambda: registered(kubelet, A) == 2)


@pytest.mark.parametrize("then", ["as before", "removed", "changed", "the end"])
async def test_a_waiting_driver_ends_with_the_next_reload(gateway, kubelet, gate, then):
    closed = threading.Event()
    await served(gateway, kubelet, resource(A))
    vain = resource(A, driver_class=scripted(devices=list, close=closed.set))
    gateway.reload(gateway.configuration(vain))
    await gateway.says(f"{DONE}restarted: {A} (driver)")
    if then == "the end":
        await gateway.end()
    elif then == "removed":
        await gateway.takes_over(changes=f"removed: {A}")
        await offered(kubelet, A, count=0)
    elif then == "as before":
        await gateway.takes_over(resource(A), changes=f"restarted: {A} (driver)")
        await offered(kubelet, A)
        await until(lambda: Driver.closed == [A])  # another one like it has taken its place
    else:
        await gateway.takes_over(replace(vain, env={"E": "1"}), changes=f"changed in place: {A} (env)")
        assert not closed.is_set()
        three = resource(A, driver_class=scripted(devices=lambda: THREE), env={"E": "1"})
        await gateway.takes_over(three, changes=f"restarted: {A} (driver)")
        await offered(kubelet, A, count=3)
    await until(closed.is_set)


async def test_a_hung_close_delays_no_new_driver(gateway, kubelet, gate):
    closing = gate(None)
    await served(gateway, kubelet, resource(A, driver_class=scripted(close=closing)))
    gateway.reload(gateway.configuration(resource(A, driver_class=scripted(devices=lambda: THREE))))
    await closing.entered()
    await offered(kubelet, A, count=3)
    closing.open()


async def test_the_end_does_not_wait_for_a_reload(gateway, kubelet, gate):
    closing = gate(None)
    await served(gateway, kubelet, resource(A, driver_class=scripted(close=closing)))
    gateway.reload(gateway.configuration())
    await closing.entered()
    await gateway.end()
    closing.open()


async def test_a_removed_resource_keeps_its_hardware_from_pools(gateway, kubelet):
    await served(gateway, kubelet, resource(A, pool="p"), resource(B, pool="p"))
    assert (await kubelet.admit("x", {"c": {A: 1}}))["ok"]
    await offered(kubelet, B, count=1)
    await gateway.takes_over(resource(B, pool="p"), changes=f"removed: {A}")
    await gateway.takes_over(resource(B, pool="q"), changes=f"changed in place: {B} (pool)")
    refused = await kubelet.admit("y", {"c": {B: 2}})
    assert not refused["ok"]
    await gateway.takes_over(resource(A, pool="q"), resource(B, pool="q"), changes=f"added: {A}")
    await offered(kubelet, A)
    assert kubelet.counts(B)[1] == 1


async def test_a_resource_takes_its_hardware_between_pools(gateway, kubelet):
    await served(gateway, kubelet, resource(A), resource(B, pool="p"))
    assert (await kubelet.admit("x", {"c": {A: 1}}))["ok"]
    assert kubelet.counts(B)[1] == 2
    await gateway.takes_over(resource(A, pool="p"), resource(B, pool="p"), changes=f"changed in place: {A} (pool)")
    await offered(kubelet, B, count=1)
    both = resource(A, pool="q"), resource(B, pool="q")
    await gateway.takes_over(*both, changes=f"changed in place: {A} (pool), {B} (pool)")
    assert not (await kubelet.admit("y", {"c": {B: 2}}))["ok"]
    await gateway.takes_over(resource(A), resource(B, pool="q"), changes=f"changed in place: {A} (pool)")
    await offered(kubelet, B)
    assert [registered(kubelet, name) for name in (A, B)] == [1, 1]


async def test_a_new_pool_while_the_new_driver_waits(gateway, kubelet, gate):
    await served(gateway, kubelet, resource(A), resource(B, pool="p"))
    slow = gate([Device("a"), Device("b")])
    waits = resource(A, driver_class=scripted(devices=slow))
    await gateway.takes_over(waits, resource(B, pool="p"), changes=f"restarted: {A} (driver)")
    pooled = replace(waits, pool="p"), resource(B, pool="p")
    await gateway.takes_over(*pooled, changes=f"changed in place: {A} (pool)")
    slow.open()
    await kubelet.wait_for(lambda: registered(kubelet, A) == 2)
    await offered(kubelet, A)
    assert (await kubelet.admit("x", {"c": {A: 1}}))["ok"]
    assert not (await kubelet.admit("y", {"c": {B: 2}}))["ok"]


@pytest.mark.parametrize("then", ["restarted", "removed"])
async def test_a_prepare_outlives_its_driver(gateway, kubelet, gate, then):
    slow = gate()
    hanging = resource(A, driver_class=scripted(prepare=slow), pool="p")
    await served(gateway, kubelet, hanging, resource(B, pool="p"))
    preparing = asyncio.ensure_future(kubelet.pre_start(A, ["a"]))
    await slow.entered()
    if then == "removed":
        await gateway.takes_over(resource(B, pool="p"), changes=f"removed: {A}")
    else:
        again = resource(A, driver_class=scripted(prepare=lambda _: None), pool="p")
        await gateway.takes_over(again, resource(B, pool="p"), changes=f"restarted: {A} (driver)")
        await kubelet.wait_for(lambda: registered(kubelet, A) == 2)
    with pytest.raises(PluginError):
        await preparing
    for name in (A, B) if then == "restarted" else (B,):
        with pytest.raises(PluginError, match=r"held as example.com/a by prepare\(\) of its driver, which ended"):
            await kubelet.allocate(name, ["a"])
    await offered(kubelet, B, count=1)
    slow.open()
    await offered(kubelet, B)
    assert (await kubelet.admit("p", {"c": {B: 2}}))["ok"]


async def test_an_allocate_outlives_its_driver(gateway, kubelet, gate):
    """The next driver is told what it gave, and nobody gets the hardware before."""
    slow, told = gate(Allocation()), []
    hanging = resource(A, driver_class=scripted(allocate=slow, release=lambda _: None), pool="p")
    await served(gateway, kubelet, hanging, resource(B, pool="p"))
    allocating = asyncio.ensure_future(kubelet.allocate(A, ["a"]))
    await slow.entered()
    again = resource(
        A, driver_class=scripted(release=lambda devices: told.append([one.id for one in devices])), pool="p"
    )
    await gateway.takes_over(again, resource(B, pool="p"), changes=f"restarted: {A} (driver)")
    await kubelet.wait_for(lambda: registered(kubelet, A) == 2)
    with pytest.raises(PluginError):
        await allocating
    with pytest.raises(PluginError, match=r"held as example.com/a by an allocate\(\) of its driver"):
        await kubelet.allocate(B, ["a"])
    assert told == []
    slow.open()
    await until(lambda: told == [["a"]])
    await offered(kubelet, B)
    assert (await kubelet.admit("p", {"c": {B: 2}}))["ok"]
