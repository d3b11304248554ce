"""A node with a gateway of its own process, and ``dpgateway status`` on it."""

import asyncio
import json
from asyncio.subprocess import PIPE

from click.testing import CliRunner

from dpgateway.cli import main
from tests.support.gateway import COMMAND


class Node:
    """A gateway, a kubelet, and who asks: the command has the gateway's socket and the kubelet's directory."""

    def __init__(self, folder, gateway, kubelet):
        self.folder, self.gateway, self.kubelet = folder, gateway, kubelet
        self._words = ["status", f"--control-socket={folder}/control.sock", f"--device-plugins-dir={folder}/dp"]

    async def start(self, *arguments):
        """The command as a process."""
        return await asyncio.create_subprocess_exec(*COMMAND, *self._words, *arguments, stdout=PIPE, stderr=PIPE)

    async def says(self, *arguments, code=0):
        """What it prints; it runs on a thread of this process, which saves a start of half a second."""
        words = [*self._words, *arguments]
        result = await asyncio.to_thread(CliRunner().invoke, main, words, prog_name="dpgateway")
        assert (result.exit_code, result.stderr) == (code, "")
        return result.stdout

    async def json(self, *arguments, code=0):
        return json.loads(await self.says("--output=json", *arguments, code=code))
