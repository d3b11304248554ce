"""Whatever isn't plainly the operator's file is refused."""

import os
from dataclasses import replace

import pytest
from dpgateway_fpga.bitstream import read_image

from dpgateway import DriverError

MIB = 1024 * 1024


@pytest.fixture
def bitstream(options):
    return options.bitstream


def test_digest_covers_content(bitstream):
    image = read_image(bitstream)
    assert image.content == bitstream.path.read_bytes()
    assert read_image(replace(bitstream, sha256=image.sha256)) == image


def _link(path):
    path.rename(path.with_name("real"))
    path.symlink_to(path.with_name("real"))


def _pipe(path):
    path.unlink()
    os.mkfifo(path)


def _directory(path):
    path.unlink()
    path.mkdir()


def _grow(path, size):
    with path.open("ab") as file:
        file.truncate(size)


@pytest.mark.parametrize("size", [1, MIB])
def test_reads_extreme_sizes(bitstream, size):
    bitstream.path.write_bytes(b"x")
    _grow(bitstream.path, size)
    assert len(read_image(replace(bitstream, max_mib=1)).content) == size


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (_link, "Too many levels of symbolic links"),
        (_pipe, "expected a regular file"),
        (_directory, "expected a regular file"),
        (lambda path: path.unlink(), "No such file or directory$"),
        (
            lambda path: path.chmod(0o664),
            r"expected a file that only its owner can write \(chmod go-w\), found mode 0664",
        ),
        (lambda path: path.chmod(0o646), "found mode 0646"),
        (lambda path: path.parent.chmod(0o777), r"expected a directory /.* that only its owner can write .* mode 0777"),
        (lambda path: path.write_bytes(b""), "expected 1 to 1048576 bytes, found 0"),
        (lambda path: _grow(path, MIB + 1), "expected 1 to 1048576 bytes, found 1048577"),
    ],
)
def test_a_doubtful_file_is_refused(bitstream, spoil, why):
    spoil(bitstream.path)
    with pytest.raises(DriverError, match=f"^bitstream 'crypto-v3' .*is refused: .*{why}"):
        read_image(replace(bitstream, max_mib=1))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_strangers_file_is_refused(bitstream):
    os.chown(bitstream.path, 12345, -1)
    with pytest.raises(DriverError, match=r"owned by root or by user 0, found user 12345"):
        read_image(bitstream)


def test_refuses_wrong_digest(bitstream):
    with pytest.raises(DriverError, match=r"expected the sha256 0000.*, found [0-9a-f]{64}$"):
        read_image(replace(bitstream, sha256="0" * 64))
