"""The header of a GBS file, the format of partial-reconfiguration images for cards of Intel and Altera.

Source: OPAE, libraries/libbitstream/bitstream.c: two magic numbers, the length of the metadata (little endian), JSON,
and the image. The kernel takes the image alone.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpgateway import DriverError

MAGIC = b"XeonFPGA\xb7GBSv001"
_LENGTH = struct.Struct("<I")
_LONGEST = 4095
"""Limit of bytes of metadata (intel-device-plugins, pkg/fpga/bitstream/gbs.go)."""


@dataclass(frozen=True, slots=True)
class Gbs:
    """The target and the image of a GBS file. Ids are 32 lower-case hexadecimal digits, as in sysfs."""

    interface: str
    accelerator: str
    image: memoryview


def parse(content: bytes) -> Gbs:
    """Parses a GBS file with one accelerator. Raises DriverError."""
    if not content.startswith(MAGIC):
        raise DriverError("expected a GBS file, which begins with XeonFPGA and GBSv001")
    start = len(MAGIC) + _LENGTH.size
    if len(content) < start:
        raise DriverError("expected the length of the GBS file's metadata after its magic numbers, found the end")
    (length,) = _LENGTH.unpack_from(content, len(MAGIC))
    if not 0 < length <= _LONGEST:
        raise DriverError(f"expected 1 to {_LONGEST} bytes of metadata in the GBS file, found {length} bytes")
    if len(content) <= start + length:
        raise DriverError(f"expected an image after {length} bytes of metadata in the GBS file, found the end")
    text = content[start : start + length]
    try:
        afu = json.loads(text.rstrip(b"\0"))["afu-image"]  # OPAE reads it as a C string, which may end with a NUL
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        found = f"{text[:80]!r}: {error!r}"
        raise DriverError(f"the GBS file's metadata: expected JSON with afu-image, found {found}") from error
    if not isinstance(afu, dict):
        raise DriverError("the GBS file's metadata: expected a mapping as afu-image")
    clusters = afu.get("accelerator-clusters")
    if not isinstance(clusters, list) or len(clusters) != 1 or not isinstance(clusters[0], dict):
        raise DriverError("the GBS file's metadata: expected one accelerator in accelerator-clusters")
    if clocks := [key for key in ("clock-frequency-high", "clock-frequency-low") if afu.get(key)]:
        raise DriverError(
            f"the GBS file's metadata: {', '.join(clocks)} wants a clock that this programmer can't set; use the "
            "programmer command with the preset fpgaconf, which sets it"
        )
    image = memoryview(content)[start + length :]
    return Gbs(_id(afu, "interface-uuid"), _id(clusters[0], "accelerator-type-uuid"), image)


def _id(mapping: Mapping[str, Any], key: str) -> str:
    value = str(mapping.get(key, "")).replace("-", "").lower()
    if len(value) != 32 or set(value) - set("0123456789abcdef"):
        raise DriverError(
            f"the GBS file's metadata: expected 32 hexadecimal digits as {key}, found {mapping.get(key)!r}"
        )
    return value
