"""Templates: texts with fields, such as ``/dev/vfio/{attr:iommu_group}``, filled with an object's values in sysfs.

``{{`` and ``}}`` stand for braces. A field's argument is a template itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache

from dpgateway.sysfs.fields import EACH, FIELDS, REGEX, wrong_argument
from dpgateway.sysfs.objects import Look, Object
from dpgateway.sysfs.values import NoValue

_UDEV = re.compile(r"\$(attr|env|sysfs)\{|%[sE]\{")
"""The fields of udev's rules, a likely mistake."""


@dataclass(frozen=True, slots=True)
class Matched:
    """An object that passed a match, and the ancestor that passed the tests of ancestors."""

    thing: Object
    ancestor: Object
    part: str = ""
    """The name of one of several devices within the object; empty if the object is one device."""


@dataclass(frozen=True, slots=True)
class Unfilled:
    """Why a template has no text for an object."""

    field: str
    """The field with its filled argument: ``attr:iommu_group``."""
    value: NoValue
    at: Object
    """The object or ancestor without the value."""

    def __str__(self) -> str:
        return f"{self.field.replace(':', ' ', 1)} of {self.at.kernel} {self.value}"


class TemplateError(ValueError):
    """A template that can't be parsed, or can never be filled. The text says what was expected and found."""


@dataclass(frozen=True, slots=True)
class Placeholder:
    """A field in a template: its name, and the argument after the colon."""

    name: str
    argument: Template | None = None

    def __str__(self) -> str:
        return f"{self.name}:{self.argument}" if self.argument else self.name


@dataclass(frozen=True, slots=True)
class Template:
    """Parsed once, filled for each object."""

    parts: tuple[str | Placeholder, ...]

    @classmethod
    def parse(cls, text: str, others: Mapping[str, str] | None = None) -> Template:
        """``others``: fields that the caller fills itself, with their meaning. Raises TemplateError."""
        if found := _UDEV.search(text):
            raise TemplateError(
                f"expected fields such as {{attr:serial}}, {{attrs:serial}}, {{env:KEY}}, found {found[0]!r}"
            )
        parsed, rest = _parsed(text, inner=False)
        if rest:
            raise TemplateError(f"expected an opening brace before {rest!r}; a brace itself is written twice")
        known = [*FIELDS, *(others or ())]
        for slot in parsed.fields:
            shown = f"{{{slot}}}"
            if slot.name not in known:
                close = get_close_matches(slot.name, known, n=1)
                attribute = f"; attributes are written {{attr:{slot.name}}}, or {{attrs:{slot.name}}} of the ancestor"
                hint = f"; did you mean {close[0]}?" if close else attribute if slot.name else ""
                raise TemplateError(f"expected one of the fields {', '.join(known)}, found {shown}{hint}")
            needed = FIELDS[slot.name].argument if slot.name in FIELDS else ""
            if needed and not slot.argument:
                raise TemplateError(f"expected {needed}, as in {{{slot.name}:...}}, found {shown}")
            if slot.argument and not needed:
                raise TemplateError(f"expected {{{slot.name}}}, found {shown}")
            if slot.argument is None or (slot.argument.fields and slot.name != REGEX):
                continue
            # the expression comes last, and has to be literal: a device's own text must be no expression
            end = slot.argument.parts[-1]
            if why := wrong_argument(slot.name, end if isinstance(end, str) else ""):
                raise TemplateError(f"{why} {shown}")
        return parsed

    def __str__(self) -> str:
        return "".join(part if isinstance(part, str) else f"{{{part}}}" for part in self.parts)

    @property
    def fields(self) -> tuple[Placeholder, ...]:
        """All fields, including those in arguments."""
        slots = [part for part in self.parts if isinstance(part, Placeholder)]
        return tuple(inner for one in slots for inner in (one, *(one.argument.fields if one.argument else ())))

    def all(self, look: Look, found: Matched, others: Mapping[str, str] | None = None) -> tuple[str, ...] | Unfilled:
        """Like ``fill``, with one text for each name that the field ``each`` finds; never empty."""
        each = next((part for part in self.parts if isinstance(part, Placeholder) and part.name == EACH), None)
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
        nothing = Unfilled(f"{EACH}:{path}", NoValue("finds nothing", absent=True), found.thing)
        return tuple(text for text in texts if isinstance(text, str)) or nothing

    def fill(self, look: Look, found: Matched, others: Mapping[str, str] | None = None) -> str | Unfilled:
        """The text for an object, or the first field without a value. ``others``: the texts of the caller's fields."""
        filled = []
        for part in self.parts:
            if isinstance(part, str):
                filled.append(part)
                continue
            if others is not None and part.name in others:
                filled.append(others[part.name])
                continue
            argument = part.argument.fill(look, found, others) if part.argument else ""
            if isinstance(argument, Unfilled):
                return argument
            field = FIELDS[part.name]
            at = found.ancestor if field.ancestor else found.thing
            value = field.fill(look, at, argument)
            if isinstance(value, NoValue):
                return Unfilled(f"{part.name}:{argument}" if argument else part.name, value, at)
            filled.append(value)
        return "".join(filled)


@lru_cache(maxsize=1024)
def template(text: str, others: tuple[str, ...] = ()) -> Template:
    """A template, parsed once for all objects. ``others``: the names of the caller's fields."""
    return Template.parse(text, dict.fromkeys(others, ""))


def _parsed(text: str, *, inner: bool) -> tuple[Template, str]:
    """Parses a template up to a single closing brace, and returns the rest of the text. ``inner``: an argument, where
    even the first of two closing braces ends it, ``{slot:{kernel}}``, unless it closes a brace that is written twice,
    ``{regex:{kernel}#[0-9]{{3}}}``.
    """
    parts: list[str | Placeholder] = []
    plain = ""
    while text and not (text[0] == "}" and (text[:2] != "}}" or (inner and plain.count("{") <= plain.count("}")))):
        if text[0] == "{" and text[:2] != "{{":
            slot, text = _slot(text)
            parts += [plain, slot] if plain else [slot]
            plain = ""
        else:
            plain, text = plain + text[0], text[2 if text[:2] in {"{{", "}}"} else 1 :]
    return Template((*parts, plain) if plain else tuple(parts)), text


def _slot(text: str) -> tuple[Placeholder, str]:
    match = re.match(r"\{([^{}:]*)([:}])", text)
    if match and match[2] == "}":
        return Placeholder(match[1]), text[match.end() :]
    argument, rest = _parsed(text[match.end() :], inner=True) if match else (Template(()), "")
    if match is None or not rest:
        raise TemplateError(f"expected a closing brace, found {text!r}; a brace itself is written twice")
    return Placeholder(match[1], argument if argument.parts else None), rest[1:]
