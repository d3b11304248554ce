"""What a kubelet finds when it starts, and what it still knows."""

import json
import stat
from typing import Any

from tests.real_kubelet.facts.case import DASH, TWO, Case, calls
from tests.real_kubelet.plugin import Plugin
from tests.real_kubelet.programs import RELEASES

CHECKPOINT = "kubelet_internal_checkpoint"


async def cleaned(case: Case) -> str:
    """Deletes in its directory"""
    await case.started()
    (case.directory / "folder").mkdir()
    for name in ("file", "folder/file"):
        (case.directory / name).touch()
    await case.plugin("folder/socket", register=False)
    await case.admit("p1")
    await case.kubelet.end(graceful=False)
    names = {"plugin.sock": "sockets", "file": "files", "folder/socket": "sockets in folders", "folder/file": "..."}
    await case.kubelet.engine.start(sources_ready=True, running=())
    return ", ".join(what for name, what in names.items() if not (case.directory / name).exists())


async def left(case: Case) -> str:
    """Makes there at its first start"""
    await case.kubelet.start()
    return ", ".join(sorted(path.name for path in case.directory.iterdir()))


async def checkpoint(case: Case) -> str:
    """Writes ids into its checkpoint as"""
    await case.started()
    await case.admit("p1")
    return "; ".join([*_ids(json.loads((case.directory / CHECKPOINT).read_text()))])


async def checkpoint_written(case: Case) -> str:
    """The checkpoint is replaced or rewritten, with which mode"""
    await case.started()
    await case.admit("p1")
    before = (case.directory / CHECKPOINT).stat()
    await case.admit("p2")
    after = (case.directory / CHECKPOINT).stat()
    return f"{'rewritten' if before.st_ino == after.st_ino else 'replaced'}, {stat.filemode(after.st_mode)[1:]}"


async def stopped(case: Case) -> str:
    """kubelet.sock when it has stopped in order"""
    await case.kubelet.start()
    await case.kubelet.end()
    return "stays" if (case.directory / "kubelet.sock").exists() else "is removed"


def _ids(content: dict[str, Any]) -> list[str]:
    if "Entries" in content:
        return ["Entries[].DeviceID"]
    path, inner = ("Data.", content["Data"]) if "Data" in content else ("", content)
    ids = inner["PodDeviceEntries"][0]["DeviceIDs"]
    end = f"{{{', '.join(map(repr, ids))}}}" if isinstance(ids, dict) else "[]"
    return [f"{path}PodDeviceEntries[].DeviceIDs{end}".replace("'", '"')]


async def before(case: Case) -> str:
    """Counts before the plugin is back"""
    plugin = await _held(case)
    await _stopped(case, plugin)
    await case.restart("p1")
    return await case.counts()


async def readmitted(case: Case) -> str:
    """A pod that runs, before the plugin is back"""
    plugin = await _held(case)
    await _stopped(case, plugin)
    return await case.restart("p1")


async def readmitted_ended(case: Case) -> str:
    """A pod that doesn't run, before the plugin is back"""
    plugin = await _held(case)
    await _stopped(case, plugin)
    case.kubelet.pods["p1"].started.clear()
    return await case.restart("p1")


async def new_pod(case: Case) -> str:
    """A new pod, before the plugin is back"""
    plugin = await _held(case)
    await _stopped(case, plugin)
    await case.restart("p1")
    return await case.admit("p2")


async def started_again(case: Case) -> str:
    """A container starts again, before the plugin is back"""
    plugin = await case.started(pre_start=True)
    await case.admit("p1")
    await _stopped(case, plugin)
    await case.restart("p1")
    reply = await case.kubelet.start_container("p1")
    return (
        ("with its device" if (reply["options"] or {}).get("devices") else "without")
        if reply["ok"]
        else case.outcome(reply)
    )


async def remembered(case: Case) -> str:
    """It starts again, when the plugin is back"""
    await _held(case)
    await case.restart("p1")
    plugin = await case.plugin("new.sock", pre_start=True)
    count = len(plugin.calls)
    await case.kubelet.start_container("p1")
    return calls(plugin, count)


async def unhealthy_after(case: Case) -> str:
    """A pod that doesn't run, its device is Unhealthy"""
    return await _changed(case, "none", "Unhealthy")


async def left_the_list(case: Case) -> str:
    """A pod that doesn't run, its device isn't listed"""
    return await _changed(case, "none", None)


async def left_the_list_topology(case: Case) -> str:
    """The same, topology manager `best-effort`"""
    return await _changed(case, "best-effort", None)


async def _changed(case: Case, policy: str, health: str | None) -> str:
    case.kubelet.policy, case.kubelet.numa = policy, 2
    await case.kubelet.start()
    plugin = await case.plugin(register=False)
    plugin.numa = {"d0": [0], "d1": [1]}
    await plugin.register()
    await case.listed(plugin)
    await case.admit("p1")
    held = plugin.of("Allocate")[0]
    await plugin.set(**dict.fromkeys(held, health))
    await case.listed(plugin)
    case.kubelet.pods["p1"].started.clear()
    await case.kubelet.end(graceful=False)
    pod = case.kubelet.pods.pop("p1")
    await case.kubelet.engine.start(sources_ready=False, running=())
    new = await case.plugin("new.sock", devices=plugin.devices, register=False)
    new.numa = plugin.numa
    await new.register()
    await case.listed(new)
    return await case.admit("p1", pod.containers)


async def upgraded(case: Case) -> str:
    """A container's device, the release before ran"""
    return await _moved(case, -1)


async def downgraded(case: Case) -> str:
    """A container's device, the release after ran"""
    return await _moved(case, 1)


async def _moved(case: Case, step: int) -> str:
    place = RELEASES.index(case.release) + step
    if not 0 <= place < len(RELEASES):
        return DASH
    case.kubelet.release = RELEASES[place]
    plugin = await _held(case)
    held = plugin.of("Allocate")[0]
    await _stopped(case, plugin)
    outcome = await case.restart("p1", case.release)
    if outcome != "accepted":
        return outcome
    new = await case.plugin("new.sock")
    await case.admit("p2", TWO)  # so that no random order decides
    given = {one for ids in new.of("Allocate") for one in ids}
    return "forgotten, given again" if set(held) <= given else "known"


async def _stopped(case: Case, plugin: Plugin) -> None:
    """Until the kubelet has noticed."""
    await plugin.stop()
    await case.kubelet.wait_for_devices(0, len(plugin.devices))


async def _held(case: Case) -> Plugin:
    plugin = await case.started()
    await case.admit("p1")
    return plugin


FACTS = (
    cleaned,
    left,
    checkpoint,
    checkpoint_written,
    stopped,
    before,
    readmitted,
    readmitted_ended,
    new_pod,
    started_again,
    remembered,
    unhealthy_after,
    left_the_list,
    left_the_list_topology,
    upgraded,
    downgraded,
)
