"""A node with a gateway of its own process, and ``dpgateway status`` on it."""

import asyncio
import json
from asyncio.subprocess import PIPE

from tests.support.gateway import COMMAND


class Node:
    """A gateway, a kubelet, and who asks."""

    def __init__(self, folder, gateway, kubelet):
        self.folder, self.gateway, self.kubelet = folder, gateway, kubelet

    async def start(self, *arguments):
        """The command, which has the gateway's socket and the kubelet's directory."""
        given = [f"--control-socket={self.folder}/control.sock", f"--device-plugins-dir={self.folder}/dp"]
        return await asyncio.create_subprocess_exec(*COMMAND, "status", *given, *arguments, stdout=PIPE, stderr=PIPE)

    async def says(self, *arguments, code=0):
        process = await self.start(*arguments)
        output, errors = await process.communicate()
        assert (process.returncode, errors.decode()) == (code, "")
        return output.decode()

    async def json(self, *arguments, code=0):
        return json.loads(await self.says("--output=json", *arguments, code=code))
