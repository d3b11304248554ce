"""Parses YAML into plain values, each with its place. Refuses values that people and YAML may read differently."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import Reader, ReaderError

from dpgateway.config.problems import InvalidConfiguration, Place, Problem, Wrong, missing_space, shortened, shown
from dpgateway.config.source import Written, not_text
from dpgateway.config.syntax import explain
from dpgateway.errors import encodable, printable

MOST_VALUES = 20_000
"""Per file, keys included; an aliased value counts at each use."""
DEEPEST = 50
"""Levels."""
LONGEST_TAG = 100
"""Characters."""
UNICODE = "text that can be written in UTF-8, without NUL"
_OCTAL = re.compile(r"[-+]?0+_?([1-9][0-9_]{0,17})")
"""Octal in YAML 1.1, C and chmod; decimal in YAML 1.2."""
_TAG = "tag:yaml.org,2002:"
"""The prefix of YAML's own tags."""


def parse(text: str, file: str, above: int = 0) -> Written | None:
    """The document in ``text``; None if it is empty. Raises InvalidConfiguration, with one problem, if it isn't YAML.

    ``above``: the number of lines before the text.
    """
    yaml = YAML(typ="safe", pure=True)
    yaml.Composer, yaml.Reader = _Composer, Reader
    yaml.reader.line = above  # marks then count lines of the file, for a text within a file
    try:
        node = yaml.compose(text)
        return node and _Values().written(node, _place(Place(file), node))
    except MarkedYAMLError as error:
        raise InvalidConfiguration([explain(error, text, file, above)]) from error
    except _TooMuch as error:
        raise InvalidConfiguration([Problem(Place(file), str(error), "plain values")]) from None
    except (AssertionError, KeyError) as error:  # ruamel.yaml looks for the rules of that version
        wrong = Problem(Place(file), "%YAML with an unknown version", "YAML 1.2", "leave that line out")
        raise InvalidConfiguration([wrong]) from error
    except (YAMLError, ValueError) as error:
        line = above + text.count("\n", 0, error.position) + 1 if isinstance(error, ReaderError) else 0
        told = " ".join(str(error).split())
        raise InvalidConfiguration([Problem(Place(file, line), "broken YAML", "YAML 1.2", told)]) from error


class _TooMuch(Exception):
    """The text exceeds a limit."""

    @classmethod
    def check(cls, values: int, level: int) -> None:
        if values > MOST_VALUES:
            raise cls(f"more than {MOST_VALUES} values, with what aliases repeat")
        if level > DEEPEST:
            raise cls(f"a value that contains itself, or is nested deeper than {DEEPEST} levels")


class _Composer(Composer):
    """Checks the limits while composing, because ruamel.yaml takes about 0.1 ms per value."""

    def __init__(self, loader: Any = None) -> None:  # noqa: ANN401  ruamel.yaml's own
        super().__init__(loader)
        self.warn_double_anchors = False  # YAML allows it
        self.values = self.level = 0

    def compose_node(self, parent: Any, index: Any) -> Any:  # noqa: ANN401  ruamel.yaml's own
        self.values += 1
        self.level += 1
        _TooMuch.check(self.values, self.level)
        tag = getattr(self.parser.peek_event(), "ctag", None)
        if tag and len(tag.suffix or "") > LONGEST_TAG:  # quadratic time in ruamel.yaml
            raise _TooMuch(f"a tag of more than {LONGEST_TAG} characters")
        node = super().compose_node(parent, index)
        self.level -= 1
        return node


class _Values:
    """Converts the nodes of one file. An alias is the same node as its anchor."""

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
            return Written(_scalar(node, kind), place, node.value if kind in {"int", "float"} else "")
        except Wrong as wrong:
            return Written(None, place, problems=(wrong.at(place),))

    def _mapping(self, node: MappingNode, place: Place, level: int) -> Written:
        values: dict[str, Written] = {}
        merged: dict[str, Written] = {}
        problems: list[Problem] = []
        for key, value in node.value:
            at = _place(place, key)
            if key.tag == f"{_TAG}merge":
                merged |= self._merged(value, at, level, problems)
            elif wrong := _wrong_key(key, values):
                problems.append(wrong.at(at.below(key.value) if isinstance(key, ScalarNode) else at))
            elif str(value.tag) == f"{_TAG}null" and ":" in key.value and (hint := missing_space(key.value)):
                name = key.value.partition(":")[0]  # {key:value} is a key without a value in YAML
                told = Problem(at.below(name), shown(key.value), "a key and its value", hint)
                values[name] = Written(None, at.below(name), problems=(told,))
            else:
                values[key.value] = self.written(value, at.below(key.value), level + 1)
        return Written(merged | values, place, problems=tuple(problems))

    def _merged(self, node: Node, place: Place, level: int, problems: list[Problem]) -> dict[str, Written]:
        """The keys of ``<<``, which are defaults; the first of several mappings wins."""
        merged: dict[str, Written] = {}
        for source in node.value if isinstance(node, SequenceNode) else [node]:
            inner = self.written(source, place, level + 1)
            problems += inner.problems
            if isinstance(inner.value, dict):
                merged = inner.value | merged
            else:
                problems.append(Problem(place, f"<< with {inner.shown}", "<< with a mapping"))
        return merged


def _place(above: Place, node: Node) -> Place:
    """Where ``node`` begins, with the key of ``above``."""
    return Place(above.file, node.start_mark.line + 1, node.start_mark.column + 1, above.key)


def _wrong_key(key: Node, known: Mapping[str, Written]) -> Wrong | None:
    if not isinstance(key, ScalarNode):
        return Wrong("a list or a mapping as a key", "keys that are strings")
    if str(key.tag).removeprefix(_TAG) not in _TEXTS:
        return not_text(key.value)
    if encodable(key.value) != key.value or "\0" in key.value:
        return Wrong(f"the key {shown(key.value)}", UNICODE)
    if key.value in known:
        return Wrong("a duplicate key", "each key once", f"it is also at {known[key.value].place}")
    return None


def _scalar(node: Node, kind: str) -> object:
    if kind not in _SCALARS or not isinstance(node, ScalarNode):
        raise Wrong(f"the tag {shown(node.tag)}", "a plain value, without a tag")
    text = node.value

    # 0644 is octal in YAML 1.1 and decimal in YAML 1.2: refused instead of guessed.
    if kind == "int" and (match := _OCTAL.fullmatch(text)):
        digits = match[1]
        octal = "" if {"8", "9"} & set(digits) else f"0o{digits} if it is an octal number, "
        hint = f'write {digits}, {octal}or "{text}" if it is text'
        raise Wrong(text, "a number that doesn't begin with 0, or text in quotes", hint)
    read, expected = _SCALARS[kind]
    try:
        return read(text)
    except ValueError:
        raise Wrong(shortened(printable(text)) or '""', expected) from None


def _text(text: str) -> str:
    text.encode()  # UnicodeEncodeError: a lone surrogate, from an escape
    if "\0" in text:  # no path, id, environment variable or attribute can have it
        raise ValueError
    return text


def _integer(text: str) -> int:
    if (value := int(text.replace("_", ""), 0)).bit_length() > 63:
        raise ValueError
    return value


def _float(text: str) -> float:
    return float(re.sub(r"\.(?=[in])", "", text.lower().replace("_", "")))  # .inf and .nan


def _boolean(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise ValueError
    return text.lower() == "true"


_TEXTS = frozenset({"str", "timestamp", "value"})
"""YAML 1.2 has no dates: 2001-01-31 is a string."""
_SCALARS: Mapping[str, tuple[Callable[[str], object], str]] = {
    **dict.fromkeys((*_TEXTS, "merge"), (_text, UNICODE)),
    "int": (_integer, "an integer of at most 64 bits"),
    "float": (_float, "a number"),
    "bool": (_boolean, "true or false"),
    "null": (lambda _: None, ""),
}
"""By tag: the parser of a scalar's text, and its expectation."""
