"""What a kubelet's calls look like on the wire."""

import asyncio

from tests.real_kubelet.facts.case import DIRECTORY, Case
from tests.real_kubelet.facts.raw import first_headers
from tests.real_kubelet.plugin import Plugin, dialect_of
from tests.scenarios.kubelet import RESOURCE

NAME = "raw.sock"


async def headers(case: Case) -> str:
    """user-agent of its calls"""
    return (await _greeting(case))["user-agent"]


async def authority(case: Case) -> str:
    """:authority of its calls"""
    found = (await _greeting(case))[":authority"]
    return "the socket's path" if found == str(case.directory / NAME) or found == f"{DIRECTORY}/{NAME}" else found


async def _greeting(case: Case) -> dict[str, str]:
    await case.kubelet.start()
    plugin = Plugin(dialect_of(case.release), RESOURCE, case.directory, NAME)
    async with first_headers(case.directory / NAME) as headers:
        registering = asyncio.create_task(case.register(plugin), name="Register")
        found = await headers
        registering.cancel()
    return found


FACTS = (headers, authority)
