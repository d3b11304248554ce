"""These tests run a cluster: for minutes, as root, with programs that build.py makes. They run when asked for: with a
path in this folder on pytest's command line. Then nothing is skipped: what is missing fails every test, and says so.
"""

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.build import missing_to_run
from tests.cluster.installed import Chart
from tests.cluster.machine.cluster import Cluster
from tests.real_kubelet.build import GARBAGE
from tools.image.rootfs import MACHINES

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LIMIT = 600
"""Seconds for one test. The first one makes the image and starts the cluster: 190 s with ten others on two cores."""
SECOND = {"test_cdi", "test_driver_image", "test_kubernetes_e2e", "test_manifests", "test_node"}
"""Modules with a cluster of their own, so that two workers share the tests of the chart."""
LABELS = ("example.com/kind", "example.com/gateway")
"""That tests give to nodes."""
NODES = {"new": ("1.37", True), "middle": ("1.34", False), "old": ("1.31", True)}


@pytest.hookimpl(tryfirst=True)  # pytest-xdist groups what is marked by then
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.timeout(LIMIT))
            # Three clusters at once: they mostly wait. Each has all its tests of one worker.
            if "cluster" in getattr(item, "fixturenames", ()) and item.get_closest_marker("xdist_group") is None:
                second = "a second cluster with the chart" if item.path.stem in SECOND else "a cluster with the chart"
                kind = "a cluster for DRA" if item.path.is_relative_to(HERE / "dra") else second
                item.add_marker(pytest.mark.xdist_group(kind))


@pytest.fixture(scope="session", autouse=True)
def everything_there() -> None:
    os.environ.setdefault("GOGC", GARBAGE)
    if missing := missing_to_run():
        pytest.fail("no cluster can run here: " + "; ".join(missing), pytrace=False)


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The archive of the image with all drivers, for both architectures, as a release has it. Workers share one, and
    in .ci/run it is that of tests/image.
    """
    if folder := os.environ.get("DPGATEWAY_DIST"):
        (archive,) = Path(folder).glob("dpgateway-image-*.tar")
        return archive
    base = tmp_path_factory.getbasetemp()
    archive = (base if worker_id == "master" else base.parent) / "dpgateway.tar"
    drivers = [f"--driver={name}" for name in ("chardev", "fpga", "simulated")]
    platforms = [f"--platform=linux/{name}" for name in MACHINES]
    with archive.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.with_suffix(".digests").exists():  # what is written last
            command = [sys.executable, "-m", "tools.image", *drivers, *platforms, str(archive)]
            subprocess.run(command, cwd=ROOT, check=True)
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
    """The chart, maybe as an earlier test left it. After a test no pod or label is left, and no kubelet is off."""
    release.begin()
    yield release
    for node in cluster.nodes.values():
        if not node.is_open:
            node.up()
        elif not node.runs("kubelet"):
            node.start_kubelet(node.release)
    cluster.label(dict.fromkeys(LABELS))
    cluster.until_gone(cluster.delete())
