"""The brief page of metrics: few series, and sums that never fall."""

import gzip
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dpgateway.deviceplugin.api import v1beta1
from dpgateway.deviceplugin.values import FRONT
from dpgateway.kit.call_stats import BOUNDS, Calls
from dpgateway.node.holders import Holder
from dpgateway.resource.standing import Standing
from dpgateway.status.figures import ClusterFigures, Figures, KubeletFigures, ResourceFigures
from dpgateway.status.values import Counts, Reloads
from dpgateway.web.metrics import Metrics
from tests.support.promql import alerts, metrics
from tests.support.scraped import Node

NOW = "2026-01-01T00:00:00Z"
RPCS = ("Allocate", "GetDevicePluginOptions", "GetPreferredAllocation", "PreStartContainer")
METHODS = ("devices", "allocate", "prefer", "prepare", "release")
MOST = 600
SERVING = Standing(FRONT, "serving", api=v1beta1.API.name, registered=True, streaming=True, listed=True)


def calls(outcome, count=1, slow=0):
    return Calls({outcome: count}, (count - slow, *[0] * (len(BOUNDS) - 1), slow), 0.5 * count)


def resource(name="example.com/a", *, driver="simulated", count=1, **keys):
    """100 devices in use."""
    used: dict[str, Any] = {
        "attempts": {("v1beta1", "accepted"): count},
        "listed": 1.0,
        "counts": Counts(listed=100, healthy=100, held=100),
        "holders": {Holder("default", f"pod-{number}", "main"): 1 for number in range(100)},
        "updates": 3,
        "rpcs": {rpc: calls("OK", count) for rpc in RPCS},
        "calls": {method: calls("success", count) for method in METHODS},
    }
    return ResourceFigures(name, driver, (SERVING,), **(used | keys))


class Page:
    def __init__(self, *, full=False):
        self.full = full
        self._metrics = Metrics(lambda: self._figures, lambda: self.full)

    async def __call__(self, *resources, cluster=None):
        """The series: their names with their labels, and values."""
        kubelet = KubeletFigures(there=True, appearances=1, asked={"success": 1}, answered=1.0)
        self._figures = Figures("0.1.0", Reloads(NOW), kubelet, 0, resources, cluster or ClusterFigures())
        self.body = (await self._metrics.answer()).body
        families = text_string_to_metric_families(self.body.decode())
        samples = [sample for family in families for sample in family.samples]
        return {(sample.name, *sorted(sample.labels.items())): sample.value for sample in samples}

    async def number(self, *resources, name, **labels):
        found = await self(*resources)
        return found.get((name, *sorted(labels.items())))


def many(count=64):
    return [resource(f"example.com/r{number}") for number in range(count)]


async def test_a_used_node_has_few_series():
    page = Page()
    series = await page(*many())
    assert len(series) <= MOST
    assert len(gzip.compress(page.body)) < 8000
    page.full = True
    assert len(await page(*many())) > 64 * 100


async def test_what_has_gone_wrong_has_its_series():
    page = Page()
    before = await page(*many(2))
    broken = replace(
        resource("example.com/r1"),
        failed=True,
        rpcs={"Allocate": calls("INTERNAL", 3, slow=2)},
        calls={"allocate": calls("fault", 3)},
        attempts={("v1beta1", "failed"): 1},
        counts=Counts(listed=2, unhealthy=2, lost=2),
        losses=2,
        falls=1,
        outdated=1,
        preparing=1,
    )
    new = set(await page(resource("example.com/r0"), broken)) - set(before)
    assert {name for name, *_ in new} == {
        "dpgateway_resource_failed",
        "dpgateway_devices_lost",
        "dpgateway_device_losses_total",
        "dpgateway_device_falls_total",
        "dpgateway_registrations_total",
        "dpgateway_rpcs_total",
        "dpgateway_rpcs_slow_total",
        "dpgateway_driver_calls_total",
        "dpgateway_preparations_running",
        "dpgateway_devices_outdated",
    }
    assert all(dict(labels)["resource"] == "example.com/r1" for _, *labels in new)


OK = {"name": "dpgateway_rpcs_total", "resource": "", "rpc": "Allocate", "code": "OK"}
TOOK = {"name": "dpgateway_rpc_duration_seconds_count", "resource": "", "rpc": "Allocate"}
SECONDS = {**TOOK, "name": "dpgateway_rpc_duration_seconds_sum"}


@pytest.mark.parametrize(("asked", "each"), [(OK, 1), (TOOK, 1), (SECONDS, 0.5)], ids=["count", "bucket", "sum"])
async def test_sums_never_fall(asked, each):
    page, a, b = Page(), "example.com/a", "example.com/b"
    assert await page.number(resource(a, count=5), resource(b, count=7), **asked) == 12 * each
    assert await page.number(resource(a, count=6), resource(b, count=2), **asked) == 15 * each  # b began again
    assert await page.number(resource(a, count=6), **asked) == 15 * each
    assert await page.number(resource(a, count=6), resource(b, count=4), **asked) == 19 * each  # another b
    page.full = True
    assert await page.number(resource(a, count=8), resource(b, count=4), **asked) is None
    page.full = False
    assert await page.number(resource(a, count=8), resource(b, count=4), **asked) == 21 * each


async def test_both_pages_have_the_same_sums():
    def summed(series, name):
        return sum(value for (one, *_), value in series.items() if one == name)

    resources = [*many(3), resource("example.com/x", rpcs={"Allocate": calls("INTERNAL", 4)})]
    brief, full = await Page()(*resources), await Page(full=True)(*resources)
    for name in ("rpcs_total", "rpc_duration_seconds_sum", "driver_calls_total", "registrations_total", "devices"):
        assert summed(brief, f"dpgateway_{name}") == summed(full, f"dpgateway_{name}") > 0


async def test_alerts_need_the_brief_page_only(short_path):
    async with Node(short_path).running() as node:
        node.full = False
        exposed = {"up", *(await node.exposed())}
    assert {name for alert in alerts() for name, _ in metrics(alert["expr"])} <= exposed


async def test_the_api_server_has_series_only_if_it_is_asked():
    page = Page()
    assert not any("cluster" in key[0] or "kubernetes" in key[0] for key in await page())
    asked = ClusterFigures(False, {("get", "resourceclaims", "none"): 2}, {"written": 1, "failed": 3})
    found = await page(cluster=asked)
    assert found["dpgateway_cluster_up",] == 0
    labels = ("code", "none"), ("kind", "resourceclaims"), ("verb", "get")
    assert found["dpgateway_cluster_requests_total", *labels] == 2
    assert found["dpgateway_kubernetes_events_total", ("outcome", "failed")] == 3
