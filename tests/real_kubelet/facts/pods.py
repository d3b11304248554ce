"""What pods are given, and in which words they are refused."""

from tests.real_kubelet.facts.case import TWO, Case
from tests.scenarios.kubelet import RESOURCE


async def too_many(case: Case) -> str:
    """Wants 2 devices, 1 is free"""
    await case.started()
    await case.admit("p1")
    return await case.admit("p2", TWO)


async def none_healthy(case: Case) -> str:
    """Wants 1 device, all are Unhealthy"""
    await _unhealthy(case)
    return await case.admit("p1")


async def zero_none_healthy(case: Case) -> str:
    """Wants 0 devices, all are Unhealthy"""
    await _unhealthy(case)
    return await case.admit("p1", {"c": {RESOURCE: 0}})


async def _unhealthy(case: Case) -> None:
    plugin = await case.started()
    await plugin.set(d0="Unhealthy", d1="Unhealthy")
    await case.counts_other_than("2 of 2", "1 of 2")


async def unknown(case: Case) -> str:
    """Wants 1 device, nobody registered"""
    await case.kubelet.start()
    return await case.admit("p1")


async def after_end(case: Case) -> str:
    """Wants 1 device, the plugin ended"""
    plugin = await case.started()
    await plugin.stop()
    await case.counts_other_than("2 of 2")
    return await case.admit("p1")


async def init(case: Case) -> str:
    """The device of an init container, for the next one"""
    return await _reused(case, {"name": "i", "resources": {RESOURCE: 1}})


async def sidecar(case: Case) -> str:
    """The device of a sidecar, for the next one"""
    return await _reused(case, {"name": "i", "resources": {RESOURCE: 1}, "restartPolicy": "Always"})


async def _reused(case: Case, before: dict[str, object]) -> str:
    plugin = await case.started()
    await case.kubelet.engine.admit("p1", [{"name": "c", "resources": {RESOURCE: 1}}], [before], start=True)
    first, second = plugin.of("Allocate")
    return "reused" if first == second else "not reused"


async def topology(case: Case) -> str:
    """Wants 2 devices of two NUMA nodes, `single-numa-node`"""
    case.kubelet.policy, case.kubelet.numa = "single-numa-node", 2
    await case.kubelet.start()
    plugin = await case.plugin(register=False)
    plugin.numa = {"d0": [0], "d1": [1]}
    await plugin.register()
    await case.listed(plugin)
    outcome = await case.admit("p1", TWO)
    assert (await case.admit("p2") == "accepted") == (outcome != "accepted"), "what is refused stays free"
    return outcome


FACTS = (too_many, none_healthy, zero_none_healthy, unknown, after_end, init, sidecar, topology)
