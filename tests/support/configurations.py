"""Configurations as text, and what is told of them."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import pytest

from dpgateway.config import Configuration, Document, InvalidConfiguration, ResourceKeys, read
from dpgateway.drivers.discovery import Found
from dpgateway.drivers.options import Claims, completed, resolve


class Write(Protocol):
    """Writes a configuration's file, and returns its path."""

    def __call__(self, text: str, name: str = "config.yaml") -> Path: ...


def load(path: Path) -> Document:
    """Raises InvalidConfiguration with all that is wrong."""
    document, problems = read(path)
    if problems:
        raise InvalidConfiguration(problems)
    return document


def complete(document: Document, drivers: Mapping[str, Found], installed: Iterable[str] = ()) -> Configuration:
    """With its drivers' options, typed on this thread. Raises InvalidConfiguration with all that is wrong."""
    claims = Claims()
    configuration, problems = resolve(
        document, drivers, installed, lambda entry, found: claims.checked(entry, completed(entry, found))
    )
    if problems:
        raise InvalidConfiguration(problems)
    return configuration


def problems_of(path: Path) -> Sequence[str]:
    """Without what they all begin with, ``path``."""
    with pytest.raises(InvalidConfiguration) as caught:
        load(path)
    return [str(problem).removeprefix(f"{path}") for problem in caught.value.problems]


def only_problem(path: Path) -> str:
    (problem,) = problems_of(path)
    return problem


def resources(document: Document) -> list[ResourceKeys]:
    """Those of its entries, which have to be valid."""
    found = [entry.resource for entry in document.entries]
    return [resource for resource in found if resource is not None]
