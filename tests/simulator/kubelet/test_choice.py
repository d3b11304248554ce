"""Which devices a request gets, and the words in which it gets none."""

import pytest

from tests.simulator.rig import Rig, X

NONE_HEALTHY = f"no healthy devices present; cannot allocate unhealthy devices {X}"


@pytest.mark.parametrize(("version", "called"), [("1.16", False), ("1.19", True), ("1.25", True), ("1.37", True)])
async def test_preference_comes_before_allocate(rig: Rig, version: str, called: bool) -> None:
    kubelet = await rig.kubelet(version)
    plugin = rig.plugin(kubelet, d0="Healthy", d1="Healthy", d2="Healthy")
    plugin.options["get_preferred_allocation_available"] = True
    await plugin.start()
    await kubelet.admit("p1", {"c": {X: 1}})
    wanted = (
        [("GetPreferredAllocation", ("d0", "d1", "d2")), ("Allocate", ("d2",))] if called else [("Allocate", ("d0",))]
    )
    assert [call for call in plugin.calls if call[0] in {"GetPreferredAllocation", "Allocate"}] == wanted


async def test_preference_error_fails_the_pod(rig: Rig) -> None:
    async def fails(ids: object) -> None:
        raise RuntimeError("worn out")

    kubelet = await rig.kubelet("1.37")
    plugin = rig.plugin(kubelet, d0="Healthy", d1="Healthy")
    plugin.options["get_preferred_allocation_available"] = True
    plugin.hooks["GetPreferredAllocation"] = fails
    await plugin.start()
    reply = await kubelet.admit("p1", {"c": {X: 1}})
    assert "device plugin GetPreferredAllocation rpc failed with err: rpc error: code = Unknown" in reply["error"]
    assert plugin.count("Allocate") == 0


@pytest.mark.parametrize(
    ("version", "running", "error"),
    [
        ("1.9", False, ""),
        ("1.24", False, ""),
        ("1.25", False, NONE_HEALTHY),
        ("1.25", True, ""),
        ("1.25.10", True, NONE_HEALTHY),
        ("1.26.4", False, ""),
        ("1.27.1", False, ""),
        ("1.27.2", True, NONE_HEALTHY),
        ("1.37", False, NONE_HEALTHY),
        ("1.37", True, ""),
    ],
)
async def test_readmission_before_the_plugin_is_back(rig: Rig, version: str, running: bool, error: str) -> None:
    kubelet, _ = await rig.both(version)
    await kubelet.admit("p1", {"c": {X: 1}})
    await kubelet.kill()
    await kubelet.start(sources_ready=False, running=["p1/c"] if running else [])
    reply = await kubelet.admit("p1", {"c": {X: 1}}, start=False)
    assert reply["ok"] == (not error)
    assert reply.get("error", "") == (f"Allocate failed due to {error}, which is unexpected" if error else "")
    assert reply.get("reason") == ("UnexpectedAdmissionError" if error else None)


async def test_finished_init_container_fails_restart(rig: Rig) -> None:
    kubelet, _ = await rig.both("1.37")
    assert (await kubelet.admit("p1", {"c": {X: 1}}, init={"i": {X: 1}}))["ok"]
    (reply,) = await kubelet.restart()
    assert NONE_HEALTHY in reply["error"]
    assert kubelet.pods == ()


async def test_a_limit_of_zero(rig: Rig, era: str) -> None:
    kubelet = await rig.kubelet(era)
    await rig.plugin(kubelet, d0="Unhealthy").start()
    reply = await kubelet.admit("p1", {"c": {X: 0}})
    if kubelet.behaviour.minor >= 25:
        assert NONE_HEALTHY in reply["error"]
    elif era in {"1.10", "1.12", "1.16"}:
        text = f"no devices found allocated in local cache for pod p1, container c, resource {X}"
        assert reply["error"] == text
    else:
        assert reply["ok"]


async def test_refuses_a_changed_request(rig: Rig) -> None:
    kubelet, _ = await rig.both("1.37")
    await kubelet.admit("p1", {"c": {X: 1}})
    reply = await kubelet.admit("p1", {"c": {X: 2}})
    assert f'pod "p1" container "c" changed request for resource "{X}" from 1 to 2' in reply["error"]
