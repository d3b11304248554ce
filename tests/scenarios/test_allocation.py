"""Devices for containers: given, prepared, chosen, refused."""

import asyncio
from pathlib import Path

from tests.scenarios.gateway import Gateway
from tests.scenarios.kubelet import RESOURCE, Kubelet, devices

OBEYED = {"extra": 1}  # a call's fault shows only in the call: a third device tells that the driver knows of it
ONE = {"c": {RESOURCE: 1}}
TWO = {"c": {RESOURCE: 2}}


async def test_a_container_gets_its_devices(kubelet: Kubelet, gateway: Gateway) -> None:
    gateway.options |= {"device_file_prefix": "thing", "annotation_prefix": "thing.example.com/a"}
    gateway.resource |= {
        "env": {"CONSTANT": "1"},
        "mounts": [{"host_path": "/srv", "container_path": "/mnt/srv", "read_only": True}],
    }
    await kubelet.start()
    await gateway.start()
    await kubelet.wait_for_devices(2)
    admitted = await kubelet.admit("p1", TWO)
    assert admitted["ok"], admitted
    options = admitted["containers"][0]["options"]
    assert options["envs"] == {"THING_node-0": "/dev/node-0", "THING_node-1": "/dev/node-1", "CONSTANT": "1"}
    assert options["mounts"] == [{"container_path": "/mnt/srv", "host_path": "/srv", "read_only": True}]
    assert sorted(node["container_path"] for node in options["devices"]) == ["/dev/thing-0", "/dev/thing-1"]
    assert {node["permissions"] for node in options["devices"]} == {"rw"}
    annotations = {f"thing.example.com/a_node-{index}": f"/dev/node-{index}" for index in range(2)}
    assert options["annotations"] == (annotations if kubelet.minor >= 10 else {})


async def test_devices_go_from_container_to_container(kubelet: Kubelet, served: Gateway) -> None:
    first = devices(await kubelet.admit("p1", ONE))
    second = devices(await kubelet.admit("p2", ONE))
    assert first | second == {"node-0", "node-1"}
    refused = await kubelet.admit("p3", ONE)
    text = f"requested number of devices unavailable for {RESOURCE}. Requested: 1, Available: 0"
    assert text in refused["error"]
    await kubelet.remove("p1")
    assert devices(await kubelet.admit("p4", ONE)) == first

    # an app container has the device of its pod's init container
    for pod in list(kubelet.pods):
        await kubelet.remove(pod)
    admitted = await kubelet.admit("p5", ONE, {"i": {RESOURCE: 1}})
    assert admitted["ok"], admitted
    same = devices(admitted, "i") == devices(admitted)
    assert same == (kubelet.minor >= 9)


async def test_a_driver_fails_refuses_and_is_busy(kubelet: Kubelet, served: Gateway) -> None:
    """One device more each time: a call's fault shows only in the call, so it tells that the driver knows of it."""
    assert (await kubelet.admit("p1", ONE))["ok"]
    assert (await kubelet.start_container("p1"))["ok"]
    served.suffer({"call": "prepare", "error": "the fan is stuck"}, {"extra": 1})
    await kubelet.wait_for_devices(3)
    again = await kubelet.start_container("p1")
    if kubelet.minor == 9:  # it allocates once, and its API knows no other call
        assert again["ok"]
    else:
        assert not again["ok"]
        assert "the fan is stuck" in again["error"]

    served.suffer({"call": "allocate", "error": "no power"}, {"extra": 2})
    await kubelet.wait_for_devices(4)
    refused = await kubelet.admit("p2", ONE)
    assert not refused["ok"]
    assert "no power" in refused["error"]
    assert RESOURCE in refused["error"]
    served.suffer({"extra": 3})  # 1.8 keeps for the pod what was refused, even a new one: it stays
    await kubelet.wait_for_devices(5)
    assert (await kubelet.admit("p2", ONE))["ok"]

    served.suffer({"call": "allocate", "busy": True, "lasts": "300ms"}, {"extra": 4})
    await kubelet.wait_for_devices(6)
    admitted = await kubelet.admit("p3", ONE)
    assert admitted["ok"], admitted


async def test_devices_of_one_numa_node_go_together(kubelet: Kubelet, gateway: Gateway) -> None:
    """Of four devices the kubelet would take any two; from 1.19 on it asks which."""
    gateway.options |= {"count": 4, "numa": [0, 1, 1, 0]}
    gateway.resource["preference"] = "packed"
    await kubelet.start()
    await gateway.start()
    await kubelet.wait_for_devices(4)
    first, second = devices(await kubelet.admit("p1", TWO)), devices(await kubelet.admit("p2", TWO))
    assert first | second == {f"node-{index}" for index in range(4)}
    if kubelet.minor >= 19:
        assert {"node-0", "node-3"} in (first, second)


async def test_containers_get_shares_of_different_devices(kubelet: Kubelet, gateway: Gateway) -> None:
    """From 1.19 on each pod is admitted at once. Older kubelets choose blindly, and may be refused."""
    gateway.resource["shares"] = {"count": 4, "distinct": "require"}
    await kubelet.start()
    await gateway.start()
    await kubelet.wait_for_devices(8)
    for number in range(4):
        admitted = await kubelet.admit(f"p{number}", TWO)
        assert admitted["ok"] or kubelet.minor < 19, admitted
        if not admitted["ok"]:
            assert "'shares: {distinct: require}' wants a device for each" in admitted["error"]
            break
        assert {one.partition("::")[0] for one in devices(admitted)} == {"node-0", "node-1"}


async def test_shares_of_one_device(kubelet: Kubelet, gateway: Gateway) -> None:
    """Fewer shares than before: one that a container holds stays what it was, whatever restarts."""
    gateway.resource |= {"shares": 3, "preference": "spread", "keep_lost": "0s"}
    await kubelet.start()
    await gateway.start()
    await kubelet.wait_for_devices(6)
    assert (await kubelet.admit("p1", {"c": {RESOURCE: 6}}))["ok"]
    await gateway.end()
    gateway.resource["shares"] = 1
    await gateway.start()
    await kubelet.wait_for_devices(2, 4)
    assert (await kubelet.restart())["p1"]["ok"]
    await kubelet.wait_for_devices(2, 4)
    assert (await kubelet.start_container("p1"))["ok"]


async def test_an_allocation_in_flight_when_the_gateway_ends(kubelet: Kubelet, served: Gateway) -> None:
    served.suffer({"call": "allocate", "delay": "200ms"}, OBEYED)
    await kubelet.wait_for_devices(3)
    admission = asyncio.create_task(kubelet.admit("p1", ONE), name="admission")
    await served.said("allocate is held up")
    assert await served.end() == 0
    admitted = await admission
    if kubelet.minor >= 10:  # else it can't be told from PreStartContainer, which comes too late
        assert admitted.get("stage") != "admit", admitted
    else:
        assert admitted["ok"], admitted


async def test_the_gateway_ends_though_its_driver_hangs(kubelet: Kubelet, served: Gateway) -> None:
    served.suffer({"call": "allocate", "hang": True}, OBEYED)
    await kubelet.wait_for_devices(3)
    admission = asyncio.create_task(kubelet.admit("p1", ONE), name="admission")
    await served.said("allocate is held up")
    assert await served.end() == 0
    assert not (await admission)["ok"]


async def test_one_resource_fails_alone(kubelet: Kubelet, gateway: Gateway) -> None:
    other = {**gateway.resource, "name": "example.com/other", "options": {"count": 1, "env_prefix": "OTHER"}}
    gateway.resource["timeouts"] = {"list": "2s", "allocate": "300ms"}
    gateway.resources.append(other)
    await kubelet.start()
    await gateway.start()
    await kubelet.wait_for_devices(2)
    await kubelet.wait_for_devices(1, resource="example.com/other")
    gateway.suffer({"call": "allocate", "hang": True}, OBEYED)
    await kubelet.wait_for_devices(3)
    refused = await kubelet.admit("p1", ONE)
    assert "allocate() hasn't answered for 0.3 s" in refused["error"]
    gateway.suffer({"call": "list", "hang": True})
    await kubelet.wait_for_devices(0, 3)
    assert (await kubelet.admit("p2", {"c": {"example.com/other": 1}}))["ok"]
    gateway.suffer()
    await kubelet.wait_for_devices(2, 1)


async def test_a_pod_ends_while_another_one_is_given_a_device(kubelet: Kubelet, served: Gateway, folder: Path) -> None:
    """A kubelet that is asked who has what just then forgets what it is giving, and gives it to the next pod, too."""
    assert (await kubelet.admit("p1", ONE))["ok"]
    (folder / "pods" / "p1").mkdir(parents=True, exist_ok=True)  # a device manager alone doesn't make it
    served.suffer({"call": "allocate", "delay": "1s"}, OBEYED)
    await kubelet.wait_for_devices(3)
    second = asyncio.create_task(kubelet.admit("p2", ONE))
    await served.said("allocate is held up")
    await kubelet.remove("p1")
    (folder / "pods" / "p1").rmdir()
    held = devices(await second)
    assert held
    assert held.isdisjoint(devices(await kubelet.admit("p3", TWO)))
