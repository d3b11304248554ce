"""Drivers of the documentation, installed for as long as they are tested."""

import importlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def installed(directory: Path, modules: Mapping[str, str]) -> Iterator[Path]:
    """Each module, by its name, as a driver of that name; the directory is for PYTHONPATH, too."""
    for name, text in modules.items():
        (directory / f"{name}.py").write_text(text)
    information = directory / f"examples_{'_'.join(modules)}-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: examples-{'-'.join(modules)}\nVersion: 1.0\n")
    points = "".join(f"{name} = {name}\n" for name in modules)
    (information / "entry_points.txt").write_text(f"[dpgateway]\n{points}")
    sys.path.insert(0, str(directory))
    importlib.invalidate_caches()
    try:
        yield directory
    finally:
        sys.path.remove(str(directory))
        for name in modules:
            sys.modules.pop(name, None)
