"""Fake files of the host: sysfs, device nodes, /proc."""

from __future__ import annotations

import os
import stat
from pathlib import Path

_KINDS = {"c": stat.S_IFCHR, "b": stat.S_IFBLK}


class FakeTree:
    """The directories ``sys``, ``dev``, ``proc`` and ``run/udev`` below ``path`` replace the host's. The driver needs
    options for their paths, such as ``dpgateway.sysfs.Roots``, which get ``roots``.

    umockdev (0.17.16) needs no such options, because it wraps libc. But its nodes are terminals whose numbers it fakes
    by path alone: fstat of an open node returns 136:0, so a careful driver refuses the node.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        for name in ("sys/devices", "dev", "proc", "run/udev"):
            (path / name).mkdir(parents=True, exist_ok=True)
        trees = {"sysfs": "/sys", "dev": "/dev", "proc": "/proc", "udev": "/run/udev"}
        self.roots = {name: str(self.at(tree)) for name, tree in trees.items()}
        """The paths of the trees, keyed by the fields of ``dpgateway.sysfs.Roots``."""

    def at(self, path: str) -> Path:
        """The fake of a path of the host, such as ``/dev/fuse``."""
        return self.path / path.lstrip("/")

    def write(self, text: str) -> None:
        r"""Makes a file, link, directory or node per line, and replaces an existing one.

        ``/sys/a/vendor = 0x8086``: a file; ``\n`` is a line break, and the last line ends with one, too.
        ``/sys/a/driver -> /sys/b``: a link, relative like the kernel's. ``/sys/a/``: a directory.
        ``c /dev/fuse 10:229``, ``b /dev/sda 8:0``: device nodes, which only root can make.
        """
        for line in filter(None, map(str.strip, text.splitlines())):
            kind, _, rest = line.partition(" ")
            if kind in _KINDS:
                path, _, number = rest.partition(" ")
                major, _, minor = number.partition(":")
                os.mknod(self._place(path), _KINDS[kind] | 0o600, os.makedev(int(major), int(minor)))
            elif " -> " in line.partition(" =")[0]:  # a file's text may have an arrow
                path, _, target = line.partition(" -> ")
                place = self._place(path)
                above, name = self.at(target).parent, target.rpartition("/")[2]
                place.symlink_to(f"{os.path.relpath(above, place.parent)}/{name}")
            elif line.endswith("/"):
                self.at(line).mkdir(parents=True, exist_ok=True)
            else:
                path, mark, value = line.partition(" =")
                if not mark:
                    forms = "'path = text', 'path -> target', 'path/' or 'c path 1:2'"
                    raise ValueError(f"expected {forms}, found {line!r}")
                self._place(path).write_text(value.removeprefix(" ").replace("\\n", "\n") + "\n")

    def remove(self, path: str) -> None:
        """Removes a file, link or node, or a directory recursively."""
        here = self.at(path)
        if here.is_dir() and not here.is_symlink():
            for inner in here.iterdir():
                self.remove(str(inner.relative_to(self.path)))
            here.rmdir()
        else:
            here.unlink()

    def _place(self, path: str) -> Path:
        """Makes the directory of a path and removes the path itself."""
        place = self.at(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        return place
