"""Code blocks in scripts and in prose: Markdown, AsciiDoc, Sphinx."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import dedent

_FENCE = re.compile(r"^[ \t>]*(?P<end>```+|~~~+(?!~))[^`\n]*$")
"""The line above a block of code in Markdown."""
_QUOTED = re.compile(r"^(?:[ \t]*>)+[ \t]?", re.MULTILINE)
"""The prefix of each line of a quotation, which may have blocks."""
_OF_DATA = re.compile(r"^[ \t>]*(?:```+|~~~+|\.\. [a-z-]+::|\[source,)[ \t]*\{?\.?(?:ya?ml|json)\b", re.IGNORECASE)
"""A line that says that the block below it is YAML or JSON."""
_MOST_OPTIONS = 2
"""Lines between that one and the block, itself included: Sphinx' options, and AsciiDoc's delimiter."""
_ENDINGS = {".md", ".mdx", ".mdc", ".markdown", ".adoc", ".asciidoc", ".rst"}
"""Suffixes of prose files."""
_PROMPT = re.compile(
    r"^(?:(?:\[[^\]\n]*\][$#%]|[\w.-]+@[^\s$#%]*(?:[ \t]+[^\s$#%]+)?[ \t]*[$#%]|[$\u276f\u279c])"
    r"(?:[ \t]+\S.*(?:(?<=\\)\n.*)*|[ \t]*)|-{5,}[ \t]*)$",
    re.MULTILINE,
)
"""A command after a shell's prompt, copied with its output; or a separator between such copies."""
_OPENING = re.compile(r"^(?:[^{]*: )?(\{.*)|^((?:apiVersion|kind): .*)")
"""The first line of JSON, or of an object of Kubernetes."""
_OF_JSON = re.compile(r"(?!\})")
_OF_OBJECT = re.compile(r"[ \t#-]|[\w./-]+:(?:\s|$)|\s*$")
"""The beginnings of their further lines."""
_HERE = re.compile(r"<<-?\s*['\"]?(?P<end>[A-Za-z_]\w*)")
"""The operator of a here-document, of a shell or of Terraform."""
_LISTING = re.compile(r"^(?P<end>-{4,})[ \t]*$")
"""The line above a block in AsciiDoc."""
_ASCIIDOC = re.compile(r"^\[source\b", re.MULTILINE)
_CALLOUT = re.compile(r"(?<![ \t])([ \t]+(# ?)?<\d+>)+[ \t]*$", re.MULTILINE)
"""AsciiDoc's numbers of notes at the end of lines."""
_COPIED = re.compile(
    r"(?P<key>^(?P<indent>[ \t]*)(?:- )?[\w./-]+:)[ \t]+\d{1,2}[ \t]*$(?=\n(?P=indent)(?:[ \t]+\S|- ))"
    r"|(?P<value>\"[^\"\n]*\"|'[^'\n]*'|\b(?:true|false))[ \t]+\d{1,2}[ \t]*$",
    re.MULTILINE,
)
"""The same numbers, copied from a page that was made of AsciiDoc: after a mapping's key, or after a whole value."""
_DIRECTIVE = re.compile(
    r"^(?P<indent>[ \t]*)\.\. (?:code-block|code|sourcecode)::.*\n"
    r"(?P<options>(?:(?P=indent)[ \t]+:.*\n)*)(?P<block>(?:(?P=indent)[ \t]+.*\n|[ \t]*\n)*)",
    re.MULTILINE,
)
_SUBSTITUTION = re.compile(r"(?<=: )\|([\w.-]+)\|(?=[ \t]*$)", re.MULTILINE)
"""A value that Sphinx fills in."""
_MARKED = re.compile(rf"{_FENCE.pattern}|{_ASCIIDOC.pattern}|^[ \t]*\.\. code", re.MULTILINE)


def has_blocks(text: str) -> bool:
    """Whether the text is prose with code blocks, although parts of it may be YAML."""
    return _MARKED.search(text) is not None


def is_for_people(path: Path) -> bool:
    """Whether the file is prose, by its suffix."""
    return path.suffix.lower() in _ENDINGS


def is_of_data(lines: Sequence[str], above: int) -> bool:
    """Whether the lines right above a block say that it is YAML or JSON."""
    return any(map(_OF_DATA.match, lines[max(0, above - _MOST_OPTIONS) : above]))


def printed(text: str) -> Iterator[tuple[int, str]]:
    """The output of each command, with the number of lines above it; nothing without commands."""
    begin = above = 0
    found = list(_PROMPT.finditer(text))
    for match in found:
        yield above, text[begin : match.start()]
        above += text.count("\n", begin, match.end())
        begin = match.end()
    if found:
        yield above, text[begin:]


def without_substitutions(text: str) -> str:
    """``text`` with the names of the values that Sphinx fills in, which are no YAML."""
    return _SUBSTITUTION.sub(r"\1", text)


def without_callouts(text: str) -> str:
    """``text`` without the numbers of notes that people copy from pages for people."""
    return _COPIED.sub(lambda match: match["key"] or match["value"], text)


def blocks(text: str) -> Iterator[tuple[int, str]]:
    """The blocks, each with the number of lines above it."""
    text = _QUOTED.sub("", text)
    yield from _between(text, _FENCE)
    yield from _between(text, _HERE)
    counted = above = 0
    for match in _DIRECTIVE.finditer(text):
        above += text.count("\n", counted, match.start("block"))
        counted = match.start("block")
        yield above, without_substitutions(dedent(match["block"]))
    if _ASCIIDOC.search(text):
        yield from ((line, _CALLOUT.sub("", block)) for line, block in _between(text, _LISTING))


def _between(text: str, opening: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    """The text between a line with ``opening`` and the line that it names."""
    end, begin, taken = "", 0, list[str]()
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        if end and line.strip() == end:
            yield begin, dedent("".join(taken))
            end = ""
        elif end:
            taken.append(line)
        elif match := opening.search(line):
            end, begin, taken = match["end"], number, []


def unfenced(text: str) -> Iterator[tuple[int, str]]:
    """Objects pasted into prose, and Markdown's indented blocks, each with the number of lines above it."""
    lines = list(_outside(text))
    for begin, block in pasted(text):
        yield begin, block
        lines[begin : begin + block.count("\n")] = ["\n"] * block.count("\n")

    begin, taken, above = 0, list[str](), ""
    for number, line in enumerate([*lines, "end"]):
        is_code = line.startswith(("    ", "\t")) and (taken or not above.strip())
        above = line
        if is_code or (taken and not line.strip()):
            begin = begin if taken else number
            taken.append(line.replace("\t", "    ", 1) if line.startswith("\t") else line)
        elif taken:
            yield begin, dedent("".join(taken))
            taken = []


def pasted(text: str) -> Iterator[tuple[int, str]]:
    """Kubernetes objects and JSON between other lines, each with the number of lines above it."""
    begin, taken, more = 0, list[str](), _OF_OBJECT
    for number, line in enumerate([*_outside(text), "end"]):
        if not taken and (opening := _OPENING.match(line)):
            begin, more = number, _OF_JSON if opening[1] else _OF_OBJECT
            taken = [f"{opening[1] or opening[2]}\n"]
            is_whole = bool(opening[1]) and opening[1].rstrip().endswith("}")
        elif taken and more.match(line):
            taken.append(line)
            is_whole = False
        elif taken:
            taken += [line] if more is _OF_JSON else []
            is_whole = True
        if taken and is_whole:
            yield begin, "".join(taken)
            taken = []


def _outside(text: str) -> Iterator[str]:
    """The lines of a text, with empty ones in place of its fenced blocks."""
    fence = ""
    for line in _QUOTED.sub("", text).splitlines(keepends=True):
        match = _FENCE.search(line.rstrip("\n"))
        yield "\n" if fence or match else line
        if match is not None and fence in {"", match["end"]}:
            fence = "" if fence else match["end"]
