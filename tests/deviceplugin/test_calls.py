"""What a kubelet may ask of a resource: the answers, the refusals, and what is said about them in the log."""

import asyncio
import fcntl
import logging
import math
import threading
import time
from dataclasses import replace
from datetime import timedelta
from typing import ClassVar

import pytest

from dpgateway import errors
from dpgateway.cdi.directories import SpecDirectories
from dpgateway.config import ResourceConfig, Shares, Timeouts
from dpgateway.deviceplugin.api import APIS, Call, only, v1alpha1, v1alpha2, v1beta1
from dpgateway.deviceplugin.cdi import CdiDelivery
from dpgateway.deviceplugin.preferred import FEW
from dpgateway.deviceplugin.values import Grant, Options, Preference
from dpgateway.errors import (
    Busy,
    CdiError,
    DeviceUnavailable,
    DriverError,
    DriverFault,
    DriverTimeout,
    GatewayError,
    RequestError,
)
from dpgateway.kit.threads import Threads
from dpgateway.model import Allocation, Device, DeviceNode, Health, Mount
from dpgateway.node.holders import Container, Noted
from dpgateway.node.sandboxes import LOOK
from dpgateway.resource.exclusion import Pool
from dpgateway.resource.offered import QUIET
from dpgateway.resource.use import HardwareUse
from tests.support.logs import complaint
from tests.support.resource import FakeLanes, FakeResource, nobody_holds_anything
from tests.support.specs import cdi, known, own, spec, write
from tests.support.time import Clock
from tests.support.waiting import turns, until

NEW, V1ALPHA2, V1ALPHA1 = v1beta1.API, v1alpha2.API, v1alpha1.API
NAME = "example.com/thing"
A, B, C = Device("a"), Device("b"), Device("c")
WET = Health.unhealthy("wet")
NOTHING = Allocation()
FAILURES = [GatewayError, DriverError, DeviceUnavailable, Busy, DriverTimeout, DriverFault]


@pytest.fixture
def clock():
    """It begins at the process's time, by which notes are dated: a machine may have been booted a moment ago."""
    one = Clock()
    one.now = time.monotonic()
    return one


@pytest.fixture
def make(log, clock):
    """A resource with three devices, or others."""
    resources = []

    def new(lanes, *, devices=(A, B, C), specs=(), runtime=None, delivery=None, **configured):
        config = ResourceConfig(NAME, "driver-name", keep_lost=timedelta(seconds=600), **configured)
        holdings = nobody_holds_anything(clock.monotonic())
        delivery = delivery or cdi(*specs, runtime=runtime)
        one = FakeResource(config, lanes, clock, devices=devices, holdings=holdings, delivery=delivery, log=log)
        resources.append(one)
        one.inventory.take(tuple(devices))
        return one.calls

    yield new
    for one in resources:
        one.end()


def note(resource, *ids, written=0.0):
    """The kubelet wrote down what containers hold, and the resource heard of it."""
    holdings = resource.inventory.usage
    holdings.set(holdings.value.noted(dict.fromkeys(ids, Noted()), written, resource.inventory.clock.monotonic()))
    resource.inventory.hold()


async def refusal(awaitable, kind=RequestError):
    with pytest.raises(kind) as caught:
        await awaitable
    return str(caught.value)


# options


@pytest.mark.parametrize(
    ("abilities", "preference", "options"),
    [
        ((), "none", Options(prepare=True)),  # what it repeats may be outdated
        (("prepare", "release"), "none", Options(prepare=True)),
        (("prefer",), "none", Options(prepare=True, prefer=True)),
        ((), "packed", Options(prepare=True, prefer=True)),
        (("prepare", "prefer"), "spread", Options(prepare=True, prefer=True)),
    ],
)
async def test_options_of_driver_and_configuration(make, abilities, preference, options):
    assert make(FakeLanes(*abilities), preference=preference).options() == options


async def test_options_without_a_driver(make):
    # containers that were allocated before must not start unprepared
    assert make(None).options() == Options(prepare=True)
    assert make(None, preference="packed").options() == Options(prepare=True, prefer=True)


# Allocate


FULL = Allocation({"E": "1"}, (DeviceNode("/dev/a"),), (Mount("/a", "/a"),), {"n": "1"})
NAMED = replace(FULL, cdi_devices=("v.example/c=a",))


async def test_each_container_gets_what_the_driver_says(make):
    calls = FakeLanes(allocation=FULL)
    assert await make(calls).allocate([("b", "a"), ("c",)], NEW) == (Grant(("b", "a"), FULL), Grant(("c",), FULL))
    assert calls.asked == [("allocate", (B, A)), ("allocate", (C,))]


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
async def test_the_same_question_has_the_same_answer(make, api):
    resource = make(FakeLanes(allocation=FULL))
    assert await resource.allocate([("a", "b")], api) == await resource.allocate([("a", "b")], api)


async def test_a_driver_sees_a_device_once(make):
    """Shares of one device are unwanted in one container, unless `distinct` is `require`, but not refused."""
    calls = FakeLanes()
    (grant,) = await make(calls, shares=Shares(3)).allocate([("a::1", "b", "a", "a::1")], NEW)
    assert grant.ids == ("a::1", "b", "a")
    assert calls.asked == [("allocate", (A, B))]


async def test_a_container_that_asks_for_nothing_gets_nothing(make):
    calls = FakeLanes(allocation=FULL)
    assert await make(calls).allocate([()], NEW) == (Grant((), Allocation()),)
    assert calls.asked == []


async def test_what_cannot_be_given_is_refused(make, clock):
    calls = FakeLanes()
    resource = make(calls)
    clock.now += 10
    resource.inventory.take((A, Device("c", WET)))
    clock.now += 20
    assert await refusal(resource.allocate([("a", "x")], NEW)) == (
        "resource example.com/thing: device x is unknown: this resource doesn't offer it"
    )
    assert await refusal(resource.allocate([("b",)], NEW)) == (
        "resource example.com/thing: device b is lost: its device is gone, for 20 s"
    )
    assert await refusal(resource.allocate([("c",)], NEW)) == (
        "resource example.com/thing: device c is unhealthy for 20 s: wet"
    )
    resource.inventory.fail("no answer for 30 s", overdue=False)
    clock.now += 5
    assert await refusal(resource.allocate([("a",)], NEW)) == (
        "resource example.com/thing: device a is unhealthy for 5 s: no answer for 30 s"
    )
    assert calls.asked == []


async def test_without_a_driver_it_is_refused(make):
    assert await refusal(make(None).allocate([("a",)], NEW)) == (
        "resource example.com/thing: its driver driver-name isn't running; see the log"
    )


@pytest.mark.parametrize("kind", FAILURES)
async def test_a_drivers_error_is_passed_on(make, kind):
    error = kind("no")
    with pytest.raises(kind) as caught:
        await make(FakeLanes(error=error)).allocate([("a",)], NEW)
    assert caught.value is error


async def test_shares_of_one_device_forbidden(make):
    calls = FakeLanes()
    resource = make(calls, shares=Shares(2, "require"))
    text = await refusal(resource.allocate([("a", "b", "a::1")], NEW))
    assert text.startswith("resource example.com/thing: a, b, a::1 are shares of 2 devices, and")
    assert calls.asked == []
    await resource.allocate([("a", "b::1"), ("a::1",)], NEW)
    assert len(calls.asked) == 2


async def test_shares_with_another_plugins_ids(make):
    calls = FakeLanes()
    shares = Shares(4, ids="{id}/vgpu{share}", env={"PERCENT": "{part:100}", "WINS": "{granted}"})
    a = Device("a", hardware=("char 195:0",))
    resource = make(calls, shares=shares, env={"WINS": "configured"}, devices=(a, B))
    assert list(resource.inventory.list.value)[:5] == ["a/vgpu0", "a/vgpu1", "a/vgpu2", "a/vgpu3", "b/vgpu0"]
    (grant,) = await resource.allocate([("a/vgpu3", "a/vgpu1")], NEW)
    assert {name: grant.allocation.env[name] for name in ("PERCENT", "WINS")} == {"PERCENT": "50", "WINS": "configured"}
    assert calls.asked == [("allocate", (a,))]
    await resource.allocate([("a/vgpu0",)], NEW)  # no other share of it is excluded
    assert "unknown: this resource doesn't offer it" in await refusal(resource.allocate([("a",)], NEW))
    clashing = make(FakeLanes(), shares=Shares(11, ids="{id}{share}"), devices=(Device("a"), Device("a1"))).inventory
    assert clashing.list.value is None
    assert clashing.rejected.value.startswith("a and a1 would both be offered as a10")


@pytest.mark.parametrize(
    ("then", "reason"),
    [([B], "lost: its device is gone, for 0 s"), ([Device("a", WET), B], "unhealthy for 0 s: wet")],
    ids=["lost", "unhealthy"],
)
async def test_a_device_that_dies_while_it_is_allocated(make, then, reason):
    calls = FakeLanes("release")
    resource = make(calls)
    calls.meanwhile = lambda: resource.inventory.take(tuple(then))
    assert await refusal(resource.allocate([("a",)], NEW)) == f"resource example.com/thing: device a is {reason}"
    resource.inventory.take((A, B))
    resource.releases.release_due()  # of what isn't there nobody can be told
    assert calls.released == ["a"]


@pytest.mark.parametrize("error", [DriverError("no power"), DriverTimeout("it goes on")], ids=["failed", "too late"])
async def test_what_could_not_be_prepared_is_released(make, error):
    """Also what takes too long: there may be no next try."""
    calls = FakeLanes("prepare")
    resource = make(calls)

    def fail():
        calls.error = error if len(calls.asked) == 2 else None

    calls.meanwhile = fail
    with pytest.raises(type(error), match=str(error)):
        await resource.allocate([("a", "b")], V1ALPHA1)
    assert calls.released == ["a", "b"]


async def test_a_device_that_is_away_for_a_moment_is_not_free(make):
    """A release that waits for the driver's turn asks once more."""
    resource = make(FakeLanes("release"), shares=Shares(2))
    await resource.allocate([("a",)], NEW)
    resource.inventory.take(())
    assert resource.releases.still_free([A]) == []


async def test_a_held_device_allocated_again(make):
    """Kubelet 1.8 does that at each start of the container."""
    calls = FakeLanes("prepare")
    resource = make(calls)
    note(resource, "a")
    calls.meanwhile = lambda: resource.inventory.take((Device("a", WET), B))
    await refusal(resource.allocate([("a",), ("b",)], V1ALPHA1))
    assert calls.released == []


@pytest.mark.parametrize("api", APIS)
async def test_an_answer_that_no_kubelet_takes(make, api):
    calls = FakeLanes("release", allocation=Allocation(env={"A": "x" * 5_000_000}))
    resource = make(calls)
    note(resource)
    text = await refusal(resource.allocate([["a", "b"]], api))
    assert text.startswith(f"resource {NAME}: the answer takes 50000")
    assert "bytes, and the kubelet accepts 4194304; let the driver driver-name, or the configuration at " in text
    assert text.endswith("annotations, mounts, device nodes or CDI devices: device a, b")
    assert calls.released == ["a", "b"]
    assert not resource.inventory.usage.value.held


async def test_what_the_driver_did_not_allocate_needs_no_release(make):
    calls = FakeLanes(error=DriverError("no"))
    with pytest.raises(DriverError):
        await make(calls).allocate([("a",)], NEW)
    assert calls.released == []


async def test_an_id_stays_listed_while_it_is_allocated_and_after(make, clock):
    calls = FakeLanes()
    resource = make(calls, devices=(A,))
    listed = []

    def vanish():
        resource.inventory.take(())
        clock.now += 10_000
        note(resource)
        listed.append(list(resource.inventory.list.value))
        resource.inventory.take((A,))

    calls.meanwhile = vanish
    await resource.allocate([("a",)], NEW)
    vanish()
    assert listed == [["a"], ["a"]]


# preparing inside Allocate


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
async def test_allocating_prepares_for_an_old_kubelet(make, api):
    calls = FakeLanes("prepare")
    resource = make(calls, shares=Shares(2))
    for ids in ("a", "a::1"), ("b",):
        await resource.allocate([ids], api)
    prepared = [devices for method, devices in calls.asked if method == "prepare"]
    assert prepared == ([] if api is NEW else [(A,), (B,)])
    assert calls.asked[0] == ("allocate", (A,))


async def test_a_driver_that_cannot_prepare_is_not_asked_to(make):
    calls = FakeLanes()
    await make(calls).allocate([("a",)], V1ALPHA2)
    assert [method for method, _ in calls.asked] == ["allocate"]


# what the configuration adds, and what an API can't say


async def test_the_configuration_wins_and_that_is_said_once(make, records):
    driver = Allocation(env={"E": "driver", "OWN": "1"}, mounts=(Mount("/driver", "/m"),))
    resource = make(
        FakeLanes(allocation=driver), env={"E": "config"}, annotations={"n": "1"}, mounts=(Mount("/config", "/m"),)
    )
    for _ in range(2):
        (grant,) = await resource.allocate([("a",)], NEW)
        assert grant.allocation == Allocation(
            env={"E": "config", "OWN": "1"}, mounts=(Mount("/config", "/m"),), annotations={"n": "1"}
        )
    assert records.texts() == [
        "the configuration replaces the driver's env E",
        "the configuration replaces the driver's mount /m",
    ]


async def test_what_an_old_kubelet_cannot_be_told(make, records):
    resource = make(FakeLanes(), annotations={"n": "1"})
    for _ in range(2):
        await resource.allocate([("a",)], V1ALPHA2)
    assert records.texts(logging.WARNING) == [
        "the kubelet's API v1alpha2 has no annotations: containers don't get them"
    ]


async def test_nothing_is_warned_of_when_nothing_is_lost(make, records):
    await make(FakeLanes(allocation=FULL)).allocate([("a",)], NEW)
    await make(FakeLanes(allocation=Allocation({"E": "1"}, FULL.device_nodes, FULL.mounts))).allocate(
        [("a",)], V1ALPHA1
    )
    assert records.texts() == []


# CDI


@pytest.mark.parametrize("api", APIS)
async def test_a_kubelet_that_may_not_know_cdi(make, tmp_path, api, records):
    write(tmp_path / "a.json", spec("v.example/c", a={"env": ["E=cdi", "F=1"], "deviceNodes": [{"path": "/dev/null"}]}))
    resource = make(FakeLanes(allocation=NAMED), env={"E": "config"}, specs=[tmp_path])
    resource.remember_agent("grpc-go/1.54.0")
    (grant,) = await resource.allocate([("a",)], api)
    null = DeviceNode("/dev/null", permissions="rwm")
    assert grant.allocation == Allocation({"E": "cdi", "F": "1"}, (FULL.device_nodes[0], null), FULL.mounts, {"n": "1"})


async def test_always_gives_a_cdi_name_of_its_own(make, tmp_path):
    resource = make(FakeLanes(allocation=FULL), specs=(tmp_path,), runtime=True)
    (plain,) = await resource.allocate([("a",)], NEW)
    assert (plain.allocation, own(tmp_path).all()) == (FULL, ())
    resource = make(FakeLanes(allocation=FULL), specs=(tmp_path,), runtime=True, cdi="always")
    resource.remember_agent("grpc-go/1.72.2")
    (named,) = await resource.allocate([("b", "a")], NEW)
    (written,) = own(tmp_path).all()
    assert named.allocation == Allocation(annotations={"n": "1"}, cdi_devices=(written.given.name,))
    assert (written.given.resource, written.given.ids) == (NAME, ("a", "b"))


@pytest.mark.parametrize("api", [NEW, V1ALPHA1])
async def test_a_cdi_name_that_stands_for_nothing(make, tmp_path, api):
    calls = FakeLanes("prepare", "release", allocation=NAMED)
    resource = make(calls, specs=[tmp_path])
    told = await refusal(resource.allocate([("a",)], api), CdiError)
    assert told.startswith(f"resource {NAME}: no spec has the CDI device v.example/c=a; looked in {tmp_path}, which")
    assert [method for method, _ in calls.asked] == ["allocate"]
    assert calls.released == ["a"]


async def test_a_cdi_name_that_may_not_arrive(make, tmp_path, records):
    write(tmp_path / "a.json", spec("v.example/c", a={"env": ["F=1"]}))
    resource = make(FakeLanes(allocation=NAMED), specs=[tmp_path], cdi="always")
    resource.remember_agent("grpc-go/1.58.3")
    for _ in range(2):
        (grant,) = await resource.allocate([("a",)], NEW)
        assert (grant.allocation.cdi_devices, grant.allocation.env["F"]) == ((), "1")
    (told,) = records.texts(logging.WARNING)
    assert told.startswith("'cdi: always' gives no CDI devices, but what they stand for, because it isn't known")
    write(tmp_path / "a.json", spec("v.example/c", a={"hooks": [{"hookName": "poststop", "path": "/h"}]}))
    assert "its hook poststop /h can't be expanded" in await refusal(resource.allocate([("a",)], NEW), CdiError)


# PreStartContainer


async def test_preparing_reaches_the_driver_with_each_device_once(make):
    calls = FakeLanes("prepare")
    await make(calls, shares=Shares(2)).prepare(["a", "a::1", "b"])
    assert calls.asked == [("prepare", (A, B))]


async def test_an_unhealthy_device_may_be_what_preparing_mends(make):
    calls, sick = FakeLanes("prepare"), Device("a", WET)
    await make(calls, devices=(sick,)).prepare(["a"])
    assert calls.asked == [("prepare", (sick,))]


@pytest.mark.parametrize(
    ("found", "why"),
    [
        ((Device("a", hardware=("two",)),), "device a became other hardware while its container starts: two instead"),
        ((B,), "device a is lost: its device is gone"),
        ((Device("a", WET, hardware=("one", "two")),), ""),
    ],
)
async def test_a_device_that_changes_while_its_start_is_checked(make, found, why):
    calls = FakeLanes("prepare")
    resource = make(calls, devices=(Device("a", hardware=("one",)),))

    async def read():
        resource.inventory.take(found)

    resource.inventory.usage.read = read
    if why:
        assert why in await refusal(resource.prepare(["a"]))
    else:
        await resource.prepare(["a"])
    assert calls.asked == ([] if why else [("prepare", found)])


async def test_a_driver_that_no_longer_prepares_needs_none(make):
    calls = FakeLanes()
    await make(calls).prepare(["a"])
    assert calls.asked == []


async def test_what_is_not_there_cannot_be_prepared(make, clock):
    calls = FakeLanes("prepare")
    resource = make(calls)
    resource.inventory.take((A,))
    clock.now += 3
    assert await refusal(resource.prepare(["a", "b"])) == (
        "resource example.com/thing: device b is lost: its device is gone, for 3 s"
    )
    assert await refusal(resource.prepare(["x"])) == (
        "resource example.com/thing: device x is unknown: this resource doesn't offer it"
    )
    assert "isn't running" in await refusal(make(None).prepare(["a"]))
    assert calls.asked == []


@pytest.mark.parametrize("kind", FAILURES)
async def test_a_drivers_error_in_preparing_is_passed_on(make, kind):
    with pytest.raises(kind, match="no"):
        await make(FakeLanes("prepare", error=kind("no"))).prepare(["a"])


# GetPreferredAllocation


async def test_the_configured_order_answers_without_the_driver(make):
    calls = FakeLanes("prefer", preferred=(C,))
    resource = make(calls, preference="packed", shares=Shares(2))
    question = Preference(("a", "a::1", "b", "c", "c::1"), ("c",), 2)
    assert await resource.prefer([question, question]) == (("c", "b"), ("c", "b"))
    resource = make(calls, preference="spread", shares=Shares(2))
    assert await resource.prefer([question]) == (("c", "a"),)
    assert calls.asked == []


async def test_shares_of_different_devices_are_preferred(make):
    resource = make(FakeLanes(), shares=Shares(2))
    assert resource.options() == Options(prepare=True, prefer=True)
    question = Preference(("a", "a::1", "b", "b::1"), ("a",), 2)
    assert await resource.prefer([question]) == (("a", "b"),)
    assert make(None, shares=Shares(2)).options() == Options(prepare=True, prefer=True)
    assert make(FakeLanes(), shares=Shares(1)).options() == Options(prepare=True)


async def test_unknown_ids_are_never_preferred(make):
    resource = make(FakeLanes(), preference="packed")
    unknown = tuple(f"x{number}" for number in range(1000))
    assert await resource.prefer([Preference((*unknown, "b"), (), 1)]) == (("b",),)
    assert await resource.prefer([Preference((*unknown, "b"), (), 2)]) == ((),)


def of_claims(*ids):
    """What claims have of the resource by its other front, for pods that the scheduler counts."""
    name, by_hardware = f"{NAME} on the other front", {id_: [id_] for id_ in ids}
    return HardwareUse(
        name, True, frozenset(ids), by_hardware, holders=dict.fromkeys(ids, "team/p"), counted=dict.fromkeys(ids, NAME)
    )


def withheld(resource, *ids):
    """The pool that withholds them; ``ids`` may be changed."""
    used = [of_claims(*ids)]
    pool = Pool(lambda: used, alone=True)
    pool.expect(NAME)
    resource.inventory.exclusion.join(pool)
    resource.inventory.list.flush()

    def change(*ids):
        used[0] = of_claims(*ids)
        pool.tell()

    return change


@pytest.mark.parametrize("preference", ["none", "packed"])
@pytest.mark.parametrize(
    ("held", "question", "answer"),
    [
        ("ab", ("abc", "", 1), "c"),
        ("a", ("abc", "", 2), "bc"),
        ("ab", ("abc", "", 2), "ca"),
        ("ab", ("abc", "b", 2), "bc"),
        ("abc", ("abc", "", 1), "a"),
        ("ab", ("ab", "", 3), ""),
    ],
)
async def test_withheld_ids_come_last(make, preference, held, question, answer):
    resource = make(FakeLanes(), preference=preference)
    withheld(resource, *held)
    available, must, size = question
    assert await resource.prefer([Preference(tuple(available), tuple(must), size)]) == (tuple(answer),)


async def test_withheld_ids_come_last_whatever_the_driver_says(make):
    question = Preference(("a", "b", "c"), (), 2)
    calls = FakeLanes("prefer", preferred=(B, C))
    resource = make(calls)
    withheld(resource, "a")
    assert await resource.prefer([question]) == (("b", "c"),)
    assert calls.asked == [("prefer", ([B, C], [], 2))]
    calls.error = DriverError("no")
    assert await resource.prefer([question]) == (("b", "c"),), "the kubelet wouldn't know"


class Looked(Device):
    """Tells on which threads somebody looks at it, and lets nobody look while it is closed."""

    threads: ClassVar[set[str]] = set()
    open = threading.Event()

    def __getattribute__(self, name):
        Looked.threads.add(threading.current_thread().name)
        Looked.open.wait(20)
        return super().__getattribute__(name)


@pytest.fixture
def looked(make):
    """A resource of so many of these, and a question about all of them."""

    def new(count, **configured):
        Looked.open.set()
        devices = [Looked(f"{number:04}") for number in range(count)]
        resource = make(FakeLanes(), devices=devices, preference="packed", **configured)
        question = Preference(tuple(f"{number:04}" for number in range(count)), (), 1)
        Looked.threads.clear()
        return resource, question

    yield new
    Looked.open.set()


@pytest.mark.parametrize(("count", "thread"), [(FEW, "MainThread"), (FEW + 1, f"{NAME} preference")])
async def test_a_choice_from_many_ids_is_made_on_a_thread(looked, count, thread):
    resource, question = looked(count, timeouts=Timeouts(prefer=timedelta(seconds=20)))
    assert await resource.prefer([question]) == (("0000",),)
    assert Looked.threads == {thread}


async def test_a_choice_that_takes_too_long(looked, records):
    resource, question = looked(FEW + 1, timeouts=Timeouts(prefer=timedelta(seconds=0.05)))
    Looked.open.clear()
    assert await resource.prefer([question]) == ((),)
    (text,) = records.texts()
    assert text.endswith("so the kubelet chooses: choosing from 1001 ids takes more than 0.05 s")


@pytest.mark.parametrize(
    ("shares", "question", "driver", "answer"),
    [
        (Shares(2), (("b::1", "a", "a::1", "b"), ("b",), 3), (([B, A, A, B], [B], 3), (B, A, A)), ("b", "a", "a::1")),
        (Shares(2), (("a", "a::1", "b"), ("a::1",), 2), (([A, A, B], [A], 2), (A, A)), ("a::1", "a")),
        (Shares(2, "require"), (("b", "b::1", "a", "a::1"), (), 2), (([B, A], [], 2), (B, A)), ("b", "a")),
        (Shares(1), (("gone", "a"), (), 1), (([A], [], 1), (A,)), ("a",)),
    ],
    ids=["shares", "chosen again", "different devices", "only what is there"],
)
async def test_the_driver_is_asked_without_a_preference(make, shares, question, driver, answer):
    asked, preferred = driver
    calls = FakeLanes("prefer", preferred=preferred)
    assert await make(calls, shares=shares).prefer([Preference(*question)]) == (answer,)
    assert calls.asked == [("prefer", asked)]


@pytest.mark.parametrize(
    ("preferred", "question"),
    [
        ((A,), Preference(("a", "b"), (), 2)),
        ((A, A), Preference(("a", "b"), (), 2)),
        ((A, B), Preference(("a", "b", "c"), ("c",), 2)),
        ((A, C), Preference(("a", "b"), (), 2)),
        ((), Preference(("a", "b"), (), 1)),
    ],
    ids=["too few", "one twice", "not the compulsory one", "not available", "none"],
)
async def test_a_preference_that_does_not_fit(make, records, preferred, question):
    assert await make(FakeLanes("prefer", preferred=preferred)).prefer([question]) == ((),)
    (text,) = records.texts(logging.WARNING)
    assert text.startswith("no preference, so the kubelet chooses: prefer returned")


@pytest.mark.parametrize("kind", FAILURES)
async def test_a_driver_that_fails_to_prefer(make, records, kind):
    resource = make(FakeLanes("prefer", error=kind("too hard")))
    assert await resource.prefer([Preference(("a",), (), 1)]) == ((),)
    assert records.texts(logging.WARNING) == ["no preference, so the kubelet chooses: too hard"]


async def test_a_bug_in_prefer(make, records):
    resource = make(FakeLanes("prefer", error=RuntimeError("can't start new thread")))
    assert await resource.prefer([Preference(("a",), (), 1)]) == ((),)
    assert records.texts(logging.ERROR) == ["a bug: no preference, so the kubelet chooses"]


@pytest.mark.parametrize("calls", [None, FakeLanes()], ids=["no driver", "not its ability"])
async def test_nobody_to_ask_for_a_preference(make, records, calls):
    assert await make(calls).prefer([Preference(("a",), (), 1)]) == ((),)
    assert records.texts() == []


async def test_what_is_impossible_has_no_answer(make):
    assert await make(FakeLanes(), preference="packed").prefer([Preference(("a",), (), 2)]) == ((),)


# what the log says of each container


def told(records):
    return [(record.getMessage(), record.devices, record.ids, record.count) for record in records.records]


async def test_the_log_says_what_each_container_got(make, records, clock):
    calls = FakeLanes("prepare")
    resource = make(calls)

    def wait():
        clock.now += 0.0125 if calls.asked[-1][0] == "allocate" else 1.5

    calls.meanwhile = wait
    await resource.allocate([["a", "b"], [], ["c"]], NEW)
    await resource.prepare(["a", "b"])
    assert records.texts() == []  # the answer comes first
    await turns()
    assert told(records) == [
        ("allocated 2 devices to a container, in 12.5 ms", ["a", "b"], None, 2),
        ("allocated 1 device to a container, in 12.5 ms", ["c"], None, 1),
        ("prepared 2 devices for a container, in 1.5 s", ["a", "b"], None, 2),
    ]
    assert [record.seconds for record in records.records] == pytest.approx([0.0125, 0.0125, 1.5])
    assert {(record.resource, record.api) for record in records.records} == {(NAME, "v1beta1")}


async def test_the_log_of_shares_for_an_older_kubelet(make, records):
    resource = make(FakeLanes("prepare"), shares=Shares(2))
    resource.speak(V1ALPHA2)
    await resource.allocate([["a", "a::1", "b"]], V1ALPHA2)
    await turns()
    assert [(text.split(" in ")[0], *fields) for text, *fields in told(records)] == [
        ("prepared 3 devices for a container,", ["a", "b"], ["a", "a::1", "b"], 3),
        ("allocated 3 devices to a container,", ["a", "b"], ["a", "a::1", "b"], 3),
    ]


async def test_nothing_is_told_of_what_no_container_got(make, records):
    with pytest.raises(DriverError):
        await make(FakeLanes("prepare", error=DriverError("no"))).allocate([["a"]], NEW)
    await make(FakeLanes()).prepare(["a"])  # the driver has nothing to prepare
    await turns()
    assert records.texts() == []


# versions


def test_versions_are_chosen_by_name_and_keep_their_order():
    assert only(("v1alpha1", "v1beta1"), APIS) == (NEW, V1ALPHA1)
    assert only(("v1alpha2",)) == (V1ALPHA2,)
    assert only(()) == ()


def test_every_error_that_a_driver_may_cause_is_tried_here():
    caused = {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, GatewayError)}
    assert caused - set(FAILURES) == {
        RequestError,
        errors.CdiError,
        errors.ConfigurationError,
        errors.KubeletError,
        errors.NoThread,
        errors.OnOtherFront,
    }


# devices that share hardware

LINK, NODE = Device("by-id", hardware=("char 188:0",)), Device("tty", hardware=("char 188:0",))


def listed(resource):
    """As it counts at once; the kubelet hears of it a little later."""
    return {id_: offer.health.reason for id_, offer in resource.inventory.ledger.offers().items()}


async def test_the_other_name_while_an_allocate_runs(make):
    calls = FakeLanes()
    resource = make(calls, devices=(LINK, NODE))
    seen = []
    calls.meanwhile = lambda: seen.append(listed(resource))
    reason = "char 188:0 is held as by-id"
    await resource.allocate([("by-id",)], NEW)
    assert seen == [{"by-id": None, "tty": reason}]
    assert listed(resource) == {"by-id": None, "tty": reason}
    assert await refusal(resource.allocate([("tty",)], NEW)) == f"resource {NAME}: device tty is unhealthy: {reason}"
    await resource.allocate([("by-id",)], NEW)  # 1.8 allocates again at each start of a container


async def test_an_allocate_that_failed_gives_the_other_name_back(make):
    resource = make(FakeLanes(error=DriverError("no power")), devices=(LINK, NODE))
    with pytest.raises(DriverError):
        await resource.allocate([("by-id",)], NEW)
    assert listed(resource) == {"by-id": None, "tty": None}


async def test_a_container_cannot_get_both_names(make):
    resource = make(FakeLanes(), devices=(LINK, NODE, C))
    text = await refusal(resource.allocate([("by-id", "c", "tty")], NEW))
    assert text == f"resource {NAME}: devices by-id and tty are the same hardware, so a container can't get both"


async def test_a_container_gets_joint_devices_in_one_request(make):
    both = tuple(replace(one, joint=True) for one in (LINK, NODE))
    resource = make(FakeLanes(), devices=(*both, C))
    await resource.allocate([("by-id", "c")], NEW)
    reason = "char 188:0 is held as by-id"
    assert await refusal(resource.allocate([("tty",)], NEW)) == f"resource {NAME}: device tty is unhealthy: {reason}"
    resource = make(FakeLanes(), devices=(*both, C))
    await resource.allocate([("by-id", "c", "tty")], NEW)
    assert listed(resource) == {"by-id": None, "c": None, "tty": None}


async def test_held_at_the_start_excludes_other_names(make):
    resource = make(FakeLanes(), devices=(LINK, NODE))
    note(resource, "by-id")
    assert listed(resource) == {"by-id": None, "tty": "char 188:0 is held as by-id"}


# what is free


def releases_of(resource):
    """What a driver was told of, in the order of the calls; it knows when the test says so."""
    releases = []
    resource.releases._driver.lanes.release = lambda devices, free, know=lambda: None: releases.append(
        ([device.id for device in free(devices)], know)
    )
    return releases


async def test_a_driver_is_told_once_of_what_is_free(make, clock):
    resource = make(FakeLanes("release"))
    releases = releases_of(resource)
    note(resource, "a")
    note(resource)
    resource.releases.release_due()
    resource.releases.release_due()
    ((devices, know),) = releases
    assert devices == ["a"]
    assert resource.inventory.usage.value.unreleased.keys() == {"a"}
    know()
    assert resource.inventory.usage.value.unreleased == {}


async def test_the_next_driver_is_told_of_what_is_free(make):
    resource = make(FakeLanes("release"))
    releases = releases_of(resource)
    note(resource, "a")
    note(resource)
    resource.releases.release_due()
    resource.releases._driver.lanes = FakeLanes("release")
    releases += releases_of(resource)
    resource.releases.release_due()
    assert [devices for devices, _ in releases] == [["a"]]


async def test_another_share_keeps_a_device(make):
    resource = make(FakeLanes("release"), shares=Shares(2))
    releases = releases_of(resource)
    note(resource, "a", "a::1")
    note(resource, "a")
    resource.releases.release_due()
    assert [devices for devices, _ in releases] == [[]]
    releases.pop()[1]()
    note(resource)
    resource.releases.release_due()
    assert [devices for devices, _ in releases] == [["a"]]


async def test_a_device_that_is_gone_is_told_of_when_it_is_back(make):
    resource = make(FakeLanes("release"))
    releases = releases_of(resource)
    note(resource, "a")
    resource.inventory.take((B, C))
    note(resource)
    resource.releases.release_due()
    assert releases == []
    resource.inventory.take((A, B, C))
    resource.releases.release_due()
    assert [devices for devices, _ in releases] == [["a"]]


@pytest.mark.parametrize(("abilities", "waits"), [((), False), (("prepare",), True), (("release",), True)])
async def test_the_other_name_of_a_device_that_is_gone(make, abilities, waits):
    resource = make(FakeLanes(*abilities), devices=(LINK, NODE))
    releases = releases_of(resource)
    await resource.allocate([("by-id",)], NEW)
    note(resource, "by-id", written=2e9)
    resource.inventory.take((NODE,))
    note(resource, written=2e9)
    resource.releases.release_due()
    for _, know in releases:
        know()
    resource.inventory.exclusion.uses_changed()
    assert listed(resource)["tty"] == ("char 188:0 is held as by-id" if waits else None)


async def test_a_mount_of_the_configuration_hides_no_device(make):
    given = Allocation(device_nodes=(DeviceNode("/dev/a"),))
    resource = make(FakeLanes(allocation=given), mounts=(Mount("/etc", "/dev/a"),))
    with pytest.raises(RequestError, match=r"mounts\[0\].container_path is '/dev/a', which is the path of its device"):
        await resource.allocate([("a",)], NEW)


# devices of claims


async def test_a_grant_waits_for_the_end_of_a_claim(make):
    resource = make(FakeLanes())
    change = withheld(resource, "a", "b")
    assert resource.inventory.list.value["a"].health.ok
    granted = asyncio.ensure_future(resource.allocate([("a", "b")], NEW))
    await turns()
    change("b")
    await turns()
    assert not granted.done()
    change()
    assert [one.ids for one in await granted] == [("a", "b")]


async def test_a_grant_is_refused_if_the_claim_goes_on(make):
    resource = make(FakeLanes(), timeouts=Timeouts(allocate=timedelta(seconds=0.1)))
    withheld(resource, "a")
    text = await refusal(resource.allocate([("a",)], NEW))
    assert text == f"resource {NAME}: device a is withheld: held as {NAME} on the other front by team/p"


async def test_one_wait_in_vain_is_enough(make):
    """A kubelet admits one pod after the other, and ends none meanwhile."""
    timeouts = Timeouts(allocate=timedelta(seconds=0.1))
    resource = make(FakeLanes(), timeouts=timeouts)
    withheld(resource, "a", "b")
    await refusal(resource.allocate([("a",)], NEW))
    timeouts = Timeouts(allocate=timedelta(seconds=1000))
    resource.granting.config.set(replace(resource.granting.config.value, timeouts=timeouts))
    refused = asyncio.ensure_future(refusal(resource.allocate([("b",)], NEW)))
    await turns()
    assert refused.done()
    assert "device b is withheld" in refused.result()


async def test_the_most_that_an_answer_takes(make):
    """An older gateway that passes calls on waits so long: for two ends of containers, a file, the driver, and for CDI
    the runtime and a disk.
    """
    resource = make(FakeLanes(), timeouts=Timeouts(allocate=timedelta(seconds=20), prepare=timedelta(seconds=25)))
    names = 2 + 5
    assert resource.patience(Call.ALLOCATE, NEW) == 1 + 5 + 5 + 20 + names
    assert resource.patience(Call.ALLOCATE, V1ALPHA2) == 1 + 5 + 5 + 20 + names + 25
    assert resource.patience(Call.PREPARE, NEW) == 5 + 20 + names + 25
    short = make(FakeLanes(), timeouts=Timeouts(allocate=timedelta(seconds=1)))
    assert short.patience(Call.ALLOCATE, NEW) == 3 * 0.5 + 1 + names


async def test_a_hung_disk_of_cdi_specs_takes_no_longer(make, tmp_path):
    """Else the pod's event would say that the gateway hasn't answered, in place of the reason."""
    delivery = CdiDelivery(SpecDirectories((), complaint([])), own(tmp_path), Threads(), known(True), 0.2)
    timeouts = Timeouts(allocate=timedelta(seconds=0.01))
    resource = make(FakeLanes(allocation=FULL), delivery=delivery, cdi="always", timeouts=timeouts)
    resource.remember_agent("grpc-go/1.72.2")
    (tmp_path / "state" / "cdi").mkdir(mode=0o700, parents=True)
    with (tmp_path / "state" / "cdi" / "lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another gateway writes, and its disk hangs
        async with asyncio.timeout(resource.patience(Call.ALLOCATE, NEW)):
            told = await refusal(resource.allocate([("a",)], NEW), CdiError)
    assert "haven't been read for 0.2 s: a disk hangs" in told


# devices of pods that the kubelet has given up, and whose containers run


class Runtime:
    """It says which of the pods run that it is asked for, as often as it `answers`."""

    def __init__(self, *pods, answers=math.inf):
        self.running, self.answers, self.asked = set(pods), answers, asyncio.Event()
        self.static = frozenset[str]()

    async def __call__(self, pods, *, static=False):
        self.asked.set()
        pods = pods if static else pods - self.static
        self.answers -= 1
        return pods & self.running if self.answers >= 0 else None


def had(resource, runtime, **ids):
    """The kubelet's note: the pod that had each id."""
    holdings, now = resource.inventory.usage, time.monotonic()
    holdings.running = runtime
    note = {id_: Noted((), frozenset([Container(pod, "c")])) for id_, pod in ids.items()}
    holdings.set(holdings.value.noted(note, now, now))


async def test_a_grant_waits_for_the_pod_that_had_the_device(make):
    resource, runtime = make(FakeLanes()), Runtime("old", "other")
    had(resource, runtime, a="old", b="other")
    granted = asyncio.ensure_future(resource.allocate([("a",)], NEW))
    await runtime.asked.wait()
    assert resource.inventory.usage.allocating == 1, "no List meanwhile"
    assert not resource.inventory.usage.value.in_flight
    runtime.running = {"other"}
    assert [one.ids for one in await granted] == [("a",)]
    assert resource.inventory.usage.allocating == 0


@pytest.mark.parametrize("hangs", [False, True])
async def test_a_grant_of_a_kubelet_that_has_just_started(make, hangs):
    """A pod was deleted while none ran. Its containers run on, and the note that tells of it is a moment old."""
    resource, runtime = make(FakeLanes(), timeouts=Timeouts(allocate=timedelta(seconds=0.2))), Runtime("old")
    had(resource, runtime, a="old")
    holdings = resource.inventory.usage
    holdings.set(holdings.value.new_kubelet(time.monotonic(), "2"))

    async def read():
        if hangs:  # the disk
            await asyncio.Event().wait()
        had(resource, runtime, a="old")

    holdings.read = read
    if hangs:
        assert [one.ids for one in await resource.allocate([("a",)], NEW)] == [("a",)]
    else:
        assert "a can't be given away yet" in await refusal(resource.allocate([("a",)], NEW))


async def test_a_list_isn_t_emptied_while_a_grant_waits(make):
    """A kubelet from 1.34 on crashes if an id leaves the list during its Allocate."""
    resource, runtime = make(FakeLanes()), Runtime("old", answers=1000)
    had(resource, runtime, a="old")
    granted = asyncio.ensure_future(resource.allocate([("a",)], NEW))
    await runtime.asked.wait()
    resource.inventory.list.offer(offered=False)
    await until(lambda: runtime.answers < 1000 - 2 * QUIET / LOOK)
    assert "a" in resource.inventory.list.value
    runtime.running.clear()
    assert [one.ids for one in await granted] == [("a",)]
    await until(lambda: resource.inventory.list.value == {})


@pytest.mark.parametrize("answers", [1, math.inf])
async def test_a_grant_is_refused_if_the_pod_that_had_the_device_runs_on(make, answers):
    """Also if the runtime doesn't answer any more."""
    resource = make(FakeLanes(), timeouts=Timeouts(allocate=timedelta(seconds=0.5)))
    had(resource, Runtime("old", answers=answers), a="old")
    text = await refusal(resource.allocate([("a",)], NEW))
    assert text.startswith(f"resource {NAME}: a can't be given away yet: the kubelet has taken it back from a pod")
    assert "(old)" in text
    assert resource.inventory.usage.allocating == 0


async def test_a_container_starts_after_the_static_pod_that_had_its_device(make):
    """Its manifest is gone, and it has its grace period. The Allocate may be of the next one of its name."""
    resource, runtime = make(FakeLanes("prepare"), timeouts=Timeouts(prepare=timedelta(seconds=0.5))), Runtime("old")
    runtime.static = frozenset(["old", "new"])
    had(resource, runtime, a="old")
    await resource.allocate([("a",)], NEW)
    await resource.allocate([("a",)], NEW)  # after an init container
    assert "a pod that had it before still runs (old)" in await refusal(resource.prepare(["a"]))
    had(resource, runtime, a="new")
    runtime.running = {"new"}
    await resource.prepare(["a"])
    runtime.running.add("old")
    await resource.prepare(["a"])  # it starts again


async def test_a_pod_before_is_waited_for_after_a_note_that_cannot_be_read(make):
    resource, runtime = make(FakeLanes("prepare"), timeouts=Timeouts(prepare=timedelta(seconds=0.2))), Runtime("old")
    runtime.static = frozenset(["old"])
    had(resource, runtime, a="old")
    await resource.allocate([("a",)], NEW)
    holdings, now = resource.inventory.usage, time.monotonic()
    holdings.set(holdings.value.noted(None, now, now))
    await refusal(resource.prepare(["a"]))
    had(resource, runtime, a="new")
    assert "a pod that had it before still runs (old)" in await refusal(resource.prepare(["a"]))
    runtime.running.clear()
    await resource.prepare(["a"])


async def test_a_static_pod_that_is_noted_as_before_starts(make):
    """The note, of which the same is known already, may be read just before the start."""
    resource, runtime = make(FakeLanes("prepare")), Runtime("static")
    runtime.static = frozenset(["static"])
    had(resource, runtime, a="static")
    await resource.allocate([("a",)], NEW)

    async def read():
        had(resource, runtime, a="static")

    resource.inventory.usage.read = read
    await resource.prepare(["a"])


async def test_a_static_pod_that_had_its_device_before_starts_again(make):
    """It has the uid that it had, and perhaps another device."""
    resource, runtime = make(FakeLanes("prepare")), Runtime("static")
    runtime.static = frozenset(["static"])
    for has in ({"a": "static"}, {"a": "another", "b": "static"}):
        had(resource, runtime, a="static")
        await resource.allocate([("a",)], NEW)
        had(resource, runtime, **has)
        await resource.prepare(["a"])


async def test_a_container_starts_after_the_pod_before_whichever_gateway_allocated(make):
    """It has handed over since, and this one has seen the kubelet's notes."""
    resource, runtime = make(FakeLanes("prepare"), timeouts=Timeouts(prepare=timedelta(seconds=0.2))), Runtime("old")
    runtime.static = frozenset(["old"])
    holdings = resource.inventory.usage
    holdings.set(holdings.value.told(frozenset(), frozenset()))
    had(resource, runtime, a="old")
    had(resource, runtime, a="new")
    assert "a pod that had it before still runs (old)" in await refusal(resource.prepare(["a"]))
    runtime.running = {"new"}
    await resource.prepare(["a"])
    had(resource, runtime)
    await resource.prepare(["a"])  # 1.10 may write an older note last


@pytest.mark.parametrize("released", [False, True])
async def test_what_starts_again_after_its_end_is_in_use(make, released):
    """A manifest was away until its pod had ended: the kubelet starts that again with what it had."""
    one, other = (Device(id_, hardware=("one",)) for id_ in ("one", "other"))
    resource = make(FakeLanes("release"), devices=(one, other))
    had(resource, Runtime(), one="static")
    holdings = resource.inventory.usage
    holdings.set(holdings.value.remembered({}).ended(frozenset({"static"})))
    assert holdings.value.freed == {"one"}
    if released:
        holdings.set(holdings.value.released({"one"}))
    await resource.prepare(["one"])
    assert holdings.value.last_known == {"one"}
    assert "one is held as one" in await refusal(resource.allocate([("other",)], NEW))
    had(resource, Runtime(), one="static")
    assert holdings.value.last_known == {"one"}, "it isn't known yet that the pod is back"
    holdings.set(holdings.value.ended(frozenset()))
    had(resource, Runtime(), one="static")
    assert not holdings.value.granted
    holdings.set(holdings.value.ended(frozenset({"static"})))
    assert holdings.value.freed == {"one"}


async def test_what_starts_after_its_hardware_went_to_another_pod(make):
    one, other = (Device(id_, hardware=("one",)) for id_ in ("one", "other"))
    resource = make(FakeLanes(), devices=(one, other))
    had(resource, Runtime(), one="static")
    holdings = resource.inventory.usage
    holdings.set(holdings.value.remembered({}).ended(frozenset({"static"})).released({"one"}))
    await resource.allocate([("other",)], NEW)
    assert "one can't be prepared: one is held as other" in await refusal(resource.prepare(["one"]))
    assert holdings.value.last_known == {"other"}


async def test_a_grant_waits_for_a_pod_that_the_kubelet_has_struck_from_its_note(make):
    """It writes that for each Allocate, of whichever resource."""
    resource, runtime = make(FakeLanes()), Runtime("old")
    had(resource, runtime, a="old", b="other")
    had(resource, runtime, b="other")
    had(resource, runtime, b="another")
    granted = asyncio.ensure_future(resource.allocate([("a",)], NEW))
    await runtime.asked.wait()
    await turns()
    assert not granted.done()
    runtime.running.clear()
    assert [one.ids for one in await granted] == [("a",)]


async def test_while_the_runtime_hangs_the_pod_before_may_run(make):
    resource = make(FakeLanes(), timeouts=Timeouts(allocate=timedelta(seconds=0.1)))
    had(resource, lambda _: asyncio.Event().wait(), a="old")
    with pytest.raises(RequestError, match=r"a can't be given away yet: .* \(old\)"):
        await resource.allocate([("a",)], NEW)


@pytest.mark.parametrize(
    "why",
    ["it has ended", "the runtime says nothing", "another kubelet has it", "the same pod just got it", "1.8 repeats"],
)
async def test_a_grant_that_waits_for_no_pod(make, why):
    resource, runtime = make(FakeLanes()), Runtime("old", answers=0)
    had(resource, runtime, a="old")
    holdings, api = resource.inventory.usage, NEW
    if why == "it has ended":
        holdings.set(holdings.value.ended(frozenset(["old"])))
    elif why == "another kubelet has it":
        holdings.set(holdings.value.new_kubelet(time.monotonic() + 1, "2"))
    elif why == "the same pod just got it":  # an init container
        holdings.set(holdings.value.began(("a",)).gave(("a",), time.monotonic() + 1))
    elif why == "1.8 repeats":
        api = V1ALPHA1
    assert [one.ids for one in await resource.allocate([("a",)], api)] == [("a",)]
    assert runtime.asked.is_set() is (why == "the runtime says nothing")
