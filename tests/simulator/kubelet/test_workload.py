import asyncio

import pytest

from dpgateway_simulator import NotRunningError
from tests.simulator.rig import Rig, X


async def test_kubelet_dies_during_admission(rig: Rig) -> None:
    kubelet, plugin = await rig.both("1.37")
    asked = asyncio.Event()

    async def hang(ids: tuple[str, ...]) -> None:
        asked.set()
        await asyncio.Event().wait()

    plugin.hooks["Allocate"] = hang
    admitting = asyncio.create_task(kubelet.admit("p1", {"c": {X: 1}}))
    await asked.wait()
    assert kubelet.counts(X) == (2, 2), "a slow Allocate doesn't hold up the node's status"
    await kubelet.kill()
    with pytest.raises(NotRunningError, match="ended while"):
        await admitting
