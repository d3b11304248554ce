"""The gateway inside of the test's own process."""

import asyncio
from pathlib import Path

from dpgateway.config import Configuration, ResourceConfig
from dpgateway.config import KubeletSettings as KubeletConfig
from dpgateway.config.values import RuntimeSettings
from dpgateway.daemon.ending import Ending, Patience
from dpgateway.daemon.main import Daemon
from dpgateway.daemon.reloading import Reloading


class Inside:
    def __init__(self, directory: Path) -> None:
        """``directory``: the kubelet's device-plugins directory."""
        self.directory, self.ending = directory, Ending()
        self.control: Path | None = None
        self.runtime = RuntimeSettings()
        self.task: asyncio.Future[None] | None = None
        self.wanted: Configuration | Exception

    def serve(self, *resources: ResourceConfig) -> None:
        self.wanted = first = self.configuration(*resources)
        self.reloading = Reloading(first, self._read)
        daemon = Daemon("node-a", self.reloading, self.ending, Patience(), control=self.control)
        self.task = asyncio.ensure_future(daemon.serve())

    def configuration(self, *resources: ResourceConfig) -> Configuration:
        kubelet = KubeletConfig(device_plugins_dir=self.directory)
        return Configuration(resources, kubelet, self.directory.parent / "state", runtime=self.runtime)

    def reload(self, wanted: Configuration | Exception) -> None:
        """From now on this is what it reads, and it is asked to."""
        self.wanted = wanted
        self.reloading.ask()

    def _read(self) -> Configuration:
        if isinstance(self.wanted, Exception):
            raise self.wanted
        return self.wanted

    async def close(self) -> None:
        """Ends it if it runs."""
        if self.task is not None and not self.task.done():
            await self.end()

    async def end(self) -> None:
        assert self.task is not None, "it was never started"
        self.ending.tell()
        async with asyncio.timeout(60):
            await self.task
