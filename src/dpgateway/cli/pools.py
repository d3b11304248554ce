"""Warnings about resources that offer the same hardware, by the devices that their drivers list on this node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

from dpgateway.cli.ask_drivers import DriverAnswer
from dpgateway.config import Place, Problem
from dpgateway.model import Device, hardware

POOL = "one pool keeps them apart, and then no container can have both"


def warnings(answers: Sequence[DriverAnswer]) -> tuple[Problem, ...]:
    told = [_problem(answer, f"its devices aren't known: {answer.failure}") for answer in answers if answer.failure]
    return (
        *told,
        *(_problem(second, text) for first, second in combinations(answers, 2) for text in _of(first, second)),
    )


def _problem(answer: DriverAnswer, text: str) -> Problem:
    where = answer.resource.where
    return Problem(Place(where.file, where.line), hint=f"{answer.resource.name}: {text}")


def _of(first: DriverAnswer, second: DriverAnswer) -> Iterator[str]:
    """Warnings about the second resource because of the first."""
    other, pool = first.resource.name, second.resource.pool
    if pool is None or pool != first.resource.pool:
        if same := sorted(_said(first.devices) & _said(second.devices)):
            yield f"{other} offers {few(same)} too, so that two containers can get it; {POOL}"
    elif first.devices and second.devices:
        pairs = [(hardware(one), hardware(other)) for one in first.devices for other in second.devices]
        if all(one.isdisjoint(other) for one, other in pairs):
            yield f"it has no hardware in common with {other}, so their pool {pool} does nothing"
        elif not any(one.isdisjoint(other) for one, other in pairs):
            why = "each device of the one shares hardware with each of the other"
            yield f"it and {other} can't be in use at the same time: {why}"


def _said(devices: Iterable[Device]) -> frozenset[str]:
    """The hardware that drivers name explicitly. A default, the id, could be equal in two drivers by chance."""
    return frozenset(name for device in devices for name in device.hardware or ())


def few(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{more}"
