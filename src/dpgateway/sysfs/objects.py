"""One look at sysfs: its objects, and the values of their attributes.

An *object* is a directory below ``/sys/devices``: a PCI function, a USB device, a tty. Its *attributes* are the files
in it; a link counts as the last part of its target, as with ``driver`` (udev(7), ATTR{}). A path may go through links,
and have globs: the first existing path in the order of names is meant.

Theory. A look is a lazy snapshot: each value is read on first use, and once, unless it was forgotten. Every question
notes in the look's trace the places that its answer depends on (changes.py), cached or not.

- An attribute of an object costs one open(2). Its note is the pair of path and attribute, so that ``known`` can tell
  attributes read for the question at hand from those read for others.
- An answer that involves links, globs, udev's database or files in /proc depends on several places. ``Trace.once``
  caches such an answer together with all of its notes.
- ``forget`` frees the attributes of objects whose devices are made, because they take more memory than the devices.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile

from dpgateway.sysfs.changes import Interest, Trace, above
from dpgateway.sysfs.patterns import is_glob, value_matches
from dpgateway.sysfs.tree import OutsideError, Tree
from dpgateway.sysfs.values import NoValue, Roots, Value

_PLACES = (("bus", "/devices"), ("class", ""))
"""The directories of a subsystem's objects: ``/sys/bus/<name>/devices`` and ``/sys/class/<name>``."""

_WITHOUT_NODES = frozenset({"auxiliary", "mdev", "pci", "platform"})
"""Buses whose objects have no device nodes; objects inside them may have some."""


@dataclass(frozen=True, slots=True, order=True)
class Object:
    """An object, by its real path relative to /sys: ``devices/pci0000:00/0000:00:14.0``."""

    path: str

    @property
    def kernel(self) -> str:
        """Its name. The kernel writes ``!`` for a slash (udev(7), KERNEL)."""
        return self.path.rpartition("/")[2].replace("!", "/")

    @property
    def number(self) -> str:
        """The digits at the end of its name; empty without any."""
        return self.kernel[len(self.kernel.rstrip("0123456789")) :]

    @property
    def line(self) -> Sequence[Object]:
        """The object itself, and its ancestors up to the root of its bus."""
        return (self, *_ancestors(self.path)) if "/" in self.path else ()


@lru_cache(maxsize=256)
def _ancestors(path: str) -> Sequence[Object]:
    """Cached, because objects in one directory have the same ancestors."""
    return tuple([Object(one) for one in above(path) if "/" in one])


class Look:
    """One snapshot. Make another one to look again."""

    def __init__(self, roots: Roots) -> None:
        self.roots = roots
        self.trace = trace = Trace()
        """The places that answers depend on."""
        self._tree, self._proc = Tree(roots.sysfs, "/sys", trace), Tree(roots.proc, "/proc", trace)
        self._udev = Tree(roots.udev, "/run/udev", trace)
        self.strays: dict[str, str] = {}
        """Links without an object, keyed by path, each with the reason."""
        self._parsed: dict[tuple[str, str], dict[str, str]] = {}
        """Parsed ``KEY=value`` lines, keyed by the object's path and the lines' prefix."""
        self._values: dict[str, dict[str, Value]] = {}
        """Attribute values, keyed by the object's path and by the attribute."""
        self._same: dict[Value, Value] = {}
        """Interned values: a thousand functions of one vendor store its name once."""

    # objects

    def objects(self, subsystem: str, known: dict[str, dict[str, Object]] | None = None) -> Iterator[Object]:
        """The objects of a bus or class, or of all whose names a udev glob matches, each once. Raises OSError.

        ``known``: those of an earlier look, by directory and name, updated in place. Links aren't followed again.
        """
        known = {} if known is None else known
        found: dict[str, Object] = {}
        for kind, below in _PLACES:
            names: Iterable[str] = subsystem.split("|")
            if is_glob(subsystem):
                names = [one for one in self._tree.list(kind) if value_matches(one, subsystem)]
            for name in names:
                directory = f"{kind}/{name}{below}"
                before, known[directory] = known.get(directory, {}), {}
                for link in self._tree.list(directory):
                    if (thing := before.get(link) or self._linked(directory, link)) is not None:
                        known[directory][link] = found[thing.path] = thing
        if not found:
            self._tree.at("").stat()  # raises OSError: a tree that isn't there isn't one without such objects
        yield from found.values()

    def _linked(self, directory: str, name: str) -> Object | None:
        """The object that a link leads to."""
        try:
            path = self._tree.follow(name, directory)
        except OutsideError:
            self.strays[f"{directory}/{name}"] = "its link leads outside /sys"
            return None
        except OSError as error:  # the object may be going away at this moment
            self.strays[f"{directory}/{name}"] = f"its link leads nowhere: {error.strerror}"
            return None
        return Object(path) if self._tree.is_directory(path) else None

    def object(self, path: str) -> Object | None:
        """The object at a path relative to /sys, also through links (``dev/char/188:0``); None if there is none."""
        real = self._tree.reach(path)
        return Object(real) if isinstance(real, str) and self.exists(Object(real)) else None

    def exists(self, thing: Object) -> bool:
        self._tree.note(thing.path)
        return self._tree.is_directory(thing.path)

    # attributes

    def value(self, thing: Object, path: str) -> Value:
        """The text of an attribute, without trailing white space. ``path`` may have links and globs, see above."""
        self.trace.asked.add((thing.path, path))
        values = self._values.setdefault(thing.path, {})
        if "/" in path or is_glob(path):
            values[path] = self.trace.once((thing.path, path), lambda: self._reached(thing, path))
        elif path not in values:
            value = self._tree.read(f"{thing.path}/{path}")
            values[path] = self._same.setdefault(value, value)
        return values[path]

    def _reached(self, thing: Object, path: str) -> Value:
        if is_glob(path):
            found = self.entries(thing, path)
            if not found:
                return NoValue.missing()
            path = found[0]
        way, _, name = path.rpartition("/")
        directory = self._tree.reach(way, thing.path) if way else thing.path
        return directory if isinstance(directory, NoValue) else self._tree.read(f"{directory}/{name}")

    def forget(self, paths: Iterable[str]) -> None:
        """Frees the attributes of these objects. The next question reads them again."""
        for path in paths:
            self._values.pop(path, None)

    def known(self, thing: Object, path: str) -> str | None:
        """The text of an attribute that was read for the question at hand; None otherwise."""
        asked = (thing.path, path) in self.trace.asked
        value = self._values.get(thing.path, {}).get(path) if asked else None
        return value if isinstance(value, str) else None

    def subsystem(self, thing: Object) -> Value:
        return self.value(thing, "subsystem")

    def entries(self, thing: Object, path: str) -> Sequence[str]:
        """The existing paths that match a pattern, in order of name, following links. An absolute pattern, below /proc
        or /sys, gives paths of the host; others are below the object, and give paths relative to it.
        """

        def found() -> tuple[str, ...]:
            if not path.startswith("/"):
                return tuple(self._tree.matching(path, thing.path))
            if (tree := self._tree_of(path)) is None:
                return ()
            return tuple(f"{tree.host}/{one}" for one in tree.matching(path.removeprefix(f"{tree.host}/")))

        return self.trace.once(("entries", "" if path.startswith("/") else thing.path, path), found)

    # the kernel's uevents, and udev

    def env(self, thing: Object, key: str) -> Value:
        """ENV{key} of udev's rules: a key of the kernel's ``uevent`` (DEVNAME, DEVTYPE, PCI_ID), else one of udev's
        database (ID_SERIAL), if udev runs on the host.
        """
        said = self._pairs(thing, self.value(thing, "uevent"), "")
        if key in said:
            return said[key]
        return self._pairs(thing, self._database(thing), "E:").get(key, NoValue.missing())

    def said(self, thing: Object, key: str) -> str | None:
        """A key of the object's ``uevent``."""
        return self._pairs(thing, self.value(thing, "uevent"), "").get(key)

    def number(self, thing: Object) -> str | None:
        """``major:minor`` of an object's node; None without a readable one."""
        number = self.value(thing, "dev")
        if isinstance(number, str):
            return number if re.fullmatch(r"[0-9]+:[0-9]+", number) else None
        if self.subsystem(thing) in _WITHOUT_NODES and "uevent" not in self._values[thing.path]:
            return None  # saves reading the uevent of a thousand functions
        major, minor = self.said(thing, "MAJOR"), self.said(thing, "MINOR")
        return None if major is None or minor is None else f"{major}:{minor}"

    def symlinks(self, thing: Object) -> Sequence[str]:
        """udev's links to an object's node, in the order of names: /dev/serial/by-id/usb-FTDI-if00."""
        text = self._database(thing)
        lines = text.splitlines() if isinstance(text, str) else []
        return sorted(f"/dev/{line.removeprefix('S:')}" for line in lines if line.startswith("S:"))

    def _database(self, thing: Object) -> Value:
        """The text of udev's file about an object (its name: systemd, sd-device.c, device_get_device_id)."""

        def found() -> Value:
            said = self._pairs(thing, self.value(thing, "uevent"), "")
            if "MAJOR" in said:
                kind = "b" if self.subsystem(thing) == "block" else "c"
                name = f"{kind}{said['MAJOR']}:{said.get('MINOR')}"
            elif "IFINDEX" in said:
                name = f"n{said['IFINDEX']}"
            else:
                name = f"+{self.subsystem(thing)}:{thing.path.rpartition('/')[2]}"
            if "/" in name:
                return NoValue.missing()
            self._udev.note(f"data/{name}")
            return self._udev.read(f"data/{name}")

        # udev writes its database after the kernel's uevent, so the directory is watched
        self.trace.directories.setdefault(f"{self._udev.root}/data", Interest()).globs.add("*")
        return self.trace.once(("udev", thing.path), found)

    def _pairs(self, thing: Object, text: Value, mark: str) -> dict[str, str]:
        """The pairs of the lines ``KEY=value`` that begin with ``mark``, parsed once."""
        if (thing.path, mark) not in self._parsed:
            lines = text.splitlines() if isinstance(text, str) else []
            pairs = (line.removeprefix(mark).partition("=") for line in lines if line.startswith(mark))
            self._parsed[thing.path, mark] = {key: value for key, equals, value in pairs if equals}
        return self._parsed[thing.path, mark]

    # text files

    def text(self, thing: Object, path: str) -> Value:
        """The text of an attribute, or of a file of the host below /proc or /sys."""
        if not path.startswith("/"):
            return self.value(thing, path)

        def found() -> Value:
            if (tree := self._tree_of(path)) is None:
                return NoValue(f"can't be read: {path} is neither below /sys nor /proc")
            if is_glob(path):
                paths = self.entries(thing, path)
                return self.text(thing, paths[0]) if paths else NoValue.missing()
            real = tree.reach(path.removeprefix(f"{tree.host}/"))
            return real if isinstance(real, NoValue) else tree.read(real)

        return self.trace.once(("file", path), found)

    def key(self, thing: Object, path: str, key: str) -> Value:
        """The rest of a text file's first line that begins with ``key`` and a colon, an equals sign or white space. The
        word ``*`` in the key matches any word. ``path``: as for ``text``.
        """
        text = self.text(thing, path)
        if isinstance(text, NoValue):
            return text
        line_of, fixed = _line_of(key)
        for line in text.splitlines():
            if fixed in line and (found := line_of.fullmatch(line)):
                return str(found[1]).strip()
        return NoValue(f"isn't there: {path} has no line with {key!r}", absent=True)

    def file(self, thing: Object, place: str) -> Value:
        """The whole text of a file (``PATH``), or the rest of its line after a key (``PATH#KEY``). With a condition,
        ``PATH#KEY=VALUE#KEY``, the file is the first of a pattern's that has this value.
        """
        path, *conditions = place.split("#")
        key = conditions.pop() if conditions else ""
        if conditions:
            for one in self.entries(thing, path):
                if all(self.key(thing, one, it.partition("=")[0]) == it.partition("=")[2] for it in conditions):
                    return self.key(thing, one, key)
            return NoValue(f"isn't there: no {path} says {' and '.join(conditions)}", absent=True)
        return self.key(thing, path, key) if key else self.text(thing, path)

    def _tree_of(self, path: str) -> Tree | None:
        return next((tree for tree in (self._tree, self._proc) if path.startswith(f"{tree.host}/")), None)


def wrong_path(path: str) -> str | None:
    """Why this can't be an attribute's path; None if it can."""
    if not path or path.startswith("/") or any(part in {"", ".", ".."} for part in path.split("/")):
        return f"expected paths of attributes, such as idVendor or physfn/driver, found {path!r}"
    return None


@lru_cache(maxsize=256)
def _line_of(key: str) -> tuple[re.Pattern[str], str]:
    """The pattern of a line with the key, and a text in every such line, because a search for fixed text is fast."""
    words = re.split(r"(\s+)", key)
    # a possessive \S++ never backtracks, so the time is linear in the line's length
    pattern = "".join(r"\S++" if word == "*" else re.escape(word) for word in words)
    fixed = "".join(takewhile(lambda word: word != "*", words))
    return re.compile(rf"\s*{pattern}\s*[:=\s]\s*(.*)"), fixed
