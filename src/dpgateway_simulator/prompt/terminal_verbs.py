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

    async def act(session: Session) -> None:
        checks.chosen(session.kubelet, words)  # raises StepError for an unknown resource
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

    return act


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
        for word in words:
            click.echo(f"  {KNOWN[word].help}")

        # Without a word: all commands, their help wrapped in a column of its own.
        width, columns = max(map(len, KNOWN)) + 4, max(shutil.get_terminal_size().columns, 40)
        for name, verb in KNOWN.items() if not words else ():
            click.echo(textwrap.fill(f"  {name:<{width - 2}}{verb.help}", columns, subsequent_indent=" " * width))

    return act


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
