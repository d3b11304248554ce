"""These tests need systemd, so they run when they are asked for: by `make test-systemd`, or by their path.

Then nothing is skipped: without systemd every test fails, and says so.
"""

import pytest

from tests.systemd.machine import SYSTEMD


@pytest.fixture(scope="session", autouse=True)
def systemd() -> None:
    if not SYSTEMD.exists():
        pytest.fail(f"there is no systemd: expected the program {SYSTEMD}", pytrace=False)
