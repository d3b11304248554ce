"""The verbs of a node that has an API server."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dpgateway_simulator.apiserver import ApiRefusal
from dpgateway_simulator.cluster import SimulatedCluster
from dpgateway_simulator.prompt import verbs
from dpgateway_simulator.prompt.command import simulate
from dpgateway_simulator.prompt.printing import Printer
from dpgateway_simulator.prompt.session import Session, StepError, WordsError
from dpgateway_simulator.prompt.steps import FAILURES
from tests.simulator.cluster.conftest import Site
from tests.simulator.drivers import DRIVER, X, device
from tests.support.waiting import BUSY


class Desk(Session):
    """A session of a node with a driver, and what it printed."""

    def __init__(self, site: Site) -> None:
        self.printed: list[tuple[str, Any]] = []
        super().__init__(site.kubelet, lambda name, value: self.printed.append((name, value)), BUSY, site.cluster)

    async def do(self, *lines: str) -> None:
        for line in lines:
            await verbs.read(line)(self)


@pytest.fixture
async def desk(short_path: Path) -> AsyncIterator[Desk]:
    async with AsyncExitStack() as stack:
        site = Site(await stack.enter_async_context(SimulatedCluster()), short_path, stack)
        await site.kubelet.start()
        driver = await site.driver().start(site.kubelet)
        await site.kubelet.wait_for_event("slices wiped")
        driver.publish(device("d0"), device("d1", taints=[{"key": "k", "value": "old", "effect": "PreferNoSchedule"}]))
        yield Desk(site)


async def test_pods_by_dra_in_words(desk: Desk) -> None:
    await desk.do(
        f"class x {DRIVER} {X}", f"pod p1 {X}=1", f"create p2 c:{X}=1 side:{X}=1", "phase p2 Pending because all"
    )
    await desk.do(
        "slices", "claims", "delete p1", "phase p1 Gone", "phase p2 Running", "delete p2 --force", "phase p2 Gone"
    )
    (_, devices), (_, claims) = desk.printed
    (claim,) = claims
    assert (claim["pods"], claim["devices"]) == (["p1"], ["d0"])
    assert devices[0] == {"device": "d0", "pool": "p", "driver": DRIVER, "taints": [], "claims": [claim["claim"]]}
    assert devices[1]["taints"] == ["old"]


async def test_claims_by_hand_in_words(desk: Desk) -> None:
    await desk.do(f"class x {DRIVER} {X}", "claim k x 2", "pod p1 a:claim=k", "claim m x", "create p2 claim=m")
    await desk.do("phase p2 Pending because cannot allocate", "reboot", "phase p1 Running", "claims")
    assert [one["devices"] for one in desk.printed[0][1]] == [["d0", "d1"], []]


async def test_the_api_servers_faults_in_words(desk: Desk) -> None:
    server = (desk.cluster or SimulatedCluster()).server
    await desk.do("api down", "api up", "api hang")
    assert not server.serving
    await desk.do("api resume", "api gate DRADeviceTaints off", "api answer 429 GET nodes", "api forbid list pods")
    assert server.serving
    assert (server.store.off, server.forbidden) == ({"DRADeviceTaints"}, {("list", "pods")})
    assert server.faults == [("GET nodes", 429, {"Retry-After": "1"})]
    await desk.do("api gate DRADeviceTaints on", "api compact", "api wipe", "api allow")
    assert (server.store.off, server.forbidden, server.store.list("resourceslices")) == (set(), set(), [])


@pytest.mark.parametrize(
    ("lines", "kind", "error"),
    [
        (["pod p1 example.com/y=1"], TimeoutError, "pod p1 isn't Running after 0 s, but Pending: 0/1 nodes"),
        (["create p1", "create p1"], ApiRefusal, 'pods "p1" already exists'),
        (["delete p1"], StepError, "there is no pod p1"),
        (["phase p1 Running"], TimeoutError, "isn't Running after 0 s, but Gone"),
    ],
)
async def test_steps_that_fail_in_a_cluster(desk: Desk, lines: list[str], kind: type[Exception], error: str) -> None:
    desk.patience = 0
    assert issubclass(kind, FAILURES)  # a script ends with its text, and 1
    with pytest.raises(kind, match=error):
        await desk.do(*lines)


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("create", "expected POD RESOURCE=N"),
        ("phase p1", "expected POD PHASE"),
        ("phase p1 Happy", "expected Pending, Running, Failed, Terminating, Gone"),
        ("class x d", "expected NAME DRIVER RESOURCE"),
        ("claim k", "expected NAME CLASS COUNT"),
        ("claim k x many", "expected a number of devices"),
        ("api dance", "expected down | up"),
        ("api gate Nothing off", "gates: DRAConsumableCapacity"),
        ("api answer soon GET", "expected down | up"),
    ],
)
def test_cluster_words_that_make_no_sense(line: str, error: str) -> None:
    with pytest.raises(WordsError) as caught:
        verbs.read(line)
    assert error in str(caught.value)


async def test_the_verbs_of_a_cluster_need_one(tmp_path: Path) -> None:
    site = Session(SimulatedCluster().node(root=tmp_path), lambda *_: None)
    with pytest.raises(StepError, match="give simulate --api-port"):
        await verbs.read("api down")(site)


def test_tables_have_their_keys_as_head() -> None:
    lines: list[str] = []
    printer = Printer("table", lines.append)
    printer.answer("claims", [{"claim": "k", "pods": ["p1", "p2"], "devices": []}])
    printer.answer("slices", [])
    assert lines == ["CLAIM  PODS    DEVICES\nk      p1, p2  -", "no slices"]


def test_a_script_with_an_api_server(short_path: Path) -> None:
    script = short_path / "script"
    script.write_text("phase kube-proxy Running\nreject p1 example.com/x=1\nslices")
    words = ["--device-plugins-dir", str(short_path / "device-plugins"), "--api-port", "0", "--script", str(script)]
    result = CliRunner().invoke(simulate, [*words, "--output", "json", "--node-name", "n7"])
    assert result.exit_code == 1, (
        result.output
    )  # a pod without a scheduler, of a resource that nobody knows, is admitted
    found = [json.loads(line) for line in result.output.splitlines() if line.startswith("{")]
    assert found[0]["event"] == "api server"
    wrong = CliRunner().invoke(simulate, ["--device-plugins-dir", str(short_path / "dp"), "--api-port", "0"])
    assert (wrong.exit_code, "named device-plugins" in wrong.output) == (2, True)
