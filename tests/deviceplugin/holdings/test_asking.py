"""At each hint the pods' directories are looked at and the kubelet is asked; what they say becomes holdings."""

import asyncio
import time
from dataclasses import replace
from functools import partial

import grpc
import pytest

from dpgateway.deviceplugin.holdings.asking import Asking
from dpgateway.deviceplugin.holdings.evidence import LINGER
from dpgateway.deviceplugin.holdings.observed import ResourceHoldings
from dpgateway.deviceplugin.holdings.values import DOUBT, Holdings
from dpgateway.kit.threads import Threads
from dpgateway.node.directory import Places
from dpgateway.node.holders import Container, Holder, Noted
from dpgateway.node.podresources import PodResources
from dpgateway.node.pods import STARTED
from dpgateway.resource.front import Unreleased
from tests.node.cri import EXITED, READY, RUNNING, STOPPED, Cri
from tests.node.lister import Lister, empty, encoded, refusing
from tests.support.inline import Inline
from tests.support.waiting import turns, until

THING = "example.com/thing"
ENCODER, PLAYER = (("team", name, {"main": [(THING, [id_])]}) for name, id_ in (("encoder-0", "a"), ("player", "b")))
HOLDER = Holder("team", "encoder-0", "main")
NOTE = {"a": Noted((), frozenset({Container("uid-a", "main")}))}


class Asked:
    """Someone who asks, of one resource; ``a`` is held by a pod whose directory is there."""

    def __init__(self, root):
        self.kubelet = Lister(root / "pod-resources/kubelet.sock", v1=encoded(ENCODER))
        self.pod = root / "pods/uid-a"
        self.pod.mkdir(parents=True)
        (root / "pods/uid-other").mkdir()
        self.holdings = ResourceHoldings(self.held())
        self.resources = {THING: self.holdings}
        self.threads = Threads()
        self.cri = Cri(root / "cri.sock")
        self.cgroups = root / "cgroup"
        places = Places.of(root / "device-plugins", runtimes=[self.cri.socket])
        places = replace(places, cgroups=[self.cgroups])
        self.asking = Asking(self.resources, places, self.threads, longest=0.05)
        self.task = None

    @staticmethod
    def held():
        now = time.monotonic()
        return Holdings().remembered({}).new_kubelet(now - 60, "kubelet").noted(NOTE, now, now)

    @property
    def value(self):
        return self.holdings.value

    def has_gone(self, pods):
        return self.value.gone == pods

    @property
    def calls(self):
        return len(self.kubelet.calls)

    def start(self):
        self.task = asyncio.create_task(self.asking.run())

    async def more_calls(self, count=1):
        """Waits until the kubelet was asked so many times more, each at a hint."""
        for _ in range(count):
            wanted = self.calls + 1
            self.asking.hint()
            await until(partial(self._called, wanted))

    def _called(self, count):
        return self.calls >= count

    async def close(self):
        if self.task is not None:
            self.task.cancel()
            await asyncio.wait([self.task])
        await self.kubelet.stop()


@pytest.fixture
async def asked(short_path):
    one = Asked(short_path)
    await one.kubelet.start()
    yield one
    await one.close()


async def test_who_has_what_is_known_from_the_kubelet(asked):
    asked.start()
    await until(lambda: asked.value.listed)
    assert asked.value.listed == {"a": HOLDER}
    assert asked.asking.complaint == ""
    assert asked.asking.answered is not None


async def test_resources_that_come_and_go_meanwhile(asked, gate):
    reading = gate()

    def call(name, function, *_):
        gated = "List" in name  # not what looks at the cgroups
        return Threads().call(name, (lambda: (reading(), function())[1]) if gated else function)

    asked.threads.call = call
    other, new = ResourceHoldings(asked.held()), ResourceHoldings(asked.held())
    asked.resources["example.com/other"] = other
    asked.start()
    await reading.entered()
    del asked.resources["example.com/other"]
    asked.resources["example.com/new"] = new
    reading.open()
    await until(lambda: asked.value.listed or asked.task.done())
    assert not asked.task.done()
    assert (other.value.listed, new.value.asked) == ({}, Holdings().asked)


async def test_nobody_is_asked_however_long_an_allocate_takes(asked):
    """A List has the kubelet give the same device to the next pod, too. The directories are looked at meanwhile."""
    asked.start()
    await until(lambda: asked.value.listed)
    await asked.more_calls()
    asked.holdings.set(asked.value.began(("b",), {"b": frozenset({"b"})}))
    calls = []
    for change, gone in ((asked.pod.rmdir, {"uid-a"}), (asked.pod.mkdir, set()), (asked.pod.rmdir, {"uid-a"})):
        change()
        asked.asking.hint()
        await until(partial(asked.has_gone, gone))
        calls.append(asked.calls)  # a question may have been on its way when the Allocate began
    other = PodResources(asked.kubelet.socket, Threads())
    await other.list([THING])  # a question that was asked before would have come first
    assert asked.calls == calls[0] + 1
    asked.holdings.set(asked.value.failed(("b",)))
    await until(lambda: asked.calls > calls[0] + 1)


async def test_nobody_is_asked_while_nothing_is_taken(asked):
    asked.holdings.set(Holdings().noted({}, 0.0, 0.0))
    asked.start()
    asked.asking.hint()
    await turns()
    other = PodResources(asked.kubelet.socket, Threads())
    await other.list([THING])  # a question that was asked before would have come first
    assert asked.calls == 1
    asked.holdings.set(asked.held())
    await asked.more_calls()


async def test_a_pod_is_looked_for_at_once(asked):
    """At the start the first hint comes before it is known what containers hold, and a pod may end just then."""
    held, threads = asked.value, Threads()

    def call(name, function, *_):
        return (threads if "List" in name else Inline()).call(name, function)

    asked.threads.call = call  # what runs is looked at in the turns
    asked.holdings.set(Holdings().noted({}, 0.0, 0.0))
    asked.start()
    asked.asking.hint()
    await turns()
    asked.holdings.set(held)
    asked.asking.hint()
    await turns()
    asked.pod.rmdir()
    asked.asking.hint()
    await until(lambda: asked.value.gone == {"uid-a"})


async def test_a_pod_that_is_gone_holds_nothing(asked):
    asked.start()
    await until(lambda: asked.value.listed)
    assert asked.value.freed == frozenset()
    asked.pod.rmdir()
    await until(lambda: asked.value.freed)
    assert asked.value.freed == {"a"}
    assert asked.value.held == {"a"}, "the kubelet may name it again"


async def test_the_only_pod_may_have_gone_while_nobody_looked(asked):
    """The kubelet's own directory is the one beside the socket on which it answers."""
    for directory in (asked.pod, asked.pod.with_name("uid-other")):
        directory.rmdir()
    asked.kubelet.answers["v1"] = encoded()  # a kubelet removes no directory of a pod that it lists
    long_ago = time.monotonic() - 2 * STARTED
    asked.holdings.set(Holdings().new_kubelet(long_ago, "kubelet").noted(NOTE, long_ago, long_ago))
    asked.start()
    await until(lambda: asked.value.freed)


async def test_a_listed_pod_that_waits_for_its_directory(asked):
    """A static pod is admitted before the one of its name has ended, and starts after it, however long that takes."""
    asked.pod.rmdir()
    long_ago = time.monotonic() - 2 * STARTED
    holdings = Holdings().remembered({}).new_kubelet(long_ago, "kubelet").noted(NOTE, long_ago, long_ago)
    freed = set()
    asked.holdings.subscribe(lambda: freed.update(asked.value.freed))
    asked.holdings.set(holdings)
    asked.start()
    await until(lambda: asked.value.listed)
    await asked.more_calls(2)
    assert not freed
    asked.kubelet.answers["v1"] = encoded()
    await asked.more_calls()
    await until(lambda: asked.value.freed)


async def test_a_pod_without_a_directory_has_gone_whether_or_not_the_kubelet_lists(asked):
    asked.pod.rmdir()
    await asked.kubelet.stop()
    long_ago = time.monotonic() - 2 * STARTED
    asked.holdings.set(Holdings().new_kubelet(long_ago, "kubelet").noted(NOTE, long_ago, long_ago))
    asked.start()
    await until(lambda: asked.value.freed)


@pytest.mark.parametrize("api", ["v1alpha1", "v1"])
async def test_a_pod_without_a_directory_whose_note_is_written_again(asked, api):
    """In doubt a kubelet writes the same at each list. Only from 1.20 on that surely says that the pod is there: List
    frees nothing before 1.18 (kubernetes #79409).
    """
    asked.pod.rmdir()
    asked.kubelet.answers = {api: encoded()}
    long_ago = time.monotonic() - 2 * STARTED
    first = long_ago + STARTED + 0.5
    asked.holdings.set(Holdings().remembered({}).new_kubelet(long_ago, "kubelet").noted(NOTE, first, first))
    doubts = list[float]()

    def written():
        if asked.value.doubted not in (*doubts, Holdings().doubted):
            doubts.append(asked.value.doubted)
            now = time.monotonic()
            asked.holdings.set(asked.value.noted(dict(NOTE), now, now))
            asked.asking.hint()

    asked.holdings.subscribe(written)
    asked.start()
    await until(lambda: len(doubts) == 3 or asked.value.freed)
    assert doubts
    assert asked.value.freed == ({"a"} if api == "v1alpha1" else frozenset())


def unnoticed(note=None):
    """An earlier gateway gave the id away, and was killed before it knew to which pod; another kubelet runs by now."""
    long_ago = time.monotonic() - 2 * STARTED
    earlier = Holdings().remembered({"a": Unreleased("earlier")})
    return earlier.new_kubelet(long_ago, "kubelet").noted(note or {}, long_ago, long_ago)


async def test_a_grant_to_an_unknown_pod(asked):
    asked.holdings.set(unnoticed())
    version = asked.holdings.version
    asked.start()
    await until(lambda: asked.value.unreleased["a"].pods)
    assert asked.value.unreleased["a"].pods == {"uid-a", "uid-other"}
    assert asked.holdings.version > version, "it is written down, because a gateway after this one goes on from there"
    asked.pod.with_name("uid-new").mkdir()
    asked.pod.rmdir()
    await until(lambda: asked.value.gone == {"uid-a"})
    assert asked.value.freed == frozenset()
    asked.pod.with_name("uid-other").rmdir()
    await until(lambda: asked.value.freed == {"a"})


async def test_a_grant_to_an_unknown_pod_without_pods(asked):
    for directory in (asked.pod, asked.pod.with_name("uid-other")):
        directory.rmdir()
    asked.holdings.set(unnoticed())
    asked.start()
    await until(lambda: asked.value.freed == {"a"})


def just_now():
    now = time.monotonic()
    return Holdings().remembered({"a": Unreleased("earlier")}).new_kubelet(now, "kubelet").noted({}, now, now)


@pytest.mark.parametrize(
    "holdings",
    [
        lambda: unnoticed(note=NOTE),
        lambda: unnoticed().noted(None, 0.0, 0.0),
        lambda: Holdings().remembered({"a": Unreleased("earlier")}).noted({}, 0.0, 0.0),
        just_now,
    ],
    ids=["noted", "no note", "no kubelet", "pods that start"],
)
async def test_a_pod_without_a_directory_yet(asked, holdings):
    asked.holdings.set(holdings())
    asked.start()
    await until(lambda: asked.asking.answered)
    await asked.more_calls(2)
    assert asked.value.unreleased["a"].pods <= {"uid-a"}
    assert asked.value.freed == frozenset()


async def test_an_answer_that_says_nothing_new_wakes_nobody(asked):
    asked.start()
    await until(lambda: asked.value.listed)
    version = asked.holdings.version
    await asked.more_calls(2)
    assert asked.holdings.version == version
    asked.kubelet.answers["v1"] = encoded(ENCODER, PLAYER)
    await asked.more_calls()
    await until(lambda: asked.holdings.version > version)


async def test_doubt_asks_again_without_a_hint(asked):
    """It has taken back what it gave to a pod that it refused, and hasn't written that down."""
    asked.pod.rmdir()
    asked.kubelet.answers["v1"] = encoded()
    asked.start()
    await until(lambda: asked.value.doubted > Holdings().doubted)
    first, version = asked.value.doubted, asked.holdings.version
    await until(lambda: asked.value.doubted > first)
    assert asked.value.doubted - first >= DOUBT
    assert asked.holdings.version > version, "whoever sends lists hears of it"
    assert asked.value.freed == frozenset()


async def test_the_last_answer_stays_while_the_kubelet_is_away(asked):
    asked.start()
    await until(lambda: asked.value.listed)
    answered = asked.asking.answered
    await asked.kubelet.stop()
    asked.asking.hint()
    await until(lambda: asked.asking.complaint)
    assert "UNAVAILABLE" in asked.asking.complaint
    assert asked.asking.asked["success"] >= 1
    assert asked.asking.asked["failure"] >= 1
    assert (asked.value.listed, asked.asking.answered) == ({"a": HOLDER}, answered)
    await asked.kubelet.start()
    await until(lambda: not asked.asking.complaint)
    assert asked.asking.answered > answered


async def test_a_refusal_asks_again_without_a_hint(asked):
    asked.kubelet.answers["v1"] = refusing(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
    asked.start()
    await until(lambda: asked.asking.complaint)
    assert asked.asking.complaint.endswith("RESOURCE_EXHAUSTED: rejected by rate limit")
    asked.kubelet.answers["v1"] = encoded(ENCODER)
    await until(lambda: asked.value.listed)
    assert asked.asking.complaint == ""


async def test_another_kubelet_is_asked_again(asked):
    asked.kubelet.answers = {}
    asked.start()
    await until(lambda: asked.asking.complaint)
    assert asked.asking.complaint.endswith("the kubelet serves none of v1, v1alpha1")
    asked.kubelet.answers["v1alpha1"] = encoded(ENCODER)
    asked.asking.new_kubelet()
    await until(lambda: asked.value.listed)


async def test_an_answer_of_a_replaced_kubelet(asked):
    """The new one may have forgotten what the old one knew: an id that it never listed isn't one that it lists no
    more.
    """
    go_on = asyncio.Event()

    async def late(_):
        await go_on.wait()
        return encoded(ENCODER)

    asked.kubelet.answers["v1"] = late
    asked.start()
    await until(lambda: asked.calls == 1)
    asked.holdings.set(asked.value.new_kubelet(time.monotonic(), "another"))
    asked.asking.new_kubelet()
    asked.kubelet.answers["v1"] = empty
    go_on.set()
    await until(lambda: asked.calls == 2)
    await until(lambda: asked.asking.answered)
    assert (asked.value.listed, asked.value.unlisted) == ({}, {})


async def test_garbage_is_complained_of_and_changes_nothing(asked):
    asked.kubelet.answers["v1"] = b"\xff"
    asked.start()
    await until(lambda: asked.asking.complaint)
    assert "not a ListPodResourcesResponse" in asked.asking.complaint
    assert asked.value.listed == {}


@pytest.fixture
async def running(asked):
    """Its pod runs in a sandbox, the kubelet lists it, and the container runtime tells what happens."""
    asked.cri.sandboxes, asked.cri.containers = {"uid-a": [READY]}, {"uid-a": [RUNNING]}
    await asked.cri.start()
    asked.start()
    await until(lambda: asked.value.listed and asked.cri.listeners)
    yield asked
    await asked.cri.stop()


def stop(asked):
    asked.cri.sandboxes, asked.cri.containers = {"uid-a": [STOPPED]}, {"uid-a": [EXITED]}
    asked.cri.says("uid-a")


async def test_an_unlisted_pod_whose_sandbox_has_stopped(running):
    """Its directory is still there."""
    running.kubelet.answers["v1"] = encoded()
    stop(running)
    await until(lambda: running.value.freed)
    assert running.value.gone == {"uid-a"}
    assert running.pod.exists()


async def test_a_listed_pod_whose_sandbox_has_stopped(running):
    """The kubelet makes another one, or lists the pod no more a little later, of which nothing hints."""
    calls = running.calls
    stop(running)
    await until(lambda: running.calls > calls + 1)
    assert running.value.freed == frozenset()
    running.kubelet.answers["v1"] = encoded()
    await until(lambda: running.value.freed)


async def test_an_unlisted_pod_of_which_something_runs(running):
    """A static pod that its kubelet ends."""
    running.kubelet.answers["v1"] = encoded()
    await running.more_calls(2)
    await until(lambda: "ListPodSandbox" in running.cri.asked)
    assert running.value.unlisted.keys() == {"a"}
    running.cri.sandboxes = {"uid-a": [STOPPED]}
    running.cri.says("uid-a")
    await until(lambda: "ListContainers" in running.cri.asked)
    await running.more_calls(2)
    assert running.value.freed == frozenset()
    stop(running)
    await until(lambda: running.value.freed)


@pytest.mark.parametrize("silent", [False, True])
async def test_an_unlisted_pod_that_runs_for_longer_than_usual(running, silent):
    """A static pod with a grace period of minutes; the runtime may start again meanwhile."""
    running.cri.static = {"uid-a"}
    running.kubelet.answers["v1"] = encoded()
    await running.more_calls(3)
    if silent:
        running.cri.fails = {"ListPodSandbox", "ListContainers"}
    since = {"a": time.monotonic() - 2 * LINGER}
    running.holdings.set(replace(running.value, unlisted=since))
    await running.more_calls(2)
    assert running.value.freed == frozenset()
    running.cri.fails = set()
    running.holdings.set(replace(running.value, unlisted=since))
    stop(running)
    await until(lambda: running.value.freed)


async def test_a_pod_that_is_listed_again_has_its_devices_again(running):
    running.kubelet.answers["v1"] = encoded()
    stop(running)
    await until(lambda: running.value.freed)
    running.kubelet.answers["v1"] = encoded(ENCODER)
    await running.more_calls()
    await until(lambda: not running.value.gone)
    assert running.value.in_use == {"a"}


@pytest.mark.parametrize("static", [True, False])
async def test_a_pod_that_the_kubelet_has_struck_has_its_devices_while_it_runs(running, static):
    """It was deleted by force, or its manifest is gone, and the note was written for another pod's Allocate."""
    running.cri.static = {"uid-a"} if static else set()
    await until(lambda: running.value.struck.asks)
    running.kubelet.answers["v1"] = encoded()
    now = time.monotonic()
    running.holdings.set(running.value.noted({}, now, now))
    await running.more_calls(2)
    assert running.value.freed == frozenset()
    stop(running)
    await until(lambda: running.value.freed)
    assert running.pod.exists()


async def test_whether_the_runtime_tells_is_known_before_the_first_pod(asked):
    """The kubelet may strike that before anything else was asked: List waits for Allocates in flight."""
    asked.holdings.set(Holdings().remembered({}).new_kubelet(0.0, "kubelet").noted({}, 1.0, 1.0))
    await asked.cri.start()
    asked.start()
    await until(lambda: asked.value.struck.asks)
    asked.holdings.set(asked.value.noted(NOTE, 2.0, 2.0).noted({}, 3.0, 3.0))
    assert asked.value.freed == frozenset()
    await asked.cri.stop()


async def test_without_a_runtime_the_pod_s_cgroup_says_whether_it_runs(asked):
    uid, now = "0f3c1d2e-4a5b-4c6d-8e7f-0123456789ab", time.monotonic()
    running = asked.cgroups / f"kubepods/pod{uid}/cgroup.events"
    running.parent.mkdir(parents=True)
    running.write_text("populated 1\n")
    asked.start()
    await until(lambda: asked.value.struck.asks)
    asked.holdings.set(asked.value.noted({"a": Noted((), frozenset({Container(uid, "main")}))}, now, now))
    asked.kubelet.answers["v1"] = encoded()
    asked.holdings.set(asked.value.noted({}, now, now))
    await asked.more_calls(2)
    assert asked.value.freed == frozenset()
    running.write_text("populated 0\n")
    await until(lambda: asked.value.freed)


async def test_without_runtime_and_cgroups_the_kubelet_is_believed(asked):
    asked.start()
    await asked.more_calls()
    now = time.monotonic()
    asked.holdings.set(asked.value.noted({}, now, now))
    assert asked.value.freed == {"a"}
