"""What a plugin is asked, when, and what of its answers is used."""

from typing import Any

from tests.real_kubelet.facts.case import DASH, ONE, PANICS, TWO, Case, calls, devices
from tests.real_kubelet.facts.registering import fail
from tests.real_kubelet.plugin import Plugin
from tests.scenarios.kubelet import RESOURCE

PREFERRED, PREFERRED_ALL = [["d2", "d3"]], [["d0", "d1", "d2", "d3"]]  # plugin.py prefers the last ones


async def at_registration(case: Case) -> str:
    """After Register"""
    return calls(await case.started(pre_start=True))


async def at_pod(case: Case) -> str:
    """A pod starts"""
    plugin = await case.started(pre_start=True)
    return await _since(case, plugin)


async def _since(case: Case, plugin: Plugin) -> str:
    before = len(plugin.calls)
    await case.admit("p1")
    return calls(plugin, before)


async def at_restart(case: Case) -> str:
    """Its container starts again"""
    plugin = await case.started(pre_start=True)
    await case.admit("p1")
    before = len(plugin.calls)
    await case.kubelet.start_container("p1")
    return calls(plugin, before)


async def two_containers(case: Case) -> str:
    """A pod of two containers starts"""
    plugin = await case.started(pre_start=True)
    before = len(plugin.calls)
    await case.admit("p1", {"c": {RESOURCE: 1}, "d": {RESOURCE: 1}})
    return calls(plugin, before)


async def preferred(case: Case) -> str:
    """2 of 4 devices, and the plugin has preferences"""
    return await _preferring(case, 2)


async def preferred_all(case: Case) -> str:
    """4 of 4 devices, and the plugin has preferences"""
    return await _preferring(case, 4)


async def _preferring(case: Case, number: int) -> str:
    await case.kubelet.start()
    plugin = await case.plugin(devices=devices("d", 4), register=False)
    plugin.options["get_preferred_allocation_available"] = True
    await plugin.register()
    await case.listed(plugin)
    before = len(plugin.calls)
    await case.admit("p1", {"c": {RESOURCE: number}})
    asked = calls(plugin, before)
    if not plugin.of("GetPreferredAllocation"):
        return asked
    followed = plugin.of("Allocate") in (PREFERRED, PREFERRED_ALL)
    return asked if followed else f"{asked} of others"


async def preferring_fails(case: Case) -> str:
    """GetPreferredAllocation fails"""
    await case.kubelet.start()
    plugin = await case.plugin(register=False)
    plugin.options["get_preferred_allocation_available"] = True
    plugin.hooks["GetPreferredAllocation"] = fail
    await plugin.register()
    await case.listed(plugin)
    return await case.admit("p1")


async def options_deadline(case: Case) -> str:
    """Deadline of GetDevicePluginOptions, 30 s for Register"""
    return await _deadline(case, "GetDevicePluginOptions")


async def allocate_deadline(case: Case) -> str:
    """Deadline of Allocate"""
    return await _deadline(case, "Allocate")


async def pre_start_deadline(case: Case) -> str:
    """Deadline of PreStartContainer"""
    return await _deadline(case, "PreStartContainer")


async def _deadline(case: Case, method: str) -> str:
    plugin = await case.started(pre_start=True)
    await case.admit("p1")
    if method not in plugin.seconds:
        return DASH
    seconds = plugin.seconds[method]
    return "none" if seconds is None else f"{round(seconds / 5) * 5} s"  # a busy machine takes one or two of them


async def zero(case: Case) -> str:
    """A pod with a limit of 0 devices"""
    plugin = await case.started(pre_start=True)
    before = len(plugin.calls)
    outcome = await case.admit("p1", {"c": {RESOURCE: 0}})
    return calls(plugin, before) if outcome == "accepted" else outcome


async def allocate_fails(case: Case) -> str:
    """Allocate fails"""
    plugin = await case.started()
    plugin.hooks["Allocate"] = fail
    return await case.admit("p1")


async def pre_start_fails(case: Case) -> str:
    """PreStartContainer fails"""
    if case.kubelet.minor < 10:
        return DASH
    plugin = await case.started(pre_start=True)
    plugin.hooks["PreStartContainer"] = fail
    return await case.admit("p1")


async def empty_answer(case: Case) -> str:
    """Allocate is answered without a container"""
    plugin = await case.started()
    plugin.silent = True
    return await case.admit("p1")


async def after_empty_answer(case: Case) -> str:
    """After that, both devices for the next pod"""
    plugin = await case.started()
    plugin.silent = True
    if await case.admit("p1", ONE) == PANICS:
        return DASH
    await case.kubelet.engine.remove("p1")
    plugin.silent = False
    return await case.admit("p2", TWO)


async def annotations(case: Case) -> str:
    """Annotations of an answer"""
    return _used((await _given(case))["annotations"].get("devices.example.com"), "d0,d1")


async def cdi(case: Case) -> str:
    """CDI devices of an answer"""
    return _used((await _given(case))["cdi_devices"], ["example.com/thing=d1"])


async def _given(case: Case) -> dict[str, Any]:
    await case.kubelet.start()
    plugin = await case.plugin(register=False)
    plugin.cdi = {"d1": "example.com/thing=d1"}
    await plugin.register()
    await case.listed(plugin)
    return dict((await case.kubelet.admit("p1", TWO))["containers"][0]["options"])


def _used(given: object, answered: object) -> str:
    return "used" if given == answered else str(given) if given else "ignored"


FACTS = (
    at_registration,
    at_pod,
    at_restart,
    two_containers,
    preferred,
    preferred_all,
    preferring_fails,
    options_deadline,
    allocate_deadline,
    pre_start_deadline,
    zero,
    allocate_fails,
    pre_start_fails,
    empty_answer,
    after_empty_answer,
    annotations,
    cdi,
)
