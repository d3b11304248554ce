"""What the prompt has beyond a script's verbs: `watch`, `help`, `quit`; and how it helps."""

import shutil
import textwrap
from collections.abc import Mapping

import click

from dpgateway_simulator.prompt import live
from dpgateway_simulator.prompt.session import Session, WordsError
from dpgateway_simulator.prompt.verbs import VERBS, Verb


class Quit(Exception):
    """The user wants to leave."""


async def explain(_: Session, words: list[str]) -> None:
    """The verb `help`."""
    unknown = [word for word in words if word not in KNOWN]
    if unknown:
        raise WordsError(f"unknown command {unknown[0]!r}, expected one of {', '.join(KNOWN)}")
    for word in words:
        click.echo(f"{word} {KNOWN[word].words}".rstrip())
    chosen = [KNOWN[word].help for word in words]
    click.echo("\n".join(f"  {text}" for text in chosen) if words else _summary(KNOWN))


def _summary(known: Mapping[str, Verb]) -> str:
    width = max(map(len, known)) + 4
    columns = max(shutil.get_terminal_size().columns, 40)
    return "\n".join(
        textwrap.fill(f"  {name:<{width - 2}}{verb.help}", columns, subsequent_indent=" " * width)
        for name, verb in known.items()
    )


async def leave(_: Session, words: list[str]) -> None:
    """The verb `quit`."""
    raise Quit


def usage(line: str) -> str:
    """The words that a line's verb takes; empty for an unknown verb, and for one without words."""
    name = line.split(maxsplit=1)[0]
    return f"usage: {name} {KNOWN[name].words}" if name in KNOWN and KNOWN[name].words else ""


KNOWN: Mapping[str, Verb] = {
    **VERBS,
    "watch": Verb(live.watch, "[RESOURCE ...]", "show the table as it changes, until a key is pressed"),
    "help": Verb(explain, "[COMMAND]", "say what there is, or what a command takes"),
    "quit": Verb(leave, "", "stop the kubelet and end, as Ctrl-D does"),
}
