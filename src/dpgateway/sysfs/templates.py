"""Texts with fields, ``/dev/vfio/{attr:iommu_group}``, that are filled with what sysfs says of an object.

``{{`` and ``}}`` stand for braces. Which fields there are is one table; the names are those of the tests.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import NamedTuple

from dpgateway.sysfs.objects import Look, Object, wrong_path
from dpgateway.sysfs.patterns import name_matches
from dpgateway.sysfs.pci import pci_number, pci_slot, virtual_function
from dpgateway.sysfs.values import NoValue, Value


@dataclass(frozen=True, slots=True)
class Matched:
    """An object that passed a match, and the ancestor that did."""

    thing: Object
    ancestor: Object
    part: str = ""
    """If the object is several devices: the name of the one that is meant."""


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


def _pci_number(_: Look, __: Object, address: str) -> Value:
    number = pci_number(address)
    return NoValue(f"isn't there: {address!r} is no PCI address") if number is None else str(number)


def _pci_slot(_: Look, __: Object, address: str) -> Value:
    return pci_slot(address) or NoValue(f"isn't there: {address!r} is no PCI address")


def _symlink(look: Look, thing: Object, pattern: str) -> Value:
    for link in look.symlinks(thing):
        if name_matches(link, pattern):
            return link
    return NoValue(f"isn't there: udev knows no such link to {thing.kernel}", absent=True)


_ATTR = "the path of an attribute"
_FILE = "a file and a key in it, such as /proc/driver/x/{kernel}/information#Minor"
_ADDRESS = "a PCI address, such as {kernel}"
_LINK = "a path below /dev, perhaps with a pattern, such as /dev/serial/by-id/*"
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
    "file": _Field("what a text file says after a key", lambda look, it, place: look.file(it, place), _FILE),
    "symlink": _Field("udev's link to its node that a pattern matches", _symlink, _LINK),
    "vf": _Field("which virtual function it is", lambda look, it, _: virtual_function(look, it)),
    "slot": _Field("domain, bus and device of a PCI address", _pci_slot, _ADDRESS),
    "pci_number": _Field("a PCI address as one number", _pci_number, _ADDRESS),
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

    def all(self, look: Look, found: Matched, others: Mapping[str, str] | None = None) -> tuple[str, ...] | Unfilled:
        """Like ``fill``, with one text for each thing that the field ``each`` finds."""
        each = next((part for part in self.parts if isinstance(part, Slot) and part.name == EACH), None)
        if each is None:
            text = self.fill(look, found, others)
            return text if isinstance(text, Unfilled) else (text,)
        path = each.argument.fill(look, found, others) if each.argument else ""
        if isinstance(path, Unfilled):
            return path
        names = [entry.rpartition("/")[2] for entry in look.entries(found.thing, path)]
        texts = [self.fill(look, found, {**(others or {}), EACH: name}) for name in names]
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
    argument = str(slot.argument)
    path = argument.removeprefix("/") if needed == _ENTRY else argument
    if needed in {_ATTR, _ENTRY} and (why := wrong_path(path)):
        raise TemplateError(f"{why} in {shown}")
    if needed == _FILE and not _is_place(argument):
        raise TemplateError(f"expected {_FILE}, found {shown}")


def _is_place(text: str) -> bool:
    """Only of a file that is no attribute all of the text may be meant."""
    path, *keys = text.split("#")
    return bool(path and all(keys)) and (bool(keys) or path.startswith("/"))
