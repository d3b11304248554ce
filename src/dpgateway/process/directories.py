"""Directories in which nobody else may write."""

from __future__ import annotations

import os
from pathlib import Path


def make_private(directory: Path) -> None:
    """Makes it, and those above it. Raises OSError if it can't, or if what is there is somebody else's."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = directory.stat()
    if found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise PermissionError(f"{directory} must belong to uid {os.geteuid()}, and nobody else may write there")
