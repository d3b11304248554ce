"""Warnings about resources that offer the same hardware, by the devices that their drivers list on this node."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

from dpgateway.cli.ask_drivers import DriverAnswer
from dpgateway.config import Place, Problem
from dpgateway.model import Device, hardware

POOL = "one pool keeps them apart, and then no container can have both"


def warnings(answers: Sequence[DriverAnswer]) -> Iterator[Problem]:
    """Of two resources the second gets the warning."""
    for answer in answers:
        if answer.failure:
            yield _problem(answer, f"its devices aren't known: {answer.failure}")
    pools: dict[str, dict[str, DriverAnswer]] = {}
    for first, second in itertools.combinations(answers, 2):
        other, pool = first.resource.name, second.resource.pool
        if pool is None or pool != first.resource.pool:
            if same := sorted(_said(first.devices) & _said(second.devices)):
                yield _problem(second, f"{other} offers {few(same)} too, so that two containers can get it; {POOL}")
        elif first.devices and second.devices:
            pools.setdefault(pool, {}).update({first.resource.name: first, second.resource.name: second})
            pairs = [(hardware(one), hardware(two)) for one in first.devices for two in second.devices]
            if not any(one.isdisjoint(two) for one, two in pairs):
                why = "each device of the one shares hardware with each of the other"
                yield _problem(second, f"it and {other} can't be in use at the same time: {why}")

    # Of resources that are all apart, all but the first get the warning.
    for pool, some in pools.items():
        known = {name: frozenset().union(*map(hardware, one.devices)) for name, one in some.items()}
        others = {name: [other for other in some if other != name] for name in some}
        apart = [
            name for name in some if known[name].isdisjoint(itertools.chain(*(known[one] for one in others[name])))
        ]
        for name in apart[1:] if len(apart) == len(some) else apart:
            text = f"it has no hardware in common with {few(others[name])}, so pool {pool} does nothing for it"
            yield _problem(some[name], text)


def _problem(answer: DriverAnswer, text: str) -> Problem:
    where = answer.resource.where
    return Problem(Place(where.file, where.line), hint=f"{answer.resource.name}: {text}")


def _said(devices: Iterable[Device]) -> frozenset[str]:
    """The hardware that drivers name explicitly. A default, the id, could be equal in two drivers by chance."""
    return frozenset(name for device in devices for name in device.hardware or ())


def few(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{more}"
