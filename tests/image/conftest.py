"""These tests make the image and need an emulator, so they run when asked for: by `make test-image`, or by their path.

Then nothing is skipped: what is missing fails every test, and says so.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.image.container import ARCHITECTURES, Archive, Container, missing

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LIMIT = 600
"""Seconds for one test. The first one makes the image of both architectures: 100 s with seven others on two cores."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.timeout(LIMIT))


@pytest.fixture(scope="session", autouse=True)
def everything_there() -> None:
    if lacking := missing():
        pytest.fail(f"no image of both architectures can run here: {lacking}", pytrace=False)


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    """The image among the files of a release, with all drivers, for both architectures."""
    folder = Path(os.environ.get("DPGATEWAY_DIST") or tmp_path_factory.mktemp("dist"))
    subprocess.run([sys.executable, "-m", "tools.dist", str(folder)], cwd=ROOT, check=True)
    (path,) = folder.glob("dpgateway-image-*.tar")
    return Archive(path)


@pytest.fixture(scope="session", params=ARCHITECTURES)
def container(request: pytest.FixtureRequest, archive: Archive, tmp_path_factory: pytest.TempPathFactory) -> Container:
    folder = tmp_path_factory.mktemp(request.param)
    archive.unpack(request.param, folder)
    return Container(request.param, folder)
