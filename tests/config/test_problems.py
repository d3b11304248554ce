"""A problem's text is one line: where, what was found, what was expected, and a hint."""

import pytest

from dpgateway.config import InvalidConfiguration, Place, Problem, did_you_mean, in_lines, in_order
from dpgateway.config.problems import MOST_TOLD, shown

AT = Place("a.yaml", 3, 5, "resources[0].x")


@pytest.mark.parametrize(
    ("problem", "text"),
    [
        (Problem(AT, "1", "2", "hint"), "a.yaml:3: resources[0].x: found 1, expected 2; hint"),
        (Problem(AT, hint="hint"), "a.yaml:3: resources[0].x: hint"),
        (Problem(Place("a.yaml"), "1", "2"), "a.yaml: found 1, expected 2"),
        (Problem(Place("a.yaml", key="x"), expected="2"), "a.yaml: x: expected 2"),
    ],
)
def test_its_text(problem: Problem, text: str) -> None:
    assert str(problem) == text


def test_they_are_sorted_by_place_and_told_once() -> None:
    first, second, third = Problem(Place("a", 9)), Problem(Place("b", 1, 5)), Problem(Place("b", 1, 20))
    assert in_order([third, first, second, first]) == (first, second, third)
    error = InvalidConfiguration([second, first])
    assert error.problems == (first, second)
    assert str(error) == "a:9\nb:1"


@pytest.mark.parametrize(
    ("steps", "key"),
    [((), ""), (("a", "b-c", 0), "a.b-c[0]"), (("a", "x/y", "b"), 'a["x/y"].b'), ((0, "a"), "[0].a"), (("",), '[""]')],
)
def test_keys_as_written_in_the_file(steps: tuple[object, ...], key: str) -> None:
    assert Place("").below(*steps).key == key
    assert Place("", key="x").below(*steps).key == "x" + (f".{key}" if key and key[0] != "[" else key)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "nothing"),
        (False, "false"),
        (1.5, "1.5"),
        ('a"é', '"a\\"é"'),
        ("x" * 61, f'"{"x" * 60}..."'),
        ({}, "an empty mapping"),
        ({"a": 1}, "a mapping"),
        ([], "an empty list"),
        ([1], "a list"),
    ],
)
def test_a_value_is_shown_as_yaml_writes_it(value: object, text: str) -> None:
    assert shown(value) == text


def test_only_a_close_word_is_suggested() -> None:
    assert did_you_mean("Cuont", ["count", "name"]) == "did you mean count?"
    assert did_you_mean("zzz", ["count", "name"]) == ""


def test_very_many_problems_are_cut() -> None:
    problems = [Problem(Place("a", line), "x") for line in range(1, MOST_TOLD + 3)]
    lines = list(in_lines(problems[:MOST_TOLD]))
    assert lines == [f"a:{line}: found x" for line in range(1, MOST_TOLD + 1)]
    assert [*lines, "and 2 more: these are the first 100 of 102 problems"] == list(in_lines(problems))
    assert str(InvalidConfiguration(problems)).splitlines() == list(in_lines(problems))
