"""Plain values become typed ones as they are, or all that is wrong is told. The types are those of `Options`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest

from dpgateway import from_plain, refuse


@dataclass(frozen=True)
class Inner:
    depth: int = 0
    paths: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        if self.depth == 13:
            raise RuntimeError("unlucky")
        if self.depth == 14:
            refuse(["depth: expected another", "paths[0]: expected less"])
        if self.depth == 15:
            raise ExceptionGroup("mixed", [ValueError("depth: no"), LookupError("a bug")])
        if self.depth == 16:
            raise ValueError


@dataclass(frozen=True)
class Thing:
    name: str
    ratio: float = 0.5
    ready: bool = False
    mode: Literal["a", "b", 1] = "a"
    wait: timedelta | None = None
    inner: Inner | None = None
    inners: Sequence[Inner] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    anything: Any = None
    made: int = field(default=0, init=False)


@dataclass(frozen=True)
class Empty:
    pass


def faults(value: object, kind: type = Thing) -> list[str]:
    with pytest.raises(ValueError, match=r".") as caught:
        from_plain(value, kind)
    return str(caught.value).split("; ")


def test_every_kind_of_value() -> None:
    value = {
        "name": "x",
        "ratio": 1,
        "ready": True,
        "mode": 1,
        "wait": "1m30s",
        "inner": {"depth": 1, "paths": ["/a", "b"]},
        "inners": [{"depth": 2}, {}, None],
        "labels": {"a": "b"},
        "anything": [{"a": 1}],
    }
    inner = Inner(1, (Path("/a"), Path("b")))
    inners = (Inner(2), Inner(), Inner())
    wait = timedelta(seconds=90)
    thing = from_plain(value, Thing)
    assert thing == Thing("x", 1.0, True, 1, wait, inner, inners, {"a": "b"}, [{"a": 1}])
    assert type(thing.ratio) is float


@pytest.mark.parametrize("key", ["wait", "inner", "inners", "labels", "anything"])
def test_nothing_is_a_value_of_what_may_be_empty(key: str) -> None:
    assert from_plain({"name": "x", key: None}, Thing) == Thing("x")


def test_what_is_frozen_stays_so() -> None:
    labels: Any = from_plain({"name": "x", "labels": {"a": "b"}}, Thing).labels
    with pytest.raises(TypeError):
        labels["a"] = "c"


@dataclass(frozen=True)
class Particular:
    first: int
    second: int = 0

    def __post_init__(self) -> None:
        if self.first == 13:
            refuse(["first: unlucky", "second: not with this first"])


def test_constructor_errors_beside_wrong_keys() -> None:
    wrong = 'second: found "x", expected an integer'
    assert faults({"first": 13, "second": "x"}, Particular) == [wrong, "first: found 13", "unlucky"]
    assert faults({"second": "x"}, Particular) == [
        "first: found nothing, expected a value, because this key has no default",
        wrong,
    ]


def test_all_errors_are_told_at_once() -> None:
    value = {
        "ready": 1,
        "mode": True,
        "inners": [{"depth": "1"}, {"paths": "a"}, 5, {"deep": 1}],
        "labels": {"x/y": 1, 2: "z"},
        "made": 1,
    }
    assert faults(value) == [
        "made: found an unknown key, expected one of name, ratio, ready, mode, wait, inner, inners, labels, anything",
        "did you mean mode?",
        "name: found nothing, expected a value, because this key has no default",
        "ready: found 1, expected true or false",
        "write true",
        "mode: found true, expected a or b or 1",
        'inners[0].depth: found "1", expected an integer',
        "write 1, without quotes",
        'inners[1].paths: found "a", expected a list of path',
        'write ["a"]',
        "inners[2]: found 5, expected a mapping with the keys depth, paths",
        "inners[3].deep: found an unknown key, expected one of depth, paths",
        "did you mean depth?",
        "labels[2]: found the key 2, expected keys that are strings",
        'put it in quotes: "2"',
        'labels["x/y"]: found 1, expected a string',
        'put it in quotes: "1"',
    ]


@pytest.mark.parametrize(
    ("value", "kind", "told"),
    [
        ([1], Thing, "found a list, expected a mapping with the keys name, ratio, "),
        ("x", Empty, 'found "x", expected an empty mapping'),
        ({"name": "x", "ratio": float("nan")}, Thing, "ratio: found nan, expected a number"),
        ({"name": "x", "wait": 5}, Thing, "wait: found 5, expected a duration: "),
        ({"name": "x", "inner": {"depth": 16}}, Thing, "inner: ValueError"),
    ],
)
def test_one_wrong_value(value: object, kind: type, told: str) -> None:
    assert faults(value, kind)[0].startswith(told)


def test_constructor_errors_find_their_key() -> None:
    value = {"name": "x", "inner": {"depth": 14, "paths": ["/a"]}}
    assert faults(value) == ["inner.depth: found 14, expected another", 'inner.paths[0]: found "/a", expected less']
    assert faults({"depth": 14}, Inner) == ["depth: found 14, expected another", "paths[0]: expected less"]


def test_a_dataclass_with_a_wrong_field_is_not_made() -> None:
    assert faults({"depth": 13, "paths": [1]}, Inner) == ["paths[0]: found 1, expected a path"]


@pytest.mark.parametrize(("depth", "error"), [(13, RuntimeError), (15, LookupError)])
def test_a_bug_of_the_dataclass_is_raised_as_it_is(depth: int, error: type[Exception]) -> None:
    with pytest.raises(error):
        from_plain({"depth": depth}, Inner)


def test_a_type_that_no_file_can_have_is_a_bug_too() -> None:
    @dataclass(frozen=True)
    class Odd:
        when: complex = 0j

    assert from_plain({}, Odd) == Odd()
    with pytest.raises(TypeError, match="complex isn't a type that a configuration can have"):
        from_plain({"when": 1}, Odd)


@dataclass(frozen=True)
class Pattern:
    short_form: ClassVar[str] = "any_of"
    any_of: tuple[str, ...] = field(default=(), metadata={"single": True})
    ignore_case: bool = False


@dataclass(frozen=True)
class Search:
    patterns: Mapping[str, Pattern] = field(default_factory=dict)
    first: Pattern | None = None
    others: tuple[Pattern, ...] = field(default=(), metadata={"single": True})


@pytest.mark.parametrize(
    ("short", "meant"),
    [
        ({"first": "a"}, Search(first=Pattern(("a",)))),
        ({"first": ["a", "b"]}, Search(first=Pattern(("a", "b")))),
        ({"first": {"any_of": "a", "ignore_case": True}}, Search(first=Pattern(("a",), True))),
        ({"patterns": {"x": "a", "y": {}}}, Search({"x": Pattern(("a",)), "y": Pattern()})),
        ({"others": "a"}, Search(others=(Pattern(("a",)),))),
        ({"others": ["a", ["b", "c"]]}, Search(others=(Pattern(("a",)), Pattern(("b", "c"))))),
        ({"others": {"ignore_case": True}}, Search(others=(Pattern(ignore_case=True),))),
        ({"first": None, "others": None}, Search()),
    ],
)
def test_short_forms(short: object, meant: Search) -> None:
    assert from_plain(short, Search) == meant


def test_errors_in_short_forms_have_their_place() -> None:
    assert faults({"patterns": {"x": ["a", 1]}}, Search)[0] == "patterns.x[1]: found 1, expected a string"
    assert faults({"others": [{"case": True}]}, Search) == [
        "others[0].case: found an unknown key, expected one of any_of, ignore_case"
    ]
