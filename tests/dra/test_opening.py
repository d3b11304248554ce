"""A socket whose file is gone before it can be shown to the kubelet."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dpgateway.dra.health import HealthStreams
from dpgateway.dra.service import Service, folder_of
from dpgateway.kit.log import bind
from dpgateway.registry.socket import FOLDER, RegisteredPlugin, RegistrationSocket
from tests.dra.claim_node import DRIVER, ClaimNode
from tests.support.waiting import turns, until

LOG = bind("test")


def listening(folder: Path) -> bool:
    return str(folder) in Path("/proc/net/unix").read_text()


@pytest.mark.parametrize("what", ["service", "registration"])
async def test_it_is_closed(node: ClaimNode, short_path: Path, what: str) -> None:
    service = Service(short_path, DRIVER, await node.gateway(), HealthStreams(tuple), LOG)
    plugin = RegisteredPlugin("DRAPlugin", DRIVER, service.socket, ("v1.DRAPlugin",))
    one = service if what == "service" else RegistrationSocket(short_path, plugin, LOG)
    folder = folder_of(short_path, DRIVER) if what == "service" else short_path / FOLDER
    folder.mkdir(parents=True)

    async def remove() -> None:
        while not (found := list(folder.iterdir())):
            await turns(1)
        found[0].unlink()

    removing = asyncio.create_task(remove())
    with pytest.raises(FileNotFoundError):
        await one.open()
    await removing
    await until(lambda: not listening(folder))  # gRPC's own threads close it
