"""What deploy/monitoring/ looks at is there, and each alert has its words. tests/monitoring sees the alerts fire."""

import re

import pytest

from tests.docs.pages import Page
from tests.support.promql import alerts, dashboard, metrics, read, shown
from tests.support.scraped import Node

ALERTS = {alert["alert"]: alert for alert in alerts()}
OF_PROMETHEUS = {"up": {"job", "instance"}}
ADDED = {"job", "instance"}
"""By Prometheus, to everything that it scrapes."""
PAGE = Page("how-to/alerts.md")


@pytest.fixture
async def exposed(short_path):
    """The labels of each metric that a running gateway has."""
    async with Node(short_path).running() as node:
        return OF_PROMETHEUS | {name: labels | ADDED for name, labels in (await node.exposed()).items()}


@pytest.mark.parametrize(
    "expressions", [shown(), [alert["expr"] for alert in ALERTS.values()]], ids=["shown", "alerts"]
)
async def test_every_metric_and_each_of_its_labels_is_there(exposed, expressions):
    named = [found for expression in expressions for found in metrics(expression)]
    assert len(named) >= len(expressions)
    assert [name for name, _ in named if name not in exposed] == []
    assert [(name, labels) for name, labels in named if not labels <= exposed[name]] == []


def test_what_is_named_in_an_expression_is_found():
    text = (
        'sum by (a) (rate(x_total{b="c", d!~"e"}[5m])) / on (f) g{h=~"i"} unless x_total offset 15m > 0 or time() - j'
    )
    assert list(metrics(text)) == [("x_total", {"b", "d"}), ("g", {"h"}), ("x_total", set()), ("j", set())]


async def test_every_metric_of_the_gateway_is_on_the_dashboard(exposed):
    own = {name for name in exposed if name.startswith("dpgateway_") and not name.endswith("_bucket")}
    parts = {name for name in own if re.search("_seconds_(count|sum)$", name)}
    assert own - parts - {name for expression in shown() for name, _ in metrics(expression)} == set()


def test_no_panel_hides_another():
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(taken)) == len(taken)
    assert {x for x, _ in taken} == set(range(24))


def test_each_panel_says_what_it_shows_and_asks_the_prometheus_that_was_chosen():
    for panel in dashboard()["panels"]:
        assert panel["title"]
        for target in panel.get("targets", ()):
            assert target["datasource"]["uid"] == panel["datasource"]["uid"] == "${datasource}"


def test_each_alert_has_what_to_do_and_no_page_is_about_another():
    assert re.findall(r"^## (\w+)$", PAGE.text, re.MULTILINE) == list(ALERTS)


@pytest.mark.parametrize("alert", ALERTS.values(), ids=list(ALERTS))
def test_each_alert_says_how_bad_it_is_where_and_what_to_do(alert):
    assert alert["labels"]["severity"] in {"critical", "warning", "info"}
    assert "{{ $labels.instance }}" in alert["annotations"]["summary"]
    assert alert["annotations"]["description"].endswith(".")
    assert alert["annotations"]["runbook"] == f"docs/how-to/alerts.md#{alert['alert'].lower()}"


def test_each_alert_is_seen_firing_by_a_test():
    tests = [test for group in read("alerts_test.yaml")["tests"] for test in group["alert_rule_test"]]
    assert {test["alertname"] for test in tests if test.get("exp_alerts")} == set(ALERTS)


def test_the_job_that_alerts_expect_is_the_one_that_is_scraped():
    (job,) = read("scrape.yaml")["scrape_configs"]
    assert (job["job_name"], job["honor_labels"]) == ("dpgateway", True)
