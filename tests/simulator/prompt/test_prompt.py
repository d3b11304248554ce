"""The prompt: the real process on a pseudo-terminal, and its details on a pipe."""

import asyncio
import fcntl
import os
import pty
import re
import struct
import sys
import termios
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from dpgateway_simulator import Kubelet
from dpgateway_simulator.kubelet.events import KubeletEvent
from dpgateway_simulator.prompt.foreground import Stand
from dpgateway_simulator.prompt.prompt import Prompt, Screen, history, run, wrapped
from dpgateway_simulator.prompt.session import Session
from tests.simulator.rig import Rig, X

RUN = "from dpgateway_simulator.prompt.command import simulate; simulate()"


ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[()].|\r")


class Terminal:
    """A process on a pseudo-terminal of 80 columns, which may say where the cursor is: then there is a toolbar."""

    says_cursor = False

    def __init__(self, directory: Path, state: Path) -> None:
        self.directory, self._raw, self.text, self.seen = directory, b"", "", 0
        self._environment = os.environ | {"TERM": "xterm", "XDG_STATE_HOME": str(state)}

    async def start(self, version: str) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 80, 0, 0))
        words = [sys.executable, "-c", RUN, "--kubelet", version, "--device-plugins-dir", str(self.directory)]
        environment = self._environment | ({} if self.says_cursor else {"PROMPT_TOOLKIT_NO_CPR": "1"})
        # setsid makes the terminal the process's own, so that it is in the foreground there
        self.process = await asyncio.create_subprocess_exec(
            "setsid", "-c", *words, stdin=slave, stdout=slave, stderr=slave, env=environment
        )
        os.close(slave)
        self._changed = asyncio.Event()
        asyncio.get_running_loop().add_reader(self._master, self._read)

    def _read(self) -> None:
        try:
            data = os.read(self._master, 65536)
        except OSError:  # EIO: the other end is closed
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._master)
        if b"\x1b[6n" in data:
            self.type("\x1b[1;1R")
        self._raw += data  # a chunk may end within an escape, or a letter
        self.text = ESCAPES.sub("", self._raw.decode(errors="replace"))
        self._changed.set()

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    async def shows(self, text: str) -> None:
        """Waits until it comes, after what came last."""
        async with asyncio.timeout(60):
            while (at := self.text.find(text, self.seen)) < 0:
                self._changed.clear()
                await self._changed.wait()
        self.seen = at + len(text)

    async def do(self, line: str, *texts: str) -> None:
        self.type(f"{line}\r")
        for text in texts:
            await self.shows(text)

    async def close(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()
        asyncio.get_running_loop().remove_reader(self._master)
        os.close(self._master)


@pytest.fixture
async def terminal(short_path: Path) -> AsyncIterator[Terminal]:
    one = Terminal(short_path / "dp", short_path / "state")
    yield one
    await one.close()


async def test_an_upgrade_is_rehearsed_at_a_terminal(terminal: Terminal, rig: Rig, short_path: Path) -> None:
    await terminal.start("1.24")
    await terminal.shows("kubelet 1.24>")
    plugin = rig.plugin(Kubelet("1.24", terminal.directory))
    terminal.type("pod p1 ")
    await plugin.serve()
    await plugin.register()
    await terminal.shows("list received")
    await terminal.shows("pod p1")  # is still there
    terminal.type("exa\t")
    await terminal.shows("mple.com/x=1")
    await terminal.do("", "container started")
    await terminal.do("table", f"{X}: 2 of 2 allocatable, 1 held", "Healthy  -     p1/c")
    await terminal.do(f"\x1b[200~print files\nwait {X}=7\x1b[201~", "files:")  # pasted
    terminal.type("\x03")
    await terminal.shows("given up")
    terminal.type("nonsense\x03")
    await terminal.do("watch", "a key ends watching")
    plugin.health["d1"] = "Unhealthy"
    plugin._wake()
    await terminal.shows("Unhealthy")
    terminal.type("q")
    await terminal.do("dance", "unknown step 'dance'", "kubelet 1.24>")
    await terminal.do("upgrade 1.31", "started version=1.31", "pod admitted pod=p1", "kubelet 1.31>")
    await plugin._server.stop(0)
    await plugin.serve()  # the new kubelet has deleted its socket
    await plugin.register()
    await terminal.shows("list received")
    terminal.type("\x04")
    await terminal.shows("stopped version=1.31")
    async with asyncio.timeout(60):
        assert await terminal.process.wait() == 0
    assert not (terminal.directory / "kubelet.sock").exists()
    assert "+upgrade 1.31" in (short_path / "state/dpgateway/simulate_history").read_text()


async def test_a_toolbar_says_how_the_kubelet_is(terminal: Terminal, rig: Rig) -> None:
    terminal.says_cursor = True
    await terminal.start("1.24")
    await terminal.shows("kubelet 1.24 runs  no resource  0 pods")
    name = "example.com/with-a-name-that-leaves-no-room-for-the-number-of-pods"
    plugin = rig.plugin(Kubelet("1.24", terminal.directory))
    await plugin.serve()
    await plugin.register(resource=name)
    await terminal.shows("list received")
    await terminal.shows(f"{f'kubelet 1.24 runs  {name} 2/2'[:76]}...")
    await terminal.do("stop", "kubelet 1.24 isn't running")


Talk = Callable[..., Awaitable[str]]


@pytest.fixture
async def talk(short_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Talk:
    """Types text at a prompt whose output goes nowhere; what was printed."""
    monkeypatch.setenv("XDG_STATE_HOME", str(short_path / "state"))

    async def typed(text: str, output: str = "table") -> str:
        with create_pipe_input() as keys, create_app_session(keys, DummyOutput()):
            keys.send_text(text)
            async with asyncio.timeout(60):
                assert await run(Stand(Kubelet("1.24", short_path / "dp")), 0, output) == 0
        return ESCAPES.sub("", capsys.readouterr().out)

    return typed


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("help", "upgrade            restart as another version"),
        ("help upgrade", "upgrade VERSION\n  restart as another version"),
        ("help dance", "unknown command 'dance'"),
        ("help wacth", "unknown command 'wacth'; did you mean watch?"),
        ("wacth", "unknown step 'wacth'; did you mean watch?"),
        ("upgrade", "expected VERSION\nusage: upgrade VERSION"),
        ("start", "the kubelet is running already"),
        ("watch example.com/none", "no resource example.com/none, there are: none"),
        ("table", "no resource: no plugin has registered"),
        ("run /no/such/program", "No such file"),
        ("pod 'p1", "No closing quotation"),
        ("# nothing", "help` lists the commands"),
    ],
)
async def test_continues_after_an_error(talk: Talk, line: str, said: str) -> None:
    text = await talk(f"{line}\rprint files\rquit\r")
    assert said in text
    assert 'files: ["DEPRECATION"' in text
    assert "stopped version=1.24" in text


async def test_pasted_lines_are_done_until_one_fails(talk: Talk) -> None:
    text = await talk("\x1b[200~print files\nexpect ended\nkill\n\x1b[201~\r\x04")
    assert "files:" in text
    assert "the kubelet isn't ended" in text
    assert "killed" not in text


async def test_after_a_kill_start_starts_it(talk: Talk) -> None:
    text = await talk("kill\rtable\rwatch\rstart\rquit\r")
    assert text.count("the kubelet isn't running") == 2
    assert text.count("started version=1.24") == 2


async def test_json_is_not_wrapped(talk: Talk) -> None:
    assert '{"table": {}}\n' in await talk("table\rquit\r", "json")


async def test_the_prompt_says_that_the_kubelet_crashed(rig: Rig) -> None:
    said: list[str] = []

    class Listening(Screen):
        def write(self, text: str) -> None:
            said.append(text)

    with create_pipe_input() as keys, create_app_session(keys, DummyOutput()):
        kubelet = await rig.kubelet("1.34")
        Prompt(Session(kubelet, print), Listening())._hint(KubeletEvent("crashed", 0.0, {"reason": "panic: oops"}))
    assert "panic: oops\n`start` starts it again" in said[0]


def test_long_lines_go_on_below_their_text() -> None:
    assert wrapped("    0.001  one two", 15) == "    0.001  one\n           two"
    assert wrapped("    0.001  one-long-word two", 15) == "    0.001\n           one-long-word\n           two"


def test_history_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/null")
    assert type(history()).__name__ == "InMemoryHistory"
