"""A configuration as plain values, which the running gateway tells of the one that it serves; and back.

What is told has the form of the file, with defaults filled in, so that it is read as a file is.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from dpgateway.config.document import Document, of_plain
from dpgateway.config.values import Configuration


def told(configuration: Configuration) -> dict[str, Any]:
    """What JSON can hold."""
    settings = {key: _plain(getattr(configuration, key)) for key in ("kubelet", "state_dir", "runtime", "web")}
    return {"resources": [resource.written for resource in configuration.resources], **settings}


def heard(told: Any) -> Document:  # noqa: ANN401  JSON
    """What another gateway told. Raises InvalidConfiguration if this one wouldn't take it."""
    return of_plain(told, "the running gateway's configuration")


def _plain(value: Any) -> Any:  # noqa: ANN401
    """A setting as the file has it; without the keys that nobody has set."""
    if is_dataclass(value):
        keys = {key.name: getattr(value, key.name) for key in fields(value)}
        return {key: _plain(inner) for key, inner in keys.items() if inner is not None}
    return [_plain(inner) for inner in value] if isinstance(value, tuple) else str(value)
