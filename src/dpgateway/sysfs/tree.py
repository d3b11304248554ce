"""A tree of the host's files as this process sees it. Path resolution never leaves the tree.

Links are followed here and not by the kernel, because the host's ``/dev`` or ``/sys`` may be mounted elsewhere: a link
to ``/dev/x`` then means ``<root>/x``.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from dpgateway.sysfs.changes import UNTOLD, Trace
from dpgateway.sysfs.patterns import is_glob, name_matches
from dpgateway.sysfs.values import NoValue

MAX_LINKS = 40  # as the kernel: include/linux/namei.h, MAXSYMLINKS
_PAGE = 4096
LONGEST = 65536
"""Limit of a file's bytes. An attribute of sysfs has at most a page (Documentation/filesystems/sysfs.rst)."""
LONGEST_IN_PROC = 4 * 1024 * 1024
"""Limit of a /proc file's bytes: /proc/net/route has a line of 128 bytes for each route."""


class OutsideError(Exception):
    """A path leads out of the tree."""


class Tree:
    """All paths are relative to the root; a *real* path contains no links. A tree is for one look, and caches."""

    def __init__(self, root: str, host: str, trace: Trace | None = None) -> None:
        """``root``: where this process sees the host's directory ``host``, for example ``/host/dev`` for ``/dev``.
        ``trace`` collects the places that answers depend on.
        """
        self.root = str(Path(root))  # without a slash at its end, as events name places
        self.host = host
        self.trace = trace or Trace()
        self._above = "" if host == "/sys" else f"{self.root.rstrip('/')}/"
        self._longest = LONGEST_IN_PROC if host == "/proc" else LONGEST
        self._plain: set[str] = set()
        """Real paths known not to be links."""
        self._names: dict[str, Sequence[str]] = {}
        """Sorted listings, keyed by the directory's real path."""

    def at(self, real: str) -> Path:
        return Path(self.root, real)

    def note(self, real: str) -> None:
        """Notes a place (changes.py): an object's path, another file's absolute path, or for /proc ``UNTOLD``."""
        self.trace.note(UNTOLD if self.host == "/proc" else self._above + real)

    def follow(self, path: str, start: str = "") -> str:
        """The real path of ``path``, relative to the real directory ``start``. Raises OutsideError, OSError.

        Notes each link on the way, and the end: those are the places whose events can change the result.
        """
        here, todo, links = start, path.split("/")[::-1], 0  # todo is a stack: a link's target is pushed onto it
        while todo:
            name = todo.pop()
            if name in {"", "."}:
                continue
            if name == "..":
                if not here:
                    raise OutsideError(f"{self.host}/{path} leads outside {self.host}")
                here = here.rpartition("/")[0]
                continue
            inner = f"{here}/{name}" if here else name
            target = None if inner in self._plain else self._target(here, name, inner)
            if target is None:
                here = inner
                continue
            self.note(inner)
            links += 1
            if links > MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            if target.startswith("/"):
                if not target.startswith(f"{self.host}/"):
                    raise OutsideError(f"{self.host}/{inner} leads outside {self.host}, to {target!r}")
                here, target = "", target.removeprefix(f"{self.host}/")
            todo.extend(target.split("/")[::-1])
        self.note(here)
        return here

    def _target(self, directory: str, name: str, path: str) -> str | None:
        """The target of ``path``, which is ``name`` in ``directory``; None if it isn't a link. Raises OSError."""
        try:
            return os.readlink(f"{self.root}/{path}")  # noqa: PTH115  a Path costs more than the call
        except OSError as error:
            if error.errno == errno.EINVAL:  # readlink(2): not a symbolic link
                self._plain.add(path)
                return None
            self.note(path)
            raise

    def is_directory(self, real: str) -> bool:
        return os.path.isdir(f"{self.root}/{real}")  # noqa: PTH112  as above

    def reach(self, path: str, start: str = "") -> str | NoValue:
        """Like ``follow``, with the reason for a failure as the value."""
        try:
            return self.follow(path, start)
        except (FileNotFoundError, NotADirectoryError):
            return NoValue.missing()
        except OutsideError as error:
            return NoValue(str(error))
        except OSError as error:
            return NoValue(f"can't be reached: {error.strerror}")

    def list(self, real: str) -> Sequence[str]:
        """The sorted names in a real directory; empty if it doesn't exist. Raises OSError."""
        if real not in self._names:
            try:
                self._names[real] = sorted(os.listdir(f"{self.root}/{real}"))  # noqa: PTH208  as above
            except (FileNotFoundError, NotADirectoryError):
                self._names[real] = ()
        return self._names[real]

    def matching(self, pattern: str, start: str = "") -> Iterator[str]:
        """The existing paths that match a pattern, relative to the real directory ``start``. Raises OSError."""
        first, _, rest = pattern.partition("/")
        names: Sequence[str] = (first,)
        if is_glob(first):
            self.note(start)
            names = [name for name in self.list(start) if name_matches(name, first)]

        # a name that leads nowhere, or outside, just doesn't match
        for name in names:
            try:
                real = self.follow(name, start)
            except (OutsideError, OSError):
                continue
            if rest:
                yield from (f"{name}/{inner}" for inner in self.matching(rest, real))
            else:
                yield name

    def read(self, real: str) -> str | NoValue:
        """The text of a real regular file, without trailing white space, or why there is none. A link's text is the
        last component of its target.
        """
        if real.endswith(_LINKS) and not isinstance(end := self._link(real), NoValue):
            return end
        # NONBLOCK: a pipe in the file's place doesn't hang the look. NOFOLLOW: links are resolved here alone
        try:
            file = os.open(f"{self.root}/{real}", os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            return self._link(real) if error.errno == errno.ELOOP else _unopened(error)  # open(2), O_NOFOLLOW
        try:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode):
                return NoValue("is no regular file")
            return _text(file, status.st_size, self._longest)
        except OSError as error:
            return NoValue(f"can't be read: {error.strerror}")
        finally:
            os.close(file)

    def _link(self, real: str) -> str | NoValue:
        """The text of a link, whose target need not exist."""
        try:
            name = os.readlink(f"{self.root}/{real}").rstrip("/").rpartition("/")[2]  # noqa: PTH115  as above
            return self.follow(real).rpartition("/")[2] if name in {"", ".", ".."} else name
        except OSError as error:
            return _unopened(error)
        except OutsideError as error:
            return NoValue(str(error))


_LINKS = ("/driver", "/subsystem", "/iommu_group", "/physfn")
"""Names that are usually links, and are tried with readlink(2) first: open(2) takes longer, and fails."""


def _unopened(error: OSError) -> NoValue:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return NoValue.missing()
    return NoValue(f"can't be opened: {error.strerror}")


def _text(file: int, size: int, longest: int) -> str | NoValue:
    """The text of an open file. Only a file without a size, as in /proc, needs more than one read."""
    parts = [os.read(file, min(max(size, _PAGE), longest) + 1)]
    length = len(parts[0])
    while not size and length <= longest and (more := os.read(file, longest + 1 - length)):
        parts.append(more)
        length += len(more)
    if length > longest:
        return NoValue(f"is longer than {longest} bytes")
    try:
        text = b"".join(parts).decode().rstrip()
    except UnicodeDecodeError:
        return NoValue("isn't UTF-8 text")
    return NoValue("isn't text: it has a NUL character") if "\0" in text else text
