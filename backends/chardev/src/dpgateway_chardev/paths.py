"""Checks of paths in the configuration."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from dpgateway import Device
from dpgateway.sysfs import HOST_DEV, is_glob

_FIELD = re.compile(r"\{(id|name|devnode)\}")


def not_absolute(what: str, path: object) -> Iterator[str]:
    if not isinstance(path, str):
        yield f"{what}: expected a path, found {path!r}"
    elif not path.startswith("/") or "\0" in path:
        yield f"{what}: expected an absolute path, found {path!r}"
    elif path != "/" and any(part in {"", ".", ".."} for part in path[1:].split("/")):
        yield f"{what}: expected a path without '.', '..', '//' and a slash at its end, found {path!r}"


def not_under_dev(what: str, paths: Sequence[str]) -> Iterator[str]:
    if isinstance(paths, str):
        yield f"{what}: expected a list of paths, found {paths!r}"
        return
    for number, path in enumerate(paths):
        key = f"{what}[{number}]"
        if wrong := list(not_absolute(key, path)):
            yield from wrong
        elif not path.startswith(f"{HOST_DEV}/"):
            yield f"{key}: expected a path or glob under {HOST_DEV}, such as /dev/ttyUSB*, found {path!r}"
        elif path in paths[:number]:
            yield f"{key}: {path!r} is listed twice"
        elif what == "paths" and not is_glob(path):
            yield from no_id(key, relative(path))


def no_id(what: str, id_: str) -> Iterator[str]:
    """The error in a device id, if it is invalid."""
    try:
        Device(id_)
    except ValueError as error:
        yield f"{what}: {error}"


def about(text: str, path: str) -> str:
    """A text with ``{id}``, ``{name}`` and ``{devnode}`` of the device at a path under /dev."""
    texts = {"id": path, "name": path.rpartition("/")[2], "devnode": f"{HOST_DEV}/{path}"}
    return _FIELD.sub(lambda found: texts[found[1]], text)


def relative(path: str) -> str:
    """The id of the device at a path under /dev: the path relative to /dev."""
    return path.removeprefix(f"{HOST_DEV}/")
