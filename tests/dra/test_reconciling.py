"""Records compared with what a kubelet lists, what the API server says, and the directories of pods."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dpgateway import Device
from dpgateway.cluster.errors import ClusterError
from dpgateway.cluster.server import ApiServer
from dpgateway.dra.claims.choosing import OfferedElsewhere
from dpgateway.dra.claims.files import ClaimFiles
from dpgateway.dra.claims.reading import Asked
from dpgateway.dra.claims.records import ClaimRecord
from dpgateway.dra.preparing import NodeClaims, Prepared
from dpgateway.dra.reconciling import Pauses, Reconciling
from dpgateway.errors import DriverError, KubeletError, RequestError
from dpgateway.kit.threads import Threads
from dpgateway.node.podresources import PodResources
from dpgateway_simulator.wire import v1
from tests.dra.claim_node import DRIVER, IN_VAIN, POOL, ClaimedResource, ClaimNode, Pods, lanes, one
from tests.node.lister import Lister
from tests.support.resources import NAME
from tests.support.specs import own
from tests.support.time import hurry
from tests.support.waiting import turns, until

AT_ONCE, LATER = Pauses(600, 0), Pauses(600, 600)
"""How long something must be seen until it is believed."""


class Kubelet:
    """A kubelet's PodResources, and its directory of pods."""

    def __init__(self, folder: Path) -> None:
        self.lister, self.pods = Lister(folder / "kubelet.sock"), folder / "pods"
        (self.pods / "uid-other").mkdir(parents=True)
        self.lists()

    def lists(self, *claims: tuple[str, dict[str, str]], pod: str = "", driver: str = DRIVER) -> None:
        """From now on: these claims, each with the CDI name of each device, in a pod each; and another pod."""
        pods = [v1.PodResources("other", "default")]
        for name, devices in claims:
            listed = [v1.ClaimResource([v1.CdiDevice(cdi)], driver, POOL, it) for it, cdi in devices.items()]
            resources = [v1.DynamicResource(name, "default", listed)]
            pods.append(
                v1.PodResources(pod or f"pod-{name}", "default", [v1.ContainerResources("c", None, resources)])  # type: ignore[arg-type]
            )
        self.lister.answers["v1"] = bytes(v1.ListPodResourcesResponse(pods))

    def lists_no_pods(self) -> None:
        self.lister.answers["v1"] = b""

    def compares(self, claims: NodeClaims, pauses: Pauses = AT_ONCE) -> Reconciling:
        return Reconciling(claims, PodResources(self.lister.socket, Threads()), self.pods, pauses)


@pytest.fixture
async def kubelet(short_path: Path) -> AsyncIterator[Kubelet]:
    one = Kubelet(short_path)
    await one.lister.start()
    yield one
    await one.lister.stop()


@pytest.fixture
def resource() -> ClaimedResource:
    return ClaimedResource(lanes("release"), Device("a"), Device("b"))


@pytest.fixture
async def claims(node: ClaimNode, resource: ClaimedResource) -> NodeClaims:
    return await node.gateway(resource)


@pytest.fixture
async def asked(node: ClaimNode, claims: NodeClaims) -> Asked:
    """A claim that was prepared."""
    asked = node.allocate("c", "a")
    await claims.prepare([asked])
    return asked


async def look_often(reconciling: Reconciling) -> None:
    """As often as what it waits for twice needs, and once more."""
    for _ in range(3):
        await reconciling.look()


def delete(node: ClaimNode, name: str = "c") -> None:
    node.store.delete(("resourceclaims", "default", name))


async def test_the_kubelet_is_not_asked_while_an_allocate_is_in_flight(kubelet: Kubelet, claims: NodeClaims) -> None:
    """List has a kubelet forget whom it gives the device (UpdateAllocatedDevices)."""
    answers, seen = iter([True, True, True, False]), list[int]()

    def allocating() -> bool:
        seen.append(len(kubelet.lister.calls))
        return next(answers)

    asks = PodResources(kubelet.lister.socket, Threads())
    await Reconciling(claims, asks, kubelet.pods, AT_ONCE, allocating).look()
    assert seen == [0, 0, 0, 0]
    assert kubelet.lister.calls == ["v1"]


# records without their claims


async def test_a_claim_that_nobody_ends_is_released(
    node: ClaimNode, kubelet: Kubelet, claims: NodeClaims, asked: Asked, resource: ClaimedResource
) -> None:
    reconciling = kubelet.compares(claims)
    delete(node)
    assert await reconciling.look()
    assert "c" in node.records
    assert not await reconciling.look()
    assert node.records == {}
    assert resource.lanes.released == ["a"]


async def test_a_second_look_too_early_ends_nothing(
    node: ClaimNode, kubelet: Kubelet, claims: NodeClaims, asked: Asked
) -> None:
    """Of a claim that others may share."""
    reconciling = kubelet.compares(claims, LATER)
    delete(node)
    assert await reconciling.look()
    assert await reconciling.look()
    assert "c" in node.records


class FullDisk(ClaimFiles):
    """As long as it is full, nothing can be written."""

    full = False

    def write(self, one: ClaimRecord) -> None:
        if self.full:
            raise OSError("no space left on device")
        super().write(one)

    def completed(self) -> None:
        if self.full:
            raise OSError("no space left on device")
        super().completed()


@pytest.fixture
async def seen_once(node: ClaimNode, kubelet: Kubelet, resource: ClaimedResource) -> tuple[FullDisk, Reconciling]:
    """After the first look at a claim that is gone, the disk is full."""
    disk = FullDisk(node.folder)
    claims = await node.gateway(resource, disk=(disk, own(node.specs)))
    await claims.prepare([node.allocate("c", "a")])
    delete(node)
    reconciling = kubelet.compares(claims)
    assert await reconciling.look()
    disk.full = True
    return disk, reconciling


async def test_an_end_that_the_disk_refused_is_begun_again(
    node: ClaimNode, seen_once: tuple[FullDisk, Reconciling], resource: ClaimedResource
) -> None:
    disk, reconciling = seen_once
    with pytest.raises(RequestError, match="no space left"):
        await reconciling.look()
    disk.full = False
    await reconciling.look()
    await until(lambda: node.records == {})
    assert resource.lanes.released == ["a"]


async def test_a_full_disk_holds_up_no_end(
    node: ClaimNode, seen_once: tuple[FullDisk, Reconciling], resource: ClaimedResource
) -> None:
    """Nor what else a look finds: only the record that the end goes on can't be written."""
    _, reconciling = seen_once
    for _ in range(2):
        with suppress(RequestError, OSError):
            await reconciling.look()
    await until(lambda: node.records == {})
    assert resource.lanes.released == ["a"]


@pytest.mark.parametrize("sign", ["listed", "directory", "allocated"])
async def test_one_sign_of_use_keeps_a_claim(
    node: ClaimNode, kubelet: Kubelet, claims: NodeClaims, asked: Asked, sign: str
) -> None:
    if sign != "allocated":
        delete(node)
    if sign == "listed":
        kubelet.lists(("c", {"a": "x"}))
    if sign == "directory":
        (kubelet.pods / "uid-c").mkdir()
    reconciling = kubelet.compares(claims)
    assert not await reconciling.look()
    assert not await reconciling.look()
    assert "c" in node.records


@pytest.mark.parametrize("sign", ["listed", "allocated"])
async def test_a_claim_of_an_earlier_driver_s_name_is_kept_as_well(
    node: ClaimNode, kubelet: Kubelet, claims: NodeClaims, asked: Asked, sign: str
) -> None:
    old = "old.example.com"
    node.files.write(replace(claims.store.records[asked.uid], driver=old))
    if sign == "listed":
        delete(node)
        kubelet.lists(("c", {"a": "x"}), driver=old)
    else:
        found = node.store.get(("resourceclaims", "default", "c"))
        found["status"]["allocation"]["devices"]["results"][0]["driver"] = old
    reconciling = kubelet.compares(await node.gateway())
    await reconciling.look()
    await reconciling.look()
    assert node.records["c"]["phase"] == "prepared"


@pytest.mark.parametrize("away", ["kubelet", "directories", "server"])
async def test_nothing_is_stale_while_a_source_is_away(
    node: ClaimNode, kubelet: Kubelet, claims: NodeClaims, asked: Asked, away: str
) -> None:
    reconciling, error = kubelet.compares(claims), {"kubelet": KubeletError, "server": ClusterError}.get(away)
    delete(node)
    if away == "kubelet":
        await kubelet.lister.stop()
    elif away == "server":
        await node.api.down()
    else:
        (kubelet.pods / "uid-other").rmdir()
    for _ in range(3):
        with nullcontext() if error is None else pytest.raises(error):
            await reconciling.look()
    assert "c" in node.records


async def test_a_claim_that_comes_back_into_use_is_not_ended_later(
    node: ClaimNode, kubelet: Kubelet, claims: NodeClaims, asked: Asked
) -> None:
    reconciling = kubelet.compares(claims)
    delete(node)
    await reconciling.look()
    kubelet.lists(("c", {"a": "x"}))
    await reconciling.look()
    kubelet.lists()
    await reconciling.look()
    assert "c" in node.records


async def test_a_claim_that_is_not_told_of_holds_up_no_end(
    node: ClaimNode, kubelet: Kubelet, claims: NodeClaims, asked: Asked
) -> None:
    """Nor does its second look begin anew."""
    await claims.prepare([node.allocate("d", "b")])
    delete(node)
    delete(node, "d")
    reconciling, fault = kubelet.compares(claims), ("GET resourceclaims c", 500, dict[str, str]())
    assert await reconciling.look()
    node.api.faults.append(fault)
    with pytest.raises(ClusterError, match="a fault"):
        await reconciling.look()
    assert node.records.keys() == {"c"}
    assert await reconciling.look() is False
    assert node.records == {}


async def test_a_claim_whose_pods_are_not_told_holds_up_no_end(
    node: ClaimNode, kubelet: Kubelet, claims: NodeClaims, asked: Asked
) -> None:
    await claims.prepare([node.allocate("d", "b")])
    delete(node, "d")
    reconciling = kubelet.compares(claims)
    kubelet.lists(("c", {"a": "x"}))
    (kubelet.pods / "uid-c").mkdir()
    assert await reconciling.look()
    share(node, "c", "late")
    kubelet.lists(("c", {"a": "x"}), pod="pod-late")
    node.api.faults.append(("GET resourceclaims c", 500, {}))
    with pytest.raises(ClusterError, match="a fault"):
        await reconciling.look()
    assert node.records.keys() == {"c"}
    await reconciling.look()
    assert pods_of(node) == ["pod-c", "pod-late"]


async def test_a_claim_of_a_pod_that_is_gone_ends_beside_one_that_is_not_told_of(
    node: ClaimNode, kubelet: Kubelet, claims: NodeClaims
) -> None:
    node.make_class("things", NAME)
    both = [node.allocate("c", "a"), node.allocate("d", "b")]
    for name in ("c", "d"):
        node.extend(name, "things")
    await claims.prepare(both)
    delete(node)
    delete(node, "d")
    node.api.faults.append(("GET resourceclaims c", 500, {}))
    with suppress(ClusterError):
        await kubelet.compares(claims).look()
    assert node.records.keys() == {"c"}


@pytest.mark.parametrize("slow", [False, True])
async def test_a_claim_that_is_answered_during_a_look_is_not_ended(
    node: ClaimNode, kubelet: Kubelet, claims: NodeClaims, asked: Asked, monkeypatch: pytest.MonkeyPatch, *, slow: bool
) -> None:
    """``slow``: the API server doesn't tell the kubelet's call that it is allocated again."""
    reconciling, key = kubelet.compares(claims), ("resourceclaims", "default", "c")
    allocation = node.store.get(key)["status"]
    node.store.update(key, lambda one: one.update(status={}))
    assert await reconciling.look()
    get = node.server.get

    async def and_then(*what: Any) -> Any:
        found = await get(*what)
        monkeypatch.undo()
        node.store.update(key, lambda one: one.update(status=allocation))
        if slow:
            await node.api.down()
        assert len(await one(await claims.prepare([asked]))) == 1
        return found

    monkeypatch.setattr(node.server, "get", and_then)
    await reconciling.look()
    assert node.records["c"]["phase"] == "prepared"


async def test_a_claim_that_was_being_prepared_when_its_gateway_was_killed(
    node: ClaimNode, kubelet: Kubelet, claims: NodeClaims, asked: Asked
) -> None:
    """It stays reserved until it is prepared again, or ends here."""
    record = claims.store.records[asked.uid]
    node.files.write(replace(record, phase=type(record.phase).PREPARING))
    resource = ClaimedResource(lanes("release"), Device("a"))
    successor = await node.gateway(resource, patience=IN_VAIN)
    assert "free" in await one(await successor.prepare([node.allocate("d", "a")]))
    delete(node)
    reconciling = kubelet.compares(successor)
    await reconciling.look()
    await reconciling.look()
    await until(lambda: node.records == {})
    assert resource.lanes.released == ["a"]


async def test_a_pod_that_shares_a_claim_later_is_noted(
    node: ClaimNode, kubelet: Kubelet, claims: NodeClaims, asked: Asked
) -> None:
    """The kubelet doesn't prepare a claim for each of its pods."""
    found = node.store.get(("resourceclaims", "default", "c"))
    found["status"]["reservedFor"].append({"resource": "pods", "name": "late", "uid": "uid-late"})
    kubelet.lists(("c", {"a": "x"}), pod="late")
    reconciling = kubelet.compares(claims)
    await reconciling.look()
    assert node.records["c"]["pods"] == [["uid-c", "pod-c"], ["uid-late", "late"]]
    kubelet.lists()
    delete(node)
    (kubelet.pods / "uid-late").mkdir()
    assert not await reconciling.look()


def share(node: ClaimNode, *pods: str) -> None:
    """From now on claim c is reserved for these pods alone."""
    found = node.store.get(("resourceclaims", "default", "c"))
    found["status"]["reservedFor"] = [{"resource": "pods", "name": f"pod-{one}", "uid": f"uid-{one}"} for one in pods]


def pods_of(node: ClaimNode) -> list[str]:
    return [name for _, name in node.records["c"]["pods"]]


async def test_the_record_of_a_shared_claim_forgets_pods(
    node: ClaimNode, kubelet: Kubelet, claims: NodeClaims, asked: Asked
) -> None:
    """Those of a CronJob, beside one that keeps the claim prepared."""
    reconciling = kubelet.compares(claims)
    (kubelet.pods / "uid-c").mkdir()
    for number in map(str, range(20)):
        (kubelet.pods / f"uid-{number}").mkdir()
        share(node, "c", number)
        kubelet.lists(("c", {"a": "x"}), pod=f"pod-{number}")
        await reconciling.look()
        assert pods_of(node) == ["pod-c", f"pod-{number}"]
        (kubelet.pods / f"uid-{number}").rmdir()
    share(node, "c")
    kubelet.lists(("c", {"a": "x"}))
    await reconciling.look()
    assert pods_of(node) == ["pod-c"]


@pytest.mark.parametrize("sign", ["reserved", "directory", "unseen directories", "container", "no other pod"])
async def test_a_pod_that_may_run_is_not_forgotten(
    node: ClaimNode, kubelet: Kubelet, claims: NodeClaims, asked: Asked, sign: str
) -> None:
    claims.running = Pods(*(["uid-c"] if sign == "container" else [])).running
    if sign != "unseen directories":
        (kubelet.pods / "uid-late").mkdir()
    else:
        (kubelet.pods / "uid-other").rmdir()
    if sign == "directory":
        (kubelet.pods / "uid-c").mkdir()
    share(node, *{"reserved": ["c", "late"], "no other pod": []}.get(sign, ["late"]))
    kubelet.lists(("c", {"a": "x"}), pod="pod-late")
    await kubelet.compares(claims).look()
    assert pods_of(node) == (["pod-c"] if sign == "no other pod" else ["pod-c", "pod-late"])


async def test_a_pod_whose_directory_comes_during_a_look_is_kept(
    node: ClaimNode, kubelet: Kubelet, claims: NodeClaims, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kubelet has read the claim before the reservation went."""
    (kubelet.pods / "uid-late").mkdir()
    share(node, "late")
    kubelet.lists(("c", {"a": "x"}), pod="pod-late")
    get = node.server.get

    async def and_then(*what: Any) -> Any:
        found = await get(*what)
        (kubelet.pods / "uid-c").mkdir()
        return found

    monkeypatch.setattr(node.server, "get", and_then)
    await kubelet.compares(claims).look()
    assert pods_of(node) == ["pod-c", "pod-late"]


async def test_a_pod_is_noted_although_its_claim_was_answered_meanwhile(
    node: ClaimNode, kubelet: Kubelet, claims: NodeClaims, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From its record, because the API server didn't tell the kubelet's call of the pod."""
    found = node.store.get(("resourceclaims", "default", "c"))
    found["status"]["reservedFor"].append({"resource": "pods", "name": "late", "uid": "uid-late"})
    kubelet.lists(("c", {"a": "x"}), pod="late")
    get = node.server.get

    async def and_then(*what: Any) -> Any:
        found = await get(*what)
        monkeypatch.undo()
        await node.api.down()
        assert len(await one(await claims.prepare([asked]))) == 1
        return found

    monkeypatch.setattr(node.server, "get", and_then)
    await kubelet.compares(claims).look()
    assert node.records["c"]["pods"] == [["uid-c", "pod-c"], ["uid-late", "late"]]


async def test_the_next_pod_of_a_name_is_noted(
    node: ClaimNode, kubelet: Kubelet, claims: NodeClaims, asked: Asked
) -> None:
    """That of a StatefulSet, whose other pod has kept the claim prepared meanwhile."""
    found = node.store.get(("resourceclaims", "default", "c"))
    found["status"]["reservedFor"] = [{"resource": "pods", "name": "pod-c", "uid": "uid-next"}]
    kubelet.lists(("c", {"a": "x"}))
    (kubelet.pods / "uid-next").mkdir()
    reconciling = kubelet.compares(claims)
    await reconciling.look()
    # It is deleted by force, and so is the claim.
    kubelet.lists()
    delete(node)
    await look_often(reconciling)
    assert "c" in node.records


async def test_a_node_without_doubt_asks_no_api_server(
    node: ClaimNode, kubelet: Kubelet, claims: NodeClaims, asked: Asked
) -> None:
    kubelet.lists(("c", {"a": "x"}))
    (kubelet.pods / "uid-c").mkdir()
    await node.api.down()
    assert not await kubelet.compares(claims).look()


async def test_it_looks_by_itself_and_after_a_registration(
    node: ClaimNode, kubelet: Kubelet, claims: NodeClaims, asked: Asked
) -> None:
    reconciling = kubelet.compares(claims)
    running = asyncio.create_task(reconciling.run())
    await until(lambda: kubelet.lister.calls)
    delete(node)
    reconciling.look_soon()
    await until(lambda: not node.records)
    running.cancel()


# claims of pods that were deleted while no kubelet ran


@asynccontextmanager
async def looking(reconciling: Reconciling) -> AsyncIterator[None]:
    task = asyncio.create_task(reconciling.run())
    yield
    task.cancel()


@pytest.fixture
async def extended(node: ClaimNode, claims: NodeClaims, kubelet: Kubelet) -> ClaimRecord:
    """A claim of a pod's extended resources that was prepared. The pod has its directory."""
    node.make_class("things", NAME)
    asked = node.allocate("c", "a")
    node.extend("c", "things")
    await claims.prepare([asked])
    (kubelet.pods / "uid-c").mkdir()
    return claims.store.records[asked.uid]


async def test_a_removed_directory_ends_the_claim_of_its_pod(
    node: ClaimNode, kubelet: Kubelet, claims: NodeClaims, extended: ClaimRecord, resource: ClaimedResource
) -> None:
    """Neither a registration nor a second look is awaited."""
    async with looking(kubelet.compares(claims, LATER)):
        await until(lambda: kubelet.lister.calls)
        delete(node)
        (kubelet.pods / "uid-c").rmdir()
        await until(lambda: not node.records)
    assert resource.lanes.released == ["a"]


async def test_a_claim_that_goes_later_than_its_pod(
    node: ClaimNode, kubelet: Kubelet, claims: NodeClaims, extended: ClaimRecord
) -> None:
    async with looking(kubelet.compares(claims, Pauses(600, 600, 0.01))):
        (kubelet.pods / "uid-c").rmdir()
        await until(lambda: len([one for one in node.api.asked if one == "GET resourceclaims c"]) > 3)
        delete(node)
        await until(lambda: not node.records)


@pytest.mark.parametrize("directory", [True, False])
async def test_a_claim_outlasts_the_containers_of_its_pod_that_is_gone(
    node: ClaimNode, kubelet: Kubelet, claims: NodeClaims, extended: ClaimRecord, *, directory: bool
) -> None:
    """One that was deleted by force is in no sum of the scheduler; one that failed keeps its directory."""
    runtime, reconciling = Pods("uid-c"), kubelet.compares(claims, Pauses(600, 0, ending=0))
    claims.running = runtime.running
    delete(node)
    if not directory:
        (kubelet.pods / "uid-c").rmdir()
    await look_often(reconciling)
    in_use = claims.store.usage(NAME).value
    assert in_use.held == frozenset("a")
    assert in_use.counted == {}
    assert in_use.holder("a") == "claim default/c, whose pod is gone"
    runtime.uids = frozenset()
    await reconciling.look()
    assert (node.records, claims.store.gone) == ({}, frozenset())


async def test_a_doubt_holds_up_no_claim_of_a_pod_that_is_gone(
    node: ClaimNode, kubelet: Kubelet, claims: NodeClaims, extended: ClaimRecord
) -> None:
    """That of another claim, which others may share."""
    runtime = Pods("uid-c")
    claims.running = runtime.running
    await claims.prepare([node.allocate("d", "b")])
    delete(node)
    delete(node, "d")
    async with looking(kubelet.compares(claims, Pauses(600, 600, 0.01, 0.1))):
        await until(lambda: len(kubelet.lister.calls) > 3)
        runtime.uids = frozenset()
        await until(lambda: node.records.keys() == {"d"})


async def test_a_driver_that_hangs_holds_up_no_claim_that_is_found_later(
    node: ClaimNode, kubelet: Kubelet, claims: NodeClaims, extended: ClaimRecord, resource: ClaimedResource
) -> None:
    reconciling, name, pool = kubelet.compares(claims), "example.com/other", "n1/example.com/other"
    claims.store.add(name, ClaimedResource(lanes("release"), Device("x"), name=name, pool=pool))
    await claims.prepare([node.allocate("d", "x", pool=pool)])
    resource.releases.rest()
    delete(node)
    (kubelet.pods / "uid-c").rmdir()
    hurry(2)
    looks = asyncio.create_task(look_often(reconciling))
    await until(lambda: node.records["c"]["phase"] == "ending")
    delete(node, "d")
    await until(looks.done)
    assert {name: one["phase"] for name, one in node.records.items()} == {"c": "ending"}
    assert claims.lanes.running, "the end of c is awaited yet"


async def test_a_claim_that_ends_soon_stays_counted(
    node: ClaimNode, kubelet: Kubelet, claims: NodeClaims, extended: ClaimRecord
) -> None:
    """An Allocate waits for it: of a device that became Unhealthy meanwhile the kubelet wouldn't ask for one."""
    claims.running = Pods("uid-c").running
    reconciling = kubelet.compares(claims)
    delete(node)
    await look_often(reconciling)
    assert claims.store.usage(NAME).value.counted == {"a": NAME}


@pytest.mark.parametrize("sign", ["nobody knows what runs", "it is listed", "the kubelet lists no pods"])
async def test_a_pod_with_a_directory_is_not_gone(
    node: ClaimNode, kubelet: Kubelet, claims: NodeClaims, extended: ClaimRecord, sign: str
) -> None:
    runtime, reconciling = Pods(), kubelet.compares(claims)
    claims.running = runtime.running
    delete(node)
    if sign == "nobody knows what runs":
        runtime.uids = None
    elif sign == "it is listed":
        kubelet.lists(("other", {}), pod="pod-c")  # kubelets before 1.36 don't list the claim
    else:
        kubelet.lists_no_pods()
    await look_often(reconciling)
    assert "c" in node.records


async def test_a_pod_that_is_not_listed_once_costs_no_request(
    node: ClaimNode, kubelet: Kubelet, claims: NodeClaims, extended: ClaimRecord
) -> None:
    """A kubelet that has just started lists its static pods first."""
    reconciling = kubelet.compares(claims)
    await node.api.down()
    await reconciling.look()
    kubelet.lists(("c", {"a": "x"}))
    await reconciling.look()
    assert claims.store.usage(NAME).value.counted == {"a": NAME}


async def test_pods_that_come_and_go_cost_the_api_server_nothing(
    node: ClaimNode, kubelet: Kubelet, claims: NodeClaims, extended: ClaimRecord
) -> None:
    kubelet.lists(("c", {"a": "x"}))
    async with looking(kubelet.compares(claims)):
        await until(lambda: kubelet.lister.calls)
        await node.api.down()
        for number in range(3):
            (kubelet.pods / f"uid-{number}").mkdir()
            (kubelet.pods / f"uid-{number}").rmdir()
        await turns()
    assert len(kubelet.lister.calls) == 1


# claims without their records


@pytest.fixture
async def wiped(node: ClaimNode, claims: NodeClaims, asked: Asked, kubelet: Kubelet) -> NodeClaims:
    """A gateway that finds an empty ``state_dir``, while the pod of claim c runs."""
    kubelet.lists(("c", {"a": "vendor.com/x=a"}))
    for path in [*(node.folder / "dra").rglob("*")]:
        if path.is_file():
            path.unlink()
    return await node.gateway(patience=IN_VAIN)


async def test_a_record_made_again_on_a_full_disk_is_written_later(
    node: ClaimNode, wiped: NodeClaims, kubelet: Kubelet
) -> None:
    """Before the disk says that no record is missing."""
    disk = FullDisk(node.folder)
    claims = await node.gateway(ClaimedResource(lanes(), Device("a")), disk=(disk, own(node.specs)))
    disk.full, reconciling = True, kubelet.compares(claims)
    for _ in range(2):
        with suppress(OSError):
            await reconciling.look()
    assert not node.files.complete
    disk.full = False
    await reconciling.look()
    assert (node.records["c"]["phase"], node.files.complete) == ("prepared", True)


async def test_a_damaged_record_that_is_written_later_is_no_doubt_any_more(
    node: ClaimNode, kubelet: Kubelet, claims: NodeClaims, asked: Asked
) -> None:
    """Else the log would tell a person to remove a file that is right by now."""
    (node.folder / "dra" / "claims" / f"{asked.uid}.json").write_text("{")
    disk = FullDisk(node.folder)
    resource = ClaimedResource(lanes("release"), Device("a"), Device("b"))
    successor = await node.gateway(resource, disk=(disk, own(node.specs)))
    kubelet.lists(("c", {"a": "x"}))
    disk.full = True
    assert "can't be written" in await one(await successor.prepare([asked]))
    disk.full = False
    await kubelet.compares(successor).look()
    assert "c" in node.records
    assert (successor.store.doubts.damaged, successor.store.doubts.why.value) == ({}, "")


async def test_a_new_state_dir_gives_nothing_before_the_kubelet_has_told(
    node: ClaimNode, wiped: NodeClaims, kubelet: Kubelet
) -> None:
    wiped.store.add(NAME, ClaimedResource(lanes(), Device("a"), Device("b")))
    asked = node.allocate("d", "b")
    assert "PodResources" in await one(await wiped.prepare([asked]))
    await kubelet.compares(wiped).look()
    assert len(await one(await wiped.prepare([asked]))) == 1


async def test_a_lost_record_is_made_again(node: ClaimNode, wiped: NodeClaims, kubelet: Kubelet, asked: Asked) -> None:
    resource = ClaimedResource(lanes("release"), Device("a"), Device("b"))
    wiped.store.add(NAME, resource)
    node.make_class("things", NAME)
    node.extend("c", "things")
    await kubelet.compares(wiped).look()
    assert (node.records["c"]["uid"], node.records["c"]["given"][0]["extended"]) == (asked.uid, NAME)
    assert await one(await wiped.prepare([asked])) == (Prepared("r", POOL, "a", ("vendor.com/x=a",), ""),)
    assert resource.lanes.allocated == []
    assert "free" in await one(await wiped.prepare([node.allocate("d", "a")]))
    await wiped.unprepare([asked])
    await until(lambda: resource.lanes.released == ["a"])


async def test_a_call_for_a_claim_whose_record_is_lost_does_not_hold_it_up(
    node: ClaimNode, wiped: NodeClaims, kubelet: Kubelet, asked: Asked
) -> None:
    """A kubelet that has started as well asks for those of pods that run."""
    claims = await node.gateway(ClaimedResource(lanes("release"), Device("a"), Device("b")))
    before = len(node.api.asked)
    again, new = [asyncio.create_task(claims.prepare([one])) for one in (asked, node.allocate("d", "b"))]
    await until(lambda: len(node.api.asked) > before + 1)
    look = asyncio.create_task(kubelet.compares(claims).look())
    await until(lambda: look.done() and again.done() and new.done())
    assert [it.device for it in await one(await new)] == ["b"]
    prepared = (Prepared("r", POOL, "a", ("vendor.com/x=a",), ""),)
    assert await one(await again) == prepared == await one(await claims.prepare([asked]))


OTHERS = {NAME: POOL, "example.com/other": "n1/other"}
"""Resources that another front offers, with their pools."""


async def test_another_front_gives_nothing_before_the_kubelet_has_told(wiped: NodeClaims, kubelet: Kubelet) -> None:
    wiped.store.doubts.others = lambda: OTHERS
    await wiped.store.peek()
    assert wiped.store.doubts.in_doubt.value == OTHERS.keys()
    kubelet.lists()
    await kubelet.compares(wiped).look()
    assert wiped.store.doubts.in_doubt.value == frozenset()


async def test_of_a_lost_claim_its_pool_alone_is_in_doubt_on_another_front(
    node: ClaimNode, wiped: NodeClaims, kubelet: Kubelet
) -> None:
    wiped.store.doubts.others = lambda: OTHERS
    node.files.completed()
    compared = await node.gateway()
    compared.store.doubts.others = lambda: OTHERS
    reconciling = kubelet.compares(compared)
    await reconciling.look()
    await reconciling.look()
    assert compared.store.doubts.in_doubt.value == {NAME}


async def test_a_lost_record_of_what_another_front_offers_is_made_again(
    node: ClaimNode, wiped: NodeClaims, kubelet: Kubelet, asked: Asked
) -> None:
    wiped.store.doubts.others, resource = lambda: OTHERS, ClaimedResource(lanes("release"), Device("a"), Device("b"))
    wiped.elsewhere = lambda: {NAME: OfferedElsewhere(resource.granting, POOL, str)}
    await kubelet.compares(wiped).look()
    assert node.records["c"]["uid"] == asked.uid
    assert wiped.store.doubts.in_doubt.value == frozenset()
    given = wiped.parts.left.value[NAME]
    assert given.last_known == given.unreleased["a"].hardware == frozenset({"a"})


async def test_a_damaged_record_may_be_of_what_another_front_offers(node: ClaimNode, wiped: NodeClaims) -> None:
    node.files.completed()
    path = node.files.folder / "uid-1.json"
    path.write_text("{")
    damaged = await node.gateway()
    damaged.store.doubts.others = lambda: OTHERS
    await damaged.store.peek()
    assert damaged.store.doubts.in_doubt.value == OTHERS.keys()
    path.unlink()
    await damaged.store.doubts.look_for_damage()
    assert damaged.store.doubts.in_doubt.value == frozenset()


async def test_a_kubelet_that_tells_nobody_keeps_no_device_from_another_front(
    wiped: NodeClaims, kubelet: Kubelet
) -> None:
    """It has no DRA, either."""
    wiped.store.doubts.others = lambda: OTHERS
    await wiped.store.peek()
    await kubelet.lister.stop()
    kubelet.lister.socket.unlink(missing_ok=True)
    running = asyncio.create_task(kubelet.compares(wiped).run())
    await until(lambda: not wiped.store.doubts.in_doubt.value)
    running.cancel()


async def test_a_full_disk_keeps_no_device_from_another_front(
    node: ClaimNode, wiped: NodeClaims, kubelet: Kubelet
) -> None:
    disk = FullDisk(node.folder)
    claims = await node.gateway(disk=(disk, own(node.specs)))
    claims.store.doubts.others, disk.full = lambda: OTHERS, True
    await claims.store.peek()
    kubelet.lists()
    reconciling = kubelet.compares(claims)
    with pytest.raises(OSError, match="no space left"):
        await reconciling.look()
    assert claims.store.doubts.in_doubt.value == frozenset()
    assert not node.files.complete
    disk.full = False
    await reconciling.look()
    assert node.files.complete


async def test_a_node_without_pods_has_no_claims(wiped: NodeClaims, kubelet: Kubelet) -> None:
    kubelet.lists_no_pods()
    (kubelet.pods / "uid-other").rmdir()
    await kubelet.compares(wiped, LATER).look()
    assert wiped.store.doubts.why.value == ""


@pytest.mark.parametrize("why", ["not served", "claim gone", "server away", "other devices"])
async def test_a_lost_record_that_cannot_be_made_withholds_everything(
    node: ClaimNode, wiped: NodeClaims, kubelet: Kubelet, why: str, asked: Asked
) -> None:
    reconciling = kubelet.compares(wiped)
    if why != "not served":
        wiped.store.add(NAME, ClaimedResource(lanes(), Device("a"), Device("b")))
    if why == "claim gone":
        delete(node)
    if why == "other devices":
        node.store.get(("resourceclaims", "default", "c"))["status"]["allocation"]["devices"]["results"].clear()
    other = node.allocate("d", "b")
    if why == "server away":
        await node.api.down()
    assert await reconciling.look()
    assert "default/c (a in n1/example.com/thing) without a record" in wiped.store.doubts.why.value
    if why == "server away":
        return
    if why == "not served":
        wiped.store.add(NAME, ClaimedResource(lanes(), Device("a"), Device("b")))
    assert "without a record" in await one(await wiped.prepare([other]))
    # Its pod ends, and the kubelet forgets the claim.
    kubelet.lists()
    await wiped.unprepare([asked])
    await reconciling.look()
    assert len(await one(await wiped.prepare([other]))) == 1


async def test_a_kubelet_without_pods_is_believed_at_the_second_look(
    node: ClaimNode, wiped: NodeClaims, kubelet: Kubelet
) -> None:
    """It lists none when it has just started, and doesn't know its pods yet."""
    wiped.store.add(NAME, ClaimedResource(lanes(), Device("a"), Device("b")))
    kubelet.lists_no_pods()
    reconciling = kubelet.compares(wiped, LATER)
    assert await reconciling.look()
    assert await reconciling.look()
    assert "PodResources" in wiped.store.doubts.why.value
    patient = kubelet.compares(wiped)
    assert await patient.look()
    await patient.look()
    assert wiped.store.doubts.why.value == ""


async def test_a_removed_record_is_missed_at_the_second_look(
    node: ClaimNode, claims: NodeClaims, kubelet: Kubelet, asked: Asked
) -> None:
    """At the first one, its claim may just have ended."""
    node.files.remove(asked.uid)
    kubelet.lists(("c", {"a": "vendor.com/x=a"}))
    successor = await node.gateway(ClaimedResource(lanes(), Device("a")))
    early = kubelet.compares(successor, LATER)
    assert await early.look()
    assert (node.records, successor.store.doubts.why.value) == ({}, "")
    reconciling = kubelet.compares(successor)
    await reconciling.look()
    await reconciling.look()
    assert node.records["c"]["uid"] == asked.uid


class Meanwhile:
    """The API server: within its first answer the kubelet asks for the claim."""

    def __init__(self, server: ApiServer, ask: Callable[[], Awaitable[None]]) -> None:
        self._server, self._ask = server, ask

    async def get(self, *what: Any, **more: Any) -> Any:
        found, ask, self._ask = await self._server.get(*what, **more), self._ask, turns
        await ask()
        return found


async def test_a_call_that_fails_meanwhile_leaves_no_claim_without_its_record(
    node: ClaimNode, claims: NodeClaims, kubelet: Kubelet, asked: Asked
) -> None:
    """Its containers run: another claim would get their device."""
    node.files.remove(asked.uid)
    kubelet.lists(("c", {"a": "vendor.com/x=a"}))
    resource, calls = ClaimedResource(lanes(waits=True), Device("a")), list[Any]()
    successor, begun = await node.gateway(resource), asyncio.Event()

    async def ask() -> None:
        calls.append(asyncio.create_task(successor.prepare([asked])))
        await until(lambda: resource.lanes.waiting)
        begun.set()

    reconciling = kubelet.compares(successor)
    await reconciling.look()
    server: Any = Meanwhile(node.server, ask)
    successor.parts = successor.parts._replace(server=server)
    look = asyncio.create_task(reconciling.look())
    await begun.wait()
    await turns(200)
    resource.lanes.answer("a", DriverError("no"))
    await look
    assert "no" in await one(await calls[0])
    assert node.records["c"]["phase"] == "prepared"


async def test_a_damaged_record_is_made_again(
    node: ClaimNode, claims: NodeClaims, kubelet: Kubelet, asked: Asked
) -> None:
    (node.files.folder / f"{asked.uid}.json").write_text("{")
    kubelet.lists(("c", {"a": "vendor.com/x=a"}))
    successor = await node.gateway(ClaimedResource(lanes(), Device("a")))
    reconciling = kubelet.compares(successor)
    await reconciling.look()
    await reconciling.look()
    assert node.records["c"]["phase"] == "prepared"
    assert (successor.store.doubts.damaged, successor.store.doubts.why.value) == ({}, "")


async def test_a_damaged_record_that_a_person_removed_is_settled(
    node: ClaimNode, claims: NodeClaims, kubelet: Kubelet
) -> None:
    path = node.files.folder / "uid-1.json"
    path.write_text("{")
    successor = await node.gateway(ClaimedResource(lanes(), Device("a")))
    assert successor.store.doubts.why.value
    path.unlink()
    await kubelet.compares(successor).look()
    assert successor.store.doubts.why.value == ""
