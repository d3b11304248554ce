"""Explains YAML syntax errors by their likeliest cause."""

from __future__ import annotations

from ruamel.yaml.error import MarkedYAMLError

from dpgateway.config.problems import LONGEST_TEXT, Place, Problem, missing_space, shortened, shown

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
    (
        "expected ',' or",
        "broken YAML",
        "a comma, or the closing bracket",
        "text with [, ], {, } or a comma needs quotes",
    ),
    ("while scanning an alias", "a '*' without quotes", "text that begins with '*' in quotes", 'write "*"'),
    ("found undefined alias", "a '*' without quotes", "text that begins with '*' in quotes", "it means an alias"),
    ("that cannot start any token", "text that begins with @, ` or %", "such text in quotes", ""),
)
"""A part of ruamel.yaml's message, and ours: found, expected, hint."""


def explain(error: MarkedYAMLError, text: str, file: str, above: int = 0) -> Problem:
    """The problem for an error that ruamel.yaml raised for ``text``. ``above``: the number of lines before the text."""
    # A key without a space after its colon is a string for YAML, so the error is that of the next line.
    lines = text.splitlines()
    for mark, back in ((error.context_mark, 0), (error.problem_mark, 1), (error.problem_mark, 0)):
        number = mark.line - back if mark is not None else -1
        line = lines[number - above] if 0 <= number - above < len(lines) else ""
        words = line.lstrip(" -")
        if hint := missing_space(words):
            return Problem(Place(file, number + 1, line.index(words) + 1), shown(words), "a key and its value", hint)

    mark = error.problem_mark or error.context_mark
    place = Place(file, mark.line + 1, mark.column + 1) if mark is not None else Place(file)
    message = f"{error.context or ''} {error.problem or ''}".strip()
    for part, *instead in _SYNTAX_ERRORS:
        if part in message:
            return Problem(place, *instead)
    told = str(error.problem or error.context or "").strip().removeprefix("found ")
    return Problem(place, "broken YAML", "YAML 1.2", shortened(told, LONGEST_TEXT))
