import asyncio
import logging
import os
import shutil
import sys
import tempfile
import threading
from pathlib import Path

import grpc.aio
import pytest

from tests.support.logs import Records
from tests.support.order import spread
from tests.support.waiting import Gate

HERE = Path(__file__).resolve().parent
ON_DEMAND = "browser", "cluster", "image", "monitoring", "real_kubelet", "systemd"
"""Folders whose tests need more than Python: they run with a path in their folder on pytest's command line."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    folder = next((HERE / name for name in ON_DEMAND if collection_path.is_relative_to(HERE / name)), None)
    named = (Path(arg.partition("::")[0]).resolve() for arg in config.args)
    return None if folder is None or any(path.is_relative_to(folder) for path in named) else True


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):  # one of several workers, which must all have the same order
        items[:] = spread(items, lambda item: item.path.relative_to(config.rootpath).as_posix())


@pytest.fixture(scope="session", autouse=True)
def no_gateways_own_socket():
    """A gateway that a test starts tells no other one's clients how it is."""
    with tempfile.TemporaryDirectory(prefix="dp-") as directory:
        os.environ["DPGATEWAY_CONTROL_SOCKET"] = f"{directory}/control.sock"
        yield
        del os.environ["DPGATEWAY_CONTROL_SOCKET"]


@pytest.fixture(scope="session", autouse=True)
def grpc_for_all_tests():
    """As in a gateway: grpc.aio isn't shut down once a test has no channel and no server any more."""

    async def hold():
        grpc.aio.init_grpc_aio()

    asyncio.run(hold())


@pytest.fixture
def gate():
    """Makes blocking functions; those still closed at the end are opened, so that no thread outlives its test."""
    gates = []

    def make(answer=None):
        gates.append(Gate(answer))
        return gates[-1]

    yield make
    for one in gates:
        one.open()


@pytest.fixture
def log_put_back(monkeypatch):
    """Puts back what a command does to this process's log."""
    for owner, hook in ((sys, "excepthook"), (threading, "excepthook"), (sys, "unraisablehook")):
        monkeypatch.setattr(owner, hook, getattr(owner, hook))
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    logging.captureWarnings(capture=False)
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def records():
    return Records()


@pytest.fixture
def log(records):
    return records.bound(resource="example.com/thing")


@pytest.fixture
def short_path():
    """A directory in which sockets can be bound (their paths have 107 bytes at most). Its parent is the test's too."""
    around = Path(tempfile.mkdtemp(prefix="dp-"))
    around.chmod(0o711)
    path = around / "t"
    path.mkdir(mode=0o700)
    yield path
    shutil.rmtree(around, ignore_errors=True)
