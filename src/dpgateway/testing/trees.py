"""The host's files as a driver's test wants them: objects of sysfs, device nodes, files of /proc."""

from __future__ import annotations

import os
import stat
from pathlib import Path

_KINDS = {"c": stat.S_IFCHR, "b": stat.S_IFBLK}


class FakeTree:
    """Below ``path``: its directories ``sys``, ``dev`` and ``proc`` stand for the host's. A driver needs options that
    say where it finds these; ``dpgateway.sysfs.Roots`` is such a value.

    umockdev (0.17.16) needs no such options, because it stands before libc. But its nodes are terminals, and it tells
    another number only by path: a driver that asks an open descriptor finds 136:0, and has to refuse the node.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        for name in ("sys/devices", "dev", "proc", "run/udev"):
            (path / name).mkdir(parents=True, exist_ok=True)

    def at(self, path: str) -> Path:
        """Where a path of the host is: ``/dev/fuse``."""
        return self.path / path.lstrip("/")

    def write(self, text: str) -> None:
        r"""Makes what each line says; what was there before under that name is replaced.

        ``/sys/a/vendor = 0x8086``: a file; ``\n`` stands for the end of a line, and the last line gets one.
        ``/sys/a/driver -> /sys/b``: a link, relative, as the kernel makes them. ``/sys/a/``: a directory.
        ``c /dev/fuse 10:229``, ``b /dev/sda 8:0``: device nodes, for which the test has to run as root.
        """
        for line in filter(None, map(str.strip, text.splitlines())):
            self._make(line)

    def remove(self, path: str) -> None:
        """Removes a file, a link, a node, or a directory with all in it."""
        here = self.at(path)
        if here.is_dir() and not here.is_symlink():
            for inner in here.iterdir():
                self.remove(str(inner.relative_to(self.path)))
            here.rmdir()
        else:
            here.unlink()

    def _make(self, line: str) -> None:
        kind, _, rest = line.partition(" ")
        if kind in _KINDS:
            path, _, number = rest.partition(" ")
            major, _, minor = number.partition(":")
            os.mknod(self._place(path), _KINDS[kind] | 0o600, os.makedev(int(major), int(minor)))
        elif " -> " in line:
            path, _, target = line.partition(" -> ")
            place = self._place(path)
            above, name = self.at(target).parent, target.rpartition("/")[2]
            place.symlink_to(f"{os.path.relpath(above, place.parent)}/{name}")
        elif line.endswith("/"):
            self.at(line).mkdir(parents=True, exist_ok=True)
        else:
            path, mark, value = line.partition(" =")
            if not mark:
                raise ValueError(f"expected 'path = text', 'path -> target', 'path/' or 'c path 1:2', found {line!r}")
            self._place(path).write_text(value.removeprefix(" ").replace("\\n", "\n") + "\n")

    def _place(self, path: str) -> Path:
        """Where a name can be made: its directory is there, and it isn't."""
        place = self.at(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        return place
