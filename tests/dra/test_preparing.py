"""NodeClaims prepared and ended, with a resource whose driver a test plays and a simulated API server."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from dpgateway import Device, Health
from dpgateway.dra.claims.reading import Asked
from dpgateway.dra.claims.records import Phase
from dpgateway.dra.preparing import Prepared
from dpgateway.errors import DriverError
from dpgateway.model import hardware
from dpgateway.resource.front import Unreleased
from dpgateway_simulator.apiserver import SimulatedApiServer as Simulated
from tests.dra.claim_node import BOOT, DRIVER, IN_VAIN, POOL, ClaimNode, lanes, one
from tests.dra.claim_node import ClaimedResource as Resource
from tests.support.resources import NAME, configured
from tests.support.time import hurry
from tests.support.waiting import turns, until


async def test_a_claim_gets_its_device_by_a_cdi_name(node: ClaimNode) -> None:
    resource = Resource(lanes(), Device("a"), Device("b"))
    claims = await node.gateway(resource)
    (answer,) = await one(await claims.prepare([node.allocate("c", "b")]))
    assert (answer.request, answer.pool, answer.device) == ("r", POOL, "b")
    (name,) = answer.cdi
    (spec,) = (json.loads(path.read_text()) for path in node.specs.glob("*.json"))
    assert name == f"{spec['kind']}={spec['devices'][0]['name']}"
    assert "DEVICE=b" in spec["devices"][0]["containerEdits"]["env"]
    assert node.records["c"]["phase"] == "prepared"


async def test_the_second_answer_is_the_first(node: ClaimNode) -> None:
    resource = Resource(lanes("prepare"), Device("a"))
    claims = await node.gateway(resource)
    asked = node.allocate("c", "a")
    first = await claims.prepare([asked])
    assert await claims.prepare([asked]) == first
    assert resource.lanes.allocated == [("a",)]
    assert resource.lanes.prepared == ["a"]


async def test_another_gateway_answers_without_an_api_server(node: ClaimNode, simulated: Simulated) -> None:
    asked = node.allocate("c", "a")
    first = await (await node.gateway(Resource(lanes(), Device("a")))).prepare([asked])
    await simulated.down()
    resource = Resource(lanes(), Device("a"))
    assert await (await node.gateway(resource)).prepare([asked]) == first
    assert resource.lanes.allocated == []


async def test_a_claim_that_was_allocated_anew_keeps_what_it_had_before(node: ClaimNode) -> None:
    """The node was away meanwhile, so nobody has ended it here."""
    asked = node.allocate("c", "a", "b")
    await (await node.gateway(Resource(lanes(), Device("a"), Device("b")))).prepare([asked])
    for result in node.store.get(("resourceclaims", "default", "c"))["status"]["allocation"]["devices"]["results"]:
        result["device"] = {"a": "b", "b": "d"}[result["device"]]
    resource = Resource(lanes("release"), Device("a"), Device("b"), Device("d"))
    claims = await node.gateway(resource, "boot-2", IN_VAIN)
    assert [it.device for it in await one(await claims.prepare([asked]))] == ["b", "d"]
    await until(lambda: resource.lanes.released == ["a"])
    assert "free" in await one(await claims.prepare([node.allocate("e", "b")]))


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("boot", [BOOT, "boot-2"])
async def test_a_claim_that_was_allocated_anew_owes_what_has_left(node: ClaimNode, phase: Phase, boot: str) -> None:
    """The resource of its earlier devices is on the device plugin, whose driver doesn't run yet."""
    before, asked = await node.gateway(Resource(lanes("release"), Device("a"))), node.allocate("c", "a")
    await before.prepare([asked])
    node.files.write(replace(before.store.records[asked.uid], phase=phase))
    node.journals[NAME] = {"a": Unreleased("", frozenset(), frozenset({"a"}), 1, "a", "scripted")}
    (result,) = node.store.get(("resourceclaims", "default", "c"))["status"]["allocation"]["devices"]["results"]
    result.update({"pool": "n1/other", "device": "b"})

    claims, owed, runs = await node.gateway(boot=boot, patience=IN_VAIN), set[str](), asyncio.Event()

    def owe(_: str, id_: str, __: Unreleased) -> bool | None:
        if not runs.is_set():
            return None
        owed.add(id_)
        return True

    claims.store.owe = owe
    claims.store.drop(NAME)
    claims.store.add("example.com/other", Resource(lanes(), Device("b"), name="example.com/other", pool="n1/other"))
    assert "still being released" in await one(await claims.prepare([asked]))
    assert claims.parts.left.value[NAME].taken == {"a"}, "it counts on the device plugin"
    runs.set()
    claims.store.served.notify()
    await until(lambda: not claims.store.records)
    assert [it.device for it in await one(await claims.prepare([asked]))] == ["b"]
    assert (owed, claims.parts.left.value) == ({"a"}, {})


async def test_a_claim_that_was_freed_and_allocated_anew_has_what_it_has_now(node: ClaimNode) -> None:
    """Its pod was deleted by force while the kubelet was away, which asks again for the next pod once it is back."""
    resource = Resource(lanes("release"), Device("a"), Device("b"))
    claims, asked = await node.gateway(resource), node.allocate("c", "a")
    await claims.prepare([asked])
    allocate_anew(node, "b")
    assert [it.device for it in await one(await claims.prepare([asked]))] == ["b"]
    assert resource.lanes.released == ["a"]
    assert [it.device for it in await one(await claims.prepare([node.allocate("e", "a")]))] == ["a"]


@pytest.mark.parametrize("device", ["a", "b"])
async def test_a_claim_that_was_allocated_anew_waits_for_the_pod_before(node: ClaimNode, device: str) -> None:
    resource = Resource(lanes("release"), Device("a"), Device("b"))
    claims, asked, asks, runs = await node.gateway(resource), node.allocate("c", "a"), [], ["uid-c"]
    await claims.prepare([asked])
    allocate_anew(node, device)

    async def running(pods: frozenset[str]) -> frozenset[str]:
        asks.append(pods)
        return pods.intersection(runs)

    claims.running = running
    preparing = asyncio.create_task(claims.prepare([asked]))
    await until(lambda: preparing.done() or len(asks) > 1)
    assert not preparing.done()
    runs.clear()
    assert [it.device for it in await one(await preparing)] == [device]


async def test_a_claim_that_was_allocated_anew_outlasts_its_next_pod(node: ClaimNode) -> None:
    claims, asked = await node.gateway(Resource(lanes("release"), Device("a"))), node.allocate("c", "a")
    await claims.prepare([asked])
    allocate_anew(node, "a")
    await claims.prepare([asked])
    assert node.records["c"]["pods"] == [["uid-c", "pod-c"], ["uid-next", "next"]]

    async def running(pods: frozenset[str]) -> frozenset[str]:
        return pods & {"uid-next"}

    claims.running = running
    hurry(10)
    assert "its pod still runs (next)" in await one(await claims.unprepare([asked]))


def allocate_anew(node: ClaimNode, device: str) -> None:
    """Claim c gets this device, for another pod."""

    def change(claim: Any) -> None:
        claim["status"]["allocation"]["devices"]["results"][0]["device"] = device
        claim["status"]["reservedFor"] = [{"resource": "pods", "name": "next", "uid": "uid-next"}]

    node.store.update(("resourceclaims", "default", "c"), change)


async def test_after_a_boot_it_is_prepared_anew(node: ClaimNode) -> None:
    asked = node.allocate("c", "a")
    await (await node.gateway(Resource(lanes(), Device("a")))).prepare([asked])
    resource = Resource(lanes("prepare"), Device("a"))
    claims = await node.gateway(resource, "boot-2")
    await claims.prepare([asked])
    assert resource.lanes.prepared == ["a"]
    assert node.records["c"]["boot"] == "boot-2"


async def test_a_claim_that_fails_after_a_boot_keeps_its_devices(node: ClaimNode) -> None:
    asked = node.allocate("c", "a")
    await (await node.gateway(Resource(lanes(), Device("a")))).prepare([asked])
    resource = Resource(lanes(error=DriverError("not yet")), Device("a"))
    claims = await node.gateway(resource, "boot-2", IN_VAIN)
    assert "not yet" in await one(await claims.prepare([asked]))
    assert "free" in await one(await claims.prepare([node.allocate("d", "a")]))


class Moved:
    """A claim has the device a, and its resource has gone to the device plugin."""

    def __init__(self, node: ClaimNode) -> None:
        self.node, self.asked, self.device = node, node.allocate("c", "a"), Device("a")

    async def prepare(self, resource: Resource) -> Any:
        """The answer after a boot, by a gateway that has this resource on the device plugin."""
        await (await self.node.gateway(Resource(lanes(), self.device))).prepare([self.asked])
        given = Unreleased("", frozenset(), hardware(self.device), 1, "a", "scripted")
        self.node.journals[NAME] = {"a": given}
        claims = await self.node.gateway(boot="boot-2", patience=IN_VAIN)
        claims.store.drop(NAME)
        claims.waits.gone = lambda pool: "delete the pod" if pool == POOL else ""
        claims.store.elsewhere = lambda name: resource.granting if name == NAME else None
        return await one(await claims.prepare([self.asked]))


@pytest.fixture
def moved(node: ClaimNode) -> Moved:
    return Moved(node)


async def test_after_a_boot_the_device_plugin_s_driver_prepares_it(moved: Moved) -> None:
    resource = Resource(lanes("prepare", "release"), moved.device)
    (answer,) = await moved.prepare(resource)
    assert (answer.device, len(answer.cdi)) == ("a", 1)
    assert (resource.lanes.allocated, resource.lanes.prepared) == ([("a",)], ["a"])
    assert moved.node.records["c"]["boot"] == "boot-2"
    assert resource.usage.value.taken == frozenset(), "the claim has it, not a container of the device plugin"


@pytest.mark.parametrize(
    ("device", "text"),
    [
        (Device("a", hardware=("other",)), "other hardware"),
        (Device("a", health=Health.unhealthy("it burns")), "it burns"),
        (Device("b"), "isn't there"),
    ],
)
async def test_after_a_boot_other_hardware_is_refused(moved: Moved, device: Device, text: str) -> None:
    resource = Resource(lanes(), device)
    assert text in await moved.prepare(resource)
    assert resource.lanes.allocated == []
    assert moved.node.records["c"]["boot"] != "boot-2", "it keeps what it had, for the next attempt"


async def test_a_device_in_a_claim_is_refused_to_another(node: ClaimNode) -> None:
    resource = Resource(lanes(), Device("a"))
    claims = await node.gateway(resource, patience=IN_VAIN)
    await claims.prepare([node.allocate("c", "a")])
    answer = await one(await claims.prepare([node.allocate("d", "a")]))
    assert "default/c" in answer
    assert "d" not in node.records


async def test_a_driver_that_does_not_release_keeps_no_pod(node: ClaimNode) -> None:
    resource = Resource(lanes("release"), Device("a"))
    claims, asked = await node.gateway(resource, patience=IN_VAIN), node.allocate("c", "a")
    await claims.prepare([asked])
    resource.releases.rest()
    assert await one(await claims.unprepare([asked])) == ()
    assert node.records["c"]["phase"] == "ending"
    resource.releases.go_on()
    resource.releases.release_due()
    await until(lambda: not node.records)


async def test_two_claims_at_once_get_a_device_once(node: ClaimNode) -> None:
    resource = Resource(lanes(), Device("a"))
    claims = await node.gateway(resource, patience=IN_VAIN)
    answers = await claims.prepare([node.allocate("c", "a"), node.allocate("d", "a")])
    assert sorted(isinstance(answer, str) for answer in answers.values()) == [False, True]
    assert resource.lanes.allocated == [("a",)]


async def test_shares_of_one_device_go_to_several_claims(node: ClaimNode) -> None:
    resource = Resource(lanes(), Device("a"), shares=3)
    claims = await node.gateway(resource, patience=IN_VAIN)
    two = node.allocate("c", "a", shareID="s1", consumedCapacity={"shares": "2"})
    (answer,) = await one(await claims.prepare([two]))
    assert answer.share_id == "s1"
    assert len(await one(await claims.prepare([node.allocate("d", "a", shareID="s2")]))) == 1
    assert "0 of 1 shares" in await one(await claims.prepare([node.allocate("e", "a", shareID="s3")]))


async def test_devices_that_a_boot_has_exchanged_are_prepared_again(node: ClaimNode) -> None:
    """No container has them any more, and the scheduler knows them by their names."""
    first = Resource(lanes(), Device("a", hardware=("one",)), Device("b", hardware=("two",)))
    claims = await node.gateway(first)
    asked = [node.allocate(name, name) for name in "ab"]
    for one_ in asked:
        await claims.prepare([one_])
    resource = Resource(lanes(), Device("a", hardware=("one",)), Device("b", hardware=("two",)))
    claims = await node.gateway(resource, "boot-2", IN_VAIN)
    resource.usage.set(resource.usage.value.remembered(first.usage.value.unreleased))
    await turns()
    resource.inventory.take((Device("a", hardware=("two",)), Device("b", hardware=("one",))))  # they are found later
    resource.releases.release_due()  # as after each list
    for one_ in asked:
        assert len(await one(await claims.prepare([one_]))) == 1
    assert resource.inventory.ledger.excluded("a") == resource.inventory.ledger.excluded("b") == ""


async def test_devices_that_are_exchanged_after_an_attempt_that_failed_are_prepared_again(node: ClaimNode) -> None:
    """After a boot a driver may find its devices one after the other, and fail meanwhile: no container has any yet."""
    first = Resource(lanes(), Device("a", hardware=("one",)), Device("b", hardware=("two",)))
    claims = await node.gateway(first)
    asked = [node.allocate(name, name) for name in "ab"]
    for one_ in asked:
        await claims.prepare([one_])
    resource = Resource(lanes(), Device("a", hardware=("one",)), Device("b", hardware=("two",)))
    claims = await node.gateway(resource, "boot-2", IN_VAIN)
    resource.usage.set(resource.usage.value.remembered(first.usage.value.unreleased))
    await turns()
    resource.lanes.error = DriverError("not yet")
    for one_ in asked:
        assert "not yet" in await one(await claims.prepare([one_]))
    resource.lanes.error = None
    resource.inventory.take((Device("a", hardware=("two",)), Device("b", hardware=("one",))))
    resource.releases.release_due()  # as after each list
    for one_ in asked:
        assert len(await one(await claims.prepare([one_]))) == 1
    assert resource.inventory.ledger.excluded("a") == resource.inventory.ledger.excluded("b") == ""


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_share_that_is_not_offered_any_more_takes_the_place_of_one(node: ClaimNode, *, restarted: bool) -> None:
    """To the scheduler a device without shares is free although claims have some of it from before."""
    resource = Resource(lanes(), Device("a"), shares=2)
    claims = await node.gateway(resource, patience=IN_VAIN)
    first, second = (node.allocate(name, "a", shareID=f"share of {name}") for name in "cd")
    for asked in (first, second):
        await claims.prepare([asked])
    await claims.unprepare([first])
    if restarted:
        resource = Resource(lanes(), Device("a"))
        claims = await node.gateway(resource, patience=IN_VAIN)
        resource.inventory.hold()  # as before it is served
    else:
        resource.granting.config.set(configured(shares=1))
        resource.inventory.take((Device("a"),))
    asked = node.allocate("e", "a")
    assert "no share free: containers have all of them, as a::1" in await one(await claims.prepare([asked]))
    await claims.unprepare([second])
    assert len(await one(await claims.prepare([asked]))) == 1


async def test_shares_that_a_claim_asks_for_take_each_others_place(node: ClaimNode) -> None:
    """Also if another claim has one that isn't offered any more."""
    resource = Resource(lanes(), Device("a"), shares=3)
    claims = await node.gateway(resource, patience=IN_VAIN)
    first, second, third = (node.allocate(name, "a", shareID=f"share of {name}") for name in "cde")
    for asked in (first, second, third):
        await claims.prepare([asked])
    await claims.unprepare([first, second])
    resource.granting.config.set(configured(shares=2))
    resource.inventory.take((Device("a"),))
    given = {"driver": DRIVER, "pool": POOL, "device": "a"}
    asked = node.allocate_results("f", [{**given, "request": name, "shareID": name} for name in "xy"])
    assert "no share free: containers have all of them" in await one(await claims.prepare([asked]))
    await claims.unprepare([third])
    assert len(await one(await claims.prepare([asked]))) == 2


async def test_other_drivers_results_are_theirs(node: ClaimNode) -> None:
    claims = await node.gateway(Resource(lanes(), Device("a")))
    assert await one(await claims.prepare([node.allocate("c", "x", driver="other")])) == ()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda store, key: store.delete(key), "isn't there any more"),
        (lambda store, key: store.get(key)["metadata"].update(uid="another"), "was replaced"),
        (lambda store, key: store.get(key)["status"].pop("allocation"), "isn't allocated"),
    ],
    ids=["gone", "replaced", "not allocated"],
)
async def test_a_claim_that_is_not_what_was_asked_for(node: ClaimNode, change: Any, text: str) -> None:
    resource = Resource(lanes(), Device("a"))
    claims, asked = await node.gateway(resource), node.allocate("c", "a")
    change(node.store, ("resourceclaims", "default", "c"))
    assert text in await one(await claims.prepare([asked]))
    assert node.records == {}


async def test_a_refusal_of_the_driver_frees_the_device(node: ClaimNode) -> None:
    resource = Resource(lanes("release", error=DriverError("no")), Device("a"))
    claims = await node.gateway(resource)
    assert "no" in await one(await claims.prepare([node.allocate("c", "a")]))
    resource.lanes.error = None
    assert len(await one(await claims.prepare([node.allocate("d", "a")]))) == 1


async def test_unprepare_is_answered_after_the_release(node: ClaimNode) -> None:
    resource = Resource(lanes("release"), Device("a"))
    claims, asked = await node.gateway(resource), node.allocate("c", "a")
    await claims.prepare([asked])
    assert await one(await claims.unprepare([asked])) == ()
    assert resource.lanes.released == ["a"]
    assert node.records == {}
    assert len(await one(await claims.prepare([node.allocate("d", "a")]))) == 1


async def test_unprepare_of_a_claim_that_nobody_knows(node: ClaimNode, simulated: Simulated) -> None:
    claims = await node.gateway(Resource(lanes(), Device("a")))
    await simulated.down()
    assert await one(await claims.unprepare([Asked("default", "c", "no-such-uid")])) == ()


async def test_unprepare_after_a_restart_releases(node: ClaimNode) -> None:
    asked = node.allocate("c", "a")
    await (await node.gateway(Resource(lanes("release"), Device("a")))).prepare([asked])
    resource = Resource(lanes("release"), Device("a"))
    claims = await node.gateway(resource)
    assert await one(await claims.unprepare([asked])) == ()
    assert resource.lanes.released == ["a"]
    assert node.records == {}


async def test_a_damaged_record_is_kept_and_said(node: ClaimNode) -> None:
    folder = node.folder / "dra" / "claims"
    (folder / "uid-1.json").write_text("{")
    claims = await node.gateway(Resource(lanes(), Device("a")))
    (damaged,) = claims.store.doubts.damaged.values()
    assert damaged.file == "uid-1.json"
    assert (folder / "uid-1.json").exists()


async def test_a_uid_is_never_a_path(node: ClaimNode) -> None:
    claims = await node.gateway(Resource(lanes(), Device("a")))
    asked = node.allocate("c", "a")
    node.store.get(("resourceclaims", "default", "c"))["metadata"]["uid"] = "../../x"
    answer = await one(await claims.prepare([asked._replace(uid="../../x")]))
    assert "expected a claim's uid" in answer


async def test_a_call_that_the_kubelet_gave_up_goes_on(node: ClaimNode) -> None:
    resource = Resource(lanes(), Device("a"))
    claims, asked = await node.gateway(resource), node.allocate("c", "a")
    resource.lanes.go_on.clear()
    first = asyncio.create_task(claims.prepare([asked]))
    await until(lambda: resource.lanes.asked)
    first.cancel()
    second = asyncio.create_task(claims.prepare([asked]))
    resource.lanes.go_on.set()
    assert isinstance((await one(await second))[0], Prepared)
    assert resource.lanes.allocated == [("a",)]
