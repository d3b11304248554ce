"""What is allowed, but may not do what its author wants."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from dpgateway.config.completing import FoundDriver
from dpgateway.config.loading import Document, Entry
from dpgateway.config.located import Listed, Mapped, locate
from dpgateway.config.problems import Problem, in_order
from dpgateway.config.values import Kubelet, Resource

_UNREAD = "it isn't read: only names that end in .yaml are"
_VARIABLE = re.compile(r"\$(?:\{\w+\}|\(\w+\))")


def advise(document: Document, drivers: Mapping[str, FoundDriver]) -> tuple[Problem, ...]:
    """Warnings, each with the place that it is about; all their text is in ``hint``."""
    found: list[Problem] = []
    for entry in document.entries:
        if entry.resource is not None:
            found.extend(_about(entry, entry.resource, drivers.get(entry.driver)))
            found.extend(_variables(entry.tree))
    if not document.entries:
        found.append(Problem(str(document.path), 0, 0, "", hint=nothing_served(document)))
    found.extend(Problem(str(file), 0, 0, "", hint=_UNREAD) for file in document.ignored)
    if document.kubelet.apis != Kubelet().apis:
        text = "this is for diagnosis only: kubelets that speak none of these APIs get no resource"
        found.append(Problem(str(document.path), 0, 0, "kubelet.apis", hint=text))
    return in_order(found)


def nothing_served(document: Document) -> str:
    """Why a valid configuration has nothing for this node to do."""
    if not document.elsewhere:
        return "resources is empty, so nothing is served"
    patterns = sorted({pattern for entry in document.elsewhere if entry.resource for pattern in entry.resource.nodes})
    whose = f"those named {' or '.join(patterns)}" if patterns else "none"
    return f"no resource is for node {document.node_name}, only for {whose}, so nothing is served"


def _variables(tree: Mapped | Listed) -> Iterator[Problem]:
    """Whoever writes ``${HOME}`` may expect that it is replaced."""
    for key, value in tree.items() if isinstance(tree, Mapped) else enumerate(tree):
        place = tree.places[key]
        if isinstance(value, Mapped | Listed):
            yield from _variables(value)
        elif isinstance(value, str) and (found := _VARIABLE.search(value)):
            text = f"values are literal, so {found[0]} stays as it is"
            yield Problem(place.file, place.line, place.column, place.key, hint=text)


def _about(entry: Entry, resource: Resource, driver: FoundDriver | None) -> Iterator[Problem]:
    if resource.shares.distinct == "require" and resource.shares.count > 1:
        # GetPreferredAllocation came with 1.19
        yield _warning(
            entry,
            "shares",
            "kubelets before 1.19 pick shares blindly: a container that wants two may be refused for ever",
        )
    own = callable(getattr(driver.driver, "prefer", None)) if driver is not None else False
    if own and resource.preference != "none":
        yield _warning(entry, "preference", f"the driver's own prefer isn't asked with {resource.preference}")


def _warning(entry: Entry, key: str, text: str) -> Problem:
    place = locate(entry.tree, (key,))
    return Problem(place.file, place.line, place.column, place.key, hint=text)
