"""Pods, drivers, kubelets and the API server come and go: what was seen on a real node, on the simulated one."""

import asyncio
from dataclasses import replace

import pytest

from dpgateway_simulator import Kubelet
from dpgateway_simulator.cluster import SHORT
from tests.simulator.cluster.conftest import Site
from tests.simulator.drivers import DRIVER, DraRig, X, device
from tests.support.waiting import turns, until

CALLS = ["prepare", "unprepare"]


async def test_a_failed_prepare_is_an_event_and_tried_again(site: Site) -> None:
    """1.37: the driver's text is in the event FailedPrepareDynamicResources; the pod waits and runs later."""
    kubelet, driver = await site.start()
    driver.error = "d0 is held by default/other"
    site.cluster.create("p1", {"c": {X: 1}})
    await kubelet.wait_for_event("prepare failed", pod="p1")
    (text,) = site.cluster.events("p1")[:1]
    claim = site.cluster.server.store.list("resourceclaims")[0]["metadata"]["name"]
    failed = f"NodePrepareResources failed for ResourceClaim {claim}: d0 is held by default/other"
    assert text == f"Failed to prepare dynamic resources: {failed}"
    assert site.cluster.phase("p1") == "Pending"
    driver.error = ""
    await site.cluster.until("p1", "Running")


async def test_a_pod_of_an_absent_driver_waits(site: Site) -> None:
    """1.37: `DRA driver dra.example.com is not registered`, and the pod runs once the driver is there."""
    kubelet, driver = await site.start()
    await driver.stop()
    await kubelet.wait_for_event("plugin deregistered", driver=DRIVER)
    site.cluster.create("p1", {"c": {X: 1}})
    failed = await kubelet.wait_for_event("prepare failed", pod="p1")
    assert failed.fields["reason"] == f"DRA driver {DRIVER} is not registered"
    await site.driver("b").start(kubelet)
    await site.cluster.until("p1", "Running")


async def test_a_pod_ends_only_after_unprepare(site: Site) -> None:
    """1.37: the next pod had the device 20 ms after Unprepare returned, and not before."""
    kubelet, driver = await site.start("1.37", "d0")
    await site.cluster.run("p1", {"c": {X: 1}})
    release = asyncio.Event()
    driver.hooks["unprepare"] = release.wait
    site.cluster.create("p2", {"c": {X: 1}})
    site.cluster.delete("p1")
    await kubelet.wait_for_event("unprepare")
    assert (site.cluster.phase("p1"), site.cluster.phase("p2")) == ("Terminating", "Pending")
    assert kubelet.running_pods == ()
    release.set()
    await site.cluster.until("p2", "Running")


async def test_a_pod_deleted_by_force_frees_its_device_at_once(site: Site) -> None:
    """1.37: the next pod was given the device 2.1 s before Unprepare."""
    kubelet, driver = await site.start("1.37", "d0", pauses=replace(SHORT, ending=1000))
    await site.cluster.run("p1", {"c": {X: 1}})
    site.cluster.create("p2", {"c": {X: 1}})
    site.cluster.delete("p1", force=True)
    await site.cluster.until("p2", "Running")
    kubelet.clock.advance(1000)
    await kubelet.wait_for_event("unprepared")
    assert [name for name, _ in driver.calls if name in CALLS] == ["prepare", "prepare", "unprepare"]


async def test_pods_stay_terminating_without_their_driver(site: Site) -> None:
    """1.37: a deleted pod was gone 2 s after the driver was back."""
    kubelet, driver = await site.start()
    await site.cluster.run("p1", {"c": {X: 1}})
    await driver.stop()
    await kubelet.wait_for_event("plugin deregistered")
    site.cluster.delete("p1")
    await kubelet.wait_for_event("unprepare failed", reason=f"DRA driver {DRIVER} is not registered")
    assert site.cluster.phase("p1") == "Terminating"
    await site.driver("b").start(kubelet)
    await site.cluster.until("p1", "Gone")


async def test_a_restarted_kubelet_keeps_pods_and_wipes_slices(site: Site) -> None:
    """1.37: slices go at each start of the kubelet, 10 ms around the registration; pods aren't prepared again."""
    kubelet, driver = await site.start()
    await site.cluster.run("p1", {"c": {X: 1}})
    since = len(kubelet.events)
    await kubelet.restart()
    await kubelet.wait_for_event("slices wiped", since, count=1, driver="all")
    await kubelet.wait_for_event("plugin registered", since)
    assert (driver.said, driver.count("prepare")) == ([(True, "")] * 2, 1)
    assert site.cluster.given("p1")["c"]["envs"] == {"DEVICE_0": "d0"}
    await site.cluster.end("p1")
    assert driver.count("unprepare") == 1


async def test_a_second_pod_of_a_claim_after_a_restart_prepares_again(site: Site) -> None:
    kubelet, driver = await site.start()
    site.cluster.claim("k", {"name": "r", "exactly": {"deviceClassName": "x"}})
    await site.cluster.run("p1", {"c": {}}, claims={"k": ["c"]})
    await site.cluster.run("p2", {"c": {}}, claims={"k": ["c"]})
    assert driver.count("prepare") == 1
    await kubelet.restart()
    await kubelet.wait_for(lambda: kubelet.drivers().get(DRIVER, [{"connected": False}])[0]["connected"])
    await site.cluster.run("p3", {"c": {}}, claims={"k": ["c"]})
    assert driver.count("prepare") == 2
    for pod in ("p1", "p2"):
        await site.cluster.end(pod)
    assert driver.count("unprepare") == 0
    await site.cluster.end("p3")
    assert driver.count("unprepare") == 1


async def test_a_pod_deleted_while_no_kubelet_ran_is_unprepared(site: Site) -> None:
    kubelet, driver = await site.start()
    await site.cluster.run("p1", {"c": {X: 1}})
    await kubelet.kill()
    site.cluster.delete("p1")
    await kubelet.start()
    await site.cluster.until("p1", "Gone")
    assert driver.count("unprepare") == 1


async def test_a_pod_that_vanished_while_no_kubelet_ran_is_found_later(site: Site) -> None:
    """The search for claims of pods that have ended comes every 60 s."""
    kubelet, driver = await site.start()
    await site.cluster.run("p1", {"c": {X: 1}})
    await kubelet.kill()
    site.cluster.delete("p1", force=True)
    since = len(kubelet.events)
    await kubelet.start()
    await kubelet.wait_for_event("driver connected", since)
    assert (driver.count("unprepare"), kubelet.running_pods) == (0, ())
    kubelet.clock.advance(61)
    await kubelet.wait_for_event("unprepared")


async def leaves(kubelet: Kubelet, driver: DraRig) -> None:
    """The driver's connection ends, or its registration before that."""
    await driver.stop()
    await kubelet.wait_for(lambda: not any(one["connected"] for one in kubelet.drivers().get(DRIVER, ())))
    await turns()  # the half minute after that has begun


async def test_slices_go_half_a_minute_after_the_driver(site: Site) -> None:
    """1.37: 5 s of absence delete nothing, 30 s do."""
    kubelet, driver = await site.start()
    await leaves(kubelet, driver)
    kubelet.clock.advance(29)
    assert list(site.cluster.devices()) == ["d0", "d1"]
    kubelet.clock.advance(2)
    await kubelet.wait_for_event("slices wiped", driver=DRIVER)
    assert site.cluster.devices() == {}


async def test_slices_stay_if_the_driver_is_back_soon(site: Site) -> None:
    kubelet, driver = await site.start()
    await leaves(kubelet, driver)
    await site.driver("b").start(kubelet)
    kubelet.clock.advance(31)
    await asyncio.sleep(0)
    assert list(site.cluster.devices()) == ["d0", "d1"]


async def test_a_reboot_prepares_again_for_the_same_claim(site: Site) -> None:
    """1.37: the same pod, the same claim, prepared again."""
    kubelet, driver = await site.start()
    await site.cluster.run("p1", {"c": {X: 1}})
    before = site.cluster.server.store.get(("nodes", "", "n1"))["status"]["nodeInfo"]["bootID"]
    since = len(kubelet.events)
    await kubelet.reboot()
    await kubelet.wait_for_event("pod running", since, pod="p1")
    assert site.cluster.server.store.get(("nodes", "", "n1"))["status"]["nodeInfo"]["bootID"] != before
    assert driver.count("prepare") == 2
    assert {claims for name, claims in driver.calls if name == "prepare"} == {driver.calls[-1][1]}


async def test_nothing_begins_or_ends_without_the_api_server(site: Site) -> None:
    kubelet, _ = await site.start()
    await site.cluster.run("p1", {"c": {X: 1}})
    await site.cluster.server.down()
    assert not site.cluster.server.serving
    site.cluster.delete("p1")  # nobody sees it
    site.cluster.create("p2", {"c": {X: 1}})
    assert (site.cluster.phase("p2"), kubelet.running_pods) == ("Pending", ("p1",))
    await site.cluster.server.up()
    await site.cluster.until("p1", "Gone")
    await site.cluster.until("p2", "Running")


@pytest.mark.parametrize(("version", "prepares"), [("1.37", 1), ("1.36", 1), ("1.34", 0)])
async def test_extended_resources_by_release(site: Site, version: str, prepares: int) -> None:
    """1.34.9: the claim is written, and the pod runs without a device, without a word."""
    _, driver = await site.start(version)
    await site.cluster.run("p1", {"c": {X: 1}})
    assert driver.count("prepare") == prepares
    assert len(site.cluster.nodes_of("p1")) == prepares
    assert site.cluster.allocated("p1") == ["d0"]


async def test_a_claim_by_hand_works_on_1_34(site: Site) -> None:
    _, driver = await site.start("1.34")
    site.cluster.claim("k", {"name": "r", "exactly": {"deviceClassName": "x"}})
    await site.cluster.run("p1", {"c": {}, "d": {}}, claims={"k": ["c"]})
    assert (driver.count("prepare"), site.cluster.nodes_of("p1")) == (1, {"/dev/d0"})
    assert site.cluster.given("p1")["d"]["devices"] == []


async def test_a_kubelet_without_dra_refuses_the_driver(site: Site) -> None:
    """1.31.14: it says so, and asks again with backoff."""
    kubelet = site.cluster.node("1.31", root=site.root)
    await kubelet.start()
    driver = await site.driver().serve()
    await driver.register()
    await kubelet.wait_for_event("plugin refused")
    text = "RegisterPlugin error -- no handler registered for plugin type: DRAPlugin at socket"
    assert driver.said == [(False, f"{text} {driver.registration}")]
    kubelet.clock.advance(1)
    await kubelet.wait_for(lambda: len(driver.said) == 2)


async def test_a_blind_runtime_drops_the_devices(site: Site) -> None:
    """containerd 1.6.20: claim prepared, pod runs, no device."""
    _, driver = await site.start(cdi=False)
    await site.cluster.run("p1", {"c": {X: 1}})
    assert (driver.count("prepare"), site.cluster.nodes_of("p1")) == (1, set())


async def test_a_vanished_device_stays_allocated(site: Site) -> None:
    _, driver = await site.start()
    await site.cluster.run("p1", {"c": {X: 1}})
    driver.publish(device("d1"), device("d2"))
    assert site.cluster.allocated("p1") == ["d0"]
    await site.cluster.run("p2", {"c": {X: 2}})
    assert site.cluster.allocated("p2") == ["d1", "d2"]


async def test_a_pod_deleted_during_prepare_is_unprepared_after_it(site: Site) -> None:
    """1.37: the pod waits for the call, then comes Unprepare."""
    kubelet, driver = await site.start()
    release = asyncio.Event()
    driver.hooks["prepare"] = release.wait
    site.cluster.create("p1", {"c": {X: 1}})
    await until(lambda: driver.count("prepare"))
    site.cluster.delete("p1")
    assert (site.cluster.phase("p1"), driver.count("unprepare")) == ("Terminating", 0)
    release.set()
    await site.cluster.until("p1", "Gone")
    assert driver.count("unprepare") == 1
    assert "container started" not in {one.kind for one in kubelet.events}


async def test_a_kubelet_that_dies_during_prepare_asks_again(site: Site) -> None:
    kubelet, driver = await site.start()
    release = asyncio.Event()
    driver.hooks["prepare"] = release.wait
    site.cluster.create("p1", {"c": {X: 1}})
    await until(lambda: driver.count("prepare"))
    await kubelet.kill()
    release.set()
    await kubelet.start()
    await site.cluster.until("p1", "Running")
    assert (driver.count("prepare"), site.cluster.nodes_of("p1")) == (2, {"/dev/d0"})


async def test_a_failed_unprepare_is_tried_again(site: Site) -> None:
    kubelet, driver = await site.start()
    await site.cluster.run("p1", {"c": {X: 1}})
    driver.error = "the board is busy"
    site.cluster.delete("p1")
    failed = await kubelet.wait_for_event("unprepare failed", pod="p1")
    assert failed.fields["reason"].endswith(": the board is busy")
    driver.error = ""
    await site.cluster.until("p1", "Gone")


async def test_claims_of_templates_live_as_long_as_their_pod(site: Site) -> None:
    await site.start()
    spec = {"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "x"}}]}}}
    store = site.cluster.server.store
    store.create("resourceclaimtemplates", "default", {"metadata": {"name": "t"}, "spec": spec})
    container = {"name": "c", "resources": {"claims": [{"name": "mine"}]}}
    claims = [{"name": "mine", "resourceClaimTemplateName": "t"}]
    pod = {"metadata": {"name": "p1"}, "spec": {"containers": [container], "resourceClaims": claims}}
    store.create("pods", "default", pod)
    await site.cluster.until("p1", "Running")
    assert (site.cluster.nodes_of("p1"), len(store.list("resourceclaims"))) == ({"/dev/d0"}, 1)
    await site.cluster.end("p1")
    await until(lambda: not store.list("resourceclaims"))


async def test_a_kubelet_may_end_while_it_starts_a_container(site: Site) -> None:
    kubelet, _ = await site.start()
    plugin = await site.plugin("example.com/y").start()
    await until(lambda: site.cluster.allocatable("n1", "example.com/y") == 2)
    starting = asyncio.Event()

    async def hangs(ids: tuple[str, ...]) -> None:
        starting.set()
        await asyncio.Event().wait()

    plugin.hooks["PreStartContainer"] = hangs
    site.cluster.create("p1", {"c": {"example.com/y": 1}})
    await starting.wait()
    await kubelet.restart()
    assert kubelet.running
