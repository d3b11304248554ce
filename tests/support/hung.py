"""A disk that hangs, as the kernel has it: whoever asks it waits in the kernel, and only there."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.fuse import Directory, mounted

LONGEST = 20.0
"""Seconds after which it answers all the same, so that a test of an event loop that hangs ends, too."""


class HungDisk(Directory):
    """An empty directory in which each look for a name hangs."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self._over = threading.Event(), threading.Event()
        self.hangs = True
        """Whether it has answered nobody yet."""

    def __getitem__(self, name: str) -> Any:
        self.asked.set()
        self.hangs = self._over.wait(LONGEST) and self.hangs
        raise KeyError(name)

    def repair(self) -> None:
        """From now on it answers."""
        self._over.set()


@contextmanager
def hung_disk(path: Path) -> Iterator[HungDisk]:
    """The directory ``path`` is on such a disk until the block ends."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("only root can mount a file system of its own")
    path.mkdir(parents=True)
    disk = HungDisk()
    with mounted(disk, path):
        try:
            yield disk
        finally:
            disk.repair()
