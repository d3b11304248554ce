"""These tests run a cluster: for minutes, as root, with programs that build.py makes. They run when asked for: with a
path in this folder on pytest's command line. Then nothing is skipped: what is missing fails every test, and says so.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.build import missing_to_run
from tests.cluster.installed import Chart
from tests.cluster.machine.cluster import Cluster
from tools.image.rootfs import MACHINES

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LIMIT = 600
"""Seconds for one test. The first one makes the image and starts the cluster: 190 s with ten others on two cores."""
LABELS = ("example.com/kind", "example.com/gateway")
"""That tests give to nodes."""
NODES = {"new": ("1.37", True), "middle": ("1.34", False), "old": ("1.31", True)}


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    named = (Path(arg.partition("::")[0]).resolve() for arg in config.args)
    return None if any(path.is_relative_to(HERE) for path in named) else True


@pytest.hookimpl(tryfirst=True)  # pytest-xdist groups what is marked by then
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.timeout(LIMIT))
            # Two clusters at once: they mostly wait. Each has all its tests of one worker.
            if "cluster" in getattr(item, "fixturenames", ()) and item.get_closest_marker("xdist_group") is None:
                kind = "a cluster for DRA" if item.path.is_relative_to(HERE / "dra") else "a cluster with the chart"
                item.add_marker(pytest.mark.xdist_group(kind))


@pytest.fixture(scope="session", autouse=True)
def everything_there() -> None:
    if missing := missing_to_run():
        pytest.fail("no cluster can run here: " + "; ".join(missing), pytrace=False)


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive of the image with all drivers, for both architectures, as a release has it."""
    archive = tmp_path_factory.mktemp("image") / "dpgateway.tar"
    drivers = [f"--driver={name}" for name in ("chardev", "fpga", "simulated")]
    platforms = [f"--platform=linux/{name}" for name in MACHINES]
    subprocess.run([sys.executable, "-m", "tools.image", *drivers, *platforms, str(archive)], cwd=ROOT, check=True)
    return archive


@pytest.fixture(scope="session")
def cluster(image: Path) -> Iterator[Cluster]:
    """Nodes of three kubelet releases and both containerds, which have the image."""
    made = Cluster(NODES)
    made.up()
    made.load(image)
    yield made
    made.down()


@pytest.fixture(scope="session")
def release(cluster: Cluster) -> Chart:
    """The chart of all tests."""
    return Chart(cluster)


@pytest.fixture
def chart(cluster: Cluster, release: Chart) -> Iterator[Chart]:
    """The chart, maybe as an earlier test left it. After a test no pod or label is left, and no node is off."""
    release.begin()
    yield release
    for node in cluster.nodes.values():
        if not node.is_open:
            node.up()
    cluster.kubectl("label", "nodes", "--all", *(f"{label}-" for label in LABELS))
    cluster.until_gone(cluster.delete())
