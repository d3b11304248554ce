"""Events at an API server, through faults and restarts of both sides."""

from __future__ import annotations

import asyncio
import json
import math
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, TypeVar, get_args

import pytest
from asyncinotify import Inotify, Mask

from dpgateway.cluster.server import ApiServer
from dpgateway.events.book import Pace
from dpgateway.events.conditions import Condition, Reason, Subject
from dpgateway.events.objects import LONGEST_NOTE
from dpgateway.events.writing import FILE, EventParts, EventWriter, NodeEvents
from dpgateway.kit.observable import Signal
from dpgateway.kit.threads import Threads
from dpgateway_simulator.apiserver import SimulatedApiServer as Simulated
from tests.support.waiting import Gate, until

T = TypeVar("T")

POD = Subject("default", "p", "uid-p", "example.com/thing", "a")
NODE = Subject("", "n1", "n1", "example.com/thing", "")
BAD, GONE = Condition("DeviceUnhealthy", "no link"), Condition("DeviceGone", "unplugged")
GOOD = Condition("DeviceHealthy", "again")
PACE = Pace(settled=dict.fromkeys(get_args(Reason), 0.0), burst=1000, refill=0.05)


class Rig:
    """A gateway's writer, the present conditions, and what the API server has."""

    def __init__(self, server: ApiServer, simulated: Simulated, folder: Path) -> None:
        self.simulated, self.store, self.folder = simulated, simulated.store, folder
        self.now: dict[Subject, Condition] = {}
        self.changed = Signal()
        self.server, self._running = server, list[asyncio.Task[None]]()
        self._threads = Counted()

    def start(self, pace: Pace = PACE, threads: Threads | None = None, disk: float = 5.0) -> EventWriter:
        """Another gateway, with what its predecessors left."""
        parts, about = (
            EventParts(self.server, self.folder, threads or self._threads),
            NodeEvents("n1", lambda: self.now, self.changed),
        )
        writer = EventWriter(parts, about, pace, look=0.005, disk=disk)
        self.run(writer)
        return writer

    def run(self, writer: EventWriter) -> None:
        self._running.append(asyncio.create_task(writer.run()))

    async def stop(self) -> None:
        """As the process ends: what it has begun to write is written, and nothing of it comes later."""
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)
        self._running.clear()
        await until(lambda: not self._threads.running)

    def see(self, conditions: dict[Subject, Condition]) -> None:
        self.now = conditions
        self.changed.notify()

    @property
    def events(self) -> list[dict[str, Any]]:
        """The one that was seen last comes last."""
        found = [one for (plural, _, _), one in self.store.objects.items() if plural == "events"]
        return sorted(found, key=last_seen)

    @property
    def reasons(self) -> list[str]:
        return [one["reason"] for one in self.events]

    async def saved(self, *said: Condition) -> None:
        """The file has what was said, and nothing of which the outcome isn't known."""

        def rows() -> list[Condition]:
            return [Condition(*row[5:]) for row in json.loads((self.folder / FILE).read_text())["said"]]

        await until(lambda: rows() == list(said))

    async def has(self, *reasons: str) -> None:
        await until(lambda: self.reasons == list(reasons), found=lambda: str(self.reasons))


class Counted(Threads):
    """Knows how many calls are under way, whoever waits for them."""

    running = 0

    def call(self, name: str, function: Callable[[], T], seconds: float = math.inf) -> asyncio.Future[T]:
        future = super().call(name, function, seconds)
        self.running += 1
        future.add_done_callback(lambda _: setattr(self, "running", self.running - 1))
        return future


class HangingWrites(Threads):
    """Its first call, which reads, is as usual."""

    def __init__(self, disk: Gate) -> None:
        super().__init__()
        self._disk, self._read = disk, False

    def call(self, name: str, function: Callable[[], T], seconds: float = math.inf) -> asyncio.Future[T]:
        waits, self._read = self._read, True

        def later() -> T:
            if waits:
                self._disk()
            return function()

        return super().call(name, later, seconds)


def last_seen(one: dict[str, Any]) -> str:
    return str(one.get("series", {}).get("lastObservedTime") or one["eventTime"])


@pytest.fixture
async def rig(server: ApiServer, simulated: Simulated, tmp_path: Path) -> AsyncIterator[Rig]:
    one = Rig(server, simulated, tmp_path)
    yield one
    await one.stop()


@pytest.fixture
async def said(rig: Rig) -> Rig:
    """The pod's device is Unhealthy, and its event says so."""
    rig.start()
    rig.see({POD: BAD})
    await rig.has("DeviceUnhealthy")
    return rig


async def test_an_event_is_what_kubectl_describe_looks_for(said: Rig) -> None:
    (one,) = said.events
    pod = {"apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": "p", "uid": "uid-p"}
    assert one["regarding"] == pod
    assert (one["type"], one["note"], one["metadata"]["namespace"]) == ("Warning", "no link", "default")
    assert (one["reportingController"], one["reportingInstance"]) == ("dpgateway", "n1")
    assert one["action"]
    assert "series" not in one


async def test_an_event_of_a_node_is_in_the_default_namespace(rig: Rig) -> None:
    rig.start()
    rig.see({NODE: Condition("ResourceFailed", "it fails")})
    await rig.has("ResourceFailed")
    (one,) = rig.events
    assert one["regarding"] == {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "n1"}
    assert one["metadata"]["namespace"] == "default"


async def test_a_pod_without_a_uid_is_told_all_the_same(rig: Rig) -> None:
    rig.start()
    rig.see({POD._replace(uid=""): BAD})
    await rig.has("DeviceUnhealthy")
    assert "uid" not in rig.events[0]["regarding"]


async def test_what_comes_again_is_counted(rig: Rig) -> None:
    rig.start()
    for count in range(1, 4):
        rig.see({POD: BAD})
        await until(lambda: rig.reasons[-1:] == ["DeviceUnhealthy"])
        rig.see({POD: GOOD})
        await until(lambda: rig.reasons[-1:] == ["DeviceHealthy"])
        assert [one.get("series", {}).get("count", 1) for one in rig.events] == [count, count]
    assert_only_series_change(rig)


def assert_only_series_change(rig: Rig) -> None:
    """As the API server asks for (ValidateEventUpdate)."""
    before: dict[Any, Any] = {}
    for one in rig.store.changes:
        if one.key[0] == "events":
            kept = {name: value for name, value in one.found.items() if name not in ("series", "metadata")}
            assert before.setdefault((one.key, one.found["metadata"]["uid"]), kept) == kept
            assert one.found.get("series", {"count": 2})["count"] >= 2


async def test_a_long_note_is_cut(rig: Rig) -> None:
    rig.start()
    rig.see({POD: Condition("DeviceUnhealthy", "ü\udc80" * 2000)})
    await rig.has("DeviceUnhealthy")
    assert LONGEST_NOTE - 8 <= len(rig.events[0]["note"].encode()) <= LONGEST_NOTE


@pytest.mark.parametrize("name", ["p" * 253, "a" * 199 + "." + "b" * 50])
async def test_a_long_name_is_one_of_an_event(rig: Rig, name: str) -> None:
    rig.start()
    rig.see({POD._replace(name=name): BAD})
    await rig.has("DeviceUnhealthy")
    found = rig.events[0]["metadata"]["name"]
    assert len(found) <= 253
    assert all(part and part.strip("-") == part for part in found.split("."))


async def test_many_events_are_saved_once_each(rig: Rig) -> None:
    """The whole file is written each time, for a thousand pods perhaps."""
    (rig.folder / FILE).parent.mkdir(mode=0o700)
    with Inotify(sync_timeout=0) as saves:
        saves.add_watch((rig.folder / FILE).parent, Mask.CREATE)  # each by another name
        rig.start()
        rig.see({POD._replace(name=f"p{number}"): BAD for number in range(20)})
        await rig.has(*["DeviceUnhealthy"] * 20)
        await rig.saved(*[BAD] * 20)
        times = len([*iter(saves.sync_get, None)])
    assert times <= 21, f"saved {times} times for 20 events"


async def test_a_successor_repeats_nothing(said: Rig) -> None:
    await said.saved(BAD)
    await said.stop()
    other = Subject("default", "q", "uid-q", "example.com/thing", "b")
    said.start()
    said.see({POD: BAD, other: GONE})
    await said.has("DeviceUnhealthy", "DeviceGone")
    assert "series" not in said.events[0]


async def test_one_write_at_a_time(rig: Rig, gate: Callable[[], Gate]) -> None:
    """One that hung may end late, and says less than a later one."""
    disk = gate()
    rig.start(threads=HangingWrites(disk), disk=0.02)
    bad, good = BAD.reason, GOOD.reason
    for condition, reasons in ((BAD, [bad]), (GOOD, [bad, good]), (BAD, [good, bad])):
        rig.see({POD: condition})
        await rig.has(*reasons)
    assert disk.most_running == 1
    disk.open()
    rig.see({POD: GOOD})
    await until((rig.folder / FILE).exists)
    await rig.saved()


async def test_a_successor_takes_back_what_is_over(said: Rig) -> None:
    await said.saved(BAD)
    await said.stop()
    said.see({POD: GOOD})
    said.start()
    await said.has("DeviceUnhealthy", "DeviceHealthy")


async def test_a_waiting_gateway_goes_on_from_the_last_word(said: Rig) -> None:
    waits = Rig(said.server, said.simulated, said.folder)  # nothing to say while the other one serves
    waits.start()
    said.see({POD: GOOD})
    await said.has("DeviceUnhealthy", "DeviceHealthy")
    await said.saved()
    await said.stop()
    waits.see({POD: BAD})
    await said.has("DeviceHealthy", "DeviceUnhealthy")
    await waits.stop()


async def test_reloads_without_events_and_with_them_repeat_nothing(rig: Rig) -> None:
    """The book has the last word, not the file: a disk may have refused to take it."""
    other = Subject("default", "q", "uid-q", "example.com/thing", "b")
    writer = rig.start()
    rig.see({POD: BAD})
    await rig.has("DeviceUnhealthy")
    await rig.saved(BAD)
    (rig.folder / FILE).parent.chmod(0o777)  # nothing is saved where others may write
    rig.see({POD: GOOD})
    await until(lambda: writer.outcomes["written"] == 2)
    await rig.stop()

    rig.run(writer)
    for condition, reasons in ((GONE, ["DeviceGone"]), (GOOD, ["DeviceGone", "DeviceHealthy"])):
        rig.see({POD: GOOD, other: condition})
        await rig.has("DeviceUnhealthy", "DeviceHealthy", *reasons)
    assert not [one for one in rig.events if "series" in one]


@pytest.mark.parametrize("text", ["damaged", "[" * 100_000], ids=["text", "nested"])
async def test_a_successor_without_the_file_counts_the_event(said: Rig, text: str) -> None:
    await said.saved(BAD)
    await said.stop()
    (said.folder / FILE).write_text(text)
    said.start()
    await until(lambda: "series" in said.events[0])
    assert said.reasons == ["DeviceUnhealthy"]


async def test_an_event_that_was_dropped_is_made_anew(said: Rig) -> None:
    said.store.wipe("events", {})
    said.see({POD: GOOD})
    await said.has("DeviceHealthy")
    said.see({POD: BAD})
    await said.has("DeviceHealthy", "DeviceUnhealthy")


async def test_while_the_server_is_away_only_the_newest_counts(rig: Rig) -> None:
    writer = rig.start()
    await rig.simulated.down()
    rig.see({POD: BAD})
    await until(lambda: writer.outcomes["failed"])
    for condition in (GOOD, BAD, GONE):
        rig.see({POD: condition})
    await rig.simulated.up()
    await rig.has("DeviceGone")


async def test_what_is_over_before_the_server_is_back_isnt_said(rig: Rig) -> None:
    writer = rig.start()
    await rig.simulated.down()
    rig.see({POD: BAD})
    await until(lambda: writer.outcomes["failed"])
    rig.see({POD: GOOD, NODE: Condition("ResourceFailed", "it fails")})
    await rig.simulated.up()
    await rig.has("ResourceFailed")


async def test_a_refused_event_doesnt_hold_up_others(rig: Rig) -> None:
    rig.simulated.faults.append(("POST events", 403, {}))
    writer = rig.start()
    rig.see({POD: BAD, POD._replace(device="b"): GONE})
    await until(lambda: rig.events)
    assert (writer.outcomes["failed"], len(rig.events)) == (1, 1)


async def test_a_change_by_another_gateway_is_counted_on(said: Rig) -> None:
    said.see({POD: GOOD})
    await until(lambda: said.reasons[-1] == "DeviceHealthy")
    said.simulated.faults += [("PUT events", 409, {}), ("GET events", 404, {})]
    said.see({POD: BAD})
    await until(lambda: said.reasons[-1] == "DeviceUnhealthy")
    assert not said.simulated.faults


@pytest.mark.parametrize("seed", range(6))
async def test_the_last_event_says_how_it_is(rig: Rig, seed: int) -> None:
    """A random walk over devices, restarts and faults: whatever happened, the last event of each subject is true."""
    rng, pace = random.Random(seed), PACE._replace(burst=2)  # noqa: S311
    pods = [Subject("default", f"p{n % 2}", f"u{n % 2}", "example.com/thing", f"d{n}") for n in range(4)]
    reasons: tuple[Reason, ...] = "DeviceHealthy", "DeviceHealthy", "DeviceUnhealthy", "DeviceGone"

    def fault() -> None:
        verb, (code, more) = rng.choice(["POST", "PUT", "GET"]), rng.choice([(409, {}), (429, {"Retry-After": "0"})])
        rig.simulated.faults.append((f"{verb} events", code, more))

    rig.start(pace)
    for _ in range(60):
        rig.see({pod: Condition(rng.choice(reasons), pod.device) for pod in pods})
        await asyncio.sleep(rng.choice([0, 0, 0.01, 0.03]))
        if rng.random() < 0.3 and not rig.simulated.faults:  # each failure in a row doubles the pause
            rng.choice([rig.simulated.hang_up, fault, fault])()
        if rng.random() < 0.1:
            await rig.stop()
            rig.start(pace)
    rig.simulated.faults.clear()

    def right() -> bool:
        last = {one["note"]: one["reason"] for one in rig.events}
        return all(last.get(pod.device, "DeviceHealthy") == rig.now[pod].reason for pod in pods)

    await until(right, 60, found=lambda: f"{[(one['note'], one['reason']) for one in rig.events]}, not {rig.now}")
    assert_only_series_change(rig)
