"""Files that another thread or process writes and removes meanwhile."""

import contextlib
from pathlib import Path


def texts(folder: Path, pattern: str = "*.json") -> dict[Path, str]:
    """What the matching files contain, without those that were removed between listing and reading."""
    found = {}
    for path in folder.glob(pattern):
        with contextlib.suppress(FileNotFoundError):
            found[path] = path.read_text()
    return found
