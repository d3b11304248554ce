"""These tests run real kubelets: for minutes, as root, with programs that build.py makes. They run when asked for: with
a path in this folder on pytest's command line. Then nothing is skipped: what is missing fails every test, and says so.
"""

from pathlib import Path

import pytest

from tests.real_kubelet.build import missing_to_run

HERE = Path(__file__).resolve().parent
LIMIT = 600
"""Seconds for one test, because the first one that asks for a fact waits for all of them."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE) and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(LIMIT))


@pytest.fixture(scope="session", autouse=True)
def everything_there() -> None:
    if missing := missing_to_run():
        pytest.fail("real kubelets can't run here: " + "; ".join(missing), pytrace=False)
