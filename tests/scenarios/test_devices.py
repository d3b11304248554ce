"""Devices that break, heal, vanish and come back."""

import asyncio
import json
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from tests.scenarios.gateway import Gateway
from tests.scenarios.kubelet import RESOURCE, First, Kubelet, devices
from tests.support.waiting import until

ONE = {"c": {RESOURCE: 1}}
BURNT = {"indexes": [0], "unhealthy": "burnt"}


async def knows(gateway: Gateway, pod: str) -> bool:
    """Whether it has read in the kubelet's checkpoint that the pod has a device."""
    words = "status", "--output=json", f"--control-socket={gateway.folder / 'control.sock'}"
    process = await asyncio.create_subprocess_exec(*gateway.command, *words, stdout=PIPE)
    return f'"{pod}"' in (await process.communicate())[0].decode()


async def test_devices_break_and_heal(kubelet: Kubelet, served: Gateway) -> None:
    served.suffer({"indexes": [0], "unhealthy": "burnt"})
    await kubelet.wait_for_devices(1, 1)
    assert devices(await kubelet.admit("p1", ONE)) == {"node-1"}
    served.suffer()
    await kubelet.wait_for_devices(2)
    assert devices(await kubelet.admit("p2", ONE)) == {"node-0"}
    await kubelet.remove("p2")
    served.suffer({"unhealthy": "burnt"})
    await kubelet.wait_for_devices(0, 2)
    assert not (await kubelet.admit("p3", ONE))["ok"]
    served.suffer()
    await kubelet.wait_for_devices(2)

    # the log names the holder of a broken device, perhaps in one line with the others that just healed
    await kubelet.noted()
    await until(lambda: knows(served, "p1"), pause=0.1)
    served.suffer({"indexes": [1], "unhealthy": "burnt"})
    await kubelet.wait_for_devices(1, 1)
    await until(lambda: any("Unhealthy: burnt; held by " in line and "p1" in line for line in served.log))

    # a lost one that nobody holds stays listed for a while
    served.suffer({"indexes": [0], "absent": True})
    await kubelet.wait_for_devices(1, 1)
    served.suffer()
    await kubelet.wait_for_devices(2)


async def test_a_damaged_checkpoint_is_written_anew(kubelet: Kubelet, served: Gateway) -> None:
    """A kubelet that starts with it gives away what containers have."""
    held = devices(await kubelet.admit("p1", ONE))
    file = kubelet.directory / "kubelet_internal_checkpoint"
    await kubelet.noted()
    file.write_text("{}}")  # as 1.9 writes it itself at times, where two resources register at once
    if kubelet.minor == 8:  # it writes for Allocates alone
        assert (await kubelet.start_container("p1"))["ok"]
    await until(lambda: "p1" in file.read_text(), pause=0.05)
    await kubelet.restart()
    await kubelet.wait_for_devices(2)
    assert devices(await kubelet.admit("p2", ONE)).isdisjoint(held)
    assert served.running


async def test_devices_are_added_and_taken_away(kubelet: Kubelet, gateway: Gateway) -> None:
    gateway.resource["keep_lost"] = "0s"
    await kubelet.start()
    await gateway.start()
    await kubelet.wait_for_devices(2)
    gateway.suffer({"extra": 3})
    await kubelet.wait_for_devices(5)
    gateway.suffer({"indexes": [0], "absent": True})
    await kubelet.wait_for_devices(1)
    gateway.suffer({"absent": True})
    await kubelet.wait_for_devices(0)
    gateway.suffer()
    await kubelet.wait_for_devices(2)


def is_whole(checkpoint: Path) -> bool:
    try:
        return bool(json.loads(checkpoint.read_text()))
    except json.JSONDecodeError:
        return False


@pytest.mark.parametrize("kubelet", ["1.9"], indirect=True)
async def test_many_lists_at_once_leave_the_checkpoint_whole(kubelet: Kubelet, gateway: Gateway) -> None:
    """This kubelet writes the file at each list, in place, and two lists beside each other."""
    resources = [gateway.resource | {"name": f"example.com/r{number}"} for number in range(16)]
    await kubelet.start()
    await gateway.start(*resources)
    for healthy in [2, 1] * 10:
        for resource in resources:
            await kubelet.wait_for_devices(healthy, resource=resource["name"])
        await until(lambda: is_whole(kubelet.directory / "kubelet_internal_checkpoint"))
        gateway.suffer(*([BURNT] if healthy == 2 else []))


@pytest.mark.parametrize(("policy", "first"), [("best-effort", "pods"), ("restricted", "plugin")])
async def test_a_lost_device_that_is_held_stays_listed(
    kubelet: Kubelet, gateway: Gateway, policy: str, first: First
) -> None:
    """From 1.34 on a kubelet would panic over it, and again at every start; a strict one wants its NUMA node, too."""
    gateway.resource["keep_lost"] = "0s"
    gateway.options["numa"] = [0, 1]
    kubelet.policy, kubelet.numa = (policy, 2) if kubelet.minor >= 24 else ("none", 1)
    await kubelet.start()
    await gateway.start()
    await kubelet.wait_for_devices(2)
    [held] = devices(await kubelet.admit("p1", ONE))
    gateway.suffer({"devices": [held], "absent": True})
    await kubelet.wait_for_devices(1, 1)
    await gateway.restart()
    await kubelet.wait_for_devices(1, 1)
    assert (await kubelet.restart(graceful=False, first=first))["p1"]["ok"]
    await kubelet.wait_for_devices(1, 1)
    gateway.suffer()
    await kubelet.wait_for_devices(2)
    assert (await kubelet.start_container("p1"))["ok"]


async def test_of_two_lost_devices_only_the_held_one_stays(kubelet: Kubelet, gateway: Gateway) -> None:
    gateway.resource["keep_lost"] = "0s"
    await kubelet.start()
    await gateway.start()
    observer = await gateway.observe()
    await kubelet.wait_for_devices(2)
    [held] = devices(await kubelet.admit("p1", ONE))
    gateway.suffer({"absent": True})
    listed = await observer.wait_for(lambda listed: len(listed) < 2)
    assert listed == {held: False}
    await kubelet.wait_for_devices(0, 1)
    gateway.suffer()
    await kubelet.wait_for_devices(2)
    assert (await kubelet.start_container("p1"))["ok"]


async def test_a_driver_that_lists_late(kubelet: Kubelet, gateway: Gateway) -> None:
    """At the deadline of the first list the first message has the held ids, Unhealthy, and is never empty."""
    await kubelet.start()
    await gateway.start()
    await kubelet.wait_for_devices(2)
    [held] = devices(await kubelet.admit("p1", ONE))
    await kubelet.noted()
    await gateway.end()
    gateway.resource["timeouts"] = {"list": "300ms"}
    gateway.suffer({"call": "list", "hang": True})
    await gateway.start()
    observer = await gateway.observe()
    assert await observer.wait_for(lambda _: True) == {held: False}
    await kubelet.wait_for_devices(0, 1)
    gateway.suffer()
    await kubelet.wait_for_devices(2)


async def test_a_device_vanishes_during_its_allocation(kubelet: Kubelet, gateway: Gateway) -> None:
    """The kubelet is between its choice and its checkpoint: nobody but the gateway knows that the id is taken."""
    gateway.resource["keep_lost"] = "0s"
    await kubelet.start()
    await gateway.start()
    await kubelet.wait_for_devices(2)
    hang = {"call": "allocate", "hang": True}
    gateway.suffer(hang, {"extra": 1})
    await kubelet.wait_for_devices(3)
    admission = asyncio.create_task(kubelet.admit("p1", ONE), name="admission")
    await gateway.said("allocate is held up")
    gateway.suffer(hang, {"absent": True})
    await kubelet.wait_for_devices(0, 1)
    gateway.suffer({"absent": True})
    admitted = await admission
    assert not admitted["ok"], admitted
    gateway.suffer()
    await kubelet.wait_for_devices(2)
