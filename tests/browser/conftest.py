"""These tests need a browser, so they run when they are asked for: by `make test-page`, or by their path.

Then nothing is skipped: without a browser every test fails, and says so.
"""

import os
from pathlib import Path

import pytest

from tests.browser.chromium import PROGRAMS, program

HERE = Path(__file__).resolve().parent


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    named = (Path(arg.partition("::")[0]).resolve() for arg in config.args)
    asked = os.environ.get("DPGATEWAY_BROWSER") == "1" or any(path.is_relative_to(HERE) for path in named)
    return None if asked else True


@pytest.fixture(scope="session", autouse=True)
def a_browser() -> None:
    if program() is None:
        pytest.fail(f"there is no browser: none of {', '.join(PROGRAMS)} is in PATH", pytrace=False)
