"""The verbs of the terminal only: `watch`, `help`, `quit`."""

import contextlib
import shutil
import textwrap
from collections.abc import Mapping
from functools import partial

import click
from prompt_toolkit.application import Application, get_app
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import FormattedTextControl, Layout, Window

from dpgateway_simulator.kubelet.errors import Crashed, NotRunningError
from dpgateway_simulator.prompt import checks, printing, verbs
from dpgateway_simulator.prompt.session import Act, Session, WordsError
from dpgateway_simulator.prompt.verbs import VERBS, Verb

# All but <any> are keys with bindings of prompt_toolkit's own, which take precedence over <any>.
KEYS = ("<any>", "enter", "escape", "c-c", "c-d", "up", "down", "left", "right")


class Quit(Exception):
    """The user quits."""


def watch(words: list[str]) -> Act:
    """The verb `watch`: a live table below the events, until a key is pressed."""
    return lambda session: _watch(session, words)


async def _watch(session: Session, words: list[str]) -> None:
    """Raises StepError for an unknown resource."""
    checks.chosen(session.kubelet, words)
    keys = KeyBindings()
    for key in KEYS:
        keys.add(key)(_end)
    table = Window(FormattedTextControl(partial(_live, session, words), show_cursor=False))
    application: Application[None] = Application(Layout(table), key_bindings=keys)
    forget = session.kubelet.journal.listen(lambda _: application.invalidate())
    try:
        await application.run_async(handle_sigint=False)
    finally:
        forget()


def _end(event: KeyPressEvent) -> None:
    if not event.app.is_done:
        event.app.exit()


def _live(session: Session, words: list[str]) -> str:
    """The table, cut to the terminal's height; its last line says how to end."""
    application = get_app()
    rows = application.output.get_size().rows - 3
    found = [f"kubelet {printing.state(session.kubelet)}"]
    with contextlib.suppress(NotRunningError, Crashed):
        resources = session.kubelet.resources()
        found += printing.lines({name: one for name, one in resources.items() if not words or name in words}, rows)
    return "\n".join(found if application.is_done else [*found, "(a key ends watching)"])


def explain(words: list[str]) -> Act:
    """The verb `help`."""
    for word in words:
        if word not in KNOWN:
            raise WordsError(verbs.unknown("command", word, KNOWN))

    async def act(_: Session) -> None:
        for word in words:
            click.echo(f"{word} {KNOWN[word].words}".rstrip())
        chosen = [KNOWN[word].help for word in words]
        click.echo("\n".join(f"  {text}" for text in chosen) if words else _summary(KNOWN))

    return act


def _summary(known: Mapping[str, Verb]) -> str:
    width = max(map(len, known)) + 4
    columns = max(shutil.get_terminal_size().columns, 40)
    return "\n".join(
        textwrap.fill(f"  {name:<{width - 2}}{verb.help}", columns, subsequent_indent=" " * width)
        for name, verb in known.items()
    )


def leave(words: list[str]) -> Act:
    """The verb `quit`."""
    raise Quit


def usage(line: str) -> str:
    """The usage of a line's verb; empty if the verb is unknown or takes no words."""
    name = line.split(maxsplit=1)[0]
    return f"usage: {name} {KNOWN[name].words}" if name in KNOWN and KNOWN[name].words else ""


KNOWN: Mapping[str, Verb] = {
    **VERBS,
    "watch": Verb(watch, "[RESOURCE ...]", "show the table as it changes, until a key is pressed"),
    "help": Verb(explain, "[COMMAND]", "say what there is, or what a command takes"),
    "quit": Verb(leave, "", "stop the kubelet and end, as Ctrl-D does"),
}
