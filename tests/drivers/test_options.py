"""Drivers' options: structured strictly, with their places; and what happens when a driver can't be used."""

import itertools
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import pytest

from dpgateway import Device, refuse
from dpgateway.config import Document, InvalidConfiguration
from dpgateway.drivers.discovery import Found
from dpgateway.drivers.options import MOST_WARNINGS, completed, preferring, resolve, warned
from tests.support.configurations import complete, load


@dataclass(frozen=True)
class Port:
    path: Path
    baud: int = 9600

    def __post_init__(self) -> None:
        if self.baud % 300:
            raise ValueError(f"baud: expected a multiple of 300, found {self.baud}")


class Shy(Exception):
    def __str__(self) -> str:
        raise LookupError


@dataclass(frozen=True)
class Options:
    pool: str
    count: int = 1
    ratio: float = 0.5
    quiet: bool = False
    mode: Literal["char", "block"] = "char"
    names: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    wait: timedelta = timedelta(seconds=1)
    limit: int | None = None
    ports: tuple[Port, ...] = ()
    main: Port | None = None
    hosts: list[str] = field(default_factory=list)
    seats: Sequence[int] = ()
    limits: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.pool == "very bad":
            refuse(["pool: expected a better one", "count: expected less"])
        if self.pool == "worse":
            raise ValueError("pool[0]: it is\n  worse than bad")
        if self.pool == "bad":
            raise ValueError("this pool doesn't exist")
        if self.pool == "bug":
            raise RuntimeError("oops")
        if self.pool == "lookup":
            raise KeyError("oops")
        if self.pool == "shy":
            raise Shy

    def warnings(self, _: Mapping[str, Any]) -> Iterable[str]:
        if self.pool == "single":
            return "pool: it is a text alone"
        return itertools.repeat("pool: it is endless") if self.pool == "warned" else ()

    def claims(self) -> Iterable[Any]:
        if self.pool == "unhashable":
            return [[]]
        if self.pool == "endless":
            return itertools.repeat("name")
        if self.pool == "exit":
            sys.exit(3)
        if self.pool == "unclaimable":
            raise RuntimeError("oops")
        return [self.pool]


class Driver:
    Options = Options


class Preferring(Driver):
    def prefer(self, available: list[Device], must_include: list[Device], size: int) -> list[Device]:
        return available[:size]


DRIVERS: dict[str, Any] = {
    "good": Found("good", "good-driver", "1", Driver),
    "preferring": Found("preferring", "good-driver", "1", Preferring),
    "broken": Found("broken", "broken-driver", "1", failure="it can't be loaded: ImportError: no libfoo"),
}


Load = Callable[[str], Document]


@pytest.fixture
def document(tmp_path: Path) -> Load:
    def written(text: str) -> Document:
        file = tmp_path / "config.yaml"
        file.write_text(text)
        return load(file)

    return written


def entry(options: str, driver: str = "good", name: str = "a") -> str:
    return f"{{name: example.com/{name}, driver: {driver}, options: {options}}}"


def problems_of(document: Document) -> Sequence[str]:
    with pytest.raises(InvalidConfiguration) as caught:
        complete(document, DRIVERS)
    return [str(problem).partition("config.yaml")[2] for problem in caught.value.problems]


def test_every_kind_of_option(document: Load) -> None:
    written = """resources:
- name: example.com/a
  driver: good
  options:
    pool: p
    count: 3
    ratio: 1
    quiet: true
    mode: block
    names: [a, b]
    labels: {x: y}
    wait: 1m
    limit: 4
    ports: [{path: /dev/a}, {path: /dev/b, baud: 300}]
    main: {path: rel}
    hosts: [h]
    seats: [1, 2]
    limits: {l: 1}
"""
    (resource,) = complete(document(written), DRIVERS).resources
    ports = (Port(Path("/dev/a")), Port(Path("/dev/b"), 300))
    minute = timedelta(minutes=1)
    expected = Options("p", 3, 1.0, True, "block", ("a", "b"), {"x": "y"}, minute, 4, ports, Port(Path("rel")))
    expected = replace(expected, hosts=["h"], seats=(1, 2), limits={"l": 1})
    assert resource.options == expected
    assert (resource.name, resource.driver, resource.driver_class) == ("example.com/a", "good", Driver)
    assert (resource.where.line, resource.where.key, resource.failure) == (2, "resources[0]", None)
    assert str(resource.where).endswith("config.yaml:2")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("{}", "options.pool: found nothing, expected a value, because this key has no default"),
        ("null", "options.pool: found nothing, expected a value, because this key has no default"),
        ("[p]", "options: found a list, expected a mapping with the keys pool, count, ratio"),
        ("{pool: p, cuont: 1}", "did you mean count?"),
        ('{pool: p, count: "2"}', 'options.count: found "2", expected an integer'),
        ("{pool: p, count: true}", "options.count: found true, expected an integer"),
        ("{pool: p, count: 1.0}", "options.count: found 1.0, expected an integer"),
        ("{pool: p, ratio: .inf}", "options.ratio: found .inf, expected a number"),
        ("{pool: p, quiet: 1}", "options.quiet: found 1, expected true or false"),
        ("{pool: p, quiet: yes}", 'options.quiet: found "yes", expected true or false'),
        ("{pool: p, mode: blok}", "expected char or block; did you mean block?"),
        ("{pool: p, names: a}", 'options.names: found "a", expected a list of string; write ["a"]'),
        ("{pool: p, names: [a, 1]}", 'options.names[1]: found 1, expected a string; put it in quotes: "1"'),
        ("{pool: p, labels: {a: 1}}", "options.labels.a: found 1, expected a string"),
        ("{pool: p, wait: 5}", "options.wait: found 5, expected a duration"),
        ("{pool: p, limit: x}", 'options.limit: found "x", expected an integer'),
        ("{pool: p, ports: [{path: a, bod: 1}]}", "ports[0].bod: found an unknown key, expected one of path, baud"),
        ("{pool: p, main: {path: a, baud: 7}}", "options.main.baud: found 7, expected a multiple of 300"),
        ("{pool: p, main: {path: ''}}", 'options.main.path: found "", expected a path'),
        ("{pool: bad}", "options: this pool doesn't exist"),
        ("{pool: worse}", "options.pool[0]: it is worse than bad"),
    ],
)
def test_a_wrong_option_has_its_place(document: Load, options: str, problem: str) -> None:
    (found,) = problems_of(document(f"resources:\n- {entry('{pool: fine}', name='b')}\n- {entry(options)}"))
    assert found.startswith(":3: resources[1].options")
    assert problem in found


def test_all_resources_errors_at_once(document: Load) -> None:
    written = f"resources:\n- {entry('{pool: 1, count: x}')}\n- {entry('{pool: 2}', name='b')}"
    assert [problem.split(": ")[:2] for problem in problems_of(document(written))] == [
        [":2", "resources[0].options.pool"],
        [":2", "resources[0].options.count"],
        [":3", "resources[1].options.pool"],
    ]


def test_all_errors_of_one_resource_at_once(document: Load) -> None:
    assert [
        problem.split(": ", 1)[1] for problem in problems_of(document(f"resources:\n- {entry('{pool: very bad}')}"))
    ] == [
        "resources[0].options: count: expected less",
        'resources[0].options.pool: found "very bad", expected a better one',
    ]
    written = entry("{pool: p, labels: {a: 2, b: c}, limits: {a: x}}")
    assert [problem.split(": ")[1:3] for problem in problems_of(document(f"resources:\n- {written}"))] == [
        ["resources[0].options.labels.a", "found 2, expected a string; put it in quotes"],
        ["resources[0].options.limits.a", 'found "x", expected an integer'],
    ]


def test_all_errors_of_options_are_told(document: Load) -> None:
    """But not what it says of the wrong ones, or of all together: it saw their defaults."""
    written = entry("{pool: p, main: {path: x, baud: 7, bod: 1}, count: x}")
    assert [problem.split(": ")[1:3] for problem in problems_of(document(f"resources:\n- {written}"))] == [
        ["resources[0].options.main.baud", "found 7, expected a multiple of 300"],
        ["resources[0].options.main.bod", "found an unknown key, expected one of path, baud"],
        ["resources[0].options.count", 'found "x", expected an integer'],
    ]
    for pool, told in {"very bad": 2, "bad": 1, "bug": 1}.items():
        written = entry(f"{{pool: {pool}, count: x}}")
        assert len(problems_of(document(f"resources:\n- {written}"))) == told


def test_equality_ignores_places(document: Load) -> None:
    first = document(f"resources:\n- {entry('{pool: p, labels: {a: b}}')}")
    again = document(f"# moved\ndefaults: {{}}\nresources:\n\n- {entry('{labels: {a: b}, pool: p, count: 1}')}")
    other = document(f"resources:\n- {entry('{pool: p, labels: {a: c}}')}")
    expected = complete(first, DRIVERS)
    assert complete(again, DRIVERS) == expected
    assert complete(other, DRIVERS) != expected


def test_options_can_have_defaults(document: Load) -> None:
    written = f"defaults: {{options: {{count: 7}}}}\nresources:\n- {entry('{pool: p}')}"
    assert complete(document(written), DRIVERS).resources[0].options == Options("p", 7)


def test_a_driver_that_is_not_installed(document: Load) -> None:
    (problem,) = problems_of(document(f"resources:\n- {entry('{}', driver='god')}"))
    expected = 'found "god", expected an installed driver: broken, good, preferring; did you mean good?'
    assert problem == f":2: resources[0].driver: {expected}"
    with pytest.raises(InvalidConfiguration, match=r'found "god", expected an installed driver; there is none'):
        complete(document(f"resources:\n- {entry('{}', driver='god')}"), {})
    with pytest.raises(InvalidConfiguration, match="good, other; did you mean good"):
        complete(document(f"resources:\n- {entry('{}', driver='god')}"), {}, ["good", "other"])


def test_a_broken_driver_fails_its_own_resources(document: Load) -> None:
    written = "resources:\n" + "\n".join(
        f"- {one}"
        for one in (
            entry("{any: thing}", "broken", "a"),
            entry("{pool: p}", name="b"),
            entry("{pool: bug}", name="c"),
            entry("{pool: unclaimable}", name="d"),
            entry("{pool: lookup}", name="e"),
            entry("{pool: shy}", name="f"),
            entry("{pool: exit}", name="g"),
        )
    )
    broken, good, bug, unclaimable, lookup, shy, leaving = complete(document(written), DRIVERS).resources
    assert shy.failure == "its Options failed: Shy, whose text can't be had: __str__ raised LookupError"
    assert leaving.failure == "its Options.claims failed: SystemExit: 3"
    assert broken.failure == "it can't be loaded: ImportError: no libfoo"
    assert lookup.failure == "its Options failed: KeyError: 'oops'"
    assert bug.failure == "its Options failed: RuntimeError: oops"
    assert unclaimable.failure == "its Options.claims failed: RuntimeError: oops"
    assert [one.options for one in (broken, bug, unclaimable)] == [None, None, None]
    assert (good.failure, good.options) == (None, Options("p"))


def test_a_second_claim_is_a_problem(document: Load) -> None:
    written = document(f"resources:\n- {entry('{pool: p}')}\n- {entry('{pool: p}', name='b')}")
    (problem,) = problems_of(written)
    assert problem.startswith(':3: resources[1].options: found "p", which the resource at ')
    assert "config.yaml:2 claims too" in problem
    other = document(f"resources:\n- {entry('{pool: p}')}\n- {entry('{pool: p}', 'preferring', 'b')}")
    assert len(complete(other, DRIVERS).resources) == 2


@pytest.mark.parametrize(
    ("first", "second", "as_"),
    [("p*", "pool", '"p*"'), ("pool", "p*", '"pool"'), ("p?ol", "p*", '"p?ol"'), ("p*", "p*", ""), ("p*", "x", None)],
)
def test_a_glob_claims_what_it_matches(document: Load, first: str, second: str, as_: str | None) -> None:
    written = document(f"resources:\n- {entry(f'{{pool: {first!r}}}')}\n- {entry(f'{{pool: {second!r}}}', name='b')}")
    if as_ is None:
        assert len(complete(written, DRIVERS).resources) == 2
        return
    (problem,) = problems_of(written)
    assert f'found "{second}", which the resource at ' in problem
    assert f"config.yaml:2 claims too{as_ and f', as {as_}'}, expected " in problem


def test_resources_of_one_pool_may_claim_the_same(document: Load) -> None:
    first, second = (entry("{pool: p}", name=name)[:-1] for name in "ab")
    pooled = f"resources:\n- {first}, pool: rack}}\n- {second}, pool: %s}}\n"
    assert len(complete(document(pooled % "rack"), DRIVERS).resources) == 2
    (problem,) = problems_of(document(pooled % "shelf"))
    assert problem.endswith("that no other resource of this driver has, or the same pool for both resources")


def test_default_options_claim_too(document: Load) -> None:
    written = "defaults: {options: {pool: p}}\nresources:\n" + "".join(
        f"- {{name: example.com/{name}, driver: good}}\n" for name in "ab"
    )
    (problem,) = problems_of(document(written))
    assert problem.startswith(':1: defaults.options: found "p", which the resource at ')
    assert "config.yaml:3 claims too" in problem


def test_an_incomparable_claim_fails_its_resource(document: Load) -> None:
    written = f"resources:\n- {entry('{pool: unhashable}')}\n- {entry('{pool: p}', name='b')}"
    first, second = complete(document(written), DRIVERS).resources
    assert (first.failure or "").startswith("its Options.claims failed: TypeError: ")
    assert second.failure is None


def test_only_resources_of_this_node_claim(document: Load) -> None:
    first, second = "{pool: p}, nodes: [a]", "{pool: p}, nodes: [b]"
    written = document(f"resources:\n- {entry(first)}\n- {entry(second, name='b')}")
    assert len(complete(written.for_node("a"), DRIVERS).resources) == 1


def test_the_drivers_with_a_preference_are_known() -> None:
    assert preferring(DRIVERS) == {"preferring"}


def test_resolve_gives_what_is_usable_too(document: Load) -> None:
    written = document(f"resources:\n- {entry('{pool: p}')}\n- {entry('{}', name='b')}")
    configuration, problems = resolve(written, DRIVERS, (), completed)
    assert [one.name for one in configuration.resources] == ["example.com/a"]
    assert [problem.place.key for problem in problems] == ["resources[1].options.pool"]


def test_endless_claims_and_warnings(document: Load) -> None:
    written = document(f"resources:\n- {entry('{pool: endless}')}\n- {entry('{pool: warned}', name='b')}")
    endless, good = complete(written, DRIVERS).resources
    assert endless.failure == "its Options.claims failed: ValueError: claims(): expected 10000 at most, found more"
    warnings = warned(written.entries[1], good, {})
    assert len(warnings) == MOST_WARNINGS + 1
    assert "more than 1000 texts" in str(warnings[-1])


def test_a_warning_without_its_list(document: Load) -> None:
    written = document(f"resources:\n- {entry('{pool: single}')}")
    (resource,) = complete(written, DRIVERS).resources
    (warning,) = warned(written.entries[0], resource, {})
    assert (warning.place.key, warning.hint) == ("resources[0].options.pool", "it is a text alone")
