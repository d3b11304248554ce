"""What a driver is told of the devices that containers hold."""

import asyncio
from dataclasses import replace

from dpgateway.config import Shares
from dpgateway.deviceplugin.holdings.observed import ResourceHoldings
from dpgateway.deviceplugin.holdings.values import Holdings
from dpgateway.kit.observable import Observable
from dpgateway.node.holders import Noted
from dpgateway.resource.held import HeldDevices
from tests.support.resources import configured

NOTED = Noted()


async def test_the_first_question_waits_until_the_note_is_read():
    holdings = ResourceHoldings(Holdings())
    held = HeldDevices(holdings, Observable(configured()))
    asked = asyncio.create_task(asyncio.to_thread(held))
    asyncio.get_running_loop().call_soon(
        holdings.set, replace(holdings.value, note={"a+b": NOTED, "c+d::1": NOTED}, looked=True)
    )
    assert await asked == {"a+b", "c+d"}


async def test_ids_of_a_form_say_no_device():
    holdings = ResourceHoldings(Holdings(note={"a+b-0": NOTED}, looked=True))
    assert (
        await asyncio.to_thread(HeldDevices(holdings, Observable(configured(shares=Shares(1, ids="{id}-{share}")))))
        == frozenset()
    )


async def test_without_a_kubelet_only_the_first_question_waits():
    held = HeldDevices(ResourceHoldings(Holdings()), Observable(configured()))
    assert await asyncio.to_thread(held) == frozenset()
    assert held() == frozenset(), "here it would wait for itself"
