"""The simulated API server over HTTP, as a client that knows nothing of it sees it."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dpgateway_simulator.apiserver import SimulatedApiServer
from tests.support.waiting import until

SLICES, CLAIMS = "/apis/resource.k8s.io/v1/resourceslices", "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
EVENTS, NODES, PODS = (
    "/apis/events.k8s.io/v1/namespaces/default/events",
    "/api/v1/nodes",
    "/api/v1/namespaces/default/pods",
)

OPEN: list[asyncio.StreamWriter] = []


@pytest.fixture
async def server() -> AsyncIterator[SimulatedApiServer]:
    made = SimulatedApiServer()
    await made.up()
    yield made
    await made.down()
    while OPEN:
        OPEN.pop().close()


async def opened(server: SimulatedApiServer, method: str, path: str, body: Any = None) -> asyncio.StreamReader:
    host, _, port = server.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    OPEN.append(writer)
    text = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(text)}\r\n\r\n"
    writer.write(head.encode() + text)
    await writer.drain()
    return reader


async def ask(server: SimulatedApiServer, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Status and JSON of an answer."""
    head, _, text = (await (await opened(server, method, path, body)).read()).partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(text)


async def watched(reader: asyncio.StreamReader) -> dict[str, Any]:
    """The next event of a watch."""
    while not (line := await asyncio.wait_for(reader.readline(), 60)).startswith(b"{"):
        assert line, "the watch ended"
    found: dict[str, Any] = json.loads(line)
    return found


def slice_of(name: str, node: str = "n1", *devices: Any, **spec: Any) -> dict[str, Any]:
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    return {
        "metadata": {"name": name},
        "spec": {"driver": "d", "nodeName": node, "pool": pool, **spec, "devices": [*devices]},
    }


async def test_objects_come_and_go(server: SimulatedApiServer) -> None:
    code, made = await ask(server, "POST", SLICES, slice_of("s"))
    assert (code, made["metadata"]["generation"]) == (201, 1)
    assert (await ask(server, "POST", SLICES, slice_of("s")))[0] == 409
    assert (await ask(server, "GET", f"{SLICES}/s"))[1] == made
    stale = {**made, "metadata": {**made["metadata"], "resourceVersion": "1"}}
    assert (await ask(server, "PUT", f"{SLICES}/s", stale))[1]["reason"] == "Conflict"
    wrong = {"preconditions": {"uid": "another"}}
    assert (await ask(server, "DELETE", f"{SLICES}/s", wrong))[0] == 409
    assert (await ask(server, "DELETE", f"{SLICES}/s"))[0] == 200
    assert (await ask(server, "GET", f"{SLICES}/s"))[1]["reason"] == "NotFound"
    assert (await ask(server, "GET", "/apis/other/v1/things"))[0] == 404


async def test_lists_by_fields_and_in_pages(server: SimulatedApiServer) -> None:
    for name in ("a", "b", "c"):
        await ask(server, "POST", SLICES, slice_of(name))
    await ask(server, "POST", SLICES, slice_of("d", "n2"))
    fields = "fieldSelector=spec.nodeName%3Dn1,spec.driver%3Dd"
    _, first = await ask(server, "GET", f"{SLICES}?{fields}&limit=2")
    _, rest = await ask(server, "GET", f"{SLICES}?{fields}&limit=2&continue={first['metadata']['continue']}")
    assert [one["metadata"]["name"] for one in (*first["items"], *rest["items"])] == ["a", "b", "c"]
    await ask(server, "DELETE", f"{SLICES}?fieldSelector=spec.nodeName%3Dn1")
    assert [one["metadata"]["name"] for one in (await ask(server, "GET", SLICES))[1]["items"]] == ["d"]


async def test_a_dry_run_shows_what_the_server_would_keep(server: SimulatedApiServer) -> None:
    """1.37: with gates off counters, taints, shares and their policy are missing in the answer; nothing is stored."""
    server.store.off = {"DRAConsumableCapacity", "DRADeviceTaints", "DRAPartitionableDevices"}
    capacity = {"shares": {"value": "2", "requestPolicy": {"default": "1"}}}
    full = {
        "name": "a",
        "taints": [{"key": "k", "effect": "NoSchedule"}],
        "consumesCounters": [],
        "allowMultipleAllocations": True,
        "capacity": capacity,
    }
    code, found = await ask(server, "POST", f"{SLICES}?dryRun=All", slice_of("s", "n1", full))
    assert (code, found["spec"]["devices"]) == (201, [{"name": "a", "capacity": {"shares": {"value": "2"}}}])
    assert server.store.list("resourceslices") == []
    server.store.off = set()
    _, found = await ask(server, "POST", SLICES, slice_of("s", "n1", full))
    assert "timeAdded" in found["spec"]["devices"][0]["taints"][0]


@pytest.mark.parametrize(
    ("one", "text"),
    [
        (slice_of("s", "n1", *({"name": f"d{n}"} for n in range(129))), "must have at most 128 items"),
        (slice_of("s", "n1", *({"name": f"d{n}", "taints": []} for n in range(65))), "must have at most 64 items"),
        (
            slice_of("s", "n1", {"name": "a", "attributes": {f"a{n}": {"int": n} for n in range(33)}}),
            "at most 32 items",
        ),
        (slice_of("s", "n1", {"name": "a", "attributes": {"x": {"string": "y" * 65}}}), "more than 64 bytes"),
        (slice_of("s", "n1", {"name": "A_1"}), "RFC 1123 label"),
        (slice_of("s", "n1", {"name": "a", "consumesCounters": [{}, {}, {}]}), "at most 2 items"),
        (slice_of("s", "n1", {"name": "a"}, sharedCounters=[{"name": "c"}]), "only one of"),
    ],
)
async def test_limits(server: SimulatedApiServer, one: Any, text: str) -> None:
    code, found = await ask(server, "POST", SLICES, one)
    assert code == 422
    assert text in found["message"]


async def test_a_status_is_written_by_itself(server: SimulatedApiServer) -> None:
    claim = {"metadata": {"name": "k"}, "spec": {}, "status": {"x": 0}}
    _, made = await ask(server, "POST", CLAIMS, claim)
    assert "status" not in made
    _, changed = await ask(server, "PUT", f"{CLAIMS}/k/status", {**made, "spec": {"y": 1}, "status": {"x": 1}})
    assert (changed["spec"], changed["status"]) == ({}, {"x": 1})
    _, again = await ask(server, "PUT", f"{CLAIMS}/k", {**changed, "spec": {"z": 1}, "status": {}})
    assert (again["spec"], again["status"], again["metadata"]["generation"]) == ({"z": 1}, {"x": 1}, 2)


async def test_no_generated_name_is_one_that_exists(server: SimulatedApiServer) -> None:
    given = {"metadata": {"generateName": "p1."}}
    made = {server.store.create("events", "default", given)["metadata"]["name"] for _ in range(4000)}
    assert len(made) == 4000


async def test_events_are_created_and_patched(server: SimulatedApiServer) -> None:
    given = {"metadata": {"generateName": "p1."}, "note": "lost", "series": {"count": 1}}
    _, made = await ask(server, "POST", EVENTS, given)
    path = f"{EVENTS}/{made['metadata']['name']}"
    _, patched = await ask(server, "PATCH", path, {"series": {"count": 2, "last": "now"}, "note": None})
    assert (patched["series"], "note" in patched) == ({"count": 2, "last": "now"}, False)


async def test_a_pod_goes_once_its_kubelet_says_so(server: SimulatedApiServer) -> None:
    await ask(server, "POST", PODS, {"metadata": {"name": "p"}, "spec": {"nodeName": "n1"}})
    await ask(server, "DELETE", f"{PODS}/p")
    assert "deletionTimestamp" in (await ask(server, "GET", f"{PODS}/p"))[1]["metadata"]
    await ask(server, "DELETE", f"{PODS}/p?gracePeriodSeconds=0")
    assert (await ask(server, "GET", f"{PODS}/p"))[0] == 404


async def test_an_object_waits_for_its_finalizers(server: SimulatedApiServer) -> None:
    await ask(server, "POST", CLAIMS, {"metadata": {"name": "k", "finalizers": ["f"]}, "spec": {}})
    _, found = await ask(server, "DELETE", f"{CLAIMS}/k")
    found["metadata"]["finalizers"] = []
    await ask(server, "PUT", f"{CLAIMS}/k", found)
    assert (await ask(server, "GET", f"{CLAIMS}/k"))[0] == 404


async def test_watches_tell_changes_and_bookmarks(server: SimulatedApiServer) -> None:
    server.bookmark = 0.05
    reader = await opened(server, "GET", f"{SLICES}?watch=1&allowWatchBookmarks=true&fieldSelector=spec.nodeName%3Dn1")
    mark = await watched(reader)
    assert (mark["type"], mark["object"]["kind"]) == ("BOOKMARK", "ResourceSlice")
    await ask(server, "POST", SLICES, slice_of("other", "n2"))
    await ask(server, "POST", SLICES, slice_of("s"))
    await ask(server, "DELETE", f"{SLICES}/s")
    found: list[dict[str, Any]] = []
    while len(found) < 2:
        one = await watched(reader)
        found += [one] if one["type"] != "BOOKMARK" else []
    assert [(one["type"], one["object"]["metadata"]["name"]) for one in found] == [("ADDED", "s"), ("DELETED", "s")]


async def test_a_watch_of_a_forgotten_version_is_expired(server: SimulatedApiServer) -> None:
    _, made = await ask(server, "POST", SLICES, slice_of("s"))
    await ask(server, "DELETE", f"{SLICES}/s")
    server.store.compact()
    reader = await opened(server, "GET", f"{SLICES}?watch=1&resourceVersion={made['metadata']['resourceVersion']}")
    assert (await watched(reader))["object"]["code"] == 410


async def test_faults_on_command(server: SimulatedApiServer) -> None:
    server.faults.append(("GET resourceslices", 429, {"Retry-After": "1"}))
    assert [(await ask(server, "GET", SLICES))[0] for _ in range(2)] == [429, 200]
    server.forbidden.add(("list", "resourceclaims"))
    assert (await ask(server, "GET", CLAIMS))[1]["reason"] == "Forbidden"
    assert (await ask(server, "GET", f"{CLAIMS}/k"))[0] == 404
    server.token = "new"  # noqa: S105
    assert (await ask(server, "GET", SLICES))[1]["reason"] == "Unauthorized"


async def test_an_answer_is_lost_although_the_request_was_done(server: SimulatedApiServer) -> None:
    server.faults.append(("POST resourceslices", 0, {}))
    reader = await opened(server, "POST", SLICES, slice_of("s"))
    assert await reader.read() == b""
    assert (await ask(server, "GET", f"{SLICES}/s"))[0] == 200


async def test_a_server_that_hangs_answers_later(server: SimulatedApiServer) -> None:
    server.hang()
    asking = asyncio.ensure_future(ask(server, "GET", NODES))
    reader = await opened(server, "GET", f"{NODES}?watch=1")
    await until(lambda: len(server.asked) == 2)
    assert (asking.done(), server.serving) == (False, False)
    server.resume()
    assert (await asking)[0] == 200
    server.store.create("nodes", "", {"metadata": {"name": "n"}})
    assert (await watched(reader))["type"] == "ADDED"
