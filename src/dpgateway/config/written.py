"""YAML text to plain values, each with the place where it was written."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from dpgateway.config.problems import InvalidConfiguration, Place, Problem, Wrong, shortened, shown

MOST_VALUES = 20_000
"""In one file, with its keys; a value counts as often as aliases repeat it."""
DEEPEST = 50
"""Levels."""
LONGEST_TAG = 100
"""Characters."""
_TAG = "tag:yaml.org,2002:"
"""What all tags of YAML itself begin with."""

_SYNTAX_ERRORS = (
    ("'\\t'", "a tab", "spaces", "YAML is indented with spaces only"),
    ("but found another document", "a second document ('---')", "one document per file", ""),
    ("expected <block end>", "broken YAML", "the keys of a mapping, and the items of a list, indented alike", ""),
    (
        "mapping values are not allowed here",
        "broken YAML",
        "keys of one mapping indented alike, one per line",
        "a value that contains ': ' needs quotes",
    ),
)
"""What ruamel.yaml says, and what we say instead: found, expected, hint."""


@dataclass(frozen=True, slots=True)
class Written:
    """A value as it was written: a scalar, or a list of these, or a mapping of these by their keys."""

    value: Any
    place: Place
    text: str = ""
    """Of a number: how it was written."""
    problems: tuple[Problem, ...] = ()
    """What is wrong with it before anybody knows what it should be. A scalar that has any has no value."""

    @property
    def shown(self) -> str:
        return shortened(self.text) or shown(self.value)

    def below(self, step: str) -> Written | None:
        """What a mapping has at the key ``step``, if it has that key."""
        inner: Written | None = self.value.get(step) if isinstance(self.value, dict) else None
        return inner

    def at(self, *steps: object) -> Place:
        """Where ``steps`` lead to from here; for what isn't there, the place of the nearest thing above it."""
        here = self
        for depth, step in enumerate(steps):
            try:
                here = here.value[step]
            except (LookupError, TypeError):  # scalars have no steps, and strings no keys
                return here.place.below(*steps[depth:])
        return here.place

    def parts(self) -> Iterator[Written]:
        """The value itself, and everything in it."""
        yield self
        if isinstance(self.value, dict | list):
            for inner in self.value.values() if isinstance(self.value, dict) else self.value:
                yield from inner.parts()

    def plain(self) -> Any:  # noqa: ANN401
        """The value without its places."""
        if isinstance(self.value, dict):
            return {key: inner.plain() for key, inner in self.value.items()}
        return [inner.plain() for inner in self.value] if isinstance(self.value, list) else self.value


def unplaced(value: object, place: Place = Place("")) -> Written:  # noqa: B008  a Place is frozen
    """A plain value that was written nowhere; the keys in it are counted from ``place``."""
    if isinstance(value, dict):
        wrong = tuple(_no_key(key).at(place.below(key)) for key in value if not isinstance(key, str))
        return Written({key: unplaced(inner, place.below(key)) for key, inner in value.items()}, place, problems=wrong)
    if isinstance(value, list):
        return Written([unplaced(inner, place.below(index)) for index, inner in enumerate(value)], place)
    return Written(value, place)


def parse(text: str, file: str) -> Written | None:
    """What ``text`` says, None if that is nothing. Raises InvalidConfiguration, with one problem, if it isn't YAML."""
    yaml = YAML(typ="safe", pure=True)
    yaml.Composer = _Composer
    try:
        node = yaml.compose(text)
        return node and _Values().written(node, _place(Place(file), node))
    except MarkedYAMLError as error:
        raise InvalidConfiguration([_syntax_error(error, file)]) from error
    except _TooMuch as error:
        raise InvalidConfiguration([Problem(Place(file), str(error), "plain values")]) from None
    except (YAMLError, ValueError) as error:
        text = " ".join(str(error).split())
        raise InvalidConfiguration([Problem(Place(file), "broken YAML", "YAML 1.2", text)]) from error


def _syntax_error(error: MarkedYAMLError, file: str) -> Problem:
    mark = error.problem_mark or error.context_mark
    place = Place(file, mark.line + 1, mark.column + 1) if mark is not None else Place(file)
    text = str(error.problem or error.context or "").strip()
    for words, *instead in _SYNTAX_ERRORS:
        if words in text:
            return Problem(place, *instead)
    return Problem(place, "broken YAML", "YAML 1.2", text.removeprefix("found "))


class _TooMuch(Exception):
    """More than a configuration needs."""

    @classmethod
    def check(cls, values: int, level: int) -> None:
        if values > MOST_VALUES:
            raise cls(f"more than {MOST_VALUES} values, with what aliases repeat")
        if level > DEEPEST:
            raise cls(f"a value that contains itself, or is nested deeper than {DEEPEST} levels")


class _Composer(Composer):
    """Stops while it reads, because ruamel.yaml takes about 0.1 ms for each value."""

    warn_double_anchors = False
    values = level = 0

    def compose_node(self, parent: Any, index: Any) -> Any:  # noqa: ANN401  ruamel.yaml's own
        self.values += 1
        self.level += 1
        _TooMuch.check(self.values, self.level)
        tag = getattr(self.parser.peek_event(), "ctag", None)
        if tag and len(tag.suffix or "") > LONGEST_TAG:  # ruamel.yaml takes the square of its length in time
            raise _TooMuch(f"a tag of more than {LONGEST_TAG} characters")
        node = super().compose_node(parent, index)
        self.level -= 1
        return node


class _Values:
    """Makes one file's values of its nodes, in which an alias is the very node that it stands for."""

    def __init__(self) -> None:
        self._values = 0

    def written(self, node: Node, place: Place, level: int = 1) -> Written:
        self._values += 1
        _TooMuch.check(self._values, level)
        kind = str(node.tag).removeprefix(_TAG)
        if isinstance(node, MappingNode) and kind == "map":
            return self._mapping(node, place, level)
        if isinstance(node, SequenceNode) and kind == "seq":
            items = enumerate(node.value)
            inner = [self.written(item, _place(place.below(index), item), level + 1) for index, item in items]
            return Written(inner, place)
        try:
            return Written(_SCALARS[kind](node.value), place, node.value if kind in {"int", "float"} else "")
        except LookupError:
            problem = Problem(place, f"the tag {shown(node.tag)}", "a plain value, without a tag")
        except ValueError:
            problem = Problem(place, shortened(node.value) or '""', _EXPECTED[kind])
        return Written(None, place, problems=(problem,))

    def _mapping(self, node: MappingNode, place: Place, level: int) -> Written:
        values: dict[str, Written] = {}
        merged: dict[str, Written] = {}
        problems: list[Problem] = []
        for key, value in node.value:
            at = _place(place, key)
            if key.tag == f"{_TAG}merge":  # <<, whose keys only fill gaps
                for source in value.value if isinstance(value, SequenceNode) else [value]:
                    inner = self.written(source, at, level + 1)
                    problems += inner.problems
                    if isinstance(inner.value, dict):
                        merged = inner.value | merged
                    else:
                        problems.append(Problem(at, f"<< with {inner.shown}", "<< with a mapping"))
            elif not isinstance(key, ScalarNode):
                problems.append(Problem(at, "a list or a mapping as a key", "keys that are strings"))
            elif str(key.tag).removeprefix(_TAG) not in _TEXTS:
                problems.append(_no_key(key.value).at(at.below(key.value)))
            elif key.value in values:
                also = f"it is also at {values[key.value].place}"
                problems.append(Problem(at.below(key.value), "a duplicate key", "each key once", also))
            else:
                values[key.value] = self.written(value, at.below(key.value), level + 1)
        return Written(merged | values, place, problems=tuple(problems))


def _place(above: Place, node: Node) -> Place:
    """Where ``node`` begins; its key is that of ``above``."""
    return Place(above.file, node.start_mark.line + 1, node.start_mark.column + 1, above.key)


def _no_key(key: object) -> Wrong:
    """What to say of a key that isn't a string."""
    text = shortened(str(key))
    return Wrong(f"the key {text}", "keys that are strings", f'put it in quotes: "{text}"')


def _integer(text: str) -> int:
    if (value := int(text.replace("_", ""), 0)).bit_length() > 63:
        raise ValueError
    return value


def _float(text: str) -> float:
    return float(re.sub(r"\.(?=[in])", "", text.lower().replace("_", "")))  # .inf and .nan are float's inf and nan


def _boolean(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise ValueError
    return text.lower() == "true"


_TEXTS = frozenset({"str", "timestamp", "value"})
"""YAML 1.2 knows no dates: 2001-01-31 is a text."""
_SCALARS: Mapping[str, Callable[[str], object]] = {
    **dict.fromkeys((*_TEXTS, "merge"), str),
    "int": _integer,
    "float": _float,
    "bool": _boolean,
    "null": lambda _: None,
}
"""What to make of a scalar, by what the resolver or its tag says that it is."""
_EXPECTED = {"int": "an integer of at most 64 bits", "float": "a number", "bool": "true or false"}
