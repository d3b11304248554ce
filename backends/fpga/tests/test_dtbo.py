"""An overlay keeps all that it has, but the name of its image."""

import struct

import pytest
from dpgateway_fpga import dtbo

from backends.fpga.tests.kernel.overlays import overlay, properties
from dpgateway import DriverError

LONG = "dpgateway/" + "ab" * 32 + "-fpga-a.bin"


@pytest.mark.parametrize("old", [b"x\0", b"a-rather-long-name.bit.bin\0", b"\0"])
@pytest.mark.parametrize("new", ["a", "abc", LONG])
def test_only_the_name_of_the_image_changes(old, new):
    before = (("target-path", b"/fpga-region\0"), ("firmware-name", old), ("partial-fpga-config", b""))
    found = properties(dtbo.naming(overlay(*before), new))
    assert found == dict(before) | {"firmware-name": new.encode() + b"\0"}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "the overlay is cut off or broken"),
        (b"/dts-v1/; /plugin/;".ljust(80), "expected a compiled overlay, which begins with d00dfeed"),
        (overlay(("firmware-name", b"x\0"))[:-4], "expected a compiled overlay"),
        (overlay(("status", b"okay\0")), "expected one firmware-name in the overlay, found 0"),
        (overlay(("firmware-name", b"x\0"), ("firmware-name", b"y\0")), "expected one .*, found 2"),
        (overlay().replace(struct.pack(">I", 4), struct.pack(">I", 7)), "broken: found the token 7"),
    ],
)
def test_refuses_other_overlays(content, why):
    with pytest.raises(DriverError, match=why):
        dtbo.naming(content, "x")
