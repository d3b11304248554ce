"""The kubelet, the gateway, or both, end and start again, with a pod on the node.

One node goes through all the ways in which they may end, because a start of either takes longer than the rest.
"""

import itertools
import signal

import pytest

from tests.scenarios.gateway import Gateway
from tests.scenarios.kubelet import RESOURCE, First, Kubelet, devices

ONE = {"c": {RESOURCE: 1}}
GONE = {8: (None, None), 9: (0, 0)}
FIRSTS: tuple[First, ...] = ("pods", "plugin")
SIGNALS = signal.SIGTERM, signal.SIGKILL


async def all_is_well(kubelet: Kubelet, held: set[str]) -> None:
    """The first pod still has what it held and may start again; the next one gets the other device."""
    await kubelet.wait_for_devices(2)
    assert (await kubelet.start_container("p1"))["ok"]
    assert devices(await kubelet.admit("p2", ONE)) == {"node-0", "node-1"} - held
    await kubelet.remove("p2")


async def test_the_kubelet_restarts(kubelet: Kubelet, served: Gateway) -> None:
    held = devices(await kubelet.admit("p1", ONE))
    for graceful, first in itertools.product((True, False), FIRSTS):
        again = await kubelet.restart(graceful=graceful, first=first)
        assert again["p1"]["ok"], (graceful, first, again)
        await all_is_well(kubelet, held)


@pytest.mark.parametrize("first", FIRSTS)
async def test_a_pod_whose_init_container_is_done(kubelet: Kubelet, served: Gateway, first: First) -> None:
    """Kubelets from 1.25.14 on spare what runs, but not a pod that has other containers: it needs the plugin's list."""
    assert (await kubelet.admit("p1", ONE, {"i": {RESOURCE: 1}}))["ok"]
    again = await kubelet.restart(first=first)
    assert again["p1"]["ok"] == (first == "plugin" or kubelet.minor < 25), again


async def test_the_gateway_restarts(kubelet: Kubelet, served: Gateway) -> None:
    held = devices(await kubelet.admit("p1", ONE))
    for number in SIGNALS:
        await served.end(number)
        await kubelet.wait_for(GONE.get(kubelet.minor, (2, 0)))
        await served.start()
        await all_is_well(kubelet, held)


async def test_both_restart_the_gateway_last(kubelet: Kubelet, served: Gateway) -> None:
    held = devices(await kubelet.admit("p1", ONE))
    for number in SIGNALS:
        await served.end(number)
        again = await kubelet.restart(graceful=number == signal.SIGTERM)
        assert again["p1"]["ok"], (number, again)
        await served.start()
        await all_is_well(kubelet, held)


async def test_both_restart_the_kubelet_last(kubelet: Kubelet, served: Gateway) -> None:
    held = devices(await kubelet.admit("p1", ONE))
    for number in SIGNALS:
        await kubelet.end(graceful=number == signal.SIGTERM)
        await served.restart(number)
        again = await kubelet.start()
        assert again["p1"]["ok"], (number, again)
        await all_is_well(kubelet, held)
