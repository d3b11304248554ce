"""A gateway that is told to end serves on until another one has taken over, if it was started with --linger."""

import asyncio
import itertools
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dpgateway.node.pods import GATEWAYS
from dpgateway.resource.ownership import FOLDER, LAST
from tests.scenarios.gateway import Gateway
from tests.scenarios.kubelet import RESOURCE, Kubelet
from tests.scenarios.test_handover import ONE, watched
from tests.support.waiting import until

OTHER = {"name": "example.com/other", "driver": "simulated", "options": {"count": 2}}
LONG = "10m"
# What ends a gateway here no kubelet sees; what it sees of an end is in test_registration.py.
ONE_RELEASE = pytest.mark.parametrize("kubelet", ["1.37"], indirect=True)


@pytest.fixture
async def patient(kubelet: Kubelet, gateway: Gateway) -> AsyncIterator[Gateway]:
    """Not yet started. It would linger for longer than a test lasts."""
    gateway.environment["DPGATEWAY_LINGER"] = LONG
    await kubelet.start()
    yield gateway
    await gateway.close()


@pytest.fixture
async def older(kubelet: Kubelet, patient: Gateway) -> Gateway:
    await patient.start()
    await kubelet.wait_for_devices(2)
    await kubelet.noted(2)
    await patient.said(" registered resource=")
    return patient


def tell_to_end(older: Gateway) -> None:
    older.process.send_signal(signal.SIGTERM)


async def lingers(older: Gateway) -> None:
    tell_to_end(older)
    await older.said("told to end: serving on until another gateway has taken over example.com/thing")


async def ended(older: Gateway) -> int:
    async with asyncio.timeout(60):
        return await older.process.wait()


async def test_it_serves_until_another_has_taken_over(kubelet: Kubelet, older: Gateway, newer: Gateway) -> None:
    """Also a kubelet that restarts meanwhile."""
    with watched(kubelet) as seen:
        await lingers(older)
        assert (await kubelet.admit("p0", ONE))["ok"]
    await kubelet.remove("p0")
    await kubelet.restart()
    await kubelet.wait_for_devices(2)
    with watched(kubelet) as later:
        assert (await kubelet.admit("p0", ONE))["ok"]
        await newer.start()
        assert await ended(older) == 0
        await older.said("ending: other gateways have taken over every resource")
        assert (await kubelet.admit("p1", ONE))["ok"]
    assert {*seen, *later} == {(2, 2)}
    assert await newer.end() == 0


async def test_it_takes_nothing_from_its_successor(
    kubelet: Kubelet, older: Gateway, newer: Gateway, folder: Path
) -> None:
    """A configuration that changes during an upgrade reaches the gateway that lingers, too."""
    newer.folder = folder / "newer"  # it has the other resource alone, so the older one lingers on
    newer.folder.mkdir()
    await newer.start(OTHER)
    await kubelet.wait_for_devices(2, resource="example.com/other")
    await lingers(older)
    older.reload(older.resource, OTHER)
    await older.said("this one takes over when that one ends")
    assert (await kubelet.admit("p0", {"c": {"example.com/other": 1}}))["ok"]
    assert not any("handed over" in line for line in newer.log)


@ONE_RELEASE
async def test_a_second_signal_ends_it_at_once(older: Gateway) -> None:
    await lingers(older)
    tell_to_end(older)
    await older.said("ending, though no gateway has taken over example.com/thing: told to end once more")
    assert await ended(older) == 0


@ONE_RELEASE
async def test_its_time_may_be_longer_than_any_calendar(kubelet: Kubelet, patient: Gateway) -> None:
    patient.environment["DPGATEWAY_LINGER"] = "99999999h"
    await patient.start()
    await kubelet.wait_for_devices(2)
    await lingers(patient)
    tell_to_end(patient)
    assert await ended(patient) == 0
    await patient.said("told to end once more")


@ONE_RELEASE
async def test_it_ends_when_its_time_is_over(kubelet: Kubelet, gateway: Gateway) -> None:
    gateway.environment["DPGATEWAY_LINGER"] = "3s"  # longer than an end may take
    await kubelet.start()
    await gateway.start()
    await kubelet.wait_for_devices(2)
    tell_to_end(gateway)
    await gateway.said("ending, though no gateway has taken over example.com/thing: the time is over")
    assert await ended(gateway) == 0
    assert gateway.names() == []


@ONE_RELEASE
async def test_a_file_that_says_that_none_follows_ends_it(kubelet: Kubelet, older: Gateway) -> None:
    (kubelet.directory / FOLDER / LAST).touch()
    tell_to_end(older)
    await older.said(f"{LAST} says that no gateway comes after this one")
    assert await ended(older) == 0


@ONE_RELEASE
async def test_one_that_sees_no_pod_of_another_gateway_ends_soon(
    kubelet: Kubelet, patient: Gateway, folder: Path
) -> None:
    """As in an uninstall."""
    for uid, volume in (("uid-1", GATEWAYS), ("uid-2", GATEWAYS.with_name("run"))):
        (folder / "pods" / uid / volume).mkdir(parents=True)
    patient.environment["POD_UID"] = "uid-1"
    await patient.start()
    await kubelet.wait_for_devices(2)
    await lingers(patient)
    await patient.said("no pod of another gateway has been on this node for 15 s")
    assert await ended(patient) == 0


@ONE_RELEASE
async def test_what_a_file_said_of_an_earlier_gateway(kubelet: Kubelet, gateway: Gateway) -> None:
    await kubelet.start()
    last = kubelet.directory / FOLDER / LAST
    last.parent.mkdir(mode=0o700)
    last.touch()
    await gateway.start()
    await until(lambda: not last.exists())
    assert await gateway.end() == 0


@ONE_RELEASE
async def test_one_that_serves_nothing_ends_at_once(older: Gateway, newer: Gateway) -> None:
    """As the new gateway of a rollout that is rolled back."""
    newer.environment["DPGATEWAY_LINGER"] = LONG
    newer.options["count"] = 0
    newer.suffer({"method": "devices", "raises": "no bus"})
    await newer.start()
    await newer.said("another gateway serves")
    assert await newer.end() == 0
    assert not any("serving on" in line for line in newer.log)
    assert older.running


async def test_a_newer_gateway_with_fewer_resources(
    kubelet: Kubelet, patient: Gateway, newer: Gateway, folder: Path
) -> None:
    newer.folder = folder / "newer"  # the two have different configurations
    newer.folder.mkdir()
    await patient.start(patient.resource, OTHER)
    await kubelet.wait_for_devices(2)
    await kubelet.wait_for_devices(2, resource="example.com/other")
    tell_to_end(patient)
    await patient.said("taken over example.com/thing, example.com/other,")
    await newer.start()
    await patient.said("handed over to another gateway")
    await newer.said("took over from another gateway")
    newer.process.send_signal(signal.SIGKILL)
    await newer.close()
    await patient.said(" registered resource=example.com/thing", 2)

    # Up to 1.36 the end of the newer one's stream may come after this registration, and ends it: then another follows.
    names = (f"p{number}" for number in itertools.count())

    async def admitted() -> object:
        return (await kubelet.admit(next(names), {"c": {RESOURCE: 1, "example.com/other": 1}}))["ok"]

    await until(admitted, pause=0.1)
    assert patient.running
