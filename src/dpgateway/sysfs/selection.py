"""The configuration of a survey: types for the options of drivers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from dpgateway.errors import refuse
from dpgateway.sysfs.matching import Match
from dpgateway.sysfs.templates import TemplateError, template
from dpgateway.sysfs.tests import Test
from dpgateway.sysfs.values import Roots

PART = {"part": "the name of the part of an object that a device is"}


@dataclass(frozen=True, slots=True)
class Kind(Match):
    """One alternative of a match."""

    optional: bool = field(
        default=False, metadata={"help": "with group.each: whether a device is whole without an object of this kind"}
    )


@dataclass(frozen=True, slots=True)
class GroupOption:
    """The rule that makes several objects one device."""

    short_form: ClassVar[str] = "by"

    by: str | None = field(
        default=None, metadata={"help": "a template: objects for which it has the same text are one device"}
    )
    size: int | None = field(default=None, metadata={"help": "how many objects make a device"})
    each: bool = field(default=False, metadata={"help": "a device needs an object of each of match's alternatives"})

    def __post_init__(self) -> None:
        wrong: list[str] = []
        if self.by is None and self.size is None and not self.each:
            wrong.append("expected by, size or each, found none of them")
        if self.size is not None and self.size < 2:
            wrong.append(f"size: expected 2 or more, found {self.size}")
        if self.size is not None and self.each:
            wrong.append("size: expected it without each, which has one of each kind")
        refuse([*wrong, *_wrong_templates(by=self.by)])


@dataclass(frozen=True, slots=True)
class Parts:
    """The rule that makes one object several devices."""

    short_form: ClassVar[str] = "entries"

    entries: str | None = field(
        default=None, metadata={"help": "a path with a pattern, a template: one device for each thing that it finds"}
    )
    count: str | None = field(default=None, metadata={"help": "a template for how many devices, which are 0, 1, ..."})

    def __post_init__(self) -> None:
        if (self.entries is None) == (self.count is None):
            raise ValueError("expected either entries or count")
        refuse(list(_wrong_templates(entries=self.entries, count=self.count)))


def _wrong_templates(**texts: str | None) -> Iterator[str]:
    for name, text in texts.items():
        try:
            template(text or "", tuple(PART))
        except TemplateError as error:
            yield f"{name}: {error}"


@dataclass(frozen=True, slots=True)
class Selection:
    """The configuration of a survey. A driver fills it from its options."""

    match: Sequence[Kind]
    """The alternatives; the first whose tests an object passes takes the object."""
    id: str | None = None
    """A template for the devices' ids; None: the serial number of an object, or its address."""
    group: GroupOption | None = None
    parts: Parts | None = None
    numa: str | None = None
    """A template for the NUMA node; empty: none; None: the nearest ancestor with a ``numa_node`` has it."""
    health: Mapping[str, Test] = field(default_factory=dict)
    """Tests of attributes, keyed by path. A device whose first object fails one is Unhealthy."""
    expected: Sequence[str] = ()
    """Ids of devices that are listed even when absent, as Unhealthy."""
    roots: Roots = field(default_factory=Roots)
