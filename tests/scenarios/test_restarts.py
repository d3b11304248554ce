"""The kubelet, the gateway, or both, end and start again, with a pod on the node.

One node goes through all the ways in which they may end, because a start of either takes longer than the rest.
"""

import itertools
import signal

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


async def test_kubelet_gateway_and_both_restart(kubelet: Kubelet, served: Gateway) -> None:
    held = devices(await kubelet.admit("p1", ONE))
    for graceful, first in itertools.product((True, False), FIRSTS):
        again = await kubelet.restart(graceful=graceful, first=first)
        assert again["p1"]["ok"], (graceful, first, again)
        await all_is_well(kubelet, held)

    for number in SIGNALS:
        await served.end(number)
        await kubelet.wait_for(GONE.get(kubelet.minor, (2, 0)))
        await served.start()
        await all_is_well(kubelet, held)

    for number in SIGNALS:  # the gateway last
        await served.end(number)
        again = await kubelet.restart(graceful=number == signal.SIGTERM)
        assert again["p1"]["ok"], (number, again)
        await served.start()
        await all_is_well(kubelet, held)

    for number in SIGNALS:  # the kubelet last
        await kubelet.end(graceful=number == signal.SIGTERM)
        await served.restart(number)
        again = await kubelet.start()
        assert again["p1"]["ok"], (number, again)
        await all_is_well(kubelet, held)


async def test_a_pod_whose_init_container_is_done(kubelet: Kubelet, served: Gateway) -> None:
    """Kubelets from 1.25.14 on spare what runs, but not a pod that has other containers: it needs the plugin's list."""
    for first in FIRSTS:
        assert (await kubelet.admit(f"p{first}", ONE, {"i": {RESOURCE: 1}}))["ok"]
        again = await kubelet.restart(first=first)
        assert again[f"p{first}"]["ok"] == (first == "plugin" or kubelet.minor < 25), (first, again)
        await kubelet.wait_for_devices(2)
        for name in list(kubelet.pods):
            await kubelet.remove(name)
