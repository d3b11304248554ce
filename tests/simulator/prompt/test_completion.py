from dataclasses import dataclass

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from dpgateway_simulator import Kubelet
from dpgateway_simulator.prompt.completion import LineCompleter
from dpgateway_simulator.prompt.terminal_verbs import KNOWN
from tests.simulator.rig import Rig, X


@dataclass
class Complete:
    kubelet: Kubelet

    def __call__(self, text: str) -> list[str]:
        found = LineCompleter(self.kubelet, KNOWN).get_completions(Document(text), CompleteEvent())
        return [text[: len(text) + one.start_position] + one.text for one in found]


@pytest.fixture
async def complete(rig: Rig) -> Complete:
    kubelet, _ = await rig.both("1.24")
    await kubelet.admit("p1", {"main": {X: 1}})
    return Complete(kubelet)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("re", ["reject", "restart-container", "restart", "reboot", "register"]),
        ("help up", ["help upgrade"]),
        ("upgrade 1.3", [f"upgrade 1.{minor}" for minor in range(37, 29, -1)]),
        ("upgrade 1.30 ", []),
        ("wait ex", [f"wait {X}=2"]),
        (f"wait {X}=2 w", [f"wait {X}=2 within"]),
        ("expect pod ", ["expect pod p1"]),
        ("expect cr", ["expect crashed"]),
        ("see pod_a", ["see pod_admitted"]),
        ("see pod_admitted ", ["see pod_admitted pod=p1"]),
        ("pod p2 side:ex", [f"pod p2 side:{X}=1"]),
        (f"reject p2 {X}=9 b", [f"reject p2 {X}=9 because"]),
        ("delete ", ["delete p1"]),
        ("restart-container p1 ", ["restart-container p1 main"]),
        ("restart g", ["restart gracefully"]),
        ("drop-streams ", [f"drop-streams {X}"]),
        ("misbehave stall ", [f"misbehave stall {X}"]),
        ("misbehave refuse UNAV", ["misbehave refuse UNAVAILABLE"]),
        ("socket t", ["socket touch"]),
        ("print devices p1 ", ["print devices p1 main"]),
        ("watch ", [f"watch {X}"]),
        ("run ls /de", ["run ls /dev"]),
        ("dance ", []),
    ],
)
async def test_completes_a_line(complete: Complete, text: str, expected: list[str]) -> None:
    assert complete(text) == expected


@pytest.mark.parametrize("name", KNOWN)
async def test_completes_without_a_kubelet(complete: Complete, name: str) -> None:
    await complete.kubelet.kill()
    assert all(one.startswith(f"{name} ") for one in complete(f"{name} "))
