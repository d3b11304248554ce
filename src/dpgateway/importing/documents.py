"""Extracts YAML and JSON from a text: its documents, or the code blocks of a script or of prose."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from dpgateway.config import InvalidConfiguration, Place
from dpgateway.config.parsing import parse
from dpgateway.config.source import Written
from dpgateway.importing.commands import releases
from dpgateway.importing.prose import (
    blocks,
    has_blocks,
    is_for_people,
    is_of_data,
    pasted,
    printed,
    unfenced,
    without_callouts,
    without_substitutions,
)

_NEXT = re.compile(r"^---(?=\s|$)", re.MULTILINE)
_ALIAS_AS_KEY = re.compile(r"^([ \t]*(?:- )*\*[\w-]+):(?=\s|$)", re.MULTILINE)
_OF_TEMPLATE = re.compile(r"(?:(?<=[:,-][ \t])|(?<=\[)|\A)\{\{[^{}\n]*\}\}(?=[ \t]*(?:[,\]}]|#.*|$))", re.MULTILINE)
"""A value that is a template's: without quotes it would be a mapping as the key of another one."""


def parts_of(text: str) -> Iterator[tuple[int, str]]:
    """The YAML documents, each with the number of lines above it in the file."""
    begin = above = 0
    for end in chain((match.start() for match in _NEXT.finditer(text)), [len(text)]):
        yield above, text[begin:end].removeprefix("---")
        above += text.count("\n", begin, end)
        begin = end


def parsed(text: str, file: str, above: int) -> Written | None:
    """Parses YAML or JSON. JSON is YAML except for tabs in its indentation; JSON strings contain none."""
    text = text.replace("\t", " ") if text.lstrip()[:1] in {"{", "["} else text
    if "{{" in text:
        text = _OF_TEMPLATE.sub(lambda match: "'" + match[0].replace("'", "''") + "'", text)
    try:
        return parse(text, file, above)
    except InvalidConfiguration:
        # `*app:` is a key for Go's YAML, and an alias named `app:` in YAML 1.2
        changed = without_substitutions(_ALIAS_AS_KEY.sub(r"\1 :", text))
        if changed == text:
            raise
        return parse(changed, file, above)


def within_prose(text: str, file: str) -> Iterator[Written]:
    """The mappings and lists of a text's blocks and here-documents, and of what commands printed, and the releases of
    its helm commands.
    """
    lines = text.splitlines()
    for line, block in blocks(text):
        for more, part in parts_of(block):
            yield from _of_part(part, file, line + more, is_data=is_of_data(lines, line))
    for line, block in unfenced(text) if is_for_people(Path(file)) else ():
        for more, part in parts_of(block):
            yield from _of_part(part, file, line + more, is_data=False)
    for line, block in printed(text) if not has_blocks(text) else ():
        for more, part in parts_of(block):
            yield from _of_part(part, file, line + more, is_data=True)
    yield from releases(text, file)


def _of_part(part: str, file: str, above: int, *, is_data: bool) -> Iterator[Written]:
    """The mapping or list of a text, or those in the output of its commands. Broken data stays a text: a search for a
    key in it gives its problems.
    """
    try:
        one = parsed(part, file, above)
    except InvalidConfiguration:
        if (bare := without_callouts(part)) != part:
            yield from _of_part(bare, file, above, is_data=is_data)
            return
        parts = list(printed(part)) or pasted(part)
        within = (_of_part(each, file, above + more, is_data=False) for more, each in parts if each != part)
        inner = list(chain.from_iterable(within))
        yield from inner or ([Written(part, Place(file, above + 1))] if is_data else [])
        return
    if one is not None and isinstance(one.value, dict | list):
        yield one
