"""A GBS file is read as OPAE reads it; what isn't one is named."""

import struct

import pytest
from dpgateway_fpga import gbs

from backends.fpga.tests.kernel.gbs import AES, INTERFACE, gbs_file
from dpgateway import DriverError

MAGIC = gbs.MAGIC


def test_ids_and_image_are_found():
    found = gbs.parse(gbs_file())
    assert (found.interface, found.accelerator, bytes(found.image)) == (INTERFACE, AES, AES.encode() + b" raw image")


def test_metadata_that_end_with_nul_are_read():
    content = gbs_file()
    (length,) = struct.unpack_from("<I", content, len(MAGIC))
    start = len(MAGIC) + 4
    padded = content[start : start + length] + b"\0\0"
    found = gbs.parse(MAGIC + struct.pack("<I", len(padded)) + padded + b"image")
    assert (found.accelerator, bytes(found.image)) == (AES, b"image")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "expected a GBS file"),
        (b"XeonFPGA\xb7GBSv002" + b"x" * 100, "expected a GBS file"),
        (MAGIC + b"\x01", "expected the length of the GBS file's metadata"),
        (MAGIC + struct.pack("<I", 0) + b"x", "expected 1 to 4095 bytes of metadata .*, found 0 bytes"),
        (MAGIC + struct.pack("<I", 5000) + b"x" * 6000, "found 5000 bytes"),
        (
            MAGIC + struct.pack("<I", 2) + b"{}",
            "expected an image after 2 bytes of metadata in the GBS file, found the end",
        ),
        (MAGIC + struct.pack("<I", 2) + b"{}x", "expected JSON with afu-image, found b'{}': KeyError"),
        (MAGIC + struct.pack("<I", 3) + b'"\xe9"x', "expected JSON with afu-image, found .*: UnicodeDecodeError"),
        (MAGIC + struct.pack("<I", 4095) + b"[" * 4096, "expected JSON with afu-image"),
        (MAGIC + struct.pack("<I", 16) + b'{"afu-image": 1}x', "expected a mapping as afu-image"),
        (gbs_file(**{"accelerator-clusters": []}), "expected one accelerator"),
        (gbs_file(**{"clock-frequency-high": 300}), "clock-frequency-high wants a clock .* fpgaconf"),
        (
            gbs_file(**{"interface-uuid": "not-one"}),
            "expected 32 hexadecimal digits as interface-uuid, found 'not-one'",
        ),
    ],
)
def test_what_is_none_is_refused(content, why):
    with pytest.raises(DriverError, match=why):
        gbs.parse(content)
