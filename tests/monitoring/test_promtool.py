"""What Prometheus' own tool says of the metrics, the alerts and the dashboard."""

import json
import subprocess

import pytest

from tests.monitoring.build import PROMTOOL
from tests.monitoring.conftest import R
from tests.support.http import ask
from tests.support.promql import MONITORING, shown


def promtool(*words, given=""):
    """Its exit code, and what it says."""
    done = subprocess.run([PROMTOOL.binary(), *words], input=given, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
async def page(node):
    """After one Allocate, so that every metric has a series."""
    assert (await node.kubelet.admit("encoder", {"main": {R: 1}}))["ok"]
    return (await ask(node.port, "/metrics")).body.decode()


async def test_the_page_is_as_prometheus_wants_it(page):
    assert promtool("check", "metrics", given=page) == (0, "")


async def test_promtool_finds_what_is_wrong_with_a_page(page):
    code, text = promtool("check", "metrics", given=page.replace("dpgateway_rpcs_total", "dpgateway_rpcs"))
    assert (code, "dpgateway_rpcs counter metrics should have" in text) == (3, True)


def test_the_alerts_fire_when_they_should():
    code, text = promtool("test", "rules", str(MONITORING / "alerts_test.yaml"))
    assert (code, "SUCCESS" in text) == (0, True), text


@pytest.mark.parametrize("file", ["alerts.yaml"])
def test_the_alerts_are_rules(file):
    code, text = promtool("check", "rules", "--lint-fatal", str(MONITORING / file))
    assert code == 0, text


def test_the_dashboards_expressions_are_valid(tmp_path):
    rules = [{"record": f"panel:{number}", "expr": expression} for number, expression in enumerate(shown())]
    file = tmp_path / "dashboard.yaml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    code, text = promtool("check", "rules", str(file))
    assert (code, f"{len(rules)} rules found" in text) == (0, True), text


def test_the_scrape_configuration_is_valid():
    code, text = promtool("check", "config", str(MONITORING / "scrape.yaml"))
    assert code == 0, text
