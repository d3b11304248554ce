"""JSON whose texts are templates: filled for each object, and merged for several."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class JsonText:
    """A JSON value as text, so that it is hashable and comparable."""

    text: str


def texts_of(value: object) -> Iterator[str]:
    """All texts in a value, including keys."""
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
    """A template can't be filled."""


def filled(value: object, fill: Callable[[str], str]) -> Any:  # noqa: ANN401
    """The value with each text filled. A key that ends in ``?`` is left out if its value can't be filled."""
    if isinstance(value, str):
        return fill(value)
    if isinstance(value, list | tuple):
        return [filled(inner, fill) for inner in value]
    if not isinstance(value, Mapping):
        return value
    pairs: dict[str, Any] = {}
    for key, inner in value.items():
        name = str(key)
        try:
            name_filled, inner_filled = fill(name.removesuffix("?")), filled(inner, fill)
        except NoText:
            if not name.endswith("?"):
                raise
        else:
            pairs[name_filled] = inner_filled
    return pairs


def dumped(value: object, *, in_order: bool = True) -> str:
    """JSON in the format of Go's encoding/json: no spaces, HTML's ``&<>`` escaped, keys sorted as for a map, or with
    ``in_order=False`` in their own order, as for a struct.
    """
    text = json.dumps(value, sort_keys=in_order, separators=(",", ":"), ensure_ascii=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def merged(values: Iterable[JsonText], *, in_order: bool = True) -> str:
    """Merges mappings recursively. Texts under one key are joined by commas, without duplicates."""
    together: Any = {}
    for value in values:
        together = _both(together, json.loads(value.text))
    return dumped(together, in_order=in_order)


def _both(one: Any, other: Any) -> Any:  # noqa: ANN401
    if isinstance(one, dict) and isinstance(other, dict):
        return one | {key: _both(one[key], value) if key in one else value for key, value in other.items()}
    if isinstance(one, str) and isinstance(other, str):
        return ",".join(dict.fromkeys([*one.split(","), *other.split(",")]))
    return other  # lists and numbers can't be joined: the last one wins
