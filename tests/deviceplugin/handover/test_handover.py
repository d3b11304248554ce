"""Two gateways in one process."""

import asyncio
import contextlib
import fcntl
import os

import pytest

from dpgateway import Allocation, Device, Health
from dpgateway_simulator import PluginError
from tests.support.handover import BOTH, R, S, T, admitted, all_healthy, offered, path
from tests.support.kubelet import registered
from tests.support.resources import Scripted, configured, scripted
from tests.support.waiting import turns, until


@pytest.mark.parametrize("kubelet", ["1.8", "1.9.5", "1.10", "1.24", "1.37"], indirect=True)
async def test_the_newer_gateway_registers(make, kubelet, older, caplog):
    """The older one waits for its end."""
    caplog.set_level("INFO", "dpgateway")
    newer = make()
    newer.serve(configured(driver_class=Scripted))
    await until(lambda: any("handed over" in text for text in caplog.messages))
    await offered(kubelet)
    assert registered(kubelet, R) == 2
    assert await kubelet.allocate(R, ["a"])
    await newer.end()
    await kubelet.wait_for(lambda: registered(kubelet, R) == 3)
    await offered(kubelet)


async def test_a_handover_waits_for_an_allocate(make, kubelet, gate):
    slow, older, newer = gate(Allocation(env={"A": "1"})), make(), make()
    older.serve(configured(driver_class=scripted(allocate=slow)))
    await offered(kubelet)
    call = asyncio.ensure_future(kubelet.allocate(R, ["a"]))
    await slow.entered()
    newer.serve(configured(driver_class=Scripted))
    await turns(200)
    assert registered(kubelet, R) == 1
    slow.open()
    await call
    await kubelet.wait_for(lambda: registered(kubelet, R) == 2)


async def test_a_handover_waits_for_a_preparation(make, kubelet, gate):
    slow, older, newer = gate(), make(), make()
    older.serve(configured(driver_class=scripted(prepare=slow), timeouts={"prepare": 0.01}))
    await offered(kubelet)
    with contextlib.suppress(Exception):  # the call goes on after its deadline
        await kubelet.pre_start(R, ["a"])
    newer.serve(configured(driver_class=Scripted))
    await turns(200)
    assert registered(kubelet, R) == 1
    slow.open()
    await kubelet.wait_for(lambda: registered(kubelet, R) == 2)


async def test_a_handover_waits_for_an_abandoned_allocate(make, kubelet, gate):
    """The driver that gave the device releases it."""
    slow, told, older, newer = gate(Allocation()), [], make(), make()
    kind = scripted(allocate=slow, release=lambda devices: told.append([device.id for device in devices]))
    older.serve(configured(driver_class=kind, timeouts={"allocate": 0.01}))
    await offered(kubelet)
    with pytest.raises(PluginError):  # the call goes on after its deadline
        await kubelet.allocate(R, ["a"])
    newer.serve(configured(driver_class=Scripted))
    await turns(200)
    assert registered(kubelet, R) == 1
    slow.open()
    await kubelet.wait_for(lambda: registered(kubelet, R) == 2)
    assert told == [["a"]]


async def test_a_gateway_without_a_list_takes_nothing_over(make, kubelet, older, gate):
    hangs, newer = gate([]), make()
    newer.serve(configured(driver_class=scripted(devices=hangs), timeouts={"list": 0.01}))
    await hangs.entered()
    await asyncio.sleep(0.05)  # past its deadline; nothing happens, and there is nothing to wait for
    assert registered(kubelet, R) == 1
    assert await kubelet.allocate(R, ["a"])


@pytest.mark.parametrize("devices", [[], [Device("a", Health.unhealthy("no power"))]], ids=["none", "unhealthy"])
async def test_without_a_healthy_device_nothing_is_taken(make, kubelet, older, caplog, devices):
    newer, found = make(), list(devices)
    newer.serve(configured(driver_class=scripted(devices=lambda: list(found)), refresh=0.05))
    await until(lambda: any("this one has no healthy device" in text for text in caplog.messages))
    assert (registered(kubelet, R), kubelet.counts(R)) == (1, (2, 2))
    assert await kubelet.allocate(R, ["a"])
    found[:] = [Device("a"), Device("b")]
    await kubelet.wait_for(lambda: registered(kubelet, R) == 2)
    await offered(kubelet)


async def test_neither_gateway_has_a_healthy_device(make, kubelet, caplog):
    caplog.set_level("INFO", "dpgateway")
    older, newer = make(), make()
    older.serve(configured(driver_class=scripted(devices=lambda: [Device("a", Health.unhealthy("no power"))])))
    await kubelet.wait_for(lambda: kubelet.counts(R) == (1, 0))
    newer.serve(configured(driver_class=scripted(devices=list)))
    await until(lambda: any("handed over" in text for text in caplog.messages))


async def test_only_the_gateway_that_serves_releases(make, kubelet, caplog):
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


async def test_grants_of_a_resource_that_went_stay_taken(make, kubelet):
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


def bound_at(gateway, name):
    """When its socket got its name; None while there is none, as between two gateways."""
    try:
        return path(gateway, "sock", name).stat().st_ctime_ns
    except FileNotFoundError:
        return None


async def test_grants_of_a_gateway_that_ends_stay_taken(make, kubelet, gate):
    slow, older, newer = gate(Allocation(env={"A": "1"})), make(), make()
    older.serve(configured(name=R, driver_class=scripted(allocate=slow), pool="p"), BOTH[1])
    await offered(kubelet, R, S)
    newer.serve(BOTH[1])
    admitted = asyncio.ensure_future(kubelet.admit("p", {"c": {R: 1}}))
    await slow.entered()
    served = bound_at(older, S)
    older.ending.tell()
    await until(lambda: bound_at(newer, S) not in {None, served})
    await turns(200)
    slow.open()
    given = (await admitted)["stage"] == "start"  # unless the older one had no time left
    await kubelet.wait_for(lambda: registered(kubelet, S) == 2)
    await kubelet.wait_for(lambda: kubelet.counts(S) == (2, 1 if given else 2))
    assert all_healthy(kubelet, S) == 1 or not given


async def test_a_renamed_resource_of_a_pool_is_unhealthy(make, kubelet):
    """As long as the gateway with the old name serves."""
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


async def test_later_grants_under_an_old_name_stay_taken(make, kubelet):
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


async def test_a_renamed_resource_of_another_pool(make, kubelet):
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
async def test_a_renamed_resource_in_no_pool(make, kubelet, pod):
    """A gateway of another kind, with resources of its own, keeps nothing from this one."""
    newer = make()
    newer.directory.mkdir(exist_ok=True)
    with served_by_pod(newer, T):
        with served_by_pod(newer, R, pod):
            newer.serve(*(configured(name=name, driver_class=Scripted) for name in (S, T)))
            await kubelet.wait_for(lambda: kubelet.counts(S) == (2, 0 if pod == "a/b" else 2))
        await offered(kubelet, S)


async def test_a_renamed_resource_in_no_pool_is_handed_over(make, kubelet):
    """While the gateway with the old name serves, the third gives nothing, just as the second."""
    second, third = make(), make()
    second.directory.mkdir(exist_ok=True)
    resources = [configured(name=name, driver_class=Scripted) for name in (S, T)]
    with served_by_pod(second, R):
        with served_by_pod(second, T):
            second.serve(*resources)
            await kubelet.wait_for(lambda: kubelet.counts(S) == (2, 0))
        third.serve(*resources)
        await kubelet.wait_for(lambda: registered(kubelet, S) == 2 and registered(kubelet, T) == 2)
        await offered(kubelet, T)
        assert kubelet.counts(S) == (2, 0)
        await second.end()
        assert kubelet.counts(S) == (2, 0)
    await offered(kubelet, S)


@pytest.mark.parametrize("pool", [None, "p"])
async def test_held_under_a_name_that_went(make, kubelet, pool):
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
