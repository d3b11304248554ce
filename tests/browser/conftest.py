"""These tests need a browser, so they run when they are asked for: by `make test-page`, or by their path.

Then nothing is skipped: without a browser every test fails, and says so.
"""

import pytest

from tests.browser.chromium import PROGRAMS, program


@pytest.fixture(scope="session", autouse=True)
def a_browser() -> None:
    if program() is None:
        pytest.fail(f"there is no browser: none of {', '.join(PROGRAMS)} is in PATH", pytrace=False)
