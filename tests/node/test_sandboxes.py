"""A pod has ended for the runtime if it has a sandbox, none is ready, and none of its containers may run."""

import asyncio
import itertools

import pytest

from dpgateway.node.sandboxes import MOST_EVENTS, Sandboxes, outlasting
from tests.node.cri import CREATED, EXITED, READY, RUNNING, STOPPED, UNKNOWN, Cri, in_time
from tests.support.waiting import turns, until


@pytest.fixture
async def cri(short_path):
    cri = Cri(short_path / "cri.sock")
    await cri.start()
    yield cri
    await cri.stop()


@pytest.mark.parametrize(
    ("sandboxes", "containers", "ended"),
    [
        ([STOPPED], [EXITED, EXITED], True),
        ([STOPPED], [], True),  # the kubelet has removed them
        ([STOPPED, STOPPED], [EXITED], True),
        ([READY], [EXITED], False),  # between two lives of a container
        ([STOPPED, READY], [EXITED], False),  # the first one failed
        ([STOPPED], [EXITED, RUNNING], False),
        ([STOPPED], [CREATED], False),
        ([STOPPED], [UNKNOWN], False),
        ([], [], False),  # perhaps the first sandbox is being made
        ([], [EXITED], False),
    ],
)
async def test_a_pod_of_which_nothing_runs(cri, caplog, sandboxes, containers, ended):
    cri.sandboxes = {"uid-a": sandboxes, "uid-b": [READY]}
    cri.containers = {"uid-a": containers, "uid-b": [RUNNING]}
    found = await in_time(lambda: Sandboxes([cri.socket], print).ended(["uid-a", "uid-b"]), caplog)
    assert found == ({"uid-a"} if ended else frozenset())


@pytest.mark.parametrize(
    ("sandboxes", "containers", "running"),
    [
        ([READY], [RUNNING], True),
        ([READY], [EXITED, CREATED], True),
        ([READY], [UNKNOWN], True),
        ([READY], [], True),  # its first container is being made
        ([READY], [EXITED], False),
        ([STOPPED], [RUNNING], True),
        ([STOPPED], [CREATED, UNKNOWN], False),
        ([], [], False),  # at its admission
    ],
)
async def test_a_pod_that_has_a_container_which_may_run(cri, caplog, sandboxes, containers, running):
    cri.sandboxes = dict.fromkeys(("uid-a", "uid-static"), sandboxes)
    cri.containers = dict.fromkeys(("uid-a", "uid-static"), containers)
    cri.static = {"uid-static"}
    both, all_of_them = ["uid-a", "uid-static"], Sandboxes([cri.socket], print)
    assert await in_time(lambda: all_of_them.running(both), caplog) == ({"uid-a"} if running else frozenset())
    found = await in_time(lambda: all_of_them.running(both, static=True), caplog)
    assert found == frozenset(both if running else [])


async def test_however_many_pods_are_asked_for_at_once(cri):
    """Those that shared a claim, while an end waits for an answer."""
    pods = [f"uid-{number}" for number in range(1000)]
    cri.sandboxes = {"uid-7": [READY], "uid-8": [STOPPED], "uid-elsewhere": [READY]}
    cri.containers = {"uid-7": [RUNNING], "uid-8": [EXITED], "uid-elsewhere": [RUNNING]}
    sandboxes = Sandboxes([cri.socket], print)
    assert await sandboxes.running(pods) == frozenset({"uid-7"})
    assert await sandboxes.ended(pods) == {"uid-8"}
    assert cri.asked == ["ListPodSandbox", "ListContainers"] * 2


@pytest.mark.parametrize("method", ["ListPodSandbox", "ListContainers"])
async def test_what_the_runtime_does_not_say_proves_nothing(cri, method):
    cri.sandboxes, cri.containers = {"uid-a": [STOPPED]}, {"uid-a": [RUNNING]}
    cri.fails = {method}
    assert await Sandboxes([cri.socket], print).ended(["uid-a"]) == frozenset()
    assert await Sandboxes([cri.socket], print).running(["uid-a"]) is None
    assert method in cri.asked


async def test_no_runtime_or_several_prove_nothing(cri, short_path, caplog):
    cri.sandboxes = {"uid-a": [STOPPED]}
    other = short_path / "other.sock"
    assert await in_time(lambda: Sandboxes([cri.socket, other], print).ended(["uid-a"]), caplog) == {"uid-a"}
    other.touch()
    assert await Sandboxes([cri.socket, other], print).ended(["uid-a"]) == frozenset()
    assert await Sandboxes([short_path / "nowhere/cri.sock"], print).ended(["uid-a"]) == frozenset()
    assert await Sandboxes([other], print).ended(["uid-a"]) == frozenset()
    assert await Sandboxes([other], print).running(["uid-a"]) is None


async def test_only_sandboxes_that_stop_are_told(cri):
    told: list[str] = []
    task = asyncio.create_task(Sandboxes([cri.socket], told.append).run())
    await until(lambda: cri.listeners)
    cri.says("uid-a", READY)
    cri.says("uid-b", STOPPED)
    await until(lambda: told)
    assert told == ["uid-b"]
    task.cancel()
    await asyncio.wait([task])


async def test_events_without_an_end(cri):
    told: list[str] = []
    task = asyncio.create_task(Sandboxes([cri.socket], told.append, pause=3600).run())
    await until(lambda: cri.listeners)
    for number in range(2 * MOST_EVENTS):
        cri.says(f"uid-{number}")
    await until(lambda: cri.listeners[0].empty() and len(told) >= MOST_EVENTS)  # all are sent
    await turns()
    assert len(told) == MOST_EVENTS
    task.cancel()
    await asyncio.wait([task])


async def test_a_runtime_that_tells_no_events_is_asked_again(cri, caplog):
    cri.fails = {"GetContainerEvents"}
    caplog.set_level("DEBUG")
    task = asyncio.create_task(Sandboxes([cri.socket], print).run())
    await until(lambda: "the container runtime tells no events: no GetContainerEvents" in caplog.text)
    cri.fails = set()
    await until(lambda: cri.listeners)
    task.cancel()
    await asyncio.wait([task])


async def test_a_bug_of_the_callback_is_raised(cri):
    def fails(_):
        raise LookupError("a bug")

    task = asyncio.create_task(Sandboxes([cri.socket], fails).run())
    await until(lambda: cri.listeners)
    cri.says("uid-a", STOPPED)
    with pytest.raises(LookupError, match="a bug"):
        await task


@pytest.mark.parametrize(
    ("said", "left"),
    [
        ([frozenset()], frozenset()),
        ([None], frozenset()),  # nobody knows, so those who asked believe it
        ([frozenset("a"), frozenset()], frozenset()),
        ([frozenset("a"), None], frozenset("a")),  # it is silent now
        ([frozenset("a")], frozenset("a")),
    ],
)
async def test_pods_that_outlast(said, left):
    answers = itertools.chain(said, itertools.repeat(said[-1]))

    async def ask(_):
        return next(answers)

    assert await outlasting(ask, lambda: frozenset("a"), 0.5 if left else 30.0) == left


async def test_an_answer_that_takes_too_long():
    async def ask(_):
        await asyncio.Event().wait()

    assert await outlasting(ask, lambda: frozenset("a"), 0.01) == frozenset("a")


async def test_nobody_is_asked_without_pods():
    assert await outlasting(_never, frozenset, 1.0) == frozenset()


async def _never(_):
    pytest.fail("somebody was asked")
