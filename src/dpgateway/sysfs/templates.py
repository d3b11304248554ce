"""Texts with fields, ``/dev/vfio/{attr:iommu_group}``, that are filled with what sysfs says of an object.

``{{`` and ``}}`` stand for braces. Which fields there are is one table; the names are those of the tests.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
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
    return look.env(thing, key)


def _devnode(look: Look, thing: Object) -> Value:
    name = _env(look, thing, "DEVNAME")
    return f"/dev/{name.removeprefix('/dev/')}" if isinstance(name, str) else NoValue("isn't there: it has no node")


def _each(look: Look, thing: Object, path: str) -> Value:
    return NoValue("stands for several texts, and only one is wanted here")


def _file(look: Look, thing: Object, place: str) -> Value:
    path, _, key = place.partition("#")
    return look.key(thing, path, key)


_ATTR = "the path of an attribute"
_FILE = "a file and a key in it, such as /proc/driver/x/{kernel}/information#Minor"
_ENTRY = "a path with a pattern, such as uio/*"

EACH = "each"
FIELDS: Mapping[str, _Field] = {
    "kernel": _Field("its name", lambda _, it, __: it.kernel),
    "number": _Field("the digits at the end of its name", lambda _, it, __: it.number),
    "driver": _Field("the kernel's driver that it is bound to", lambda look, it, _: look.value(it, "driver")),
    "devnode": _Field("its device node: /dev/ttyUSB0", lambda look, it, _: _devnode(look, it)),
    "major": _Field("the major number of its node", lambda look, it, _: _env(look, it, "MAJOR")),
    "minor": _Field("the minor number of its node", lambda look, it, _: _env(look, it, "MINOR")),
    "attr": _Field("an attribute; of a link, the name at its end", lambda look, it, path: look.value(it, path), _ATTR),
    "entry": _Field("the name of the first thing that a pattern finds", _entry, _ENTRY),
    EACH: _Field("in nodes: the name of each thing that a pattern finds, one node for each", _each, _ENTRY),
    "file": _Field("what a text file says after a key", _file, _FILE),
    "env": _Field("what the kernel or udev says of it", _env, "a key, such as PCI_ID"),
    "kernels": _Field("the ancestor's name", lambda _, it, __: it.kernel, ancestor=True),
    "drivers": _Field("the ancestor's driver", lambda look, it, _: look.value(it, "driver"), ancestor=True),
    "attrs": _Field("an attribute of the ancestor", lambda look, it, path: look.value(it, path), _ATTR, ancestor=True),
}


@dataclass(frozen=True, slots=True)
class Slot:
    """A field in a template: its name, and what stands after the colon."""

    name: str
    argument: Template | None = None

    def __str__(self) -> str:
        return f"{self.name}:{self.argument}" if self.argument else self.name


@dataclass(frozen=True, slots=True)
class Template:
    """Parsed once, filled for each object."""

    parts: tuple[str | Slot, ...]

    @classmethod
    def parse(cls, text: str, others: Mapping[str, str] | None = None) -> Template:
        """``others``: names of fields that the caller fills itself, and what they mean. Raises TemplateError."""
        template, rest = _parsed(text, inner=False)
        if rest:
            raise TemplateError(f"expected an opening brace before {rest!r}; a brace itself is written twice")
        for slot in template.fields:
            _check(slot, [*FIELDS, *(others or ())])
        return template

    def __str__(self) -> str:
        return "".join(part if isinstance(part, str) else f"{{{part}}}" for part in self.parts)

    @property
    def fields(self) -> tuple[Slot, ...]:
        """All fields, also those within others."""
        slots = [part for part in self.parts if isinstance(part, Slot)]
        return tuple(inner for one in slots for inner in (one, *(one.argument.fields if one.argument else ())))

    def never(self, match: Match) -> str | None:
        """Why it can never be filled for what ``match`` finds, if it can't."""
        for slot in self.fields:
            if slot.name in FIELDS and FIELDS[slot.name].ancestor and not match.asks_ancestors:
                return (
                    f"expected a test of the ancestor that {{{slot}}} is about (attrs, kernels, drivers, subsystems), "
                    "found none in match"
                )
            test = {"attr": match.attr, "attrs": match.attrs}.get(slot.name, {}).get(str(slot.argument))
            if test is not None and test.present is False:
                return f"expected an attribute that may be there, found {{{slot}}}, which match wants absent"
        return None

    def all(self, look: Look, found: Matched) -> tuple[str, ...] | Unfilled:
        """Like ``fill``, with one text for each thing that the field ``each`` finds."""
        each = next((part for part in self.parts if isinstance(part, Slot) and part.name == EACH), None)
        if each is None:
            text = self.fill(look, found)
            return text if isinstance(text, Unfilled) else (text,)
        path = each.argument.fill(look, found) if each.argument else ""
        if isinstance(path, Unfilled):
            return path
        names = [entry.rpartition("/")[2] for entry in look.entries(found.thing, path)]
        texts = [self.fill(look, found, {EACH: name}) for name in names]
        for text in texts:
            if isinstance(text, Unfilled):
                return text
        nothing = Unfilled(str(each), NoValue(f"finds nothing at {found.thing.kernel}", absent=True))
        return tuple(text for text in texts if isinstance(text, str)) or nothing

    def fill(self, look: Look, found: Matched, others: Mapping[str, str] | None = None) -> str | Unfilled:
        """``others``: the texts of the caller's own fields."""
        filled = []
        for part in self.parts:
            value = part if isinstance(part, str) else _value(look, found, part, others or {})
            if isinstance(value, Unfilled):
                return value
            filled.append(value)
        return "".join(filled)


def _value(look: Look, found: Matched, slot: Slot, others: Mapping[str, str]) -> str | Unfilled:
    if slot.name in others:
        return others[slot.name]
    argument = slot.argument.fill(look, found, others) if slot.argument else ""
    if isinstance(argument, Unfilled):
        return argument
    field = FIELDS[slot.name]
    value = field.fill(look, found.ancestor if field.ancestor else found.thing, argument)
    return Unfilled(str(slot), value) if isinstance(value, NoValue) else value


def _parsed(text: str, *, inner: bool) -> tuple[Template, str]:
    """A template, and what is left of the text: ``inner`` ends at the brace that closes it."""
    parts: list[str | Slot] = []
    plain = ""
    while text and not (text[0] == "}" and (inner or text[:2] != "}}")):
        if text[0] == "{" and text[:2] != "{{":
            slot, text = _slot(text)
            parts += [plain, slot] if plain else [slot]
            plain = ""
        else:
            plain, text = plain + text[0], text[2 if text[:2] in {"{{", "}}"} else 1 :]
    return Template((*parts, plain) if plain else tuple(parts)), text


def _slot(text: str) -> tuple[Slot, str]:
    match = re.match(r"\{([^{}:]*)([:}])", text)
    if match and match[2] == "}":
        return Slot(match[1]), text[match.end() :]
    argument, rest = _parsed(text[match.end() :], inner=True) if match else (Template(()), "")
    if match is None or not rest:
        raise TemplateError(f"expected a closing brace, found {text!r}; a brace itself is written twice")
    return Slot(match[1], argument if argument.parts else None), rest[1:]


def _check(slot: Slot, known: list[str]) -> None:
    shown = f"{{{slot}}}"
    if slot.name not in known:
        close = get_close_matches(slot.name, known, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise TemplateError(f"expected one of the fields {', '.join(known)}, found {shown}{hint}")
    needed = FIELDS[slot.name].argument if slot.name in FIELDS else ""
    if needed and not slot.argument:
        raise TemplateError(f"expected {needed}, as in {{{slot.name}:...}}, found {shown}")
    if slot.argument and not needed:
        raise TemplateError(f"expected {{{slot.name}}}, found {shown}")
    if slot.argument is None or slot.argument.fields:
        return
    if needed in {_ATTR, _ENTRY} and (why := wrong_path(str(slot.argument))):
        raise TemplateError(f"{why} in {shown}")
    if needed == _FILE and not all(str(slot.argument).partition("#")):
        raise TemplateError(f"expected {_FILE}, found {shown}")
