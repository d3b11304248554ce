"""Files for the kernel have the very bytes of an image, or it is told that nobody knows what was read."""

import os
import subprocess
import sys

import pytest
from dpgateway_fpga.staging import staged

from dpgateway import DriverError


def test_staged_file_lasts(tmp_path):
    with staged(tmp_path / "files", "a.bin", b"image") as file:
        assert file.read_bytes() == b"image"
        os.utime(file)
    assert os.listdir(tmp_path / "files") == []  # noqa: PTH208


def _longer(path):
    path.write_bytes(b"image")
    os.truncate(path, 1 << 40)


def _link(path):
    path.symlink_to("/dev/zero")


@pytest.mark.timeout(20)
@pytest.mark.parametrize("instead", [_longer, os.mkfifo, _link, lambda path: path.write_bytes(b"imagf")])
def test_replaced_file_is_not_read(tmp_path, instead):
    def load():
        with staged(tmp_path / "files", "a.bin", b"image") as file:
            file.unlink()
            instead(file)

    with pytest.raises(DriverError, match=r"/files/a\.bin was changed while it was loaded"):
        load()
    assert os.listdir(tmp_path / "files") == []  # noqa: PTH208


FULL = """
import resource, sys
from pathlib import Path
from dpgateway_fpga.staging import Unwritten, staged
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    with staged(Path(sys.argv[1]), "a.bin", bytes(5000)):
        pass
except Unwritten as error:
    print(error)
"""


def test_half_a_file_is_removed(tmp_path):
    """A file that may not grow fails as on a full disk."""
    done = subprocess.run(
        [sys.executable, "-c", FULL, tmp_path / "files"], stdout=subprocess.PIPE, text=True, check=True, timeout=60
    )
    assert done.stdout.startswith(f"the image can't be put at {tmp_path}/files/a.bin: ")
    assert os.listdir(tmp_path / "files") == []  # noqa: PTH208
