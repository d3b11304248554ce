"""How resources come to the kubelet, in each of its APIs."""

import shutil

from tests.scenarios.gateway import Gateway
from tests.scenarios.kubelet import RESOURCE, Kubelet, devices

ONE = {"c": {RESOURCE: 1}}


async def test_devices_go_when_the_gateway_ends(kubelet: Kubelet, served: Gateway) -> None:
    """And they are written down, but 1.8 writes only what it allocates."""
    assert await kubelet.counts() == (2, 2)
    path = kubelet.directory / "kubelet_internal_checkpoint"
    if kubelet.minor > 8:
        await kubelet.noted(2)
    else:
        assert not path.exists()
    assert (await kubelet.admit("p1", ONE))["ok"]
    assert RESOURCE in path.read_text()
    assert await served.registrations() == 1
    await kubelet.wait_for({8: (None, None), 9: (0, 0)}.get(kubelet.minor, (2, 0)))
    assert served.names() == []


async def test_the_gateway_waits_for_a_kubelet(kubelet: Kubelet, gateway: Gateway) -> None:
    await gateway.start()
    await gateway.said("to the kubelet of")
    await kubelet.start()
    await kubelet.wait_for_devices(2)


async def test_many_resources(kubelet: Kubelet, gateway: Gateway) -> None:
    gateway.resources = [{**gateway.resource, "name": f"{RESOURCE}-{number}"} for number in range(16)]
    await kubelet.start()
    await gateway.start()
    for resource in gateway.resources:
        await kubelet.wait_for_devices(2, resource=resource["name"])
    assert (await kubelet.admit("p1", {"c": {one["name"]: 1 for one in gateway.resources}}))["ok"]


async def test_an_api_that_the_kubelet_refuses(kubelet: Kubelet, gateway: Gateway) -> None:
    """Only 1.9 speaks v1alpha2: with any other kubelet the gateway waits for one that does."""
    gateway.kubelet = {"apis": ["v1alpha2"]}
    await kubelet.start()
    await gateway.start()
    if kubelet.minor != 9:
        await gateway.said("refused the API")
        assert await kubelet.counts() == (None, None)
        await kubelet.restart("1.9")
    await kubelet.wait_for_devices(2)


async def test_a_kubelet_that_answers_late(kubelet: Kubelet, gateway: Gateway) -> None:
    await kubelet.start()
    kubelet.engine.pause()
    await gateway.start()
    await gateway.said("send Register")
    kubelet.engine.resume()
    await kubelet.wait_for_devices(2)


async def test_the_old_stream_ends_after_the_new_registration(kubelet: Kubelet, served: Gateway) -> None:
    """A kubelet that is slow to end: its stream goes when the next one's is long there."""
    await kubelet.start()
    await kubelet.wait_for_devices(2)
    await kubelet.end_older()
    served.suffer({"indexes": [0], "unhealthy": "burnt"})
    await kubelet.wait_for_devices(1, 1)
    assert await served.registrations(2) == 2


async def test_the_same_kubelet_is_touched_appears_again_and_loses_its_files(kubelet: Kubelet, served: Gateway) -> None:
    """Its socket is linked again: it may be another one, so the gateway registers while the old stream is open.

    1.37 refuses a socket's name that it is connected to; on 1.25 to 1.36 the old stream's end would be the new one's.
    """
    socket = kubelet.directory / "kubelet.sock"
    for mode in (0o700, 0o755):  # permissions and labels change its ctime, but it is the same kubelet
        socket.chmod(mode)
    served.suffer({"indexes": [0], "unhealthy": "burnt"})
    await kubelet.wait_for_devices(1, 1)
    served.suffer()
    await kubelet.wait_for_devices(2)

    aside = socket.with_name("aside")
    aside.hardlink_to(socket)
    socket.unlink()
    await served.said("kubelet.sock is gone")
    socket.hardlink_to(aside)
    await served.said("the kubelet listens", count=2)
    for reason in ("burnt", "", "burnt"):
        served.suffer(*([{"indexes": [0], "unhealthy": reason}] if reason else []))
        await kubelet.wait_for_devices(1 if reason else 2, 1 if reason else 0)
    admitted = await kubelet.admit("p1", ONE)
    if kubelet.minor == 8 and not admitted["ok"]:  # with the new list the old stream ends, and calls under way with it
        admitted = {"containers": [{"name": "c", **await kubelet.start_container("p1")}]}
    assert devices(admitted) == {"node-1"}

    # without their files the stream goes on, and so do allocations, since the kubelet keeps its connection
    for path in [*kubelet.directory.glob("*.sock"), *kubelet.directory.glob("dpgateway/*.sock")]:
        path.unlink(missing_ok=True)
    served.suffer()
    await kubelet.wait_for_devices(2)
    assert devices(await kubelet.admit("p2", ONE)) == {"node-0"}
    assert await served.registrations(2) == 2


async def test_the_directory_is_removed_and_made_again(kubelet: Kubelet, served: Gateway) -> None:
    await kubelet.end()
    shutil.rmtree(kubelet.directory)
    await kubelet.start()
    await kubelet.wait_for_devices(2)
    assert (await kubelet.admit("p1", ONE))["ok"]


async def test_kubelets_that_hardly_live(kubelet: Kubelet, served: Gateway) -> None:
    """Each is killed before or while it is registered with."""
    for _ in range(20):
        await kubelet.restart(graceful=False)
    await kubelet.wait_for_devices(2)
    if not (await kubelet.admit("p1", ONE))["ok"]:
        # What was sent to the last one but one may reach the last, which then is registered with once more just now;
        # older releases end with the first stream the calls that are under way.
        await kubelet.wait_for_devices(2)
        assert (await kubelet.admit("p2", ONE))["ok"]
