"""Files for the kernel have the very bytes of an image, or it is told that nobody knows what was read."""

import os

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
