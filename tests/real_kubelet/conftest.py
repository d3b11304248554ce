"""These tests run real kubelets: for minutes, as root, with programs that build.py makes. They run when asked for.

Asked for is a path in this folder on pytest's command line, or DPGATEWAY_REAL_KUBELETS=1. Then nothing is skipped: what
is missing fails every test, and says so.
"""

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from tests.real_kubelet.build import missing_to_run
from tests.real_kubelet.device_manager import DeviceManager
from tests.real_kubelet.plugin import Plugin, dialect_of
from tests.real_kubelet.programs import RELEASES

HERE = Path(__file__).resolve().parent
RESOURCE = "example.com/thing"
LIMIT = 600
"""Seconds for one test, because some start a whole node."""


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    named = (Path(arg.partition("::")[0]).resolve() for arg in config.args)
    asked = os.environ.get("DPGATEWAY_REAL_KUBELETS") == "1" or any(path.is_relative_to(HERE) for path in named)
    return None if asked else True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE) and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(LIMIT))


@pytest.fixture(scope="session", autouse=True)
def everything_there() -> None:
    if missing := missing_to_run():
        pytest.fail("real kubelets can't run here: " + "; ".join(missing), pytrace=False)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Of a short path: a unix socket's has 107 bytes at most."""
    path = Path(tempfile.mkdtemp(prefix="kubelet-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture(params=RELEASES)
async def kubelet(request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[DeviceManager]:
    """The device manager of each release, not yet started."""
    device_manager = DeviceManager(request.param, folder / "device-plugins")
    yield device_manager
    await device_manager.kill()


Plug = Callable[..., Awaitable[Plugin]]


@pytest.fixture
async def plug(kubelet: DeviceManager) -> AsyncIterator[Plug]:
    """A plugin of the kubelet's dialect, registered and listed: await plug() or await plug("second.sock")."""
    plugins = []

    async def serve(endpoint: str = "plugin.sock", *, register: bool = True) -> Plugin:
        plugin = await Plugin(dialect_of(kubelet.release), RESOURCE, kubelet.directory, endpoint).serve()
        plugins.append(plugin)
        if register:
            await plugin.register()
            await plugin.wait_for("ListAndWatch")
            await kubelet.wait_for(lambda seen: seen["allocatable"].get(RESOURCE) == len(plugin.devices))
        return plugin

    yield serve
    for plugin in plugins:
        await plugin.stop()
