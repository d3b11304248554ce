"""Validates the fields of the model.

A wrong type raises ``TypeError``, a wrong value ``ValueError``; the text names the field, what was found and what was
expected.

Each function returns the value to keep, of the exact type: an object of a subclass, such as a ``StrEnum``, is
converted.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from functools import lru_cache
from posixpath import normpath
from types import MappingProxyType
from typing import Any, TypeGuard, TypeVar

T = TypeVar("T")

MOST = 10_000
"""The most items of one field; a generator may have no end."""
MOST_NODES = 1024
"""The most NUMA nodes of a machine (CONFIG_NODES_SHIFT is 10 at most, arch/*/Kconfig, Linux 6.12)."""

LONGEST_ID = 1024
"""Limit of bytes of a device id. No kubelet has one, but the reason why a pod is refused has to name the device, and an
event holds 1,024 (NoteLengthLimit, pkg/apis/core/validation/events.go)."""
_SHARE_SUFFIX = re.compile(r"::\d+\Z")
_MAPPINGS, _ITERABLES = (dict, Mapping), (tuple, list, Iterable)
"""The usual type comes first, because isinstance() of an abstract class is slow."""
_COPYING: Mapping[type, Any] = {str: str.__str__, int: int.__int__, float: float.__float__}


def text(what: str, value: object, *, empty: bool = False) -> str:
    """``value`` if it is a string that can be sent: protobuf strings are UTF-8, C strings end at a NUL."""
    if _sound(value):
        return value
    if not isinstance(value, str):
        raise TypeError(f"{what}: expected a string, found {value!r}")
    if not value and not empty:
        raise ValueError(f"{what}: expected a non-empty string")
    if "\0" in value:
        raise ValueError(f"{what}: {value!r} contains a NUL character")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{what}: {value!r} is not valid Unicode text") from error
    return plain(value, str)


def device_id(what: str, value: object) -> str:
    id_ = text(what, value)
    if "::" in id_ and _SHARE_SUFFIX.search(id_):
        raise ValueError(f"{what} {id_!r} ends in '::' and digits, which is how shares are named")
    if len(id_) > LONGEST_ID // 4 and (found := len(id_.encode())) > LONGEST_ID:  # a character has 4 bytes at most
        raise ValueError(f"{what} {id_[:32]!r}... has {found} bytes, at most {LONGEST_ID} are allowed")
    return id_


def _sound(value: object) -> TypeGuard[str]:
    """Whether ``value`` is valid and ASCII. A fast path, because lists may have 10,000 devices."""
    return type(value) is str and value != "" and value.isascii() and "\0" not in value


def plain(value: T, kind: type[T]) -> T:
    """``value``, or a copy of it if it is of a subclass of ``kind``."""
    if type(value) is kind:
        return value
    if kind in _COPYING:
        return _COPYING[kind](value)  # type: ignore[no-any-return]
    return kind(**{field.name: getattr(value, field.name) for field in fields(kind)})  # type: ignore[arg-type]


def path(what: str, value: object) -> str:
    path = text(what, value)
    if not path.startswith("/"):
        raise ValueError(f"{what}: expected an absolute path, found {path!r}")
    if ".." in path.split("/"):
        raise ValueError(f"{what}: {path!r} contains '..'")
    return path


def place(path: str) -> str:
    """One spelling for all paths to the same place: ``//dev/./a/`` is ``/dev/a``."""
    return "/" + normpath(path).lstrip("/")


def texts(what: str, value: object) -> Mapping[str, str]:
    if not isinstance(value, _MAPPINGS):
        raise TypeError(f"{what}: expected a mapping of strings, found {value!r}")
    items = _bounded(what, value).items()
    return MappingProxyType({text(f"{what} key", k): text(f"{what}[{k!r}]", v, empty=True) for k, v in items})


def _bounded(what: str, value: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """As a dict of at most ``MOST`` items; a mapping of a driver's own class may have no end."""
    if type(value) is not dict:
        value = dict(itertools.islice(value.items(), MOST + 1))
    if len(value) > MOST:
        raise ValueError(f"{what}: expected {MOST} at most, found more")
    return value


Plain = str | int | float | bool


class Attributes(Mapping[str, Plain]):
    """An immutable, validated mapping, safe to share between values."""

    __slots__ = ("_values",)

    def __init__(self, values: dict[str, Plain]) -> None:
        self._values = values

    def __getitem__(self, name: str) -> Plain:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        if type(other) is Attributes:  # compared in C, because lists are long
            return self._values == other._values
        return super().__eq__(other)

    __hash__ = None  # type: ignore[assignment]  # as of each mapping

    def __repr__(self) -> str:
        return repr(self._values)


def attributes(what: str, value: object) -> Attributes:
    if type(value) is Attributes:
        return value
    if not isinstance(value, _MAPPINGS):
        raise TypeError(f"{what}: expected a mapping, found {value!r}")
    bounded = _bounded(what, value)
    # The usual case, in C.
    if all(map(_sound, bounded)) and all(map(_sound, bounded.values())):
        return Attributes(dict(bounded))
    values: dict[str, Plain] = {}
    for key, one in bounded.items():
        name, where = text(f"{what}: name", key), f"{what}[{key!r}]"
        if isinstance(one, str):
            values[name] = text(where, one, empty=True)
        elif isinstance(one, bool):  # which is an integer, too
            values[name] = one
        elif isinstance(one, int) and math.isfinite(one):
            values[name] = plain(one, int)
        elif isinstance(one, float) and math.isfinite(one):
            values[name] = plain(one, float)
        else:
            raise TypeError(f"{where}: expected a text, a finite number or a truth value, found {one!r}")
    return Attributes(values)


def sequence(what: str, value: object, kind: type, most: int = MOST) -> tuple[Any, ...]:
    if value == ():
        return ()
    if isinstance(value, str) or not isinstance(value, _ITERABLES):
        raise TypeError(f"{what}: expected a sequence of {kind.__name__}, found {value!r}")
    items = tuple(itertools.islice(value, most + 1))
    if len(items) > most:
        raise ValueError(f"{what}: expected {most} at most, found more")
    for item in items:
        if not isinstance(item, kind) or isinstance(item, bool):
            raise TypeError(f"{what}: expected {kind.__name__}, found {item!r}")
    return tuple([plain(item, kind) for item in items])


def nodes(what: str, value: object) -> tuple[int, ...]:
    nodes = sequence(what, value, int, MOST_NODES)
    if any(not 0 <= node < 2**31 for node in nodes):
        raise ValueError(f"{what}: expected none, or nodes from 0 to {2**31 - 1}, found {nodes}")
    return _same(tuple(sorted(set(nodes))))


@lru_cache(maxsize=64)
def _same(nodes: tuple[int, ...]) -> tuple[int, ...]:
    """One object for all devices near the same nodes."""
    return nodes


def names(what: str, value: object) -> tuple[str, ...]:
    if type(value) is tuple and len(value) == 1 and _sound(value[0]):
        return value
    names = {text(what, name) for name in sequence(what, value, str)}
    if not names:
        raise ValueError(f"{what}: expected one or more names, or None")
    return tuple(sorted(names))
