"""Device-tree overlays: replaces the name of the image in a compiled one.

An overlay names its image in ``firmware-name`` (Documentation/devicetree/bindings/fpga/fpga-region.yaml). File format:
Devicetree Specification, chapter 5.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from dpgateway import DriverError

_HEADER = struct.Struct(">10I")
"""magic, totalsize, off_dt_struct, off_dt_strings, off_mem_rsvmap, version, last_comp_version, boot_cpuid_phys,
size_dt_strings, size_dt_struct."""
_WORD = struct.Struct(">I")
_PROPERTY = struct.Struct(">III")
_MAGIC = 0xD00DFEED
_BEGIN_NODE, _END_NODE, _PROP, _NOP, _END = 1, 2, 3, 4, 9
_NAME = b"firmware-name\0"


def naming(overlay: bytes, firmware: str) -> bytes:
    """The overlay with ``firmware`` as its image. Raises DriverError unless exactly one property names an image."""
    try:
        header = list(_HEADER.unpack_from(overlay))
        if header[0] != _MAGIC or header[1] > len(overlay):
            raise DriverError("expected a compiled overlay, which begins with d00dfeed and is as long as it says")
        tree = overlay[header[2] : header[2] + header[9]]
        strings = overlay[header[3] : header[3] + header[8]]
        found = [(at, size) for at, size, name in _properties(tree) if strings[name : name + len(_NAME)] == _NAME]
    except (struct.error, ValueError) as error:
        raise DriverError(f"the overlay is cut off or broken: {error}") from error
    if len(found) != 1:
        raise DriverError(f"expected one firmware-name in the overlay, found {len(found)}")
    ((at, size),) = found
    value = firmware.encode() + b"\0"
    changed = b"".join((
        tree[: at + 4], _WORD.pack(len(value)), tree[at + 8 : at + _PROPERTY.size], _padded(value),
        tree[at + _PROPERTY.size + _rounded(size) :],
    ))  # fmt: skip
    # The changed tree comes after everything else, so nothing else moves.
    whole = _padded(overlay[: header[1]])
    header[1], header[2], header[9] = len(whole) + len(changed), len(whole), len(changed)
    return _HEADER.pack(*header) + whole[_HEADER.size :] + changed


def _properties(tree: bytes) -> Iterator[tuple[int, int, int]]:
    """The offset of each property, the size of its value, and the offset of its name among the strings."""
    at = 0
    # each token begins at a multiple of 4 bytes (Devicetree Specification, 5.4)
    while True:
        (token,) = _WORD.unpack_from(tree, at)
        if token == _END:
            return
        if token == _BEGIN_NODE:
            at += 4 + _rounded(tree.index(b"\0", at + 4) + 1 - (at + 4))
        elif token == _PROP:
            _, size, name = _PROPERTY.unpack_from(tree, at)
            yield at, size, name
            at += _PROPERTY.size + _rounded(size)
        elif token in {_END_NODE, _NOP}:
            at += 4
        else:
            raise ValueError(f"found the token {token}")


def _rounded(size: int) -> int:
    return -(-size // 4) * 4


def _padded(content: bytes) -> bytes:
    return content.ljust(_rounded(len(content)), b"\0")
