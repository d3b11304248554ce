"""Variables in another plugin's configuration, ``${SECRET_DOMAIN}``, in whose place Flux or envsubst puts a value.

No value is known here, not even the default of ``${COUNT:=4}``, which the cluster may override. So what a variable is
in is *not kept*, and each variable is told once.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace

from dpgateway.config import InvalidConfiguration, Place
from dpgateway.importing.imported import Imported, NotKept

_VARIABLE = re.compile(r"\$\{([A-Za-z_][\w.]*)")
_GIVE = "its value isn't here: give what `kubectl get -o yaml`, `flux build kustomization` or `envsubst` prints"


def without_variables(imported: Imported) -> Imported:
    """Without the resources that have variables; for each variable there is one NotKept that names what it is in."""
    places = defaultdict[str, list[tuple[Place, str]]](list)
    resources, not_kept, taken = [], [], set()
    for resource in imported.resources:
        if names := _VARIABLE.findall(str(resource.plain())):
            taken.add(resource.name)
        else:
            resources.append(resource)
        for name in names:
            places[name].append((resource.place, resource.name))
    for one in imported.not_kept:
        names = _VARIABLE.findall(str(one))
        if not names and one.resource not in taken:
            not_kept.append(one)
        for name in names:
            places[name].append((one.place, one.resource or one.what))
    for name, found in places.items():
        where = ", ".join(dict.fromkeys(what for _, what in found))
        not_kept.append(NotKept(found[0][0], f"the variable ${{{name}}}", f"{_GIVE}; it is in {where}"))
    return replace(imported, resources=tuple(resources), not_kept=tuple(not_kept))


def explained(error: InvalidConfiguration) -> InvalidConfiguration:
    """The same error, whose problems with variables say what to give instead."""
    hint = f"it has a variable, and {_GIVE}"
    return InvalidConfiguration(
        replace(one, hint=hint) if _VARIABLE.search(one.found) else one for one in error.problems
    )
