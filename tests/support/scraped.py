"""A gateway inside of the test's own process, and the numbers that it shows."""

import asyncio
import re
from contextlib import asynccontextmanager

from prometheus_client.parser import text_string_to_metric_families

from dpgateway.config import Configuration
from dpgateway.config import KubeletSettings as KubeletConfig
from dpgateway.config.changes import changes
from dpgateway.gateway import Gateway
from dpgateway.web.dra_series import DRA
from dpgateway.web.metrics import Metrics
from dpgateway.web.series import GATEWAY, RESOURCE

LABELS = {
    **{row.name: set(row.labels) for row in GATEWAY},
    **{row.name: {"resource", *row.labels} for row in RESOURCE},
    **{row.name: set(row.labels) for row in DRA},
}
"""Of every metric of the gateway."""


class Node:
    """A gateway, and what it shows."""

    def __init__(self, directory, *resources):
        self.directory, self.resources = directory, resources
        self.full = True
        """``web.metrics``."""

    @asynccontextmanager
    async def running(self):
        kubelet = KubeletConfig(device_plugins_dir=self.directory)
        configuration = Configuration(self.resources, kubelet, self.directory.parent / "state")
        async with asyncio.TaskGroup() as group:
            self.gateway = Gateway(configuration, "node-a", group)
            await self.gateway.start()
            self._page = Metrics(self.gateway.overview.figures, lambda: self.full).answer
            try:
                yield self
            finally:
                await self.gateway.close()

    async def reload(self, *resources):
        new = Configuration(resources, KubeletConfig(device_plugins_dir=self.directory))
        await self.gateway.apply(changes(self.gateway.resources, resources), new)

    async def text(self):
        return (await self._page()).body.decode()

    async def samples(self):
        """Of each series: its name and its labels, and its number."""
        return {
            (sample.name, *sorted(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(await self.text())
            for sample in family.samples
        }

    async def __call__(self, name, **labels):
        """The sum of all series of that name with these labels; None if there is none."""
        series = await self.samples()
        found = [value for (one, *have), value in series.items() if one == name and labels.items() <= set(have)]
        return sum(found) if found else None

    async def shows(self, value, name, **labels):
        return await self(name, **labels) == value

    async def named(self):
        """The resources that series are labelled with."""
        return {dict(labels).get("resource") for _, *labels in await self.samples()} - {None}

    async def exposed(self):
        """The labels of each metric on its page, of which some have no series yet, and of those of DRA, which only
        gateways with DRA have.
        """
        found: dict[str, set[str]] = {row.name: set(row.labels) for row in DRA if row.kind != "histogram"}
        for row in DRA:
            if row.kind == "histogram":
                labels = set(row.labels)
                found |= {f"{row.name}_bucket": labels | {"le"}, f"{row.name}_sum": labels, f"{row.name}_count": labels}
        for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", await self.text(), re.MULTILINE):
            have = LABELS.get(name, set())
            if kind == "histogram":
                found |= {f"{name}_bucket": have | {"le"}, f"{name}_sum": have, f"{name}_count": have}
            else:
                found[name] = have
        return found
