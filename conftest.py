"""For the tests of the gateway and of the backends alike."""

import faulthandler
import gc
import os
import signal
import threading
from collections.abc import Generator
from pathlib import Path

import pytest
import pytest_timeout
from hypothesis import HealthCheck, settings

# A busy machine is no failure, however long an example takes, or the drawing of one. The examples are the same each
# time, so that whoever fails a test has broken it; --hypothesis-profile=search draws others.
settings.register_profile("search", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("project", settings.get_profile("search"), derandomize=True)
settings.load_profile("project")


def pytest_collection_finish() -> None:
    """All that is there now stays until the end. To look for garbage in it after each file takes 0.1 s each time."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, None, None]:
    """What a file's tests leave unclosed fails the last of them, and not any test of any file, some time later."""
    yield
    if nextitem is None or nextitem.path != item.path:
        gc.collect()


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: pytest_timeout.Settings) -> bool:
    """Names a test that hangs, shows what each thread does, and ends all tests.

    Both ways of pytest-timeout do less: a signal ends no test whose tasks or fixtures hang, because it comes once; a
    thread ends them all, but doesn't say which test it was. With several workers (pytest-xdist) nobody sees what one of
    them says, and when it ends, the others may wait for ever for what it had to do.
    """

    def end() -> None:
        text = f"\n{item.nodeid} has taken {settings.timeout:g} s: it hangs\n"
        if hasattr(item.config, "workerinput"):
            _end_all(text)
        item.config.get_terminal_writer().line(text)
        pytest_timeout.timeout_timer(item, settings)

    timer = threading.Timer(settings.timeout, end)
    timer.name, timer.daemon = "limit of the test", True

    def cancel() -> None:
        timer.cancel()
        timer.join()

    item.cancel_timeout = cancel
    timer.start()
    return True


def _end_all(text: str) -> None:
    """For a worker: says why, and what each thread does, where its controller speaks, and ends that and all workers."""
    controller = os.getppid()
    with Path(f"/proc/{controller}/fd/2").open("a") as errors:
        errors.write(text)
        errors.flush()
        faulthandler.dump_traceback(errors, all_threads=True)
    os.kill(controller, signal.SIGTERM)
