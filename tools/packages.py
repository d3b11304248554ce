"""Builds source archives and wheels. Each wheel is built from the source archive, which proves the archive complete.

Sources are built from a copy: setuptools leaves a `build` directory, from which it would package old modules later.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OWN = (ROOT, *(ROOT / "backends" / name for name in ("simulated", "chardev", "fpga")))
PARTS = ("pyproject.toml", "README.md", "LICENSE", "src")
BUILD_SDIST = "import sys; from setuptools.build_meta import build_sdist; print(build_sdist(sys.argv[1]))"


def build(projects: Iterable[Path], folder: Path) -> list[Path]:
    """Writes both archives of each project into the folder; returns the wheels. Uses the installed setuptools."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="packages-") as where:
        return [_build(project.resolve(), folder.resolve(), Path(where) / str(n)) for n, project in enumerate(projects)]


def _build(project: Path, folder: Path, where: Path) -> Path:
    copy = where / "copy"
    copy.mkdir(parents=True)
    for part in (project / name for name in PARTS):
        if part.is_dir():
            shutil.copytree(part, copy / part.name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        elif part.exists():
            shutil.copy(part, copy)
    python = [sys.executable, "-W", "error::DeprecationWarning:setuptools", "-c", BUILD_SDIST, str(folder)]
    built = subprocess.run(python, cwd=copy, check=True, stdout=subprocess.PIPE, text=True)
    sdist = folder / built.stdout.splitlines()[-1]
    pip = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--disable-pip-version-check",
        "--no-deps",
        "--no-build-isolation",
    ]
    subprocess.run([*pip, f"--wheel-dir={where / 'wheel'}", str(sdist)], check=True)
    (wheel,) = (where / "wheel").iterdir()
    return Path(shutil.move(wheel, folder / wheel.name))
