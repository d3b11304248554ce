"""A node goes from release to release in place: all the way up, and all the way down again."""

import itertools

import pytest

from tests.real_kubelet.programs import RELEASES
from tests.scenarios.gateway import Gateway
from tests.scenarios.kubelet import RESOURCE, First, Kubelet, devices

ONE = {"c": {RESOURCE: 1}}
STEPS = list(itertools.pairwise([*RELEASES, *RELEASES[-2::-1]]))
# The checkpoint's format changed in 1.9, 1.11 and 1.20. A kubelet reads its own, and from 1.20 to 1.30 the one before;
# with any other it forgets who holds what.
FORGETS = {("1.8", "1.9"), ("1.9", "1.8"), ("1.10", "1.12"), ("1.12", "1.10"), ("1.24", "1.12")}
# Then the pod needs devices again. Before its plugin is back 1.9 refuses it, and 1.10 and 1.12 keep it without any: its
# containers can't start again.
REFUSES = {("1.8", "1.9")}
KEEPS_WITHOUT = FORGETS - REFUSES - {("1.9", "1.8")}

pytestmark = pytest.mark.parametrize("kubelet", ["1.8"], indirect=True)


async def test_steps_of_an_empty_node(kubelet: Kubelet, served: Gateway) -> None:
    for step in STEPS:
        await kubelet.restart(step[1])
        await kubelet.wait_for_devices(2)
        pod = "-".join(step)
        admitted = await kubelet.admit(pod, ONE)
        assert admitted["ok"], (step, admitted)
        assert (await kubelet.start_container(pod))["ok"], step
        await kubelet.remove(pod)


@pytest.mark.parametrize("first", ["plugin", "pods"])
async def test_steps_with_a_pod(kubelet: Kubelet, served: Gateway, first: First) -> None:
    late = first == "pods"
    for step in STEPS:
        pod, other = "-".join(step), "-".join(("other", *step))
        held = devices(await kubelet.admit(pod, ONE))
        again = await kubelet.restart(step[1], first=first)
        assert again[pod]["ok"] == (not late or step not in REFUSES), (step, again)
        await kubelet.wait_for_devices(2)
        if again[pod]["ok"]:
            started = await kubelet.start_container(pod)
            assert started["ok"] == (not late or step not in KEEPS_WITHOUT), (step, started)
        if step not in FORGETS:
            assert devices(await kubelet.admit(other, ONE)) == {"node-0", "node-1"} - held, step
        for name in list(kubelet.pods):
            await kubelet.remove(name)
