"""A node goes from release to release in place, with pods on it."""

import itertools

import pytest

from tests.real_kubelet.programs import RELEASES
from tests.scenarios.engines import REAL
from tests.scenarios.gateway import Gateway
from tests.scenarios.kubelet import RESOURCE, Kubelet, devices

ONE = {"c": {RESOURCE: 1}}
# Simulated ones alone take the steps between APIs, and between formats of the checkpoint; the others differ in neither.
UP = list(itertools.pairwise(RELEASES if REAL else RELEASES[: RELEASES.index("1.24") + 1]))
STEPS = [*UP, *((new, old) for old, new in UP)]
# The checkpoint's format changed in 1.9, 1.11 and 1.20. A kubelet reads its own, and from 1.20 to 1.30 the one before;
# with any other it forgets who holds what.
FORGETS = {("1.8", "1.9"), ("1.9", "1.8"), ("1.10", "1.12"), ("1.12", "1.10"), ("1.24", "1.12")}
# Then the pod needs devices again. Before its plugin is back 1.9 refuses it, and 1.10 and 1.12 keep it without any: its
# containers can't start again.
REFUSES = {("1.8", "1.9")}
KEEPS_WITHOUT = FORGETS - REFUSES - {("1.9", "1.8")}


@pytest.mark.parametrize("kubelet", ["1.8"], indirect=True)
async def test_all_the_way_up(kubelet: Kubelet, served: Gateway) -> None:
    for release in RELEASES[1:]:
        await kubelet.restart(release)
        await kubelet.wait_for_devices(2)
        pod = f"p{release}"
        admitted = await kubelet.admit(pod, ONE)
        assert admitted["ok"], (release, admitted)
        assert (await kubelet.start_container(pod))["ok"]
        await kubelet.remove(pod)


@pytest.mark.parametrize("kubelet", RELEASES[-1:], indirect=True)
async def test_all_the_way_down(kubelet: Kubelet, served: Gateway) -> None:
    for release in RELEASES[-2::-1]:
        await kubelet.restart(release)
        await kubelet.wait_for_devices(2)
        assert (await kubelet.admit(f"p{release}", ONE))["ok"]
        await kubelet.remove(f"p{release}")


EACH_STEP = pytest.mark.parametrize(("kubelet", "new"), STEPS, indirect=["kubelet"], ids=map("-".join, STEPS))


@EACH_STEP
async def test_one_step_with_a_pod(kubelet: Kubelet, served: Gateway, new: str) -> None:
    step = kubelet.release, new
    held = devices(await kubelet.admit("p1", ONE))
    again = await kubelet.restart(new, first="plugin")
    assert again["p1"]["ok"], again
    assert (await kubelet.start_container("p1"))["ok"]
    if step not in FORGETS:
        assert devices(await kubelet.admit("p2", ONE)) == {"node-0", "node-1"} - held


@EACH_STEP
async def test_one_step_with_a_pod_that_comes_first(kubelet: Kubelet, served: Gateway, new: str) -> None:
    step = kubelet.release, new
    held = devices(await kubelet.admit("p1", ONE))
    again = await kubelet.restart(new, first="pods")
    assert again["p1"]["ok"] == (step not in REFUSES), again
    await kubelet.wait_for_devices(2)
    if step not in REFUSES:
        assert (await kubelet.start_container("p1"))["ok"] == (step not in KEEPS_WITHOUT)
    if step not in FORGETS:
        assert devices(await kubelet.admit("p2", ONE)) == {"node-0", "node-1"} - held
