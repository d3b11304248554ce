"""What the scheduler makes of slices: each row was seen on a real control plane 1.37, unless it says otherwise."""

import asyncio
from typing import Any

import pytest

from dpgateway_simulator.cluster.cluster import SimulatedCluster
from dpgateway_simulator.cluster.selectors import SelectorError, selected
from tests.simulator.cluster.conftest import Site
from tests.simulator.drivers import DRIVER, X, device

SHARED: dict[str, Any] = {
    "allowMultipleAllocations": True,
    "capacity": {"shares": {"value": "3", "requestPolicy": {"default": "1", "validRange": {"min": "1", "step": "1"}}}},
}
ILL = {"taints": [{"key": f"{DRIVER}/unhealthy", "value": "no-link", "effect": "NoSchedule"}]}


class Board:
    """A cluster with a node that no kubelet serves: what is bound shows what the scheduler thinks."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster, self.store = cluster, cluster.server.store
        cluster.device_class("x", DRIVER, resource=X, attributes={"resource": X})

    def node(self, name: str = "n1", **allocatable: int) -> None:
        counts = {f"example.com/{one}": str(n) for one, n in allocatable.items()}
        self.store.create("nodes", "", {"metadata": {"name": name}, "status": {"allocatable": counts}})

    def publish(self, *devices: dict[str, Any], name: str = "s", node: str = "n1", **more: Any) -> None:
        pool = {"name": more.pop("pool", "p"), "generation": more.pop("generation", 1)}
        pool |= {"resourceSliceCount": more.pop("count", 1)}
        spec = {"driver": more.pop("driver", DRIVER), "nodeName": node, "pool": pool, "devices": list(devices), **more}
        self.store.create("resourceslices", "", {"metadata": {"name": name}, "spec": spec})

    async def result(self, pod: str, limits: dict[str, int] | None = None, **how: Any) -> list[str] | str:
        """The devices of a pod, or why it waits."""
        self.cluster.create(pod, {"c": limits or {}}, **how)
        while not (self.cluster.pod(pod) or {})["spec"].get("nodeName") and not self.cluster.why(pod):
            await self.store.changed()
        return self.cluster.allocated(pod) or self.cluster.why(pod)

    def request(self, name: str = "r", class_: str = "x", **more: Any) -> dict[str, Any]:
        return {"name": name, "exactly": {"deviceClassName": class_, **more}}


@pytest.fixture
def board(site: Site) -> Board:
    return Board(site.cluster)


NOTHING = "0/1 nodes are available: 1 cannot allocate all claims."


async def test_slices_by_name_devices_in_order(board: Board) -> None:
    board.node()
    board.publish(device("c"), device("a"), name="s2", pool="p2")
    board.publish(device("b"), name="s1")
    assert await board.result("p1", {X: 1}) == ["b"]
    assert await board.result("p2", {X: 2}) == ["c", "a"]
    assert await board.result("p3", {X: 1}) == NOTHING


async def test_a_node_with_plugin_devices_never_uses_dra(board: Board) -> None:
    board.node(x=1)
    board.publish(device("a"))
    await board.result("p1", {X: 1}, node="n1")
    assert board.cluster.allocated("p1") == []
    assert await board.result("p2", {X: 1}) == f"0/1 nodes are available: 1 Insufficient {X}."


async def test_pods_with_dra_devices_count_on_the_plugins_side(board: Board) -> None:
    """4 devices, 2 in pods by DRA: of 2 that are listed healthy none is left, of 4 there are two."""
    board.node()
    board.publish(device("a"), device("b"))
    for pod in ("p1", "p2"):
        assert await board.result(pod, {X: 1})
    board.store.update(("nodes", "", "n1"), lambda one: one["status"].update({"allocatable": {X: "2"}}))
    assert await board.result("p3", {X: 1}) == f"0/1 nodes are available: 1 Insufficient {X}."
    board.store.update(("nodes", "", "n1"), lambda one: one["status"].update({"allocatable": {X: "4"}}))
    await board.cluster.server.store.changed()
    assert (board.cluster.pod("p3") or {})["spec"]["nodeName"] == "n1"


async def test_a_pod_without_its_class_is_insufficient(board: Board) -> None:
    board.node()
    assert await board.result("p1", {"example.com/y": 1}) == "0/1 nodes are available: 1 Insufficient example.com/y."


async def test_each_class_is_a_resource_by_itself(board: Board) -> None:
    board.node()
    board.publish(device("a"))
    assert await board.result("p1", {"deviceclass.resource.kubernetes.io/x": 1}) == ["a"]


async def test_the_newest_class_of_a_name_wins(board: Board) -> None:
    board.node()
    board.publish({"name": "z"}, driver="other.example")
    board.publish(device("a"), name="t", pool="q")
    board.cluster.device_class("newer", "other.example", resource=X)
    assert await board.result("p1", {X: 1}) == ["z"]


async def test_a_claim_of_extended_resources(board: Board) -> None:
    """Two containers get two devices, an init container shares one of theirs."""
    board.node()
    board.publish(device("a"), device("b"), device("c"))
    board.cluster.create("p1", {"c": {X: 1}, "d": {X: 1}}, init={"i": {X: 1}})
    await board.store.changed()
    while not board.cluster.allocated("p1"):
        await board.store.changed()
    assert board.cluster.allocated("p1") == ["a", "b"]
    (claim,) = board.store.list("resourceclaims")
    assert claim["metadata"]["name"].startswith("p1-extended-resources-")
    assert claim["metadata"]["annotations"] == {"resource.kubernetes.io/extended-resource-claim": "true"}
    assert claim["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
    requests = [one["name"] for one in claim["spec"]["devices"]["requests"]]
    assert requests == ["container-1-request-0", "container-2-request-0"]
    said = (board.cluster.pod("p1") or {})["status"]["extendedResourceClaimStatus"]
    mapped = {one["containerName"]: one["requestName"] for one in said["requestMappings"]}
    assert mapped == {"i": requests[0], "c": requests[0], "d": requests[1]}


async def test_counters_exclude_across_names_and_within_a_pod(board: Board) -> None:
    """A shared device charges its counter once, and a whole device is refused meanwhile."""
    board.node()
    counter = {"counters": {"board": {"value": "1"}}}
    uses = {"consumesCounters": [{"counterSet": "h", **counter}]}
    board.publish(name="s0", count=2, sharedCounters=[{"name": "h", **counter}])
    other = {"attributes": {"resource": {"string": "example.com/y"}}}
    board.publish(device("a", **uses, **SHARED), {"name": "y", **other, **uses}, name="s1", count=2)
    board.cluster.device_class("y", DRIVER, resource="example.com/y", attributes={"resource": "example.com/y"})
    assert await board.result("both", {X: 1, "example.com/y": 1}) == NOTHING
    board.cluster.delete("both")
    for pod in ("p1", "p2", "p3"):
        assert await board.result(pod, {X: 1}) == ["a"]
    assert await board.result("p4", {"example.com/y": 1}) == NOTHING


async def test_shares_are_counted_and_named(board: Board) -> None:
    """A count of 2 needs two different devices."""
    board.node()
    board.publish(device("a", **SHARED))
    assert await board.result("two", {X: 2}) == NOTHING
    board.cluster.delete("two")
    board.cluster.create("both", {"c": {X: 1}, "d": {X: 1}})  # one claim with two requests
    await board.cluster.until("both", "Pending", because="cannot allocate", within=10)
    board.cluster.delete("both")
    for pod in ("p1", "p2", "p3"):
        assert await board.result(pod, {X: 1}) == ["a"]
    assert await board.result("p4", {X: 1}) == NOTHING
    results = [one["status"]["allocation"]["devices"]["results"][0] for one in board.store.list("resourceclaims")[:3]]
    assert [one["consumedCapacity"] for one in results] == [{"shares": "1"}] * 3
    assert len({one["shareID"] for one in results}) == 3


async def test_a_taint_keeps_claims_off_that_dont_tolerate_it(board: Board) -> None:
    board.node()
    board.publish(device("a", **ILL), device("b"))
    assert await board.result("p1", {X: 1}) == ["b"]
    board.cluster.claim("k", board.request(tolerations=[{"operator": "Exists"}]))
    assert await board.result("p2", claims={"k": ["c"]}) == ["a"]


async def test_a_pool_must_be_whole(board: Board) -> None:
    """Too few slices give nothing, a newer complete generation counts alone, a name twice is invalid."""
    board.node()
    board.publish(device("a"), count=2)
    assert await board.result("p1", {X: 1}) == NOTHING
    board.cluster.delete("p1")
    board.publish(device("b"), name="t", generation=2)
    assert await board.result("p2", {X: 1}) == ["b"]
    board.publish(device("z"), device("z"), name="u", pool="q")
    text = f"0/1 nodes are available: 1 invalid resource pools were encountered: {DRIVER}/q."
    assert await board.result("p3", {X: 1}) == text


async def test_a_claim_has_at_most_32_devices(board: Board) -> None:
    board.node()
    board.publish(*(device(f"d{n}") for n in range(40)))
    text = "number of requested devices 33 exceeds the claim limit of 32"
    assert await board.result("p1", {X: 33}) == f"0/1 nodes are available: 1 {text}."
    assert len(await board.result("p2", {X: 32})) == 32


async def test_claims_by_hand(board: Board) -> None:
    """Alternatives, a constraint, several requests, configuration of the class before the claim's."""
    board.node()
    near = {"attributes": {"resource": {"string": X}, "node": {"int": 1}}}
    board.publish(device("a"), {"name": "b", **near}, {"name": "c", **near})
    opaque = {"opaque": {"driver": DRIVER, "parameters": {"a": 1}}}
    board.cluster.device_class("set", DRIVER, config=[opaque])
    best = [{"name": "y", "deviceClassName": "x", "count": 9}, {"name": "n", "deviceClassName": "set", "count": 1}]
    constraints = [{"matchAttribute": f"{DRIVER}/node", "requests": []}]
    requests = {"name": "r", "firstAvailable": best}, board.request("q")
    board.cluster.claim("k", *requests, constraints=constraints, config=[opaque])
    assert await board.result("p1", claims={"k": ["c"]}) == ["b", "c"]
    found = board.store.get(("resourceclaims", "default", "k"))["status"]["allocation"]["devices"]
    assert [one["request"] for one in found["results"]] == ["r/n", "q"]
    assert [(one["source"], one.get("requests")) for one in found["config"]] == [
        ("FromClass", ["r/n"]),
        ("FromClaim", None),
    ]


async def test_administrators_get_devices_in_use(board: Board) -> None:
    board.node()
    board.publish(device("a"))
    assert await board.result("p1", {X: 1}) == ["a"]
    board.cluster.claim("k", board.request(adminAccess=True, allocationMode="All"))
    assert await board.result("p2", claims={"k": ["c"]}) == ["a"]
    board.cluster.delete("p1", force=True)
    await board.result("p3", {X: 1})
    while not board.cluster.allocated("p3"):
        await board.store.changed()


async def test_slices_go_with_their_node(board: Board) -> None:
    board.node()
    node = board.store.get(("nodes", "", "n1"))["metadata"]
    board.publish(device("a"))
    owner = {"kind": "Node", "name": "n1", "uid": node["uid"], "controller": True}
    board.store.update(("resourceslices", "", "s"), lambda one: one["metadata"].update(ownerReferences=[owner]))
    board.store.delete(("nodes", "", "n1"))
    async with asyncio.timeout(60):
        while board.store.list("resourceslices"):
            await board.store.changed()


@pytest.mark.parametrize(
    ("expression", "met"),
    [
        ('device.driver == "d"', True),
        ('device.driver == "e" && device.attributes["d"].missing == 1', False),
        ('device.attributes["d"].s == "a b"  &&device.attributes["d"].n == 2', True),
        ('device.attributes["d"].b == true', True),
        ('device.attributes["resource.kubernetes.io"].numaNode == 1', True),
        ('device.attributes["d"].n == 3', False),
    ],
)
def test_selectors_that_are_understood(expression: str, met: bool) -> None:
    numa = {"resource.kubernetes.io/numaNode": {"int": 1}}
    attributes = {"s": {"string": "a b"}, "n": {"int": 2}, "b": {"bool": True}, **numa}
    assert selected([expression], "d", {"name": "x", "attributes": attributes}) is met


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        ('device.attributes["d"].missing == 1', "no such key: missing"),
        ('device.attributes["d"].n > 1', "can't evaluate"),
        ('device.driver == "d" || true', "can't evaluate"),
    ],
)
def test_selectors_that_end_the_allocation(expression: str, error: str) -> None:
    with pytest.raises(SelectorError, match=error):
        selected([expression], "d", {"name": "x"})
