"""A claim's parameters over a resource's options, in the driver's own types."""

import re
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Literal

import pytest

from dpgateway import refuse
from dpgateway.drivers.parameters import per_claim, with_parameters


@dataclass(frozen=True)
class Limits:
    most: int = 4


@dataclass(frozen=True)
class SomeOptions:
    path: Path = field(metadata={"help": "x"})
    baud: int = field(default=9600, metadata={"help": "x", "per_claim": True})
    mode: Literal["fast", "safe"] = field(default="safe", metadata={"help": "x", "per_claim": True})
    wait: timedelta = field(default=timedelta(seconds=1), metadata={"help": "x", "per_claim": True})
    limits: Limits = field(default_factory=Limits, metadata={"help": "x", "per_claim": True})
    names: tuple[str, ...] = field(default=(), metadata={"help": "x", "per_claim": True})
    kept: bool = field(default=False, metadata={"help": "x", "per_claim": False})

    def __post_init__(self):
        wrong = [f"baud: expected more than 0, found {self.baud}"] if self.baud <= 0 else []
        refuse([*wrong, f"names: expected at most 2, found {count}"] if (count := len(self.names)) > 2 else wrong)


OPTIONS = SomeOptions(Path("/x"), kept=True)
KEYS = "baud, mode, wait, limits, names"


def test_options_that_a_claim_may_choose():
    assert ", ".join(per_claim(SomeOptions)) == ", ".join(per_claim(OPTIONS)) == KEYS
    assert per_claim(object()) == ()


@pytest.mark.parametrize(
    ("given", "changed"),
    [
        ({}, {}),
        ({"baud": 19200, "mode": "fast"}, {"baud": 19200, "mode": "fast"}),
        ({"wait": "2m", "names": ["a", "b"]}, {"wait": timedelta(minutes=2), "names": ("a", "b")}),
        ({"limits": {"most": 2}}, {"limits": Limits(2)}),
    ],
)
def test_the_rest_is_the_resources(given, changed):
    found = with_parameters(OPTIONS, given)
    assert {name: getattr(found, name) for name in changed} == changed
    assert (found.path, found.kept) == (Path("/x"), True)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"boud": 1}, f"boud: found an unknown key, expected one of {KEYS}; did you mean baud?"),
        ({"path": "/etc/passwd"}, f"path: found an option of the resource alone, expected one of {KEYS}"),
        ({"kept": False}, f"kept: found an option of the resource alone, expected one of {KEYS}"),
        ({"baud": "fast"}, 'baud: found "fast", expected an integer'),
        ({"mode": "slow"}, 'mode: found "slow", expected fast or safe'),
        ({"wait": 2}, "wait: found 2, expected a duration"),
        ({"limits": {"most": "x"}}, 'limits.most: found "x", expected an integer'),
        ({"baud": -1}, "baud: found -1, expected more than 0"),
        ({"baud": "x", "mode": 1}, "; mode: found 1"),
        ({"baud": 0, "names": ["x"] * 3}, "baud: found 0, expected more than 0; names: found 3, expected at most 2"),
    ],
)
def test_an_error_names_key_found_and_expected(given, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        with_parameters(OPTIONS, given)


def test_a_driver_without_such_options_takes_none():
    @dataclass(frozen=True)
    class Bare:
        path: str = ""

    with pytest.raises(ValueError, match="path: found an option of the resource alone, expected no options"):
        with_parameters(Bare(), {"path": "x"})
