"""Matching objects of sysfs: a udev rule's conditions as a value.

The names follow udev(7): its ``SUBSYSTEM==``, ``ATTR{vendor}==`` and ``ATTRS{idVendor}==`` are ``subsystem``, ``attr``
and ``attrs`` here. Plural names test one ancestor, or the object itself: the nearest that passes all of them at once.
All tests of a ``Match`` have to pass.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, ClassVar

from dpgateway.errors import cut, refuse
from dpgateway.sysfs.fields import FIELDS
from dpgateway.sysfs.identity import virtual_function
from dpgateway.sysfs.objects import Look, Object, wrong_path
from dpgateway.sysfs.patterns import value_matches
from dpgateway.sysfs.templates import Matched, Template, TemplateError, Unfilled, template
from dpgateway.sysfs.tests import Test
from dpgateway.sysfs.values import NoValue, Value

LONGEST = 200
"""Limit of characters of a value in a message: a file in /proc may have 4 MB."""


def _about(text: str) -> Any:  # noqa: ANN401  a field's metadata
    return {"help": text}


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The first test that an object failed."""

    test: str
    """The test's key, such as ``attr.vendor``."""
    value: Value
    wanted: Test
    passed: int = 0
    """The number of tests that passed before it."""
    at: Object | None = None
    """For a test of ancestors, the ancestor that passed most of them."""

    def __str__(self) -> str:
        return f"{self.test}: found {self.found}, expected {self.expected}"

    @property
    def found(self) -> str:
        if isinstance(self.value, NoValue):
            found = "nothing" if self.value.absent else f"it {self.value}"
        else:
            found = cut(repr(self.value), LONGEST)
        return f"{found} at {self.at.kernel}" if self.at else found

    @property
    def expected(self) -> str:
        return str(self.wanted)


@dataclass(frozen=True, slots=True)
class Match:
    """Tests of one object, and of one ancestor."""

    unknown_key: ClassVar = """what udev's rules write as ATTRS{idVendor}=="0403" is attrs: {idVendor: "0403"} here"""
    """The hint for a value that isn't a mapping with these keys."""

    subsystem: str = field(
        metadata={
            **_about("its bus or class: pci, usb, tty, drm; a pattern as below is possible"),
            "hint": "udev's SUBSYSTEM: tty, usb, pci, or another bus or class",
        }
    )
    kernel: Test | None = field(default=None, metadata=_about("its name: ttyUSB*, 0000:3b:00.0"))
    driver: Test | None = field(default=None, metadata=_about("the kernel's driver that it is bound to"))
    attr: Mapping[str, Test] = field(
        default_factory=dict, metadata=_about("its attributes by their paths, also through links (physfn/driver)")
    )
    env: Mapping[str, Test] = field(
        default_factory=dict, metadata=_about("properties from the kernel or udev: DEVTYPE, ID_SERIAL")
    )
    file: Mapping[str, Test] = field(
        default_factory=dict,
        metadata=_about("what text files say, by PATH or PATH#KEY, templates, also in /proc and elsewhere in /sys"),
    )
    symlink: Test | None = field(
        default=None, metadata=_about("udev's links to its node, at least one: /dev/serial/by-id/*")
    )
    vf: Test | None = field(
        default=None, metadata=_about("which of its physical function's virtual functions a PCI function is: 0, 1, ...")
    )
    subsystems: Test | None = field(default=None, metadata=_about("the ancestor's subsystem"))
    kernels: Test | None = field(default=None, metadata=_about("the ancestor's name"))
    drivers: Test | None = field(default=None, metadata=_about("the ancestor's driver"))
    attrs: Mapping[str, Test] = field(default_factory=dict, metadata=_about("the ancestor's attributes"))

    def __post_init__(self) -> None:
        wrong: list[str] = []
        if not re.fullmatch(r"[^/\s]+", self.subsystem) or self.subsystem in {".", ".."}:
            expected = "expected the name of a bus or class, such as usb or tty"
            wrong.append(f"subsystem: {expected}, found {self.subsystem!r}")
        wrong += _wrong_attributes("attr", self.attr)
        wrong += _wrong_attributes("attrs", self.attrs)
        for key, test in (("kernel", self.kernel), ("kernels", self.kernels)):
            for text in (*test.glob, *test.exact) if test else ():
                if text.startswith("/"):
                    wrong.append(f"{key}: expected a name without /dev/, such as ttyUSB*, found {text!r}")
        links = self.symlink
        texts = (*links.glob, *links.exact, *links.none_of) if links else ()
        for path in [path for text in texts for path in text.split("|")]:
            if not path.startswith(("/dev/", "*")):
                wrong.append(f"symlink: expected paths below /dev, such as /dev/serial/by-id/*, found {path!r}")
        for place in self.file:
            try:
                if why := self.never(template(f"{{file:{place}}}")):
                    wrong.append(f"file: {why}")
            except TemplateError as error:
                wrong.append(f"file: {error}")
        refuse(wrong)

    @property
    def asks_ancestors(self) -> bool:
        return bool(self.subsystems or self.kernels or self.drivers or self.attrs)

    def look(self, look: Look, thing: Object) -> Object | Mismatch:
        """The ancestor that passes (the object itself without tests of ancestors), or the first failed test."""
        if failed := _first_failed(self._own(look, thing)):
            return failed

        # one ancestor has to pass all tests of ancestors; if none does, the one that passed most explains it best
        ancestor, nearest = thing, None
        for ancestor in thing.line if self.asks_ancestors else ():
            failed = _first_failed(self._ancestors(look, ancestor))
            if failed is None:
                break
            if nearest is None or _passed(failed) > _passed(nearest):
                nearest = replace(failed, at=ancestor)
        else:
            if nearest is not None:
                return nearest
            ancestor = thing

        # last, because a file's path may be about the ancestor
        for passed, (place, test) in enumerate(self.file.items()):
            filled = template(f"{{file:{place}}}").fill(look, Matched(thing, ancestor))
            value = filled.value if isinstance(filled, Unfilled) else filled
            if not test.passes(value):
                return Mismatch(f"file.{place}", value, test, passed)
        return ancestor

    def never(self, wanted: Template) -> str | None:
        """Why a template can't be filled for any object that this matches; None if it can."""
        for slot in wanted.fields:
            if slot.name in FIELDS and FIELDS[slot.name].ancestor and not self.asks_ancestors:
                return (
                    f"expected a test of the ancestor that {{{slot}}} is about (attrs, kernels, drivers, subsystems), "
                    "found none in match"
                )
            test = {"attr": self.attr, "attrs": self.attrs}.get(slot.name, {}).get(str(slot.argument))
            if test is not None and test.present is False:
                return f"expected an attribute that may be there, found {{{slot}}}, which match wants absent"
        return None

    # the rows of a match are lazy: most objects fail an early test, and each value costs a system call

    def _own(self, look: Look, thing: Object) -> Iterator[_Row]:
        if self.kernel:
            yield "kernel", thing.kernel, self.kernel
        if self.driver:
            yield "driver", look.value(thing, "driver"), self.driver
        for path, test in self.attr.items():
            yield f"attr.{path}", look.value(thing, path), test
        for key, test in self.env.items():
            yield f"env.{key}", look.env(thing, key), test
        if self.symlink:
            # of several links one decides: that of none_of, else one that passes, else the first
            links, test = look.symlinks(thing), self.symlink
            refused = (one for one in links if any(value_matches(one, glob) for glob in test.none_of))
            nothing = NoValue("isn't there: udev knows no link to it", absent=True)
            yield "symlink", next(chain(refused, filter(test.passes, links), links), nothing), test
        if self.vf:
            yield "vf", virtual_function(look, thing), self.vf

    def _ancestors(self, look: Look, thing: Object) -> Iterator[_Row]:
        if self.kernels:
            yield "kernels", thing.kernel, self.kernels
        if self.subsystems:
            yield "subsystems", look.subsystem(thing), self.subsystems
        if self.drivers:
            yield "drivers", look.value(thing, "driver"), self.drivers
        for path, test in self.attrs.items():
            yield f"attrs.{path}", look.value(thing, path), test


def _wrong_attributes(key: str, tests: Iterable[str]) -> Iterator[str]:
    for path in tests:
        if why := wrong_path(path):
            yield f"{key}: {why}"
        elif path.endswith(("!", "=")):
            yield f"{key}: expected the name alone, or none_of for what udev's rules write as !=, found {path!r}"
        elif "{" in path:
            yield f"{key}: expected the name of an attribute without braces, such as idVendor, found {path!r}"


_Row = tuple[str, Value, Test]
"""A test's key, the tested value, and the test."""


def _first_failed(rows: Iterable[_Row]) -> Mismatch | None:
    for passed, (name, value, test) in enumerate(rows):
        if not test.passes(value):
            return Mismatch(name, value, test, passed)
    return None


def _passed(failed: Mismatch) -> tuple[int, bool]:
    """Orders failed ancestors: one that has the attribute of the failed test beats one that lacks it."""
    return failed.passed, isinstance(failed.value, str)
