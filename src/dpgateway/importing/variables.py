"""Variables in another plugin's configuration, in whose place a program puts a value: ``${SECRET_DOMAIN}`` of Flux or
envsubst, ``{{ domain }}`` of Helm or Ansible.

No value is known here, not even the default of ``${COUNT:=4}``, which the cluster may override. So a value with
a variable is *not kept*, and each variable is reported once.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from dpgateway.config import InvalidConfiguration, Place
from dpgateway.importing.imported import Imported, NotKept

_VARIABLE = re.compile(r"\$\{(?P<shell>[A-Za-z_][\w.]*)|\{\{-?\s*(?P<template>[^{}\s-][^{}]*)\}\}")
"""A template's end, with spaces and a dash, isn't told apart here, but in Python: time would grow with their square."""
_OTHER = re.compile(r"\W|_")
"""Characters in which a variable and the environment variable named after it differ."""
_OF_SHELL = re.compile(r'"?\$[A-Za-z_]\w*"?')
"""A whole value that is a variable of a shell or of envsubst; elsewhere such text may be meant."""
_GIVE = (
    "its value isn't here: give what `kubectl get -o yaml`, `flux build kustomization`, `envsubst` or `helm template` "
    "prints"
)


def without_variables(imported: Imported) -> Imported:
    """Drops the resources with variables. Each variable gets one NotKept, which names its places."""
    places = defaultdict[str, list[tuple[Place, str]]](list)
    resources, not_kept, taken = [], [], set()
    for resource in imported.resources:
        if names := _names(_strings(resource.plain())):
            taken.add(resource.name)
        else:
            resources.append(resource)
        for name in names:
            places[name].append((resource.place, resource.name))
    for one in imported.not_kept:
        names = _names(str(one))
        if not names and one.resource not in taken:
            not_kept.append(one)
        for name in names:
            places[name].append((one.place, one.resource or one.what))
    for name, found in places.items():
        where = ", ".join(dict.fromkeys(what for _, what in found))
        not_kept.append(NotKept(found[0][0], f"the variable {name}", f"{_GIVE}; it is in {where}"))
    return replace(imported, resources=tuple(resources), not_kept=tuple(not_kept))


def _strings(value: object) -> str:
    """All texts of a plain value."""
    if isinstance(value, Mapping):
        return "\n".join(_strings(one) for pair in value.items() for one in pair)
    return "\n".join(map(_strings, value)) if isinstance(value, list | tuple) else str(value)


def _names(text: str) -> list[str]:
    """The variables of a text, as written, without the environment variables named after them."""
    names = [
        f"${{{one['shell']}}}" if one["shell"] else f"{{{{ {one['template'].removesuffix('-').rstrip()} }}}}"
        for one in _VARIABLE.finditer(text)
    ]
    known: dict[str, str] = {}
    for one in names:
        known.setdefault(_OTHER.sub("", one).lower(), one)
    return list(known.values())


def explained(error: InvalidConfiguration) -> InvalidConfiguration:
    """The same error, whose problems with variables say what to give instead."""
    hint = f"it has a variable, and {_GIVE}"
    return InvalidConfiguration(
        replace(one, hint=hint) if _VARIABLE.search(one.found) or _OF_SHELL.fullmatch(one.found) else one
        for one in error.problems
    )
