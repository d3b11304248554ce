"""A new environment: the clone beside it, and nothing in it but what the gateway depends on.

The dependencies are those of the environment that runs the tests, so that no network is needed; everything else is
installed as the documentation says.
"""

import os
import re
import shutil
import site
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.docs import shell
from tests.docs.pages import Page

ROOT = Path(__file__).parents[2]
OURS = re.compile(r"dpgateway|__editable__|_virtualenv|__pycache__|distutils-precedence")
SCRIPTS = {"pip": "pip", "pytest": "pytest"}
NEEDED = ("pyproject.toml", "README.md", "LICENSE", "src", "backends")
IGNORED = shutil.ignore_patterns("__pycache__", "*.egg-info", "tests")


@dataclass(frozen=True)
class Place:
    """A reader's directory with a clone, `dpgateway`, and a virtual environment, `first-hour`."""

    directory: Path

    @property
    def environment(self) -> dict[str, str]:
        """Of a shell in which the virtual environment is active, and no index is reached."""
        return {
            "PATH": f"{self.directory}/first-hour/bin:{os.defpath}:/usr/sbin:/sbin",
            "HOME": str(self.directory),
            "LANG": "C.UTF-8",
            "DPGATEWAY_CONTROL_SOCKET": f"{self.directory}/control.sock",  # or it would be that of the whole machine
            "PIP_NO_INDEX": "1",
            "PIP_NO_BUILD_ISOLATION": "0",  # pip takes it for --no-build-isolation=no
            "PIP_NO_COMPILE": "1",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_ROOT_USER_ACTION": "ignore",
        }

    def run(self, blocks: list[str], where: str) -> list[shell.Result]:
        directory = self.directory / where
        directory.mkdir(parents=True, exist_ok=True)
        return shell.run(blocks, directory, self.environment)


@pytest.fixture(scope="session")
def bare() -> Iterator[Place]:
    """With nothing installed. Of a short path: a unix socket's has 107 bytes at most."""
    directory = Path(tempfile.mkdtemp(prefix="docs-"))
    clone = directory / "dpgateway"
    clone.mkdir()
    for name in NEEDED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, clone / name, ignore=IGNORED)
        else:
            shutil.copy(ROOT / name, clone / name)
    environment = directory / "first-hour"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    _add_dependencies(environment)
    yield Place(directory)
    shutil.rmtree(directory)


def _add_dependencies(environment: Path) -> None:
    dependencies = environment / "dependencies"
    dependencies.mkdir()
    folders = [Path(folder) for folder in site.getsitepackages()]
    for folder in filter(Path.is_dir, folders):  # Debian's Python names one that it never makes
        for path in folder.iterdir():
            if not OURS.match(path.name):
                (dependencies / path.name).symlink_to(path)
    (python,) = (environment / "lib").glob("python3*")
    (python / "site-packages/dependencies.pth").write_text(f"{dependencies}\n")
    for name, module in SCRIPTS.items():
        script = environment / "bin" / name
        script.write_text(f'#!/bin/sh\nexec "{environment}/bin/python" -m {module} "$@"\n')
        script.chmod(0o755)


@pytest.fixture(scope="session")
def place(bare: Place) -> Place:
    """With what the tutorial's first command installs. Tests that have it are a group, so that it is made once."""
    command = Page("tutorial/first-hour.md").commands[1].text
    assert command.startswith("pip install ")
    (result,) = bare.run([command], "first-hour")
    assert result.status == 0, result.output
    return bare
