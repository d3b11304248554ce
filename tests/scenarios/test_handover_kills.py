"""Either gateway is killed at each step of a handover: the other one serves, and nothing is given away twice."""

import asyncio
import contextlib
import itertools
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.scenarios.gateway import Gateway
from tests.scenarios.kubelet import RESOURCE, Kubelet
from tests.support.between import Between
from tests.support.waiting import until

TWIN = "example.com/twin"
"""The same hardware under another name."""
STEPS = {
    "ask": "the newer one is warm, and asks",
    "take": "the older one decides nothing any more, and passes the lock",
    "serves": "the newer one has read the journal, and serves",
    "register": "it may register",
    "listed": "the kubelet has its list",
    "over": "the older one has let go, and waits for the newer one's end",
}
"""What was just said (deviceplugin/handover/protocol.py), and isn't heard yet."""

OWN = [".lock", ".next", ".sock"]
"""Of each resource. The registered name is missing if the newer gateway had removed it before it was killed: the
stream goes on without it, and the next registration makes another one.
"""

# 1.10 closes the old connection at the new registration; in 1.31 the end of the old stream ends the new one
pytestmark = pytest.mark.parametrize("kubelet", ["1.10", "1.31", "1.37"], indirect=True)


@pytest.fixture
async def pair(kubelet: Kubelet, folder: Path) -> AsyncIterator[dict[str, Gateway]]:
    """Two gateways, not yet started."""
    pair = {who: Gateway(folder, kubelet.directory) for who in ("older", "newer")}
    for gateway in pair.values():
        gateway.resources = [{**gateway.resource, "name": name, "pool": "p"} for name in (RESOURCE, TWIN)]
    async with contextlib.AsyncExitStack() as stack:
        for gateway in pair.values():
            await stack.enter_async_context(gateway)
        yield pair
    for who, gateway in pair.items():
        print("\n".join([f"--- {who}", *gateway.log]))  # noqa: T201  shown when the scenario failed
        assert not [line for line in gateway.log if "Traceback" in line or "a bug:" in line]


@pytest.mark.parametrize("victim", ["older", "newer"])
@pytest.mark.parametrize("step", STEPS)
async def test_the_other_one_serves(kubelet: Kubelet, pair: dict[str, Gateway], step: str, victim: str) -> None:
    killed = asyncio.Event()

    async def heard(_: str, word: str) -> None:
        if word == step and not killed.is_set():
            killed.set()
            await pair[victim].end(signal.SIGKILL)

    await kubelet.start()
    await pair["older"].start()
    for resource in (RESOURCE, TWIN):
        await kubelet.wait_for_devices(2, resource=resource)
    assert (await kubelet.admit("p0", {"c": {RESOURCE: 1}}))["ok"]
    await kubelet.wait_for_devices(1, 1, resource=TWIN)
    async with (
        Between(kubelet.directory, RESOURCE, heard),
        Between(kubelet.directory, TWIN, heard),
    ):
        await pair["newer"].start()
        if step == "over":
            await pair["older"].said("handed over to another gateway", 2, 60)
            await heard("", "over")
        await asyncio.wait_for(killed.wait(), 60)
        await serves_alone(kubelet, *(gateway for who, gateway in pair.items() if who != victim))


async def serves_alone(kubelet: Kubelet, left: Gateway) -> None:
    """Both resources, with what was given away before, and under the names of one gateway."""
    count, before = itertools.count(), allocated(left)

    async def admitted() -> bool:
        """A container whose start failed is started again by its kubelet."""
        return (await kubelet.admit(f"p1-{next(count)}", {"c": {TWIN: 1}})).get("stage") != "admit"

    await until(lambda: holders(left) == [left.pid] * 2, found=left.names)
    await until(admitted, pause=0.1)
    await kubelet.wait_for_devices(1, 1, resource=RESOURCE)
    await kubelet.wait_for_devices(1, 1, resource=TWIN)
    await until(lambda: allocated(left) == before + 1)
    await until(lambda: kinds(left) in ([*OWN, "-.sock"] * 2, OWN * 2), found=left.names)
    assert not (await kubelet.admit("p2", {"c": {RESOURCE: 1}}))["ok"]
    assert await left.end() == 0
    assert not [name for name in left.names() if not name.endswith(".older")]


def allocated(gateway: Gateway) -> int:
    return sum(" allocated 1 device" in line for line in gateway.log)


def holders(gateway: Gateway) -> list[int]:
    """The processes that serve the resources. None while a gateway that begins again makes its lock once more."""
    folder = gateway.device_plugins_dir / "dpgateway"
    with contextlib.suppress(FileNotFoundError):
        return [int((lock.read_text().split() or ["pid", "0"])[1]) for lock in folder.glob("*.lock")]
    return []


def kinds(gateway: Gateway) -> list[str]:
    """What the names in the folder are of, those of one resource after the other's."""
    names = [name for name in gateway.names() if not name.endswith(".older")]
    order = sorted((name[:16], "-" in name, name) for name in names)
    return [("-" if linked else "") + Path(name).suffix for _, linked, name in order]
