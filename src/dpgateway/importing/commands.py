"""Command lines: their words, and their flags."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from io import StringIO

from dpgateway.config import InvalidConfiguration, Place, Problem
from dpgateway.config.source import Written

FLAG = re.compile(r"--?([A-Za-z][\w-]*)(?:=(.*))?", re.DOTALL)


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
