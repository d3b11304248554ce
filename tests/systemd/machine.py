"""A machine that systemd runs, with the service installed, and a kubelet's directory outside of it."""

import asyncio
import contextlib
import json
import shutil
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from pathlib import Path
from typing import Any, Self

from tests.support.waiting import until

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "deploy/systemd/dpgateway@.service"
SCRIPT = Path(__file__).with_name("machine.sh")
SYSTEMD = Path("/lib/systemd/systemd")
DROP_IN = f"""[Service]
ExecStart=
ExecStart={Path(sys.executable).with_name("dpgateway")} run --config=/var/lib/kubelet/config.yaml --node-name=node
StandardError=append:/var/lib/kubelet/log
# this clone and its Python may be anywhere
ProtectHome=no
PrivateTmp=no
"""


class Machine:
    """Started on entering, ended on leaving."""

    def __init__(self, settings: str = "") -> None:
        """``settings``: a drop-in of the service."""
        self._settings = settings
        self.folder = Path(tempfile.mkdtemp(prefix="systemd-"))
        self.device_plugins = self.folder / "kubelet/device-plugins"
        self._config = self.folder / "kubelet/config.yaml"
        self._process: Process | None = None

    def configure(self, *resources: dict[str, Any]) -> None:
        self._config.write_text(json.dumps({"resources": resources}))

    async def __aenter__(self) -> Self:
        self.device_plugins.mkdir(parents=True)
        drop_ins = self.folder / f"units/{UNIT.name}.d"
        drop_ins.mkdir(parents=True)
        shutil.copy(UNIT, drop_ins.parent)
        (drop_ins / "here.conf").write_text(DROP_IN)
        (drop_ins / "more.conf").write_text(self._settings)
        self._process = await asyncio.create_subprocess_exec(
            "unshare", "--mount", "bash", str(SCRIPT), str(self.folder), *_ours(), stdin=PIPE, stdout=DEVNULL
        )
        try:
            await until(self._first, seconds=60)
            await until(self._running, seconds=60)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def _running(self) -> bool:
        return (await self.systemctl("is-system-running"))[1] == "running"

    async def __aexit__(self, *_: object) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()
        shutil.rmtree(self.folder)

    def _first(self) -> str:
        """The process id of systemd as the host has it, once it is systemd."""
        assert self._process is not None
        pid = str(self._process.pid)
        # The script isn't there yet, or it was a command of the script, which has ended.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, IndexError):
            for _ in range(2):  # the script, unshare, systemd
                pid = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0]
            if Path(f"/proc/{pid}/comm").read_text() == "systemd\n":
                return pid
        return ""

    def path(self, name: str) -> Path:
        """What this path of the machine is called out here."""
        return Path(f"/proc/{self._first()}/root{name}")

    async def systemctl(self, *words: str) -> tuple[int, str]:
        """Its exit status, and what it says."""
        enter = ("nsenter", "--mount", "--pid", "--cgroup", "--target", self._first(), "--wd=/", "systemctl")
        process = await asyncio.create_subprocess_exec(*enter, *words, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT)
        said, _ = await process.communicate()
        return process.returncode or 0, said.decode().strip()

    async def done(self, *words: str) -> str:
        """What systemctl says; it succeeds."""
        code, said = await self.systemctl(*words)
        assert code == 0, f"systemctl {' '.join(words)}: {said}\n{self.log()}"
        return said

    async def state(self, unit: str) -> str:
        """``active``, ``inactive``, ``failed`` or the like."""
        return (await self.systemctl("is-active", unit))[1]

    def log(self) -> str:
        """Of systemd, and of the gateways."""
        return "".join(path.read_text() for path in (self.folder / "log", self.folder / "kubelet/log") if path.exists())


def _ours() -> set[str]:
    """Where the gateway's files and its Python are."""
    return {str(ROOT), sys.prefix, sys.base_prefix}
