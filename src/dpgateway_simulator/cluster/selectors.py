"""The selectors of classes and requests: the few forms of CEL that are common, and an error for all others.

`device.driver == "X" && device.attributes["X"].NAME == VALUE`, with any number of such terms. An attribute without a
domain of its own is in the driver's. As in the real evaluation, terms after a false one aren't looked at, and an
attribute that a device doesn't have is an error that ends the allocation.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

Device = Mapping[str, Any]

_VALUE = r'"(?:[^"\\]|\\.)*"|-?\d+|true|false'
_DRIVER = re.compile(rf"device\.driver\s*==\s*({_VALUE})")
_ATTRIBUTE = re.compile(rf'device\.attributes\["([^"]+)"\]\.([A-Za-z_]\w*)\s*==\s*({_VALUE})')


class SelectorError(Exception):
    """An expression that can't be evaluated: it isn't one of the forms, or a device lacks the attribute."""


def selected(expressions: list[str], driver: str, device: Device) -> bool:
    """Whether a device meets all the expressions. Raises SelectorError."""
    for text in expressions:
        for domain, name, wanted in terms(text):
            found = attribute(driver, device, domain, name) if name else driver
            if found is None:
                raise SelectorError(f"CEL runtime error: no such key: {name} (device {device['name']} of {driver})")
            if found != wanted:
                return False
    return True


def terms(expression: str) -> list[tuple[str, str, str | int | bool]]:
    """The domain and name of an attribute, both empty for the driver, and the wanted value. Raises SelectorError."""
    found = []
    for text in (one.strip() for one in expression.split("&&")):
        if match := _DRIVER.fullmatch(text):
            found.append(("", "", json.loads(match[1])))
        elif match := _ATTRIBUTE.fullmatch(text):
            found.append((match[1], match[2], json.loads(match[3])))
        else:
            expected = 'device.driver == "X" or device.attributes["X"].NAME == VALUE, joined by &&'
            raise SelectorError(f"the simulated scheduler can't evaluate {text!r}, expected {expected}")
    return found


def attribute(driver: str, device: Device, domain: str, name: str) -> str | int | bool | None:
    """An attribute's value; None if the device doesn't have it."""
    found = device.get("attributes", {})
    value = found.get(f"{domain}/{name}") or (found.get(name) if domain == driver else None)
    return None if value is None else next(iter(value.values()))
