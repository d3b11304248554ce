"""Drivers at a simulated kubelet: registration and its quirks, instances, health, PodResources."""

import asyncio
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from dpgateway_simulator.cluster import SHORT
from dpgateway_simulator.wire import v1
from tests.simulator.cluster.conftest import Site
from tests.simulator.drivers import ALL, DRIVER, X, device
from tests.support.waiting import until


async def fails(*_: object) -> None:
    raise RuntimeError("not today")


async def test_a_socket_counts_under_a_name_without_a_dot(site: Site) -> None:
    """1.37: bound as a dot name it isn't seen; renamed it is registered; renamed away it stays; back, it is another."""
    await site.kubelet.start()
    driver = await site.driver().serve()
    await driver.register()
    await site.kubelet.wait_for_event("plugin registered")
    aside = driver.registration.with_name(".aside")
    driver.registration.rename(aside)
    since = len(site.kubelet.events)
    await site.driver("b").start(site.kubelet)
    assert len(site.kubelet.drivers()[DRIVER]) == 2
    aside.rename(driver.registration)
    await site.kubelet.wait_for_event("plugin deregistered", since)
    await site.kubelet.wait_for_event("plugin registered", since, socket="a.sock")
    since = len(site.kubelet.events)
    driver.registration.unlink()
    await site.kubelet.wait_for_event("plugin deregistered", since, endpoint=str(driver.socket))


async def test_sockets_in_folders_count_too(site: Site) -> None:
    await site.kubelet.start()
    driver = site.driver()
    for folder in (".hidden", "inner"):
        driver.registration = site.root / "plugins_registry" / folder / "r.sock"
        await driver.serve()
        await driver.register()
        assert site.kubelet.drivers() == {}
    await site.kubelet.wait_for_event("plugin registered", socket="r.sock")
    assert len(driver.said) == 1


async def test_a_failed_registration_is_tried_again(site: Site) -> None:
    await site.kubelet.start()
    driver = await site.driver().serve()
    driver.hooks["GetInfo"] = fails
    await driver.register()
    refused = await site.kubelet.wait_for_event("plugin refused")
    assert "failed to get plugin info using RPC GetInfo" in refused.fields["reason"]
    del driver.hooks["GetInfo"]
    driver.hooks["Notify"] = fails
    site.kubelet.clock.advance(1)
    await site.kubelet.wait_for_event("plugin deregistered")
    assert site.kubelet.drivers() == {}
    del driver.hooks["Notify"]
    site.kubelet.clock.advance(2)
    await site.kubelet.wait_for_event("plugin registered")


async def test_a_registration_is_refused_on_command(site: Site) -> None:
    await site.kubelet.start()
    site.kubelet.misbehaviour.refuse_register("out of order", resource=DRIVER)
    driver = await site.driver().serve()
    await driver.register()
    await site.kubelet.wait_for_event("plugin refused")
    assert driver.said == [(False, "RegisterPlugin error -- plugin validation failed with err: out of order")]
    site.kubelet.misbehaviour.behave()
    site.kubelet.clock.advance(1)
    await site.kubelet.wait_for_event("plugin registered")


async def test_an_endpoint_that_is_known_is_refused(site: Site) -> None:
    await site.kubelet.start()
    first = await site.driver().start(site.kubelet)
    second = site.driver("b")
    second.socket = first.socket
    await second.register()
    refused = await site.kubelet.wait_for_event("plugin refused")
    assert f"endpoint {first.socket} already registered for DRA driver {DRIVER}" in refused.fields["reason"]


@pytest.mark.parametrize(
    ("version", "versions", "service"),
    [
        ("1.37", ALL, "v1.DRAPlugin"),
        ("1.34", ALL, "v1.DRAPlugin"),
        ("1.37", ("v1beta1.DRAPlugin",), "v1beta1.DRAPlugin"),
        ("1.33", ALL, "v1beta1.DRAPlugin"),
    ],
)
async def test_the_version_of_the_service(site: Site, version: str, versions: tuple[str, ...], service: str) -> None:
    site.kubelet = site.cluster.node(version, root=site.root)
    await site.kubelet.start()
    driver = await site.driver(versions=versions).start(site.kubelet)
    assert site.kubelet.drivers()[DRIVER][0]["service"] == service
    driver.publish(device("d0"))
    site.cluster.device_class("x", DRIVER)
    site.cluster.claim("k", {"name": "r", "exactly": {"deviceClassName": "x"}})
    await site.cluster.run("p1", {"c": {}}, claims={"k": ["c"]})


async def test_the_instance_that_connected_last_is_used(site: Site) -> None:
    """1.37: with the old one registered until its socket goes, 20 of 20 pods ran during an update."""
    kubelet, old = await site.start()
    new = await site.driver("b").start(kubelet)
    await site.cluster.run("p1", {"c": {X: 1}})
    assert (old.count("prepare"), new.count("prepare")) == (0, 1)
    await new.stop()  # its connection ends, or its registration before that
    await kubelet.wait_for(lambda: sum(one["connected"] for one in kubelet.drivers()[DRIVER]) == 1)
    await site.cluster.run("p2", {"c": {X: 1}})
    assert old.count("prepare") == 1


async def test_a_service_that_is_there_later_is_connected(site: Site) -> None:
    await site.kubelet.start()
    driver = site.driver()
    await driver.register()
    await site.kubelet.wait_for_event("plugin registered")
    assert site.kubelet.drivers()[DRIVER][0]["connected"] is False
    await driver.serve()
    site.kubelet.clock.advance(5)
    await site.kubelet.wait_for_event("driver connected")


async def test_a_hanging_prepare_ends_after_its_deadline(site: Site) -> None:
    """45 s, in which only its own pod waits."""
    pauses = replace(SHORT, prepare=0.2)
    kubelet, driver = await site.start("1.37", "d0", "d1", pauses=pauses)
    hanging = asyncio.Event()
    driver.hooks["prepare"] = hanging.wait
    site.cluster.create("p1", {"c": {X: 1}})
    await until(lambda: driver.count("prepare"))
    del driver.hooks["prepare"]
    await site.cluster.run("p2", {"c": {X: 1}})
    failed = await kubelet.wait_for_event("prepare failed", pod="p1")
    assert (
        failed.fields["reason"]
        == "NodePrepareResources: rpc error: code = DeadlineExceeded desc = context deadline exceeded"
    )
    hanging.set()
    await site.cluster.until("p1", "Running")


async def becomes(site: Site, health: str) -> None:
    """Waits until a pod's status says this of its device."""
    async with asyncio.timeout(60):
        while said(site) != health:
            await site.cluster.server.store.changed()


def said(site: Site) -> str:
    ((status,),) = [
        one["allocatedResourcesStatus"] for one in (site.cluster.pod("p1") or {})["status"]["containerStatuses"]
    ]
    (resource,) = status["resources"]
    assert status["name"] == "claim:k"
    return f"{resource['health']} {resource.get('message', '')}".strip()


async def test_health_is_in_the_pods_status(site: Site) -> None:
    """1.37: a message showed up 0.2 s after the driver sent it; what is older than 30 s is Unknown."""
    kubelet, driver = await site.start()
    site.cluster.claim("k", {"name": "r", "exactly": {"deviceClassName": "x"}})
    await site.cluster.run("p1", {"c": {}}, claims={"k": ["c"]})
    assert said(site) == "Unknown"
    driver.say(d0="Healthy")
    await becomes(site, "Healthy d0 is Healthy")
    driver.say(d0="Unhealthy")
    await becomes(site, "Unhealthy d0 is Unhealthy")
    kubelet.clock.advance(31)
    await becomes(site, "Unknown")


async def test_the_end_of_one_stream_clears_the_drivers_health(site: Site) -> None:
    kubelet, old = await site.start()
    site.cluster.claim("k", {"name": "r", "exactly": {"deviceClassName": "x"}})
    await site.cluster.run("p1", {"c": {}}, claims={"k": ["c"]})
    new = await site.driver("b").start(kubelet)
    new.say(d0="Healthy")
    await becomes(site, "Healthy d0 is Healthy")
    await old.stop()
    await becomes(site, "Unknown")
    new.say(d0="Healthy")
    await becomes(site, "Healthy d0 is Healthy")


@pytest.mark.parametrize(("version", "opened"), [("1.37", True), ("1.36", True), ("1.34", False)])
async def test_health_by_release(site: Site, version: str, opened: bool) -> None:
    kubelet, _ = await site.start(version)
    assert ("health stream opened" in {one.kind for one in kubelet.events}) is opened


async def pod_resources(root: Path) -> list[v1.ContainerResources]:
    async with grpc.aio.insecure_channel(f"unix:{root}/pod-resources/kubelet.sock") as channel:
        raw = await channel.unary_unary("/v1.PodResourcesLister/List")(b"")
    pods = v1.ListPodResourcesResponse().parse(raw).pod_resources
    return [container for pod in pods for container in pod.containers]


@pytest.mark.parametrize(("version", "claims"), [("1.37", 1), ("1.36", 1), ("1.34", 0)])
async def test_pod_resources_names_claims(site: Site, version: str, claims: int) -> None:
    kubelet, driver = await site.start(version)
    shares = {"allowMultipleAllocations": True, "capacity": {"shares": {"value": "2"}}}
    driver.publish(device("d0", **shares))
    site.cluster.claim("k", {"name": "r", "exactly": {"deviceClassName": "x"}})
    await site.cluster.run("p1", {"c": {}}, claims={"k": ["c"]})
    (container,) = await pod_resources(site.root)
    found = [(one.claim_name, one.claim_namespace, one.claim_resources) for one in container.dynamic_resources]
    assert len(found) == claims
    for name, namespace, (one,) in found:
        assert (name, namespace, one.driver_name, one.pool_name, one.device_name) == ("k", "default", DRIVER, "p", "d0")
        assert bool(one.share_id) is (version == "1.37")
        assert [it.name.startswith(f"{DRIVER}/x=") for it in one.cdi_devices] == [True]
    assert kubelet.version == version


async def test_a_container_whose_spec_is_gone_cant_start(site: Site) -> None:
    """containerd 2.4.2: `unresolvable CDI devices`."""
    kubelet, _ = await site.start()
    await site.cluster.run("p1", {"c": {X: 1}})
    for path in (site.root / "cdi").iterdir():
        path.unlink()
    again = await kubelet.start_container("p1", "c")
    assert "unresolvable CDI devices" in again["error"]
