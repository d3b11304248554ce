"""The verb `watch`: the table as it changes, below the events, until a key is pressed."""

import contextlib
from collections.abc import Callable
from functools import partial

from prompt_toolkit.application import Application, get_app
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import FormattedTextControl, Layout, Window

from dpgateway_simulator.kubelet.errors import Crashed, NotRunningError
from dpgateway_simulator.kubelet.events import Event
from dpgateway_simulator.prompt import checks, tables
from dpgateway_simulator.prompt.session import Session

# besides <any>: prompt_toolkit has bindings of its own for these, which are more specific than <any>
KEYS = ("<any>", "enter", "escape", "c-c", "c-d", "up", "down", "left", "right")


async def watch(session: Session, words: list[str]) -> None:
    """StepError for a resource that there isn't."""
    checks.chosen(session.kubelet, words)
    keys = KeyBindings()
    for key in KEYS:
        keys.add(key)(_end)
    table = Window(FormattedTextControl(partial(_text, session, words), show_cursor=False))
    application: Application[None] = Application(Layout(table), key_bindings=keys)
    forget = session.kubelet.journal.listen(_redraw(application))
    try:
        await application.run_async(handle_sigint=False)
    finally:
        forget()


def _end(event: KeyPressEvent) -> None:
    if not event.app.is_done:
        event.app.exit()


def _redraw(application: Application[None]) -> Callable[[Event], None]:
    return lambda _: application.invalidate()


def _text(session: Session, words: list[str]) -> str:
    """As many lines as there is room for, and one for the end of watching."""
    application = get_app()
    rows = application.output.get_size().rows - 3
    found = [f"kubelet {tables.state(session.kubelet)}"]
    with contextlib.suppress(NotRunningError, Crashed):
        resources = session.kubelet.resources()
        found += tables.lines({name: one for name, one in resources.items() if not words or name in words}, rows)
    return "\n".join(found if application.is_done else [*found, "(a key ends watching)"])
