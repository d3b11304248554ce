"""Texts with fields, ``/dev/vfio/{attr:iommu_group}``, that are filled with what sysfs says of an object.

``{{`` and ``}}`` stand for braces. Which fields there are is one table; the names are those of the tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import NamedTuple

from dpgateway.sysfs.matching import Match, wrong_path
from dpgateway.sysfs.objects import Look, Object
from dpgateway.sysfs.values import NoValue, Value


@dataclass(frozen=True, slots=True)
class Matched:
    """An object that passed a match, and the ancestor that did."""

    thing: Object
    ancestor: Object


@dataclass(frozen=True, slots=True)
class Unfilled:
    """Why a template has no text for an object."""

    field: str
    value: NoValue

    def __str__(self) -> str:
        return f"{{{self.field}}} {self.value}"


class TemplateError(ValueError):
    """A template that can't be understood, or never be filled. The text says what was expected and what was found."""


class _Field(NamedTuple):
    means: str
    fill: Callable[[Look, Object, str], Value]
    argument: str = ""
    """What the field needs after its colon; empty, if nothing."""
    ancestor: bool = False
    """Whether it is about the ancestor that a match selects."""


def _entry(look: Look, thing: Object, path: str) -> Value:
    for found in look.entries(thing, path):
        return found.rpartition("/")[2]
    return NoValue(f"finds nothing at {thing.kernel}", absent=True)


def _env(look: Look, thing: Object, key: str) -> Value:
    return look.uevent(thing).get(key, NoValue.missing())


def _devnode(look: Look, thing: Object) -> Value:
    name = _env(look, thing, "DEVNAME")
    return f"/dev/{name.removeprefix('/dev/')}" if isinstance(name, str) else NoValue("isn't there: it has no node")


_ATTR = "the path of an attribute"
_ENTRY = "a path with a pattern, such as uio/*"

FIELDS: Mapping[str, _Field] = {
    "kernel": _Field("its name", lambda _, it, __: it.kernel),
    "number": _Field("the digits at the end of its name", lambda _, it, __: it.number),
    "driver": _Field("the kernel's driver that it is bound to", lambda look, it, _: look.value(it, "driver")),
    "devnode": _Field("its device node: /dev/ttyUSB0", lambda look, it, _: _devnode(look, it)),
    "major": _Field("the major number of its node", lambda look, it, _: _env(look, it, "MAJOR")),
    "minor": _Field("the minor number of its node", lambda look, it, _: _env(look, it, "MINOR")),
    "attr": _Field("an attribute; of a link, the name at its end", lambda look, it, path: look.value(it, path), _ATTR),
    "entry": _Field("the name of the first thing that a pattern finds", _entry, _ENTRY),
    "env": _Field("what its file uevent says", _env, "a key, such as PCI_ID"),
    "kernels": _Field("the ancestor's name", lambda _, it, __: it.kernel, ancestor=True),
    "drivers": _Field("the ancestor's driver", lambda look, it, _: look.value(it, "driver"), ancestor=True),
    "attrs": _Field("an attribute of the ancestor", lambda look, it, path: look.value(it, path), _ATTR, ancestor=True),
}


@dataclass(frozen=True, slots=True)
class Template:
    """Parsed once, filled for each object."""

    parts: tuple[str | tuple[str, str], ...]
    """Texts, and fields as their names and arguments."""

    @classmethod
    def parse(cls, text: str, others: Mapping[str, str] | None = None) -> Template:
        """``others``: names of fields that the caller fills itself, and what they mean. Raises TemplateError."""
        parts = tuple(_parts(text))
        for part in parts:
            if not isinstance(part, str):
                _check(*part, known=[*FIELDS, *(others or ())])
        return cls(parts)

    @property
    def fields(self) -> tuple[tuple[str, str], ...]:
        return tuple(part for part in self.parts if not isinstance(part, str))

    def never(self, match: Match) -> str | None:
        """Why it can never be filled for what ``match`` finds, if it can't."""
        for name, argument in self.fields:
            if name in FIELDS and FIELDS[name].ancestor and not match.asks_ancestors:
                return f"expected a test of the ancestor that {{{name}}} is about (attrs, kernels, drivers, subsystems)"
            test = {"attr": match.attr, "attrs": match.attrs}.get(name, {}).get(argument)
            if test is not None and test.present is False:
                return f"expected an attribute that may be there, found {{{name}:{argument}}}, which match wants absent"
        return None

    def fill(self, look: Look, found: Matched, others: Mapping[str, str] | None = None) -> str | Unfilled:
        filled = []
        for part in self.parts:
            if isinstance(part, str):
                filled.append(part)
                continue
            name, argument = part
            value = others[name] if others and name in others else _value(look, found, name, argument)
            if isinstance(value, NoValue):
                return Unfilled(f"{name}:{argument}" if argument else name, value)
            filled.append(value)
        return "".join(filled)


def _value(look: Look, found: Matched, name: str, argument: str) -> Value:
    return FIELDS[name].fill(look, found.ancestor if FIELDS[name].ancestor else found.thing, argument)


def _parts(text: str) -> Iterator[str | tuple[str, str]]:
    plain, rest = "", text
    while rest:
        if rest[:2] in {"{{", "}}"}:
            plain, rest = plain + rest[0], rest[2:]
        elif rest[0] == "{":
            inside, closed, after = rest[1:].partition("}")
            if not closed or "{" in inside:
                raise TemplateError(f"expected a closing brace, found {rest!r}; a brace itself is written twice")
            name, _, argument = inside.partition(":")
            yield from [plain] if plain else []
            yield name, argument
            plain, rest = "", after
        elif rest[0] == "}":
            raise TemplateError(f"expected an opening brace before {rest!r}; a brace itself is written twice")
        else:
            plain, rest = plain + rest[0], rest[1:]
    yield from [plain] if plain else []


def _check(name: str, argument: str, known: list[str]) -> None:
    shown = f"{{{name}:{argument}}}" if argument else f"{{{name}}}"
    if name not in known:
        close = get_close_matches(name, known, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise TemplateError(f"expected one of the fields {', '.join(known)}, found {shown}{hint}")
    needed = FIELDS[name].argument if name in FIELDS else ""
    if needed and not argument:
        raise TemplateError(f"expected {needed}, as in {{{name}:...}}, found {shown}")
    if argument and not needed:
        raise TemplateError(f"expected {{{name}}}, found {shown}")
    if needed and name != "env" and (why := wrong_path(argument)):
        raise TemplateError(f"{why} in {shown}")
