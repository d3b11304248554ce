"""Reads the entries of another plugin's configuration as its own program does, which Go's decoders decide.

Keys may be in upper or lower case, null is as good as nothing, and unknown keys are ignored: each of them that says
anything is *not kept*. An entry that the plugin would refuse costs no other entry.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, is_dataclass, replace
from typing import Any, Generic, TypeVar, get_args, get_type_hints

from dpgateway.config import InvalidConfiguration, Problem
from dpgateway.config.source import Written
from dpgateway.config.strict import typed
from dpgateway.importing.imported import NotKept

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Entries(Generic[T]):
    """The entries that could be read, each with where it is written."""

    read: tuple[tuple[Written, T], ...]
    not_kept: tuple[NotKept, ...]

    @classmethod
    def of(cls, written: Iterable[Written], kind: type[T], nothing: InvalidConfiguration) -> Entries[T]:
        """Reads each as a ``kind``, a frozen dataclass. Raises InvalidConfiguration if none can be read: with what is
        wrong with them, or ``nothing`` if there are none.
        """
        read: list[tuple[Written, T]] = []
        not_kept: list[NotKept] = []
        problems: list[Problem] = []
        for one in written:
            wrong: list[Problem] = []
            unknown: list[NotKept] = []
            entry = typed(_in_known_case(one, kind, unknown), kind, wrong)
            if entry is not None:
                read.append((one, entry))
                not_kept += unknown
            problems += wrong
        if not read:
            raise InvalidConfiguration(problems) if problems else nothing
        return cls(tuple(read), (*not_kept, *map(refused, problems)))


def refused(problem: Problem) -> NotKept:
    """The entry with a problem."""
    what = f"the entry of line {problem.place.line}"
    return NotKept(problem.place, what, str(replace(problem, place=replace(problem.place, key=""))).partition(": ")[2])


def _in_known_case(written: Written, kind: Any, unknown: list[NotKept]) -> Written:  # noqa: ANN401
    """``written`` with the keys spelt as the fields of ``kind``, without the other ones."""
    if isinstance(written.value, list) and get_args(kind):
        return replace(written, value=[_in_known_case(one, get_args(kind)[0], unknown) for one in written.value])
    if not isinstance(written.value, dict):
        return written
    if get_args(kind) and is_dataclass(get_args(kind)[0]):  # a mapping in place of a list of one
        kind = get_args(kind)[0]
    if not is_dataclass(kind):
        return written
    kinds = get_type_hints(kind)
    known = {name.lower(): name for name in kinds}
    values: dict[str, Written] = {}
    for key, value in written.value.items():
        name = known.get(key.lower())
        if name is not None and (value.value is not None or value.problems):
            values[name] = _in_known_case(value, kinds[name], unknown)
        elif name is None and value.value:
            unknown.append(NotKept(value.place, key, "the plugin ignores it here"))
    return replace(written, value=values)
