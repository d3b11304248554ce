"""A disk that gets full, as the kernel has it: nothing more can be written, and no name is added."""

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SIZE, NAMES = 256 * 1024, 100
"""Its bytes, and the most files and links."""


class SmallDisk:
    """A directory on a disk of its own."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._filling: list[Path] = []

    def fill(self) -> None:
        """From now on it has room for nothing."""
        for number in range(NAMES):
            filling = self._path / f"filling-{number}"
            try:
                filling.touch()
                self._filling.append(filling)
                filling.write_bytes(bytes(SIZE // 4))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise

    def free(self) -> None:
        """It has room again."""
        while self._filling:
            self._filling.pop().unlink()


@contextmanager
def small_disk(path: Path) -> Iterator[SmallDisk]:
    """The directory ``path`` is one until the block ends."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a file system")
    path.mkdir(mode=0o700, parents=True)
    options = f"size={SIZE},nr_inodes={NAMES},mode=0700"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "small", path], check=True)
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)
