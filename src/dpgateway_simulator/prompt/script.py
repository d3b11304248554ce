"""Scripts: files of steps, one step per line or as a YAML list. Errors name file, line and expectation."""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import click
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import YAMLError

from dpgateway_simulator.prompt import verbs
from dpgateway_simulator.prompt.session import Act, Session, WordsError
from dpgateway_simulator.prompt.steps import FAILURES


class ScriptError(Exception):
    """A script can't be read. The text contains one line per error."""


@dataclass(frozen=True)
class Step:
    """A parsed line, with its place as "file:line"."""

    line: str
    where: str
    act: Act = field(compare=False)


def read(path: Path) -> list[Step]:
    """Parses a file: `*.yaml` and `*.yml` as YAML, other files as lines. Raises ScriptError with all wrong lines."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ScriptError(f"{path}: can't be read: {error}") from error

    # All lines are parsed before the first one runs, so that a typo at the end doesn't waste a long run.
    steps, wrong = [], []
    lines = ((number, line.strip()) for number, line in enumerate(text.splitlines(), 1))
    plain = ((number, line) for number, line in lines if line and not line.startswith("#"))
    for number, line in _yaml(path, text) if path.suffix in {".yaml", ".yml"} else plain:
        where = f"{path}:{number}"
        if not isinstance(line, str):
            wrong.append(f"{where}: found {_kind(line)}, expected a step in one string such as `wait example.com/x=2`")
            continue
        try:
            steps.append(Step(line, where, verbs.read(line)))
        except WordsError as error:
            wrong.append(f"{where}: {error}")
    if wrong:
        raise ScriptError("\n".join(wrong))
    return steps


async def do(session: Session, todo: list[Step]) -> int:
    """Runs the steps until one fails; returns the exit code."""
    for step in todo:
        try:
            await step.act(session)
        except FAILURES as error:
            click.echo(f"{step.where}: {step.line}: {error}", err=True)
            return 1
        except asyncio.CancelledError as error:
            if why := "".join(error.args):
                click.echo(f"{step.where}: {step.line}: {why}", err=True)
            return 1  # the script is incomplete
    return 0


def _yaml(path: Path, text: str) -> Iterator[tuple[int, object]]:
    try:
        content = YAML().load(text)
    # a version that it doesn't know, a date, or a tag's value
    except (YAMLError, RecursionError, AssertionError, ValueError, LookupError, AttributeError) as error:
        raise ScriptError(f"{path}: not YAML: {error}") from error
    if isinstance(content, CommentedMap) and list(content) == ["steps"]:
        content = content["steps"]
    if not isinstance(content, CommentedSeq):
        raise ScriptError(f"{path}:1: found {_kind(content)}, expected a list of steps, or `steps:` and a list")
    for index, step in enumerate(content):
        yield content.lc.item(index)[0] + 1, step


def _kind(value: object) -> str:
    """What YAML calls a value, for messages."""
    kinds = {bool: "a boolean", int | float: "a number", str: "a string", Mapping: "a mapping", list: "a list"}
    if value is None:
        return "null"
    return next((kind for of, kind in kinds.items() if isinstance(value, of)), "another value")
