"""`simulate` at a terminal: a prompt with completion, history and help, for the kubelet that it runs.

Theory of operation. One task reads a line and runs it, and then reads the next one; the kubelet's own tasks go on all
the time. So events are printed while a line is being typed: `Screen` erases it and has it drawn again. A line runs in a
task of its own (`_work`), which Ctrl-C cancels; without one Ctrl-C discards the line being typed. An error is printed,
and the prompt continues, because the kubelet and its pods are the user's work.

The verbs are in `steps`, `checks` and `terminal_verbs`, their completion in `completion`.
"""

import asyncio
import os
import shutil
import signal
import textwrap
from dataclasses import dataclass
from pathlib import Path

import click
from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app_or_none
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.styles import Style

from dpgateway_simulator.kubelet.errors import Crashed
from dpgateway_simulator.kubelet.events import KubeletEvent
from dpgateway_simulator.prompt import foreground, printing, verbs
from dpgateway_simulator.prompt.completion import LineCompleter
from dpgateway_simulator.prompt.printing import Printer
from dpgateway_simulator.prompt.session import Session, WordsError
from dpgateway_simulator.prompt.terminal_verbs import KNOWN, Quit, usage

WELCOME = "`help` lists the commands, Tab completes, Ctrl-C gives up a line or a command, Ctrl-D ends."
STYLE = Style.from_dict({"bottom-toolbar": "noreverse bg:ansibrightblack ansiwhite", "bad": "bg:ansired"})


async def run(stand: foreground.Stand, patience: float, output: str) -> int:
    """Runs a kubelet with a prompt until the user quits or a signal arrives; returns the exit code."""
    screen = Screen(wraps=output != "json")
    signals = (*foreground.ENDING, signal.SIGHUP)  # SIGHUP: the terminal is closed
    printer = Printer(output, screen.write)
    return await foreground.run(stand, patience, printer, lambda one: Prompt(one, screen).run(), signals)


@dataclass(frozen=True)
class Screen:
    """Writes to the terminal. The line being typed is erased first, and redrawn below the text.

    prompt_toolkit's run_in_terminal would lose a Ctrl-D: it switches the terminal to cooked mode for a moment.
    """

    wraps: bool = True

    def write(self, text: str) -> None:
        application = get_app_or_none()
        typing = application is not None and application.is_running and not application.is_done
        if application is not None and typing:
            application.renderer.erase()
        columns = shutil.get_terminal_size().columns
        click.echo("\n".join(wrapped(line, columns) for line in text.split("\n")) if self.wraps else text)
        if application is not None and typing:
            application.renderer.request_absolute_cursor_position()
            application.invalidate()


class Prompt:
    """Reads lines and runs them, one after another."""

    def __init__(self, session: Session, screen: Screen) -> None:
        self._session, self._screen = session, screen
        self._lines: PromptSession[str] = PromptSession(
            lambda: f"kubelet {session.kubelet.version}> ",
            completer=LineCompleter(session.kubelet, KNOWN),
            complete_while_typing=False,
            history=history(),
            bottom_toolbar=self._toolbar,
            style=STYLE,
        )
        self._work: asyncio.Task[bool] | None = None

    async def run(self) -> int:
        """Reads lines until the user quits; returns the exit code."""
        # prompt_toolkit installs its handler per line; between two lines SIGINT would end the process.
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._interrupt)
        forget = self._session.kubelet.journal.listen(self._hint)
        self._screen.write(WELCOME)
        try:
            while True:
                try:
                    text = await self._lines.prompt_async(handle_sigint=False)
                except KeyboardInterrupt:
                    continue
                except EOFError:
                    return 0

                # A separate task, so that Ctrl-C cancels the step and not the prompt.
                async with asyncio.TaskGroup() as tasks:
                    self._work = tasks.create_task(self._do(text), name=f"prompt: {text}")
                work, self._work = self._work, None
                if work.cancelled():
                    self._screen.write(_bad("given up"))
                elif not work.result():
                    return 0
        finally:
            forget()

    async def _do(self, text: str) -> bool:
        """Runs a line, or several pasted lines. Returns whether to continue."""
        for line in text.splitlines():
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            try:
                await verbs.read(line, KNOWN)(self._session)
            except Quit:
                return False
            except WordsError as error:
                self._screen.write(_bad(f"{error}\n{usage(line)}".rstrip()))
                break
            except Crashed as error:
                self._screen.write(_bad(f"the kubelet crashed: {error}"))
                break
            except Exception as error:  # an error must not end the kubelet and the user's work with it
                self._screen.write(_bad(str(error) or repr(error)))
                break
        return True

    def _interrupt(self) -> None:
        """Cancels the running step, or else discards the line being typed."""
        application = get_app_or_none()
        if self._work is not None:
            self._work.cancel()
        elif application is not None and application.is_running and not application.is_done:
            application.exit(exception=KeyboardInterrupt)

    def _hint(self, event: KubeletEvent) -> None:
        if event.kind == "crashed":
            self._screen.write(_bad(f"the kubelet crashed: {event.fields['reason']}\n`start` starts it again"))

    def _toolbar(self) -> StyleAndTextTuples:
        kubelet = self._session.kubelet
        room = self._lines.output.get_size().columns - 1
        text = f"kubelet {printing.state(kubelet)}"
        return [("" if kubelet.running else "class:bad", text if len(text) <= room else f"{text[: room - 3]}...")]


def wrapped(line: str, columns: int) -> str:
    """Wraps a long line between words, indented to the column of an event's text."""
    if len(line) <= columns:
        return line
    wrapper = textwrap.TextWrapper(columns, subsequent_indent=" " * 11, break_long_words=False, break_on_hyphens=False)
    return wrapper.fill(line)


def history() -> History:
    """The history of all sessions, in $XDG_STATE_HOME; in memory only if that isn't writable."""
    home = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    path = Path(home).expanduser() / "dpgateway" / "simulate_history"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
    except (OSError, RuntimeError):  # RuntimeError: a user without a home directory
        return InMemoryHistory()
    return FileHistory(path)


def _bad(text: str) -> str:
    return click.style(text, fg="red")
