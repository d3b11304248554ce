"""JSON whose texts are templates: filled for each object, and of several objects merged into one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class JsonText:
    """A value as a text, which can be compared."""

    text: str


def texts_of(value: object) -> Iterator[str]:
    """All texts in a value, keys too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield str(key)
            yield from texts_of(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from texts_of(inner)


class NoText(Exception):
    """Raised for a template that can't be filled."""


def filled(value: object, fill: Callable[[str], str]) -> Any:  # noqa: ANN401
    """The value with each text filled. The value of a key that ends in a question mark may be missing."""
    if isinstance(value, str):
        return fill(value)
    if isinstance(value, Mapping):
        return dict(_pairs(value, fill))
    if isinstance(value, list | tuple):
        return [filled(inner, fill) for inner in value]
    return value


def _pairs(value: Mapping[str, object], fill: Callable[[str], str]) -> Iterator[tuple[str, Any]]:
    for key, inner in value.items():
        name = str(key)
        try:
            yield fill(name.removesuffix("?")), filled(inner, fill)
        except NoText:
            if not name.endswith("?"):
                raise


def dumped(value: object, *, in_order: bool = True) -> str:
    """As Go's encoding/json writes a map, with its keys in order, or a struct: without spaces, and with three
    characters of HTML escaped.
    """
    text = json.dumps(value, sort_keys=in_order, separators=(",", ":"), ensure_ascii=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def merged(values: Iterable[JsonText], *, in_order: bool = True) -> str:
    """All mappings in one. Texts in one place are joined by commas, each once."""
    together: Any = {}
    for value in values:
        together = _both(together, json.loads(value.text))
    return dumped(together, in_order=in_order)


def _both(one: Any, other: Any) -> Any:  # noqa: ANN401
    if isinstance(one, dict) and isinstance(other, dict):
        return one | {key: _both(one[key], value) if key in one else value for key, value in other.items()}
    if isinstance(one, str) and isinstance(other, str):
        return ",".join(dict.fromkeys([*one.split(","), *other.split(",")]))
    return other
