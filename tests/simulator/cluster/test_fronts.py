"""One resource name, a device plugin and DRA: what kubelet and scheduler make of both on one node."""

import json

import pytest

from dpgateway_simulator.cluster import PodEndedError
from tests.simulator.cluster.conftest import Site
from tests.simulator.drivers import X
from tests.simulator.rig import PluginRig

UNKNOWN = "no devices found allocated in local cache"
GONE = "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices"


async def plugin(site: Site, resource: str = X, *, prestart: bool = False, **health: str) -> PluginRig:
    """A device plugin whose devices the Node shows. It answers with CDI names, so there is a spec of them."""
    (site.root / "cdi").mkdir(exist_ok=True)
    devices = [{"name": name, "containerEdits": {"env": [f"CDI_{name}=1"]}} for name in health]
    (site.root / "cdi" / "plugin.json").write_text(json.dumps({"kind": X, "devices": devices}))
    made = site.plugin(resource, **health)
    made.options["pre_start_required"] = prestart
    await made.start()
    await shown(site, len([one for one in health.values() if one == "Healthy"]), resource)
    return made


async def shown(site: Site, count: int, resource: str = X) -> None:
    while site.cluster.allocatable("n1", resource) != count:
        await site.cluster.server.store.changed()


async def test_allocatable_devices_go_before_claims(site: Site) -> None:
    kubelet, driver = await site.start()
    rig = await plugin(site, d7="Healthy")
    await site.cluster.run("p1", {"c": {X: 1}})
    assert (rig.asked(), driver.count("prepare")) == ([("d7",)], 0)
    assert site.cluster.given("p1")["c"]["envs"] == {"IDS": "d7", "CDI_d7": "1"}
    await rig.stop()
    await shown(site, 0)
    await site.cluster.run("p2", {"c": {X: 1}})
    assert (site.cluster.allocated("p2"), kubelet.running_pods) == (["d0"], ("p1", "p2"))


async def test_both_fronts_run_side_by_side(site: Site) -> None:
    """1.37: containers of both fronts keep what they have through a restart of the kubelet."""
    kubelet, _ = await site.start()
    await plugin(site, "example.com/y", e0="Healthy")
    await site.cluster.run("p1", {"c": {X: 1, "example.com/y": 1}})
    assert site.cluster.given("p1")["c"]["envs"] == {"IDS": "e0", "CDI_e0": "1", "DEVICE_0": "d0"}
    await kubelet.restart()
    assert site.cluster.nodes_of("p1") == {"/dev/null", "/dev/d0"}


@pytest.mark.parametrize(("version", "fails"), [("1.37", False), ("1.36", False), ("1.34", True)])
async def test_a_name_that_a_plugin_had_before(site: Site, version: str, fails: bool) -> None:
    """1.34.9: UnexpectedAdmissionError, because its device manager doesn't leave the name to DRA."""
    await site.start(version)
    rig = await plugin(site, d0="Healthy")
    await rig.stop()
    await shown(site, 0)
    if fails:
        with pytest.raises(PodEndedError, match=GONE):
            await site.cluster.run("p1", {"c": {X: 1}})
    else:
        await site.cluster.run("p1", {"c": {X: 1}})


@pytest.mark.parametrize("version", ["1.37", "1.36"])
async def test_a_plugin_that_wants_to_prepare_keeps_containers_of_claims_from_starting(
    site: Site, version: str
) -> None:
    """Seen on both, with 1.37.1 and 1.36.4: also after its end, for 5 min."""
    await site.start(version)
    rig = await plugin(site, prestart=True, d0="Healthy")
    await rig.stop()
    await shown(site, 0)
    site.cluster.create("p1", {"c": {X: 1}})
    await site.cluster.until("p1", "Pending", because=UNKNOWN)


async def test_a_pod_that_was_sent_by_an_old_node_status_fails(site: Site) -> None:
    """1.37: up to 10.4 s after the plugin's list is empty pods still come by its path, and fail."""
    await site.start()
    rig = await plugin(site, d0="Healthy")
    await rig.set(d0="Unhealthy")
    site.cluster.create("p1", {"c": {X: 1}})
    await site.cluster.until("p1", "Failed", because=GONE)


async def test_a_rollback_under_pods_by_dra(site: Site) -> None:
    """1.37 to 1.34: a container that restarts has no device; Unprepare comes by the search for ended pods."""
    kubelet, driver = await site.start()
    await site.cluster.run("p1", {"c": {X: 1}})
    since = len(kubelet.events)
    await kubelet.upgrade("1.34")
    await kubelet.wait_for_event("pod admitted", since, pod="p1")
    assert site.cluster.nodes_of("p1") == {"/dev/d0"}
    assert (await kubelet.start_container("p1", "c"))["options"] is None
    await kubelet.wait_for(kubelet.drivers)
    await site.cluster.end("p1")
    assert driver.count("unprepare") == 0
    kubelet.clock.advance(61)
    await kubelet.wait_for_event("unprepared")


async def test_a_container_that_cant_start_is_tried_again(site: Site) -> None:
    kubelet, _ = await site.start()
    rig = await plugin(site, "example.com/y", prestart=True, d0="Healthy")

    async def fails(ids: tuple[str, ...]) -> None:
        rig.hooks.clear()
        raise RuntimeError("not yet")

    rig.hooks["PreStartContainer"] = fails
    site.cluster.create("p1", {"c": {"example.com/y": 1}})
    await kubelet.wait_for_event("container refused", pod="p1")
    await site.cluster.until("p1", "Running")


async def test_the_checkpoint_names_pods_by_their_uids(site: Site) -> None:
    """Their directories have these names, too."""
    kubelet, _ = await site.start()
    await plugin(site, "example.com/y", d0="Healthy")
    pod = await site.cluster.run("p1", {"c": {"example.com/y": 1}})
    checkpoint = json.loads((kubelet.directory / "kubelet_internal_checkpoint").read_text())
    (entry,) = checkpoint["Data"]["PodDeviceEntries"]
    assert entry["PodUID"] == pod["metadata"]["uid"]
    assert kubelet.resources()["example.com/y"]["devices"][0]["holders"] == ["p1/c"]
    assert kubelet.devices("p1", "c")["container"] == {"example.com/y": {"d0": {}}}
    await kubelet.restart()
    await site.cluster.end("p1")
    assert "p1/c (deleted)" in kubelet.resources()["example.com/y"]["devices"][0]["holders"]
