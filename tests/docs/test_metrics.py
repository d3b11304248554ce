"""The page about metrics names each metric with its type and labels, and no other."""

import re

from dpgateway.deviceplugin.api import APIS, Call
from dpgateway.deviceplugin.server import handlers
from dpgateway.drivers import answers
from dpgateway.kit.call_stats import BOUNDS, SLOW
from dpgateway.web.dra_series import DRA
from dpgateway.web.series import GATEWAY, RESOURCE
from tests.docs.pages import Page
from tests.support.scraped import Node

SAMPLES = [("OK",), ("success",), ("accepted",)]
"""The last label of what has gone well."""
TEXT = Page("reference/metrics.md").text
DOCUMENTED = [
    (name, kind, tuple(re.findall(r"`(\w+)`", labels)))
    for name, kind, labels in re.findall(r"^\| `(\w+)` \| (\w+) \| (.*?) ?\| ", TEXT, re.MULTILINE)
]


def test_each_metric_type_and_labels():
    own = [one for one in DOCUMENTED if one[0].startswith("dpgateway_")]
    gateway = [(row.name, row.kind, row.labels) for row in GATEWAY]
    resource = [(row.name, row.kind, ("resource", *row.labels)) for row in RESOURCE]
    assert own == gateway + resource + [(row.name, row.kind, row.labels) for row in DRA]


async def test_metrics_of_the_process(short_path):
    async with Node(short_path).running() as node:
        exposed = await node.exposed()
    others = {name for name in exposed if not name.startswith("dpgateway_")}
    assert sorted(others) == sorted(name for name, _, _ in DOCUMENTED if not name.startswith("dpgateway_"))


def test_the_buckets():
    assert BOUNDS == (0.01, 0.1, 1, 5, 30)
    assert "end at 10 and 100 ms, and at 1, 5 and 30 s" in TEXT
    assert SLOW == 5


def test_the_brief_page():
    table = re.findall(r"^\| `(dpgateway_\w+)` \| \w+ \| .*\| (all|sum|events|none) \|$", TEXT, re.MULTILINE)
    assert table == [(row.name, "sum" if any(map(row.summed, SAMPLES)) else row.brief) for row in RESOURCE]


def test_the_words_of_the_labels():
    rows = {line.partition("` |")[0].strip("| `"): set(re.findall(r"`(\w+)`", line)) for line in TEXT.splitlines()}
    assert {"success", "cancelled", *answers.OUTCOMES.values()} <= rows["dpgateway_driver_calls_total"]
    codes = {code.name for _, code in handlers.CODES}
    rpcs = {rpc.name for api in APIS for rpc in api.rpcs if rpc.call is not Call.WATCH}
    assert {"OK", "CANCELLED", "INVALID_ARGUMENT", *codes, *rpcs} <= rows["dpgateway_rpcs_total"]
    assert {api.name for api in APIS} <= rows["dpgateway_resource_info"]
