"""GBS files for tests."""

import json
import struct

INTERFACE, AES, FFT = "69528db6eb31577a8c3668f9faa081f6", "a" * 32, "0123456789abcdef" * 2


def gbs_file(accelerator=AES, interface=INTERFACE, **afu):
    """A file as OPAE's packager writes it, with dashes in its ids."""
    metadata = {
        "version": 1,
        "afu-image": {
            "interface-uuid": _dashes(interface).upper(),
            "accelerator-clusters": [{"name": "one", "accelerator-type-uuid": _dashes(accelerator)}],
            **afu,
        },
    }
    text = json.dumps(metadata).encode()
    return b"XeonFPGA\xb7GBSv001" + struct.pack("<I", len(text)) + text + accelerator.encode() + b" raw image"


def _dashes(id_):
    return "-".join((id_[:8], id_[8:12], id_[12:16], id_[16:20], id_[20:]))
