"""Options of a driver that a claim may choose for its devices, over those of the resource.

A driver marks such an option with ``metadata={"per_claim": True}``, and has the method ``with_options``, which returns
the driver as it is with other options. So parameters are read with the driver's own types, and checked by its own
``__post_init__``, as the configuration is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, get_type_hints

from dpgateway.config.problems import Problem, Wrong, did_you_mean
from dpgateway.config.source import refusal, unplaced
from dpgateway.config.strict import causes, typed


def per_claim(options: Any) -> tuple[str, ...]:  # noqa: ANN401  a driver's Options, or an object of it
    """The names of the options that a claim may choose."""
    found = fields(options) if is_dataclass(options) else ()
    return tuple([one.name for one in found if one.init and one.metadata.get("per_claim") is True])


def with_parameters(options: Any, parameters: Mapping[str, Any]) -> Any:  # noqa: ANN401  of the driver's own type
    """The resource's options with a claim's ``parameters``, plain values, in their places. Runs the driver's code.
    Raises ValueError, whose text names key, found and expected.
    """
    allowed, problems, values = per_claim(options), list[Problem](), dict[str, Any]()
    written, kinds = unplaced(dict(parameters)), get_type_hints(type(options))
    about = {one.name: one.metadata for one in fields(options)}
    for key in parameters:
        part = written.part(key)
        if key in allowed:
            values[key] = typed(part, kinds[key], problems, about[key])
            continue
        found = "an option of the resource alone" if key in about else "an unknown key"
        expected = f"one of {', '.join(allowed)}" if allowed else "no options: none of this driver's is per claim"
        problems.append(Wrong(found, expected, did_you_mean(key, allowed)).at(part.place))
    if not problems:
        try:
            return replace(options, **values)
        except (ValueError, TypeError, ExceptionGroup) as error:  # a group of several: dpgateway.refuse
            problems += [refusal(str(one) or type(one).__name__, written) for one in causes(error)]
    raise ValueError("; ".join(map(str, problems)))
