"""The parameters of a class and of a claim for this driver, as the allocation has them (``devices.config``).

They are one document for each class or claim::

    opaque:
      driver: dra.example.com
      parameters: {apiVersion: dpgateway/v1alpha1, kind: Parameters, options: {function: net}}

An administrator's class is binding: a claim may choose what its class leaves open, and no more.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from dpgateway.dra.claims.reading import Allocated, Result
from dpgateway.errors import RequestError, cut

API_VERSION, KIND = "dpgateway/v1alpha1", "Parameters"
FROM_CLASS = "FromClass"
LONGEST_QUOTE = 60

Parameters = Mapping[str, Any]
"""Options of the driver, as plain values, by name."""
NO_PARAMETERS: Parameters = MappingProxyType({})


def parameters(wanted: Allocated, one: Result) -> Parameters:
    """What class and claim ask of the driver for this result. Raises RequestError."""
    request = f"{one.request}/{one.alternative}" if one.alternative else one.request
    names = {request, one.request}
    concerned = [it for it in wanted.configs if not it.get("requests") or names.intersection(it["requests"])]
    fixed, found = dict[str, Any](), dict[str, Any]()
    # Whatever the order of the list, the class comes first.
    for config in sorted(concerned, key=lambda it: it.get("source") != FROM_CLASS):
        by_class = config.get("source") == FROM_CLASS
        whose = f"{wanted}: parameters of {'the class' if by_class else 'the claim'} for request {request}"
        for key, value in _options(config["opaque"].get("parameters"), whose).items():
            if not by_class and fixed.get(key, value) != value:
                raise RequestError(
                    f"{whose}: {key}: found {_quoted(value)}, expected {_quoted(fixed[key])}, as the class says"
                )
            found[key] = value
            if by_class:
                fixed[key] = value
    return found or NO_PARAMETERS


def _options(document: Any, whose: str) -> Mapping[str, Any]:  # noqa: ANN401  as JSON has it
    """The options in one document. Raises RequestError."""
    if not isinstance(document, dict):
        raise RequestError(f"{whose}: found {_quoted(document)}, expected a mapping with apiVersion, kind and options")
    for key, expected in (("apiVersion", API_VERSION), ("kind", KIND)):
        if document.get(key) != expected:
            raise RequestError(f"{whose}: {key}: found {_quoted(document.get(key))}, expected {expected}")
    if unknown := sorted(document.keys() - {"apiVersion", "kind", "options"}):
        raise RequestError(f"{whose}: {unknown[0]}: found an unknown key, expected apiVersion, kind and options")
    options = document.get("options") or {}
    if not isinstance(options, dict):
        raise RequestError(f"{whose}: options: found {_quoted(options)}, expected a mapping")
    return options


def _quoted(value: Any) -> str:  # noqa: ANN401  as JSON has it
    return "nothing" if value is None else cut(repr(value), LONGEST_QUOTE)
