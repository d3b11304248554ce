"""What lists and streams do to the node's counts, allocatable of capacity."""

from tests.real_kubelet.facts.case import Case, calls, until
from tests.real_kubelet.facts.case import devices as some
from tests.real_kubelet.plugin import Plugin


async def unhealthy(case: Case) -> str:
    """One of 2 devices becomes Unhealthy"""
    plugin = await case.started()
    await plugin.set(d0="Unhealthy")
    return await case.counts_other_than("2 of 2")


async def unknown_health(case: Case) -> str:
    """One has a health that the API doesn't know"""
    plugin = await case.started()
    await plugin.set(d0="Dubious")
    return await case.counts_other_than("2 of 2")


async def all_unhealthy(case: Case) -> str:
    """Both become Unhealthy"""
    plugin = await case.started()
    await plugin.set(d0="Unhealthy", d1="Unhealthy")
    return await case.counts_other_than("2 of 2")


async def empty_list(case: Case) -> str:
    """An empty list"""
    plugin = await case.started()
    await plugin.set(d0=None, d1=None)
    return await case.counts_other_than("2 of 2")


async def stream_ends(case: Case) -> str:
    """The stream ends"""
    plugin = await case.started()
    await plugin.stop()
    return await case.counts_other_than("2 of 2")


async def duplicate(case: Case) -> str:
    """An id is listed twice, as Healthy, then as Unhealthy"""
    plugin = await case.started(devices=some("d", 1))
    plugin.again = [("d0", "Unhealthy")]
    await plugin.set()
    return await case.counts_other_than("1 of 1")


async def large(case: Case) -> str:
    """A list of 5 devices, of more than 4 MiB"""
    await case.kubelet.start()
    plugin = await case.plugin(devices={f"d{one}{'x' * (1 << 20)}": "Healthy" for one in range(5)}, register=False)
    await plugin.register()
    await until(lambda: _taken_or_ended(case, plugin))
    return f"{await case.settled()}, stream ended" if plugin.ended else await case.settled()


async def _taken_or_ended(case: Case, plugin: Plugin) -> bool:
    return bool(plugin.ended) or await case.counts() == "5 of 5"


async def vanishing(case: Case) -> str:
    """An id leaves the list during its Allocate"""
    plugin = await case.started()

    async def vanish(ids: list[str]) -> None:
        await plugin.set(**dict.fromkeys(ids))
        await case.kubelet.wait_for_devices(1)

    plugin.hooks["Allocate"] = vanish
    return await case.admit("p1")


async def vanished(case: Case) -> str:
    """An id leaves the list, and the container that has it starts again"""
    plugin = await case.started(pre_start=True)
    await case.admit("p1")
    held = plugin.of("Allocate")[0]
    await plugin.set(**dict.fromkeys(held))
    await case.kubelet.wait_for_devices(1)
    before = len(plugin.calls)
    reply = await case.kubelet.start_container("p1")
    return calls(plugin, before) if reply["ok"] else case.outcome(reply)


FACTS = (unhealthy, unknown_health, all_unhealthy, empty_list, stream_ends, duplicate, large, vanishing, vanished)
