"""One look at sysfs: its objects, and what their files say.

An *object* is a directory below ``/sys/devices``: a PCI function, a USB device, a tty. Its *attributes* are files in
it; a link counts as the last part of what it leads to, as with ``driver`` (udev(7), ATTR{}). A path may go through
links, and have globs: the first path in the order of names that exists is meant.

Nothing is read before it is asked for, and nothing twice in one look, unless it was forgotten in between.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile

from dpgateway.sysfs.changes import Interest, Trace
from dpgateway.sysfs.patterns import is_glob, name_matches, value_matches
from dpgateway.sysfs.tree import OutsideError, Tree
from dpgateway.sysfs.values import NoValue, Roots, Value

_PLACES = (("bus", "/devices"), ("class", ""))
"""Where the objects of a subsystem are: ``/sys/bus/<name>/devices``, ``/sys/class/<name>``."""


_WITHOUT_NODES = frozenset({"auxiliary", "mdev", "pci", "platform"})
"""Buses whose objects have no nodes; what is in them may have some."""


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
        """The digits at the end of its name; empty, if there are none."""
        return self.kernel[len(self.kernel.rstrip("0123456789")) :]

    @property
    def line(self) -> Sequence[Object]:
        """The object itself, and what it is in, up to the root of its bus."""
        return (self, *_above(self.path)) if "/" in self.path else ()


@lru_cache(maxsize=256)
def _above(path: str) -> Sequence[Object]:
    """Cached, because what is in one object has the same ancestors."""
    above = []
    while "/" in (path := path.rpartition("/")[0]):
        above.append(Object(path))
    return tuple(above)


class Look:
    """What is so now. Make another one to look again."""

    def __init__(self, roots: Roots) -> None:
        self.roots = roots
        self.trace = trace = Trace()
        """Where it is noted on what answers depend."""
        self._tree, self._proc = Tree(roots.sysfs, "/sys", trace), Tree(roots.proc, "/proc", trace)
        self._udev = Tree(roots.udev, "/run/udev", trace)
        self.strays: dict[str, str] = {}
        """By path, why what is listed among the objects is none: its link leads outside /sys, or nowhere."""
        self._parsed: dict[tuple[str, str], dict[str, str]] = {}
        self._values: dict[str, dict[str, Value]] = {}
        """Attributes, by the paths of objects."""
        self._same: dict[Value, Value] = {}
        """Values by themselves: a thousand functions of one vendor keep its name once."""
        self._names: dict[tuple[str, str], Sequence[str]] = {}

    def objects(self, subsystem: str, known: dict[str, dict[str, Object]] | None = None) -> Iterator[Object]:
        """The objects of a bus or class, or of all whose names a udev glob matches, each once. Raises OSError.

        ``known``: those of an earlier look, by directory and name, which are not looked at again; it is brought up to
        date.
        """
        known = {} if known is None else known
        found: dict[str, Object] = {}
        for kind, below in _PLACES:
            names = (
                (one for one in self._listed(kind) if value_matches(one, subsystem))
                if is_glob(subsystem)
                else (subsystem.split("|"))
            )
            for name in names:
                directory = f"{kind}/{name}{below}"
                known[directory] = now = self._objects_in(directory, known.get(directory, {}))
                found.update({thing.path: thing for thing in now.values()})
        yield from found.values()

    def _objects_in(self, directory: str, known: Mapping[str, Object]) -> dict[str, Object]:
        listed = self._listed(directory)
        new = dict(self._linked(directory, [name for name in listed if name not in known]))
        both = {**known, **new} if new else known
        return {name: both[name] for name in listed if name in both}

    def _linked(self, directory: str, names: Iterable[str]) -> Iterator[tuple[str, Object]]:
        """The objects that these links in a directory lead to."""
        for name in names:
            try:
                path = self._tree.follow(name, directory)
            except OutsideError:
                self.strays[f"{directory}/{name}"] = "its link leads outside /sys"
                continue
            except OSError as error:  # also if the object is just going
                self.strays[f"{directory}/{name}"] = f"its link leads nowhere: {error.strerror}"
                continue
            if self._tree.is_directory(path):
                yield name, Object(path)

    def object(self, path: str) -> Object | None:
        """The object at a path relative to /sys, also through links: ``dev/char/188:0``. None, if there is none."""
        real = _real(self._tree, path, "")
        return Object(real) if isinstance(real, str) and self.exists(Object(real)) else None

    def exists(self, thing: Object) -> bool:
        self._tree.note(thing.path)
        return self._tree.is_directory(thing.path)

    def value(self, thing: Object, path: str) -> Value:
        """What an attribute says, without white space at its end. ``path``: see above."""
        self.trace.asked.add((thing.path, path))
        values = self._values.setdefault(thing.path, {})
        if "/" in path or is_glob(path):
            values[path] = self.trace.once((thing.path, path), lambda: self._reached(thing, path))
        elif path not in values:
            value = self._tree.read(f"{thing.path}/{path}")
            values[path] = self._same.setdefault(value, value)
        return values[path]

    def forget(self, paths: Iterable[str]) -> None:
        """What was read of these objects takes no more memory. Who asks again reads it again."""
        for path in paths:
            self._values.pop(path, None)

    def known(self, thing: Object, path: str) -> str | None:
        """What an attribute says, if it has been read for what is being asked, and could be."""
        asked = (thing.path, path) in self.trace.asked
        value = self._values.get(thing.path, {}).get(path) if asked else None
        return value if isinstance(value, str) else None

    def subsystem(self, thing: Object) -> Value:
        return self.value(thing, "subsystem")

    def entries(self, thing: Object, path: str) -> Sequence[str]:
        """The paths that exist, in the order of names. Links are followed. A path of the host, below /proc or /sys, is
        found as such; others are below the object, and relative to it.
        """
        key = ("entries", "" if path.startswith("/") else thing.path, path)
        return self.trace.once(key, lambda: tuple(self._matching(thing, path)))

    def _matching(self, thing: Object, path: str) -> Iterator[str]:
        if not path.startswith("/"):
            return self._walk(self._tree, thing.path, "", path.split("/"))
        tree = self._tree_of(path)
        inner = self._walk(tree, "", "", path.removeprefix(f"{tree.host}/").split("/")) if tree else ()
        return (f"/{path.split('/')[1]}/{one}" for one in inner)

    def env(self, thing: Object, key: str) -> Value:
        """What udev's rules know as ENV{key}: what the kernel says in its uevents (DEVNAME, DEVTYPE, PCI_ID), else what
        udev has found out (ID_SERIAL), if it runs on the host.
        """
        said = self._pairs(thing, self.value(thing, "uevent"), "")
        if key in said:
            return said[key]
        return self._pairs(thing, self._database(thing), "E:").get(key, NoValue.missing())

    def said(self, thing: Object, key: str) -> str | None:
        """What the kernel alone says in its uevents."""
        return self._pairs(thing, self.value(thing, "uevent"), "").get(key)

    def number(self, thing: Object) -> str | None:
        """``major:minor`` of an object's node; None if it has no node, or if that can't be read."""
        number = self.value(thing, "dev")
        if isinstance(number, str):
            return number if re.fullmatch(r"[0-9]+:[0-9]+", number) else None
        if self.subsystem(thing) in _WITHOUT_NODES and "uevent" not in self._values[thing.path]:
            return None  # a thousand functions needn't be read for it
        major, minor = self.said(thing, "MAJOR"), self.said(thing, "MINOR")
        return None if major is None or minor is None else f"{major}:{minor}"

    def symlinks(self, thing: Object) -> Sequence[str]:
        """udev's links to an object's node, in the order of names: /dev/serial/by-id/usb-FTDI-if00."""
        text = self._database(thing)
        lines = text.splitlines() if isinstance(text, str) else []
        return sorted(f"/dev/{line.removeprefix('S:')}" for line in lines if line.startswith("S:"))

    def _database(self, thing: Object) -> Value:
        """What udev has noted of an object."""
        # udev says nothing to the kernel when it is done with a device
        self.trace.directories.setdefault(f"{self._udev.root}/data", Interest()).globs.add("*")
        return self.trace.once(("udev", thing.path), lambda: self._noted(thing))

    def _noted(self, thing: Object) -> Value:
        name = self._in_database(thing, self._pairs(thing, self.value(thing, "uevent"), ""))
        if "/" in name:
            return NoValue.missing()
        self._udev.note(f"data/{name}")
        return self._udev.read(f"data/{name}")

    def _pairs(self, thing: Object, text: Value, mark: str) -> dict[str, str]:
        """The lines ``KEY=value`` that begin with ``mark``. Parsed once."""
        if (thing.path, mark) not in self._parsed:
            lines = text.splitlines() if isinstance(text, str) else []
            pairs = (line.removeprefix(mark).partition("=") for line in lines if line.startswith(mark))
            self._parsed[thing.path, mark] = {key: value for key, equals, value in pairs if equals}
        return self._parsed[thing.path, mark]

    def _in_database(self, thing: Object, said: dict[str, str]) -> str:
        """The name of udev's file about an object (systemd, sd-device.c, device_get_device_id)."""
        if "MAJOR" in said:
            kind = "b" if self.subsystem(thing) == "block" else "c"
            return f"{kind}{said['MAJOR']}:{said.get('MINOR')}"
        if "IFINDEX" in said:
            return f"n{said['IFINDEX']}"
        return f"+{self.subsystem(thing)}:{thing.path.rpartition('/')[2]}"

    def key(self, thing: Object, path: str, key: str) -> Value:
        """What a line of a text file says after ``key`` and a colon, an equals sign or white space. ``*`` as a word of
        the key is any word.

        ``path``: an attribute, or a path of the host below /proc or /sys.
        """
        value = self.text(thing, path)
        if isinstance(value, NoValue):
            return value
        found = _after(value, key)
        return NoValue(f"isn't there: {path} has no line with {key!r}", absent=True) if found is None else found

    def file(self, thing: Object, place: str) -> Value:
        """What is at ``PATH``, or ``PATH#KEY``: all of a file, or what it says after a key. Of the files that a pattern
        finds, ``PATH#KEY=VALUE#KEY`` means the first one that says so.
        """
        path, *conditions = place.split("#")
        key = conditions.pop() if conditions else ""
        if conditions:
            for one in self.entries(thing, path):
                if all(self.key(thing, one, it.partition("=")[0]) == it.partition("=")[2] for it in conditions):
                    return self.key(thing, one, key)
            return NoValue(f"isn't there: no {path} says {' and '.join(conditions)}", absent=True)
        return self.key(thing, path, key) if key else self.text(thing, path)

    def text(self, thing: Object, path: str) -> Value:
        """What an attribute says, or a file of the host below /proc or /sys."""
        if not path.startswith("/"):
            return self.value(thing, path)
        return self.trace.once(("file", path), lambda: self._host_file(thing, path))

    def _host_file(self, thing: Object, path: str) -> Value:
        if (tree := self._tree_of(path)) is None:
            return NoValue(f"can't be read: {path} is neither below /sys nor /proc")
        if not is_glob(path):
            return _followed(tree, path.removeprefix(f"{tree.host}/"))
        found = self.entries(thing, path)
        return self.text(thing, found[0]) if found else NoValue.missing()

    def _tree_of(self, path: str) -> Tree | None:
        return next((tree for tree in (self._tree, self._proc) if path.startswith(f"{tree.host}/")), None)

    def _reached(self, thing: Object, path: str) -> Value:
        if is_glob(path):
            path, *_ = *self.entries(thing, path), ""
            if not path:
                return NoValue.missing()
        above, _, name = path.rpartition("/")
        directory = _real(self._tree, above, thing.path) if above else thing.path
        if isinstance(directory, NoValue):
            return directory
        return self._tree.read(f"{directory}/{name}")

    def _walk(self, tree: Tree, real: str, path: str, parts: Sequence[str]) -> Iterator[str]:
        """The paths in the real directory that match the rest of a pattern; ``path`` is the way there."""
        here, rest = parts[0], parts[1:]
        names = self._matched(tree, real, here) if is_glob(here) else [here]
        for name in names:
            inner = f"{path}/{name}" if path else name
            try:
                followed = tree.follow(name, real)
            except (OutsideError, OSError):
                continue
            if rest:
                yield from self._walk(tree, followed, inner, rest)
            else:
                yield inner

    def _matched(self, tree: Tree, real: str, glob: str) -> Sequence[str]:
        tree.note(real)
        return [name for name in self._listed(real, tree) if name_matches(name, glob)]

    def _listed(self, real: str, tree: Tree | None = None) -> Sequence[str]:
        tree = tree or self._tree
        if (tree.host, real) not in self._names:
            self._names[tree.host, real] = tree.list(real)
        return self._names[tree.host, real]


def wrong_path(path: str) -> str | None:
    """Why an attribute's path can't be meant, if it can't."""
    if not path or path.startswith("/") or any(part in {"", ".", ".."} for part in path.split("/")):
        return f"expected paths of attributes, such as idVendor or physfn/driver, found {path!r}"
    return None


def _after(text: str, key: str) -> str | None:
    line_of, fixed = _line_of(key)
    for line in text.splitlines():
        if fixed in line and (found := line_of.fullmatch(line)):
            return found[1].strip()
    return None


@lru_cache(maxsize=256)
def _line_of(key: str) -> tuple[re.Pattern[str], str]:
    """What a line with the key looks like, and a text that every such line has, because looking for that is fast."""
    words = re.split(r"(\s+)", key)
    # a run of \S++ gives nothing back, so the time grows with the line alone
    pattern = "".join(r"\S++" if word == "*" else re.escape(word) for word in words)
    fixed = "".join(takewhile(lambda word: word != "*", words))
    return re.compile(rf"\s*{pattern}\s*[:=\s]\s*(.*)"), fixed


def _real(tree: Tree, path: str, start: str) -> str | NoValue:
    try:
        return tree.follow(path, start)
    except (FileNotFoundError, NotADirectoryError):
        return NoValue.missing()
    except OutsideError as error:
        return NoValue(str(error))
    except OSError as error:
        return NoValue(f"can't be reached: {error.strerror}")


def _followed(tree: Tree, path: str) -> Value:
    real = _real(tree, path, "")
    return real if isinstance(real, NoValue) else tree.read(real)
