"""A resource goes from one front to the other under pods, as the kubelet's device manager sees it."""

import asyncio
import json
import shutil
import signal
from functools import partial

import pytest

from dpgateway_simulator.cluster import SimulatedCluster
from tests.support.files import grow_old, texts
from tests.support.gateway import Gateway
from tests.support.waiting import BUSY, until

DRIVER, THING = "dra.example.com", "example.com/thing"


def thing(front):
    return {"name": THING, "driver": "simulated", "front": front, "options": {"count": 4, "env_prefix": "THING"}}


@pytest.fixture
async def cluster():
    async with SimulatedCluster() as cluster:
        yield cluster


@pytest.fixture
async def kubelet(cluster, short_path):
    kubelet = cluster.node("1.37", root=short_path, name="node")
    await kubelet.start()
    return kubelet


@pytest.fixture
async def gateway(cluster, kubelet, short_path):
    async with Gateway(short_path, short_path / "device-plugins") as gateway:
        cluster.device_class("thing", DRIVER, resource=THING, attributes={"resource": THING})
        await cluster.run("agent", {"c": {}}, within=BUSY)
        gateway.runtime = {"cdi_dirs": [str(short_path / "cdi")]}
        gateway.more = {"dra": {"driver": DRIVER}, "cluster": cluster.account(short_path)}
        yield gateway


def device_of(cluster, pod):
    (found,) = [name for name in cluster.given(pod)["c"]["envs"] if name.startswith("THING_")]
    return found


async def shown(cluster, count):
    while (cluster.allocatable("node", THING) or 0) != count:
        await cluster.server.store.changed()


def opened(kubelet, since):
    """Whether a stream of the resource was opened after so many events."""
    return any(one.kind == "stream opened" and one.fields["resource"] == THING for one in kubelet.events[since:])


async def without_devices(kubelet):
    """Until the resource is registered, with an empty list."""
    await until(lambda: kubelet.resources()[THING]["plugin"] == "connected" and kubelet.counts(THING) == (0, 0))


async def pods_of_both_fronts(cluster, gateway, kubelet):
    """A pod has a device by the device plugin, another one by DRA, which the resource is on now."""
    await gateway.start(thing("deviceplugin"))
    await shown(cluster, 4)
    await cluster.run("plugin", {"c": {THING: 1}}, within=BUSY)
    gateway.reload(thing("dra"))
    await without_devices(kubelet)
    await shown(cluster, 0)
    await cluster.run("claim", {"c": {THING: 1}}, within=BUSY)


async def test_an_older_gateway_that_reads_the_new_front_has_nothing_to_serve(cluster, gateway, kubelet, short_path):
    """It has given the driver, so it doesn't linger for a resource that goes to DRA."""
    gateway.environment["DPGATEWAY_LINGER"] = "10m"
    await gateway.start(thing("deviceplugin"))
    await shown(cluster, 4)
    own = short_path / "newer"
    own.mkdir()
    async with Gateway(own, short_path / "device-plugins") as newer:
        newer.runtime, newer.more = gateway.runtime, gateway.more | {"state_dir": str(short_path / "state")}
        await newer.start(thing("dra"))
        await gateway.said(f"handed {DRIVER} over", seconds=BUSY)
        gateway.reload(thing("dra"))
        await cluster.run("claim", {"c": {THING: 1}}, within=BUSY)
        assert await gateway.end() == 0


async def test_pods_of_both_fronts_start_again_whichever_front_there_is(cluster, gateway, kubelet):
    await pods_of_both_fronts(cluster, gateway, kubelet)
    assert device_of(cluster, "claim") != device_of(cluster, "plugin")
    for restarted in (False, True):
        if restarted:
            since = len(kubelet.events)
            await kubelet.restart()
            for pod in ("plugin", "claim"):
                await kubelet.wait_for_event("pod admitted", since, pod=pod)
            await without_devices(kubelet)
        for pod in ("plugin", "claim"):
            had = device_of(cluster, pod)
            assert (await kubelet.start_container(pod, "c"))["ok"]
            assert device_of(cluster, pod) == had
        kubelet.clock.advance(301)  # by then a plugin that is gone is forgotten

    gateway.reload(thing("deviceplugin"))
    await shown(cluster, 4)  # the pod by DRA counts
    assert (await kubelet.start_container("claim", "c"))["ok"]
    await cluster.run("next", {"c": {THING: 1}}, within=BUSY)
    assert len({device_of(cluster, pod) for pod in ("plugin", "claim", "next")}) == 3


async def test_a_release_that_waits_goes_with_its_resource(cluster, gateway, kubelet, short_path):
    """The device isn't listed when its claim ends; by the time that it is, the device plugin offers it."""
    control = short_path / "control.json"
    options = thing("dra")["options"] | {"ids": ["a", "b"], "release": True, "control_file": str(control)}
    await gateway.start(thing("dra") | {"options": options})
    await cluster.run("claim", {"c": {THING: 1}}, within=BUSY)
    device = device_of(cluster, "claim").removeprefix("THING_")
    before = slices(cluster)
    control.write_text(json.dumps({"faults": [{"devices": [device], "absent": True}]}))
    await until(lambda: slices(cluster) != before)
    cluster.delete("claim", force=True)
    await gateway.said(f"device {device} of {THING} is free again, but", seconds=BUSY)
    gateway.reload(thing("deviceplugin") | {"options": options})
    await shown(cluster, 1)
    assert not [line for line in gateway.log if "released" in line]
    control.write_text(json.dumps({"faults": []}))
    await gateway.said(f"released {device}", seconds=BUSY)


@pytest.mark.parametrize(
    "then", ["reloaded", "killed", "killed, and DRA can't be served", "killed, and no DRA", "killed, and no release"]
)
async def test_a_release_without_a_record_goes_with_its_resource(cluster, gateway, kubelet, short_path, then):
    """The claim's record was damaged, so the journal alone knows of its device."""
    control = short_path / "control.json"
    options = thing("dra")["options"] | {"ids": ["a", "b"], "release": True, "control_file": str(control)}
    await gateway.start(thing("dra") | {"options": options})
    await cluster.run("claim", {"c": {THING: 1}}, within=BUSY)
    device = device_of(cluster, "claim").removeprefix("THING_")
    await until(lambda: any(f'"{device}"' in text for text in texts(short_path / "state").values()))
    await gateway.end(signal.SIGKILL)
    (record,) = (short_path / "state/dra/claims").glob("*.json")
    record.write_text("?")
    registered = gateway.lines("the kubelet registered")
    await gateway.start(thing("dra") | {"options": options})
    await gateway.said("the kubelet registered", registered + 1, seconds=BUSY)
    control.write_text(json.dumps({"faults": [{"devices": [device], "absent": True}]}))
    await gateway.said("its device is gone", seconds=BUSY)
    cluster.delete("claim", force=True)
    await gateway.said(f"device {device} of {THING} is free again, but", seconds=BUSY)
    moved = thing("deviceplugin") | {"options": options | {"control_file": str(short_path / "no.json")}}  # it is there
    if then == "reloaded":
        gateway.reload(moved)
    else:
        await gateway.end(signal.SIGKILL)
        if then == "killed, and no DRA":
            del gateway.more["dra"]
        elif then == "killed, and no release":
            moved["options"]["release"] = False
        elif then != "killed":
            (short_path / "plugins_registry").rename(short_path / "elsewhere")
            (short_path / "plugins_registry").touch()
        await gateway.start(moved)
    said = "isn't offered by DRA any more" if then == "killed, and no release" else f"released {device}"
    await gateway.said(said, seconds=BUSY)
    await until(lambda: not list((short_path / "state").glob("*.json")))  # nor does a later start release it


async def test_a_lost_record_keeps_no_other_device_if_dra_cannot_be_served(cluster, gateway, kubelet, short_path):
    """Nobody can tell of claims, so only what the journal of DRA knows of stays in use."""
    options = thing("dra")["options"] | {"ids": ["a", "b"], "release": True}
    await gateway.start(thing("dra") | {"options": options})
    await cluster.run("claim", {"c": {THING: 1}}, within=BUSY)
    device = device_of(cluster, "claim").removeprefix("THING_")
    await until(lambda: any(f'"{device}"' in text for text in texts(short_path / "state").values()))
    await gateway.end(signal.SIGKILL)
    shutil.rmtree(short_path / "state/dra")
    (short_path / "plugins_registry").rename(short_path / "elsewhere")
    (short_path / "plugins_registry").touch()
    del gateway.more["dra"]
    await gateway.start(thing("deviceplugin") | {"options": options})
    async with asyncio.timeout(BUSY):
        await shown(cluster, 1)


async def test_a_plugin_that_nobody_has_devices_of_is_heard_of_once_more(cluster, gateway, kubelet, short_path):
    await gateway.start(thing("deviceplugin"))
    await shown(cluster, 4)
    await gateway.end(signal.SIGKILL)
    since, sockets = len(kubelet.events), partial((short_path / "device-plugins/dpgateway").glob, "*.sock")
    assert list(sockets())
    await gateway.start(thing("dra"))
    await kubelet.wait_for(lambda: opened(kubelet, since), BUSY)  # by then it has the options, which count
    await until(lambda: kubelet.resources()[THING]["plugin"] == "gone")
    await until(lambda: not list(sockets()))
    await shown(cluster, 0)
    await cluster.run("claim", {"c": {THING: 1}}, within=BUSY)


@pytest.mark.parametrize("lost", ["state", "state/dra/claims"])
async def test_a_lost_state_directory_gives_no_claim_s_device_to_the_device_plugin(cluster, gateway, short_path, lost):
    """The record is made again, of what kubelet and API server know; until then the device plugin gives nothing."""
    await gateway.start(thing("dra"))
    for pod in ("claim", "other"):
        await cluster.run(pod, {"c": {THING: 1}}, within=BUSY)
    await gateway.end(signal.SIGKILL)
    shutil.rmtree(short_path / lost)
    await gateway.start(thing("deviceplugin"))
    await shown(cluster, 4)  # the pods by DRA count
    for pod in ("next", "last"):
        await cluster.run(pod, {"c": {THING: 1}}, within=BUSY)
    assert len({device_of(cluster, pod) for pod in ("claim", "other", "next", "last")}) == 4
    for pod in ("claim", "other"):
        await cluster.end(pod, within=BUSY)
    await shown(cluster, 4)


async def test_a_reload_that_brings_dra_takes_no_devices_away(cluster, gateway):
    """What is served already isn't in doubt until the first comparison."""
    dra, gateway.more = gateway.more, {}
    await gateway.start(thing("deviceplugin"))
    await shown(cluster, 4)
    gateway.more = dra
    gateway.reload(thing("deviceplugin"))
    await gateway.said(f"the kubelet registered {DRIVER}", seconds=BUSY)
    await cluster.run("next", {"c": {THING: 1}}, within=BUSY)
    assert "Unhealthy" not in "".join(gateway.log)


async def test_the_next_pod_of_a_claim_is_known_soon(cluster, gateway):
    """The kubelet prepares a claim once. Deleted by force, the last pod may run on when the claim ends."""
    await gateway.start(thing("dra"))
    cluster.claim("shared", {"name": "r", "exactly": {"deviceClassName": "thing"}})
    for pod in ("first", "second", "third"):
        await cluster.run(pod, {"c": {}}, claims={"shared": ["c"]}, within=BUSY)
        await until(partial(recorded, gateway, pod), 20)


def recorded(gateway, pod):
    """Whether the record of a claim has the pod."""
    return f'"{pod}"' in "".join(texts(gateway.folder / "state/dra/claims").values())


async def test_after_a_boot_a_pod_by_dra_has_its_device_again_although_its_resource_left(
    cluster, gateway, kubelet, short_path
):
    await gateway.start(thing("dra"))
    await cluster.run("claim", {"c": {THING: 1}}, within=BUSY)
    had = device_of(cluster, "claim")
    gateway.reload(thing("deviceplugin"))
    await shown(cluster, 4)
    await gateway.end(signal.SIGKILL)
    grow_old(short_path / "state")
    since = len(kubelet.events)
    await kubelet.reboot()
    await gateway.start()
    await kubelet.wait_for_event("pod running", since, pod="claim")
    assert device_of(cluster, "claim") == had
    await cluster.run("next", {"c": {THING: 1}}, within=BUSY)
    assert device_of(cluster, "next") != had
    await cluster.end("claim", within=BUSY)
    await cluster.run("others", {"c": {THING: 3}}, within=BUSY)


def slices(cluster):
    """The devices of each slice, by its name and version."""
    found = [one["metadata"] | one["spec"] for one in cluster.server.store.list("resourceslices")]
    return {(one["name"], one["resourceVersion"]): [it["name"] for it in one.get("devices", ())] for one in found}


async def published(cluster, count):
    while sum(map(len, slices(cluster).values())) != count:
        await cluster.server.store.changed()


async def test_a_kubelet_whose_socket_was_deleted_goes_on_with_dra(cluster, gateway, kubelet):
    await gateway.start(thing("dra"))
    await published(cluster, 4)
    since = len(kubelet.events)
    kubelet.delete_socket()
    await kubelet.wait_for_event("plugin registered", since)
    gateway.reload({**thing("dra"), "options": {"count": 5, "env_prefix": "THING"}})
    await published(cluster, 5)
    await cluster.run("claim", {"c": {THING: 1}}, within=BUSY)


@pytest.mark.parametrize("twice", [False, True])
async def test_slices_of_an_earlier_gateway_stay_until_it_is_known_what_pods_hold(cluster, gateway, kubelet, twice):
    await pods_of_both_fronts(cluster, gateway, kubelet)
    cluster.delete("plugin", force=True)  # the kubelet's checkpoint names it until a plugin is asked again
    await published(cluster, 4)
    before = slices(cluster)
    await gateway.end(signal.SIGKILL)
    if twice:
        asked = len(cluster.server.asked)
        await gateway.start()
        await until(lambda: "GET nodes node" in cluster.server.asked[asked:])  # it compares, and knows nothing yet
        await gateway.end(signal.SIGKILL)
    cluster.create("next", {"c": {THING: 1}})
    await gateway.start()
    await cluster.until("next", "Running", within=BUSY)
    assert slices(cluster) == before


async def test_devices_of_a_pod_that_was_deleted_while_its_kubelet_was_away(cluster, gateway, kubelet):
    """The kubelet itself asks for the end of such a claim after a minute only."""
    await gateway.start(thing("dra"))
    await cluster.run("claim", {"c": {THING: 4}}, within=BUSY)
    await kubelet.kill()
    cluster.delete("claim", force=True)
    cluster.create("next", {"c": {THING: 4}})
    since = len(kubelet.events)
    await kubelet.start()
    await cluster.until("next", "Running", within=BUSY)
    assert not [one for one in kubelet.events[since:] if one.kind == "unprepare"]


OTHER = "example.com/other"


async def start_with_one_board(cluster, gateway, **options):
    """It is offered under two names. ``options``: more of the first one's."""
    cluster.device_class("other", DRIVER, resource=OTHER, attributes={"resource": OTHER})
    board = {"ids": ["board"], "env_prefix": "HAS"}
    shared = {"driver": "simulated", "front": "dra", "pool": "boards"}
    first, second = {"name": THING, **shared}, {"name": OTHER, **shared}
    await gateway.start({**first, "options": {**board, **options}}, {**second, "options": board})
    await published(cluster, 2)  # a pod of the one runs, whether or not the other is there


async def test_pods_of_either_name_take_turns_at_one_board(cluster, gateway, kubelet):
    """The scheduler takes the oldest pod that fits, so a board that came back later under one name would be gone."""
    await start_with_one_board(cluster, gateway)
    await cluster.run("first", {"c": {THING: 1}}, within=BUSY)
    published = slices(cluster)
    cluster.create("second", {"c": {OTHER: 1}})
    cluster.create("third", {"c": {THING: 1}})
    await cluster.end("first", within=BUSY)
    await cluster.until("second", "Running", within=BUSY)
    assert cluster.phase("third") == "Pending"
    await cluster.end("second", within=BUSY)
    await cluster.until("third", "Running", within=BUSY)
    assert slices(cluster) == published, "counters say who has the board"


async def test_a_board_is_left_out_once_its_holder_s_device_is_gone(cluster, gateway, kubelet, short_path):
    """No counter says then who has it."""
    control = short_path / "control.json"
    await start_with_one_board(cluster, gateway, control_file=str(control))
    await cluster.run("first", {"c": {THING: 1}}, within=BUSY)
    assert sum(map(len, slices(cluster).values())) == 2
    control.write_text(json.dumps({"faults": [{"devices": ["board"], "absent": True}]}))
    await published(cluster, 0)
    cluster.create("second", {"c": {OTHER: 1}})
    await cluster.end("first", within=BUSY)
    await cluster.until("second", "Running", within=BUSY)
