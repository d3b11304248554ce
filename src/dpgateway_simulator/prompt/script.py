"""Scripts are files of steps: one step a line, or a YAML list. Errors name file, line and what was expected."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import YAMLError

from dpgateway_simulator.prompt import steps, verbs
from dpgateway_simulator.prompt.session import Session, WordsError


class ScriptError(Exception):
    """A script that can't be read."""


@dataclass(frozen=True)
class Step:
    """One line, and the file and line number where it stands."""

    line: str
    where: str


def read(path: Path) -> list[Step]:
    """The steps of a file, each with a known verb. `*.yaml` and `*.yml` are read as YAML, other files as lines."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ScriptError(f"{path}: can't be read: {error}") from error
    found = list(_yaml(path, text) if path.suffix in {".yaml", ".yml"} else _lines(path, text))
    for step in found:
        try:
            verbs.split(step.line)
        except WordsError as error:
            raise ScriptError(f"{step.where}: {error}") from error
    return found


async def do(session: Session, todo: list[Step]) -> int:
    """Does the steps until one fails; the exit code."""
    for step in todo:
        try:
            await verbs.run(session, step.line)
        except WordsError as error:
            click.echo(f"{step.where}: {error}", err=True)
            return 2
        except steps.FAILURES as error:
            click.echo(f"{step.where}: {step.line}: {error}", err=True)
            return 1
    return 0


def _lines(path: Path, text: str) -> Iterator[Step]:
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            yield Step(line.strip(), f"{path}:{number}")


def _yaml(path: Path, text: str) -> Iterator[Step]:
    try:
        content = YAML().load(text)
    except YAMLError as error:
        raise ScriptError(f"{path}: not YAML: {error}") from error
    if isinstance(content, CommentedMap) and list(content) == ["steps"]:
        content = content["steps"]
    if not isinstance(content, CommentedSeq):
        raise ScriptError(f"{path}:1: found {type(content).__name__}, expected a list of steps, or `steps:` and a list")
    for index, step in enumerate(content):
        where = f"{path}:{content.lc.item(index)[0] + 1}"
        if not isinstance(step, str):
            raise ScriptError(f"{where}: found {step!r}, expected a step in one string such as `wait example.com/x=2`")
        yield Step(step, where)
