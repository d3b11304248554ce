"""Every scenario runs against simulated kubelets of two eras, as make test does it.

With DPGATEWAY_REAL_KUBELETS=1 it runs against all nine real releases instead; some run against a whole node. That the
simulated kubelets are as the real ones is what tests/real_kubelet/test_facts.py compares, fact by fact.
"""

import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from tests.real_kubelet.build import missing_to_run
from tests.real_kubelet.node.node import Node
from tests.real_kubelet.programs import RELEASES
from tests.scenarios.engines import REAL, Make, Real, Simulated
from tests.scenarios.gateway import Gateway
from tests.scenarios.kubelet import Kubelet

# The oldest forgets most, and the newest panics where others forgive; tests/end_to_end has pods of the others. Each
# release costs a quarter of a minute.
ERAS = RELEASES if REAL else ("1.8", "1.37")
ONLY_REAL = "examples", "fpga", "functions", "handover_kills", "handover_refused", "node", "node_swapped"
collect_ignore = ["walking/test_oracle.py"] if REAL else [f"test_{name}.py" for name in ONLY_REAL]
HARMLESS = "Loaded running loop", "Using AsyncIOEngine"  # grpcio's own, at level debug

HERE = Path(__file__).resolve().parent
LIMIT = 600
"""Seconds for one scenario with real kubelets, because some of them are whole nodes."""

MEASURED = pytest.StashKey[list[tuple[str, str, dict[str, object]]]]()


@pytest.fixture
def record(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Notes what was measured with a release, for the end of the run."""
    measured = request.config.stash.setdefault(MEASURED, [])
    return lambda what, release, **figures: measured.append((what, release, figures))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for what, release, figures in config.stash.get(MEASURED, []):
        told = ", ".join(f"{k} {v:.1f}" if isinstance(v, float) else f"{k} {v}" for k, v in figures.items())
        terminalreporter.write_line(f"{what}, kubelet {release}: {told}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if REAL and item.path.is_relative_to(HERE) and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(LIMIT))


@pytest.fixture
def folder() -> Iterator[Path]:
    """Of a short path: a unix socket's has 107 bytes at most."""
    path = Path(tempfile.mkdtemp(prefix="scenario-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
async def node(folder: Path) -> AsyncIterator[Node]:
    """A whole one."""
    async with Node(folder / "node") as node:
        yield node


@pytest.fixture
def make() -> Make:
    if REAL and (missing := missing_to_run()):
        pytest.fail("real kubelets can't run here: " + "; ".join(missing), pytrace=False)
    return Real if REAL else Simulated


@pytest.fixture(params=ERAS)
async def kubelet(request: pytest.FixtureRequest, make: Make, folder: Path) -> AsyncIterator[Kubelet]:
    """Of each release, not yet started."""
    kubelet = Kubelet(make, request.param, folder / "device-plugins")
    yield kubelet
    await kubelet.close()
    print(f"--- kubelet\n{kubelet.story()}")  # noqa: T201 - pytest shows it when the scenario failed


@pytest.fixture
async def gateway(kubelet: Kubelet, folder: Path) -> AsyncIterator[Gateway]:
    """With two simulated devices, not yet started. Whatever a scenario does to it, it has no bug and ends in order."""
    gateway = Gateway(folder, kubelet.directory)
    kubelet.plugin_paused = gateway.paused
    async with gateway:
        yield gateway
        if gateway.running:
            assert await gateway.end() == 0
    log = [line for line in gateway.log if not any(text in line for text in HARMLESS)]
    print("\n".join(["--- gateway", *log]))  # noqa: T201 - as above
    assert not [line for line in log if "Traceback" in line or "a bug:" in line]


@pytest.fixture
async def served(kubelet: Kubelet, gateway: Gateway) -> Gateway:
    """The gateway, with both devices at the kubelet."""
    await kubelet.start()
    await gateway.start()
    await kubelet.wait_for_devices(2)
    await kubelet.noted(2)
    await gateway.said(" registered resource=")  # a kubelet lists before it answers Register
    return gateway


@pytest.fixture
async def newer(kubelet: Kubelet, folder: Path) -> AsyncIterator[Gateway]:
    """Another gateway with the same configuration, not yet started."""
    async with Gateway(folder, kubelet.directory) as newer:
        yield newer
