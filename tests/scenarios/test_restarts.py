"""The kubelet, the gateway, or both, end and start again, with a pod on the node."""

import signal

import pytest

from tests.scenarios.gateway import Gateway
from tests.scenarios.kubelet import RESOURCE, First, Kubelet, devices

ONE = {"c": {RESOURCE: 1}}
GONE = {8: (None, None), 9: (0, 0)}
GRACEFUL = pytest.mark.parametrize("graceful", [True, False], ids=["graceful", "killed"])
FIRST = pytest.mark.parametrize("first", ["pods", "plugin"])
SIGNALS = pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])


async def all_is_well(kubelet: Kubelet, held: set[str]) -> None:
    """The first pod still has what it held and may start again; the next one gets the other device."""
    await kubelet.wait_for_devices(2)
    assert (await kubelet.start_container("p1"))["ok"]
    assert devices(await kubelet.admit("p2", ONE)) == {"node-0", "node-1"} - held


@FIRST
@GRACEFUL
async def test_the_kubelet_restarts(kubelet: Kubelet, served: Gateway, graceful: bool, first: First) -> None:
    held = devices(await kubelet.admit("p1", ONE))
    assert (await kubelet.restart(graceful=graceful, first=first))["p1"]["ok"]
    await all_is_well(kubelet, held)


@FIRST
async def test_a_pod_whose_init_container_is_done(kubelet: Kubelet, served: Gateway, first: First) -> None:
    """Kubelets from 1.25.14 on spare what runs, but not a pod that has other containers: it needs the plugin's list."""
    assert (await kubelet.admit("p1", ONE, {"i": {RESOURCE: 1}}))["ok"]
    again = await kubelet.restart(first=first)
    assert again["p1"]["ok"] == (first == "plugin" or kubelet.minor < 25), again


@GRACEFUL
async def test_the_kubelet_restarts_ten_times(kubelet: Kubelet, served: Gateway, graceful: bool) -> None:
    held = devices(await kubelet.admit("p1", ONE))
    for _ in range(10):
        assert (await kubelet.restart(graceful=graceful))["p1"]["ok"]
        await kubelet.wait_for_devices(2)
    await all_is_well(kubelet, held)


@SIGNALS
async def test_the_gateway_restarts(kubelet: Kubelet, served: Gateway, number: signal.Signals) -> None:
    held = devices(await kubelet.admit("p1", ONE))
    await served.end(number)
    await kubelet.wait_for(GONE.get(kubelet.minor, (2, 0)))
    await served.start()
    await all_is_well(kubelet, held)


@SIGNALS
async def test_both_restart_the_gateway_last(kubelet: Kubelet, served: Gateway, number: signal.Signals) -> None:
    held = devices(await kubelet.admit("p1", ONE))
    await served.end(number)
    assert (await kubelet.restart(graceful=number == signal.SIGTERM))["p1"]["ok"]
    await served.start()
    await all_is_well(kubelet, held)


@SIGNALS
async def test_both_restart_the_kubelet_last(kubelet: Kubelet, served: Gateway, number: signal.Signals) -> None:
    held = devices(await kubelet.admit("p1", ONE))
    await kubelet.end(graceful=number == signal.SIGTERM)
    await served.restart(number)
    assert (await kubelet.start())["p1"]["ok"]
    await all_is_well(kubelet, held)
