"""For the tests of the gateway and of the backends alike."""

import gc
from collections.abc import Generator

import pytest
from hypothesis import settings

settings.register_profile("project", deadline=None)  # a busy machine is no failure
settings.load_profile("project")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, None, None]:
    """What a file's tests leave unclosed fails the last of them, and not any test of any file, some time later."""
    yield
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
