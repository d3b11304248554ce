"""Which DeviceClass counts for an extended resource, and whether it selects our devices and no others.

The scheduler takes the newest of the classes with the resource's name, and of two that are as old the one whose name
comes first (dynamic-resource-allocation, deviceclass/extendedresourcecache, 1.37). What its selectors mean is CEL, of
which one form is understood, the chart's: any other one may select another driver's devices for our pods.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dpgateway.errors import cut

LONGEST_EXPRESSION = 200
"""Characters of an expression in a text."""

_DRIVER = re.compile(r"""device\s*\.\s*driver\s*==\s*(["'])(?P<driver>[^"']*)\1""")
_RESOURCE = re.compile(
    r"""device\s*\.\s*attributes\s*\[\s*(["'])(?P<domain>[^"']*)\1\s*\]\s*\.\s*resource\s*==\s*(["'])(?P<resource>[^"']*)\3"""
)


def counting(classes: Iterable[Mapping[str, Any]], resource: str) -> Mapping[str, Any] | None:
    """The DeviceClass that counts for the resource; None if no class has its name."""
    found = [one for one in classes if (one.get("spec") or {}).get("extendedResourceName") == resource]
    by_name = sorted(found, key=lambda one: str(one["metadata"]["name"]))
    # max() keeps the first of equal ones. The times are RFC 3339 in UTC, to the second: they compare as texts.
    return max(by_name, key=lambda one: str(one["metadata"].get("creationTimestamp") or ""), default=None)


def why_not(classes: Iterable[Mapping[str, Any]], resource: str, value: str, driver: str) -> str:
    """Why pods that ask for the resource wouldn't get our devices by DRA; empty if they would.

    ``value``: the attribute ``resource`` of its devices; ``driver``: ours.
    """
    one = counting(classes, resource)
    expected = f'device.driver == "{driver}" && device.attributes["{driver}"].resource == "{value}"'
    if one is None:
        return (
            f"no DeviceClass has the extendedResourceName {resource}: expected one with the selector {expected}, as "
            "the chart makes it with dra.deviceClasses"
        )
    # A selector of another kind is text that matches no known term.
    name, selectors = one["metadata"]["name"], (one.get("spec") or {}).get("selectors") or ()
    expressions = [str((it.get("cel") or {}).get("expression") or it) for it in selectors]
    terms = [term for text in expressions for term in _terms(text)]
    drivers = {found["driver"] for term in terms if (found := _DRIVER.fullmatch(term))}
    if others := sorted(drivers - {driver}):
        return f"DeviceClass {name} of {resource} selects driver {', '.join(others)}: expected {driver}"
    resources = {(found["domain"], found["resource"]) for term in terms if (found := _RESOURCE.fullmatch(term))}
    known = all(_DRIVER.fullmatch(term) or _RESOURCE.fullmatch(term) for term in terms)
    if known and drivers and resources == {(driver, value)}:
        return ""
    shown = cut(" && ".join(expressions) or "no selector", LONGEST_EXPRESSION)
    return f"DeviceClass {name} of {resource} may select other devices: found {shown}, expected the selector {expected}"


def _terms(expression: str) -> Iterator[str]:
    """The terms of a conjunction, without brackets around all of it or around one of them."""
    text = expression.strip()
    while text.startswith("(") and text.endswith(")") and _closes_last(text):
        text = text[1:-1].strip()
    parts = [part.strip() for part in text.split("&&")]
    if len(parts) == 1:
        yield text
        return
    for part in parts:
        yield from _terms(part)


def _closes_last(text: str) -> bool:
    """Whether the first bracket of the text is closed by its last character."""
    depth = 0
    for position, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return position == len(text) - 1
    return False
