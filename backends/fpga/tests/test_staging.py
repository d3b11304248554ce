"""Files for the kernel have the very bytes of an image, or it is told that nobody knows what was read."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from dpgateway_fpga.staging import staged

from dpgateway import DriverError


def test_staged_file_lasts(tmp_path):
    with staged(tmp_path / "files", "a.bin", b"image") as file:
        assert file.read_bytes() == b"image"
        os.utime(file)
    assert os.listdir(tmp_path / "files") == []  # noqa: PTH208


def test_staging_removes_leftovers(tmp_path: Path) -> None:
    """The images that killed gateways staged for this board, and nothing else in the directory."""
    (files := tmp_path / "files").mkdir()
    old, new = "ab" * 32, "cd" * 32
    kept = {f"{old}-fpga-b.bin", f"{old}-fpga-a.dtbo", "fpga-a.bin", f"{old[:-1]}-fpga-a.bin"}
    for name in (f"{old}-fpga-a.bin", f".{old}-fpga-a.bin.new", f"{old}-{new}-fpga-a.bin", *kept):
        (files / name).write_bytes(b"old")
    with staged(files, f"{new}-fpga-a.bin", b"image"):
        assert {one.name for one in files.iterdir()} == {f"{new}-fpga-a.bin", *kept}
    assert {one.name for one in files.iterdir()} == kept


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
