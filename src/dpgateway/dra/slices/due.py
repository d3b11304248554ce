"""What of a node's slices has to be written, and what of that can't wait.

A device that leaves its pool, or gets a taint, mustn't be given any more, and the scheduler gives it until that is
written. In a gateway's first seconds the former may be a mistake; a taint never is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from dpgateway.dra.slices.changes import Identity, Object, SliceChanges, changes
from dpgateway.dra.slices.layout import Content

Wanted = Mapping[str, tuple[Content, ...] | None]
"""The contents of the slices of each pool, by the pool's name; None for one whose devices aren't known yet: its slices
stay as an earlier gateway left them. The slices of all other pools are deleted.
"""


class Withheld(NamedTuple):
    """Whether changes withhold devices."""

    gone: bool
    """A device leaves its pool."""
    tainted: bool
    """A device gets a taint."""


def pool_changes(wanted: Wanted, seen: Mapping[str, Object], identity: Identity) -> dict[str, SliceChanges]:
    """The changes, by the pools that have any. ``seen``: all slices, by name; ``identity``: but for the pool."""
    by_pool: dict[str, list[Object]] = {name: [] for name in wanted}
    for one in seen.values():
        by_pool.setdefault(str(one["spec"]["pool"]["name"]), []).append(one)
    found = {}
    for name, some in by_pool.items():
        if name not in wanted:
            found[name] = SliceChanges(delete=tuple(some))
        elif (contents := wanted[name]) is not None:
            found[name] = changes(contents, some, identity._replace(pool=name))
    return {name: one for name, one in found.items() if any(one)}


def withheld(one: SliceChanges, seen: Mapping[str, Object]) -> Withheld:
    """``seen``: what the changes were made of."""
    before: dict[str, Any] = {}
    for was in (*one.delete, *(seen[new["metadata"]["name"]] for new in one.update)):
        before |= {device["name"]: device for device in was["spec"].get("devices") or ()}
    after = {
        device["name"]: device for new in (*one.update, *one.create) for device in new["spec"].get("devices") or ()
    }
    tainted = any(
        bool(it.get("taints")) > bool(before[name].get("taints")) for name, it in after.items() if name in before
    )
    return Withheld(not before.keys() <= after.keys(), tainted)


def urgent(todo: Iterable[SliceChanges], seen: Mapping[str, Object]) -> bool:
    """Whether any of the changes withholds a device."""
    return any(any(withheld(one, seen)) for one in todo)


def too_early(
    todo: Mapping[str, SliceChanges], wanted: Wanted, seen: Mapping[str, Object], written: Collection[str]
) -> set[str]:
    """The pools that wait while a gateway doesn't know yet what pods hold: those that are offered, that it hasn't
    ``written`` itself, and from which a device would only be left out.
    """
    offered = (todo.keys() & wanted.keys()) - set(written)
    differences = {name: withheld(todo[name], seen) for name in offered}
    return {name for name, one in differences.items() if one.gone and not one.tainted}
