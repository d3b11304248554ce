"""Overlays for the device tree in configfs, as linux-xlnx has them, and files with such overlays."""

import errno
import struct

from tests.support.fuse import Directory, File, Text


class Overlays(Directory):
    """The directory of overlays; one that is applied has the manager load its image."""

    def __init__(self, manager, firmware):
        super().__init__()
        self.manager, self.firmware, self.removed = manager, firmware, []
        self.sticky, self.stuck = False, False
        """Whether an overlay is applied though its load failed, and whether none can be removed."""

    def mkdir(self, name):
        if name in self:
            raise OSError(errno.EEXIST, "")
        path = _Path(self)
        self[name] = Directory({"path": path, "status": Text(lambda: f"{path.status}\n")})

    def rmdir(self, name):
        if self.stuck:
            raise OSError(errno.EBUSY, "")
        del self[name]
        self.removed.append(name)


class _Path(File):
    def __init__(self, overlays):
        self._overlays, self._name, self.status = overlays, "", "unapplied"

    def read(self):
        return f"{self._name}\n"

    def write(self, text):
        applied = [one for one in self._overlays.values() if one["path"].status == "applied"]
        if applied:
            raise OSError(errno.EINVAL, "")  # drivers/fpga/of-fpga-region.c: Region already has overlay applied
        content = (self._overlays.firmware / text.strip()).read_bytes()
        try:
            self._overlays.manager.load(firmware_name(content))
        except OSError:
            if self._overlays.sticky:
                self._name, self.status = text.strip(), "applied"
            raise
        self._name, self.status = text.strip(), "applied"


def overlay(*properties):
    """A compiled overlay whose node has these properties: names and values, in this order."""
    strings, tree = b"", struct.pack(">I", 1) + b"\0\0\0\0" + struct.pack(">I", 1) + b"fragment@0\0\0"
    for name, value in properties:
        tree += struct.pack(">III", 3, len(value), len(strings)) + value + b"\0" * (-len(value) % 4)
        strings += name.encode() + b"\0"
    tree += struct.pack(">IIIII", 4, 2, 2, 4, 9)
    sizes = (0xD00DFEED, 56 + len(tree) + len(strings), 56, 56 + len(tree), 40, 17, 16, 0, len(strings), len(tree))
    return struct.pack(">10I", *sizes) + b"\0" * 16 + tree + strings


def firmware_name(content):
    """As the kernel finds it: the first such property from the beginning of the tree."""
    return properties(content)["firmware-name"].rstrip(b"\0").decode()


def properties(content):
    """All properties of the tree that the header tells of, by their names."""
    _, total, at, strings, _, _, _, _, _, size = struct.unpack_from(">10I", content)
    assert total == len(content) == at + size or total == len(content)
    found, end = {}, at + size
    while at < end:
        (token,) = struct.unpack_from(">I", content, at)
        at += 4
        if token == 1:
            at += (content.index(b"\0", at) - at) // 4 * 4 + 4
        elif token == 3:
            length, name = struct.unpack_from(">II", content, at)
            start = strings + name
            found[content[start : content.index(b"\0", start)].decode()] = content[at + 8 : at + 8 + length]
            at += 8 + (length + 3) // 4 * 4
        elif token == 9:
            assert at == end
    return found
