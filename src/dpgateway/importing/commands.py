"""Command lines: their words, their flags, and what those of Helm install.

Source: helm/helm, pkg/strvals/parser.go.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from io import StringIO
from typing import Any

from dpgateway.config import InvalidConfiguration, Place, Problem
from dpgateway.config.source import Written

FLAG = re.compile(r"--?([A-Za-z][\w-]*)(?:=(.*))?", re.DOTALL)
_HELM = re.compile(r"^[^\n#]*?\bhelm3?['\"]?[ \t][^\n]*(?:(?<=\\)\n[^\n]*)*", re.MULTILINE)
"""A command of a script, or in a text for people, with its continuation lines."""
_STEP = re.compile(r"\[\d+\]|(?:\\.|[^.\[\]\\])+")
_MOST_STEPS = 32
_INTEGER = re.compile(r"0|-?[1-9]\d{0,17}")


def is_command_line(text: str) -> bool:
    """Whether the first line has a flag."""
    lines = (line for line in text.replace("\\\n", " ").splitlines() if line.strip() and not line.startswith("#"))
    first = next(lines, "")
    return not first.startswith("- ") and any(re.match(r"--?[a-z]", word) for word in first.split())


def split(text: str, file: str) -> Iterator[Written]:
    """The words of a shell's command line. Raises InvalidConfiguration."""
    stream = StringIO(text.replace("\\\n", " \n"))
    lexer = shlex.shlex(stream, posix=True)
    lexer.whitespace_split = True
    try:
        for word in lexer:
            at = stream.tell()
            is_last = text[max(0, at - 1) : at] == "\n"  # on its line: shlex has then read and counted the newline
            yield Written(word, Place(file, lexer.lineno - is_last - word.count("\n")))
    except ValueError as error:
        problem = Problem(Place(file, lexer.lineno), "a quote without its end", "a command line")
        raise InvalidConfiguration([problem]) from error


def flags(words: Sequence[Written]) -> Iterator[tuple[str, Written]]:
    """The flags of a command line, as Go's flag packages parse them: ``-name value``, ``--name=value``, or no value."""
    # In a manifest an argument may be a YAML number, whose spelling counts.
    words = [Written(word.text or str(word.value), word.place) for word in words]
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        match = FLAG.fullmatch(word.value)
        if match is None:
            continue
        if match[2] is not None:
            yield match[1], Written(match[2], word.place)
        # Which flags are boolean isn't known here, so a following word that isn't a flag is taken for the value.
        elif position < len(words) and not FLAG.fullmatch(words[position].value):
            yield match[1], words[position]
            position += 1
        else:
            yield match[1], Written("true", word.place)


def releases(text: str, file: str) -> Iterator[Written]:
    """What each ``helm`` command of a text installs, as Helmfile would write it: ``chart`` are the command's words,
    ``values`` those that it sets, and ``valuesFile`` has others. What isn't such a command is left out.
    """
    counted = above = 0
    for match in _HELM.finditer(text):
        above += text.count("\n", counted, match.start())
        counted = match.start()
        try:
            words = [
                Written(one.value, replace(one.place, line=one.place.line + above)) for one in split(match[0], file)
            ]
        except InvalidConfiguration:
            continue
        if not {word.value for word in words} & {"install", "upgrade", "template"}:
            continue
        release = {"chart": Written(words, words[0].place)}
        tree: dict[str, Any] = {}
        for name, value in flags(words):
            if name in {"f", "values"}:
                release["valuesFile"] = value
            for assignment in re.split(r"(?<!\\),", value.value) if name in {"set", "set-string"} else ():
                _assign(tree, assignment, value.place, typed=name == "set")
        release |= {"values": _nested(tree, "")} if tree else {}
        found = Written([Written(release, words[0].place)], words[0].place)
        yield Written({"releases": found}, words[0].place)


def _assign(tree: dict[str, Any], assignment: str, place: Place, *, typed: bool) -> None:
    """Sets ``a.b[0]=value`` in mappings of the steps, which are names, or numbers in brackets."""
    path, _, value = assignment.partition("=")
    steps = _STEP.findall(path)
    if not 0 < len(steps) <= _MOST_STEPS:
        return
    for step in steps[:-1]:
        below = tree.get(step)
        tree[step] = below if isinstance(below, dict) else {}
        tree = tree[step]
    text = _unescaped(value)
    found = Written(text, place)
    if typed and text in {"true", "false", "null"}:
        found = Written({"true": True, "false": False, "null": None}[text], place)
    elif typed and _INTEGER.fullmatch(text):
        found = Written(int(text), place, text)
    tree[steps[-1]] = found


def _nested(tree: dict[str, Any] | Written, key: str) -> Written:
    """The mappings and lists of the steps. A mapping or list is where its first value is."""
    if isinstance(tree, Written):
        return replace(tree, place=replace(tree.place, key=key))
    if all(step.startswith("[") for step in tree):
        steps = sorted(tree, key=lambda step: (len(step), step))
        found = [_nested(tree[step], f"{key}[{number}]") for number, step in enumerate(steps)]
        return Written(found, replace(found[0].place, key=key))
    inner = {_unescaped(step): _nested(below, f"{key}.{step}".lstrip(".")) for step, below in tree.items()}
    return Written(inner, replace(next(iter(inner.values())).place, key=key))


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)
