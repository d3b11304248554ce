"""How types are named for whoever writes a configuration."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, Optional, Union

import pytest

from dpgateway.config.scalars import name_kind


@dataclass(frozen=True)
class Frozen:
    pass


@dataclass
class Thawed:
    pass


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (int, "integer"),
        (bool, "true or false"),
        (timedelta | None, "duration or null"),
        (Optional[Path], "path or null"),  # noqa: UP045  drivers may write it so
        (Union[None, str], "string or null"),  # noqa: UP007
        (Literal["a", 1], "a | 1"),
        (tuple[int, ...], "list of integer"),
        (Sequence[tuple[str, ...]], "list of list of string"),
        (list[Any], "list"),
        (dict[str, Frozen], "mapping of mapping"),
        (Mapping[str, Any], "mapping"),
    ],
)
def test_a_name(kind: object, name: str) -> None:
    assert name_kind(kind) == name


@pytest.mark.parametrize("kind", [complex, Thawed, tuple[int, int], dict[int, str], int | str, set[int]])
def test_other_types_have_none(kind: object) -> None:
    with pytest.raises(TypeError, match="isn't a type that a configuration can have"):
        name_kind(kind)
