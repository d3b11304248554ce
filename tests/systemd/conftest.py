"""These tests need systemd, so they run when they are asked for: by `make test-systemd`, or by their path.

Then nothing is skipped: without systemd every test fails, and says so.
"""

from pathlib import Path

import pytest

from tests.systemd.machine import SYSTEMD

HERE = Path(__file__).resolve().parent


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    named = (Path(arg.partition("::")[0]).resolve() for arg in config.args)
    return None if any(path.is_relative_to(HERE) for path in named) else True


@pytest.fixture(scope="session", autouse=True)
def systemd() -> None:
    if not SYSTEMD.exists():
        pytest.fail(f"there is no systemd: expected the program {SYSTEMD}", pytrace=False)
