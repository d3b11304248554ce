"""The gateway as a process of its own, as it runs on a node."""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from tests.support import forked
from tests.support.forked import Forked

COMMAND = (str(Path(sys.executable).with_name("dpgateway")),)
SLOW = (
    "no kubelet for ",
    "waiting for the driver ",
    "hasn't been read for ",
    "something hangs",
    "registering failed",  # at the socket of a kubelet that was killed, if the next one takes a second
)
"""What a slow machine has it say, too."""
LONGEST_END = 60.0
"""Seconds. It is to end within 2, but a busy machine takes its time."""


def run(folder: Path, device_plugins_dir: Path, config: Mapping[str, Any], node: str = "node") -> list[str]:
    """The words after ``dpgateway`` that run it with a configuration, which is written into the folder."""
    file = folder / "config.yaml"
    new = folder / "config.yaml.new"
    new.write_text(json.dumps(config))  # JSON is YAML
    new.rename(file)  # a gateway that runs reads the whole of one or the other
    control = f"--control-socket={folder / 'control.sock'}"
    return ["run", f"--config={file}", f"--device-plugins-dir={device_plugins_dir}", f"--node-name={node}", control]


class Gateway:
    """One ``dpgateway run`` after the other. What a test changes counts from the next start.

    ``log`` has the lines of every run.
    """

    log_format = "json"
    log_level = "info"
    node_name = "node"
    imported = True
    """It begins with its modules imported, which saves half a second; False for tests of its start."""

    def __init__(self, folder: Path, device_plugins_dir: Path) -> None:
        self.folder, self.device_plugins_dir = folder, device_plugins_dir
        self.command: Sequence[str] = COMMAND
        self.environment: dict[str, str] = {}
        self.resources: list[dict[str, Any]] = []
        self.kubelet: dict[str, Any] = {}
        self.runtime: dict[str, Any] = {}
        self.web: dict[str, Any] = {}
        self.more: dict[str, Any] = {}
        """Further keys of the configuration."""
        self.log: list[str] = []
        self._news = asyncio.Condition()
        self._silent = True
        self._process: Process | Forked | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self, *resources: dict[str, Any]) -> None:
        """Returns when it has been started, which isn't when it serves. Without resources it has those of before."""
        assert not self.running, "it runs already"
        await self.close()  # all that the one before said is in the log, and its silence isn't this one's
        self.resources = list(resources) or self.resources
        words = run(self.folder, self.device_plugins_dir, self._config(), self.node_name)
        words += [f"--log-format={self.log_format}", f"--log-level={self.log_level}"]
        environment = os.environ | self.environment
        if self.imported and self.command == COMMAND:
            self._process = await forked.start(words, environment)
        else:
            self._process = await asyncio.create_subprocess_exec(
                *self.command, *words, stdout=DEVNULL, stderr=PIPE, env=environment
            )
        self._silent = False
        self._reader = asyncio.create_task(self._read(self._process), name="log of the gateway")

    def _config(self) -> dict[str, Any]:
        state = str(self.folder / "state")
        shared = {"kubelet": self.kubelet, "runtime": self.runtime, "state_dir": state, "web": self.web, **self.more}
        return {"resources": self.resources, **shared}

    def reload(self, *resources: dict[str, Any]) -> None:
        """Writes another configuration, and tells it to read that."""
        self.resources = list(resources)
        run(self.folder, self.device_plugins_dir, self._config())
        self.process.send_signal(signal.SIGHUP)

    async def _read(self, process: Process | Forked) -> None:
        assert process.stderr is not None
        async for line in process.stderr:
            async with self._news:
                self.log.append(line.decode(errors="replace").rstrip("\n"))
                self._news.notify_all()
        async with self._news:
            self._silent = True
            self._news.notify_all()

    @property
    def process(self) -> Process | Forked:
        assert self._process is not None, "it was never started"
        return self._process

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    def entries(self) -> list[dict[str, Any]]:
        """Every line of the log, each of which must be JSON."""
        return [json.loads(line) for line in self.log]

    def warnings(self) -> list[str]:
        """What it logged that isn't just information, without what tells of a slow machine."""
        texts = [str(line["message"]) for line in self.entries() if line["level"] != "info"]
        return [text for text in texts if not any(part in text for part in SLOW)]

    async def said(self, text: str, count: int = 1, seconds: float = 60) -> None:
        """Until its log has so many lines with this text."""
        try:
            async with asyncio.timeout(seconds), self._news:
                await self._news.wait_for(lambda: self.lines(text) >= count or self._silent)
        except TimeoutError:
            raise AssertionError(self._missing(text, f"within {seconds:g} s")) from None
        assert self.lines(text) >= count, self._missing(text, "before it ended")

    def lines(self, text: str) -> int:
        """How many lines with this text there are so far, those of earlier runs among them."""
        return sum(text in line for line in self.log)

    def _missing(self, text: str, when: str) -> str:
        end = "\n".join(self.log[-20:])
        return f"the gateway said {text!r} {self.lines(text)} times {when}; its log ends so:\n{end}"

    async def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Its exit status. It is killed if it takes longer than it may."""
        if self.running:
            self.process.send_signal(number)
        try:
            async with asyncio.timeout(LONGEST_END):
                return await self.process.wait()
        except TimeoutError:
            raise AssertionError(f"the gateway didn't end within {LONGEST_END:g} s of {number.name}") from None
        finally:
            await self.close()

    async def close(self) -> None:
        """Kills it, if it still runs."""
        if self._process is None:
            return
        if self.running:
            self._process.kill()
        await self._process.wait()
        await asyncio.shield(self._reader)  # who is cancelled meanwhile may close it again

    def names(self) -> list[str]:
        """The files that it has beside the kubelet's."""
        folder = self.device_plugins_dir / "dpgateway"
        return sorted(path.name for path in folder.iterdir()) if folder.exists() else []

    def used(self) -> dict[str, int]:
        """Resident KiB, threads, descriptors, and how many of those are sockets, and inotify instances."""
        process = Path(f"/proc/{self.pid}")
        fields = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
        opened = list((process / "fd").iterdir())
        return {
            "KiB": int(fields["VmRSS"].split()[0]),
            "threads": int(fields["Threads"]),
            "descriptors": len(opened),
            "sockets": sum("socket:" in _target(path) for path in opened),
            "inotify": sum("inotify" in _target(path) for path in opened),
        }


def _target(descriptor: Path) -> str:
    try:
        return os.readlink(descriptor)  # noqa: PTH115 - it is no path
    except FileNotFoundError:  # closed meanwhile
        return ""
