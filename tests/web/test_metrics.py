"""The gateway's numbers, after what happened on a node with simulated kubelets."""

import asyncio
import gc
import threading
import time
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dpgateway import Allocation, Device, DriverError, Health
from dpgateway.status import Figures
from dpgateway.status.figures import HolderLabels
from dpgateway.status.values import Counts
from dpgateway.web.metrics import Metrics
from dpgateway.web.pages import Sources
from dpgateway.web.pages import pages as all_pages
from dpgateway.web.series import RESOURCE
from dpgateway_simulator import Kubelet
from tests.support.counting import descriptors
from tests.support.http import ask
from tests.support.resources import configured, scripted
from tests.support.scraped import Node
from tests.support.waiting import until

R, S = "example.com/thing", "example.com/other"


@pytest.fixture
async def kubelet(short_path):
    directory = short_path / "device-plugins"  # where a simulated kubelet serves PodResources beside it
    directory.mkdir()
    async with Kubelet("1.31", directory) as kubelet:
        yield kubelet


class Hardware:
    """What a driver of two devices finds, and what comes of its calls."""

    def __init__(self):
        self.found = [Device("a"), Device("b")]
        self.error: Exception | None = None

    def driver(self, **methods):
        return scripted(devices=lambda: self.found, allocate=self._allocate, **methods)

    def _allocate(self, devices):
        if self.error is not None:
            raise self.error
        return Allocation()


@pytest.fixture
def hardware():
    return Hardware()


async def test_devices_and_who_holds_them(kubelet, hardware):
    hardware.found = [Device("a"), Device("b"), Device("c", Health.unhealthy("broken"))]
    async with Node(kubelet.directory, configured(name=R, driver_class=hardware.driver())).running() as node:
        await kubelet.wait_for(lambda: kubelet.counts(R) == (3, 2))
        assert await node("dpgateway_devices", resource=R, health="healthy") == 2
        assert await node("dpgateway_devices", resource=R, health="unhealthy") == 1
        assert (await node("dpgateway_devices_free"), await node("dpgateway_devices_held")) == (2, 0)
        assert await node("dpgateway_holdings") is None
        await kubelet.admit("encoder", {"main": {R: 1}})
        await until(lambda: node.shows(1, "dpgateway_holdings", namespace="default", pod="encoder", container="main"))
        assert (await node("dpgateway_devices_free"), await node("dpgateway_devices_held")) == (1, 1)


async def test_hardware_in_use_under_another_name_is_no_fault(kubelet, hardware):
    hardware.found.append(Device("c", Health.unhealthy("broken")))
    configs = [configured(name=name, driver_class=hardware.driver(), pool="p") for name in (R, S)]
    async with Node(kubelet.directory, *configs).running() as node:
        await kubelet.wait_for(lambda: kubelet.counts(R) == kubelet.counts(S) == (3, 2))
        assert await node("dpgateway_devices", resource=S, health="taken") is None
        await kubelet.admit("encoder", {"main": {R: 1}})
        await until(lambda: node.shows(1, "dpgateway_devices", resource=S, health="taken"))
        assert await node("dpgateway_devices", resource=S, health="unhealthy") == 1
        assert await node("dpgateway_devices", resource=S, health="healthy") == 1


async def test_rpcs_and_driver_calls(kubelet, hardware):
    async with Node(kubelet.directory, configured(name=R, driver_class=hardware.driver())).running() as node:
        await kubelet.wait_for(lambda: kubelet.counts(R) == (2, 2))
        await kubelet.admit("good", {"main": {R: 1}})
        hardware.error = DriverError("worn out")
        await kubelet.admit("bad", {"main": {R: 1}})
        rpc = {"resource": R, "rpc": "Allocate"}
        assert await node("dpgateway_rpcs_total", **rpc, code="OK") == 1
        assert await node("dpgateway_rpcs_total", **rpc, code="FAILED_PRECONDITION") == 1
        assert await node("dpgateway_rpc_duration_seconds_count", **rpc) == 2
        assert await node("dpgateway_rpc_duration_seconds_bucket", **rpc, le="+Inf") == 2
        assert await node("dpgateway_rpc_duration_seconds_sum", **rpc) > 0
        call = {"resource": R, "driver": "scripted", "method": "allocate"}
        assert await node("dpgateway_driver_calls_total", **call, outcome="success") == 1
        assert await node("dpgateway_driver_calls_total", **call, outcome="error") == 1
        assert await node("dpgateway_driver_call_duration_seconds_count", **call) == 2
        assert "worn out" not in await node.text()


async def test_registrations_and_kubelets(kubelet, hardware):
    async with Node(kubelet.directory, configured(name=R, driver_class=hardware.driver())).running() as node:
        await kubelet.wait_for(lambda: kubelet.counts(R) == (2, 2))
        assert await node("dpgateway_resource_info", resource=R, driver="scripted", api="v1beta1") == 1
        assert (await node("dpgateway_resource_registered"), await node("dpgateway_resource_streaming")) == (1, 1)
        accepted = {"resource": R, "api": "v1beta1", "outcome": "accepted"}  # which may come after the stream
        await until(lambda: node.shows(1, "dpgateway_registrations_total", **accepted))
        assert (await node("dpgateway_kubelet_up"), await node("dpgateway_kubelet_incarnations_total")) == (1, 1)
        await kubelet.restart()
        await until(lambda: node.shows(2, "dpgateway_registrations_total", outcome="accepted"))
        await until(lambda: node.shows(1, "dpgateway_resource_streaming"))
        assert await node("dpgateway_kubelet_incarnations_total") == 2
        await kubelet.stop()
        await until(lambda: node.shows(0, "dpgateway_kubelet_up"))
        await until(lambda: node.shows(0, "dpgateway_resource_streaming"))
        assert await node("dpgateway_resource_info", resource=R, api="") == 1


async def test_times_of_last_successes(kubelet, hardware):
    began = time.time()
    config = configured(name=R, driver_class=hardware.driver(), refresh=3600)
    async with Node(kubelet.directory, config).running() as node:
        await kubelet.wait_for(lambda: kubelet.counts(R) == (2, 2))
        await kubelet.admit("encoder", {"main": {R: 1}})
        await until(lambda: node.shows(1, "dpgateway_holdings", pod="encoder"))
        for name in ("dpgateway_driver_last_list", "dpgateway_pod_resources_last_success"):
            assert began - 0.1 < await node(f"{name}_timestamp_seconds") < time.time() + 0.1


async def test_devices_that_vanish_and_return(kubelet, hardware):
    config = configured(name=R, driver_class=hardware.driver(), refresh=0.01)
    async with Node(kubelet.directory, config).running() as node:
        await kubelet.wait_for(lambda: kubelet.counts(R) == (2, 2))
        before = await node("dpgateway_list_updates_total", resource=R)
        hardware.found = [Device("a")]
        await until(lambda: node.shows(1, "dpgateway_devices_lost", resource=R))
        assert (await node("dpgateway_device_losses_total"), await node("dpgateway_device_returns_total")) == (1, 0)
        hardware.found = [Device("a"), Device("b")]
        await until(lambda: node.shows(0, "dpgateway_devices_lost", resource=R))
        assert (await node("dpgateway_device_losses_total"), await node("dpgateway_device_returns_total")) == (1, 1)
        await until(lambda: node.shows(before + 2, "dpgateway_list_updates_total", resource=R))


async def test_a_resource_that_fails(kubelet, hardware):
    def fails():
        raise DriverError("no bus")

    async with Node(kubelet.directory, configured(name=R, driver_class=scripted(devices=fails))).running() as node:
        await until(lambda: node.shows(1, "dpgateway_resource_failed", resource=R))
        assert await node("dpgateway_driver_calls_total", resource=R, method="devices", outcome="error") >= 1
        assert await node("dpgateway_driver_last_list_timestamp_seconds") is None


async def test_resource_with_too_long_a_list(kubelet, hardware):
    hardware.found = [Device(f"{number:05}".ljust(1024, "x")) for number in range(4200)]
    config = configured(name=R, driver_class=hardware.driver(), refresh=0.01)
    async with Node(kubelet.directory, config).running() as node:
        await until(lambda: node.shows(1, "dpgateway_resource_failed", resource=R))
        hardware.found = hardware.found[:3]
        await until(lambda: node.shows(0, "dpgateway_resource_failed", resource=R))


async def test_resource_that_cannot_be_served(kubelet, hardware):
    blocking = kubelet.directory / "dpgateway"
    blocking.write_text("in the way")
    async with Node(kubelet.directory, configured(name=R, driver_class=hardware.driver())).running() as node:
        await until(lambda: node.shows(1, "dpgateway_resource_failed", resource=R))
        blocking.unlink()
        await until(lambda: node.shows(0, "dpgateway_resource_failed", resource=R))


async def test_preparations_that_are_under_way(kubelet, hardware, gate):
    slow = gate()
    config = configured(name=R, driver_class=hardware.driver(prepare=slow))
    async with Node(kubelet.directory, config).running() as node:
        await kubelet.wait_for(lambda: kubelet.counts(R) == (2, 2))
        await kubelet.admit("encoder", {"main": {R: 1}}, start=False)
        starting = asyncio.create_task(kubelet.start_container("encoder", "main"))
        await slow.entered()
        assert await node("dpgateway_preparations_running", resource=R) == 1
        slow.open()
        assert (await starting)["ok"]
        assert await node("dpgateway_preparations_running", resource=R) == 0
        assert await node("dpgateway_driver_calls_total", resource=R, method="prepare", outcome="success") == 1


async def test_preparation_after_its_deadline(kubelet, hardware, gate):
    slow = gate()
    config = configured(name=R, driver_class=hardware.driver(prepare=slow), timeouts={"prepare": 1.0})
    async with Node(kubelet.directory, config).running() as node:
        await kubelet.wait_for(lambda: kubelet.counts(R) == (2, 2))
        await kubelet.admit("encoder", {"main": {R: 1}}, start=False)
        assert not (await kubelet.start_container("encoder", "main"))["ok"]
        assert await node("dpgateway_driver_calls_total", resource=R, method="prepare", outcome="timeout") == 1
        assert await node("dpgateway_preparations_running", resource=R) == 1
        slow.open()
        await until(lambda: node.shows(0, "dpgateway_preparations_running", resource=R))


async def test_removed_resource_has_no_series(kubelet, hardware):
    first, second = (configured(name=name, driver_class=hardware.driver()) for name in (R, S))
    async with Node(kubelet.directory, first, second).running() as node:
        await kubelet.wait_for(lambda: kubelet.counts(R) == kubelet.counts(S) == (2, 2))
        assert {R, S} == {
            dict(labels)["resource"] for _, *labels in (await node.samples()) if "resource" in dict(labels)
        }
        await node.reload(first)
        assert await node.named() == {R}
        await node.reload(first, second)
        await kubelet.wait_for(lambda: kubelet.counts(S) == (2, 2))
        await until(lambda: node.shows(1, "dpgateway_registrations_total", resource=S))  # from the beginning


async def test_what_became_of_reloads(short_path):
    async with Node(short_path).running() as node:
        began = await node("dpgateway_config_last_reload_success_timestamp_seconds")
        assert abs(time.time() - began) < 60
        node.gateway.overview.refuse(["wrong"])
        assert await node("dpgateway_config_last_reload_successful") == 0
        node.gateway.overview.took_over()
        assert await node("dpgateway_config_last_reload_successful") == 1
        assert await node("dpgateway_config_reloads_total", outcome="success") == 1
        assert await node("dpgateway_config_reloads_total", outcome="refused") == 1


async def test_same_numbers_as_the_status(kubelet, hardware):
    hardware.found = [Device("a"), Device("b", Health.unhealthy("broken")), Device("c")]
    config = configured(name=R, driver_class=hardware.driver(), shares=3, refresh=0.01)
    async with Node(kubelet.directory, config).running() as node:
        await kubelet.wait_for(lambda: kubelet.counts(R) == (9, 6))
        await kubelet.admit("encoder", {"main": {R: 2}})
        hardware.found = hardware.found[:2]
        await until(lambda: node.shows(3, "dpgateway_devices_lost"))
        await until(lambda: node.shows(2, "dpgateway_holdings", pod="encoder"))
        (one,) = node.gateway.overview.figures().resources
        (resource,) = node.gateway.overview.status().resources
        devices = resource.devices
        healthy, held = sum(device.healthy for device in devices), sum(device.held for device in devices)
        free = sum(device.healthy and not device.held for device in devices)
        assert one.counts == resource.counts == Counts(9, healthy, 9 - healthy, held, free, lost=3)
        assert (healthy, held, sum(one.holders.values())) == (3, 2, 2)


async def test_holdings_name_any_pod(short_path):
    odd = 'x"} 1\n# TYPE y \\'
    async with Node(short_path, configured(name=R, driver_class=scripted())).running() as node:
        whole = node.gateway.overview.figures()
        shown: list[Figures] = []
        page = Metrics(shown.pop, lambda: True).answer
        for names in ([odd], [odd, "encoder"], ["encoder"], []):
            holders = {HolderLabels("default", name, "main"): 1 for name in names}
            shown.append(replace(whole, resources=(replace(whole.resources[0], holders=holders),)))
            families = text_string_to_metric_families((await page()).body.decode())
            (family,) = [one for one in families if one.name == "dpgateway_holdings"]
            assert [sample.labels["pod"] for sample in family.samples] == names


async def test_metrics_let_others_run(short_path):
    async with Node(short_path, configured(name=R, driver_class=scripted())).running() as node:
        whole = node.gateway.overview.figures()
        (one,) = whole.resources
        many = [replace(one, name=f"{R}-{number}") for number in range(100)]
        page = asyncio.ensure_future(Metrics(lambda: replace(whole, resources=tuple(many)), lambda: True).answer())
        turns = 0
        while not page.done():
            await asyncio.sleep(0)
            turns += 1
        assert turns > 100
        body = page.result().body.decode()
        assert all(body.count(f"# HELP {row.name} ") == 1 for row in RESOURCE)
        (held,) = [one for one in text_string_to_metric_families(body) if one.name == "dpgateway_devices_held"]
        assert [sample.labels["resource"] for sample in held.samples] == [one.name for one in many]


async def test_asking_again_and_again_leaves_nothing(short_path):
    async with Node(short_path, configured(name=R, driver_class=scripted())).running() as node:
        await until(lambda: node.shows(2, "dpgateway_devices", resource=R))
        # the last file that a gateway opens at the start
        await until(lambda: list(short_path.glob("dpgateway/*.next")))

        def left():
            gc.collect()
            return {"objects": len(gc.get_objects()), "files": descriptors(), "threads": threading.active_count()}

        for _ in range(3):
            await node.text()
        before = left()

        def grown():
            return {what: count - before[what] for what, count in left().items()}

        def nothing_left():
            more = grown()
            return more["files"] <= 0 and more["threads"] <= 0 and more["objects"] < 100  # less than one for each page

        for _ in range(100):
            await node.text()
        await until(nothing_left, found=grown)


async def test_prometheus_gets_the_page(pages, port, short_path):
    async with Node(short_path).running() as node:
        gateway = node.gateway
        table = all_pages(
            Sources(
                gateway.overview.status,
                gateway.overview.readiness,
                gateway.works,
                gateway.overview.figures,
                lambda: True,
            )
        )
        pages.table["/metrics"] = table["/metrics"]
        reply = await ask(port, "/metrics")
    assert reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert b"dpgateway_build_info{version=" in reply.body
