"""What the preflight says of an upgrade is what the newer kubelet does with the older one's checkpoint."""

import asyncio
import json
from asyncio.subprocess import PIPE
from typing import Any

import pytest

from dpgateway.node.checkpoint import parse
from tests.scenarios.engines import REAL
from tests.scenarios.gateway import Gateway
from tests.scenarios.kubelet import RESOURCE, Kubelet, devices
from tests.support.gateway import COMMAND

ONE = {"c": {RESOURCE: 1}}
PAIRS = [
    ("1.8", "1.9"),
    ("1.9", "1.8"),
    ("1.9", "1.10"),
    ("1.9", "1.37"),
    ("1.10", "1.12"),
    ("1.10", "1.37"),
    ("1.12", "1.10"),
    ("1.12", "1.24"),
    ("1.12", "1.25"),
    ("1.12", "1.31"),
    ("1.12", "1.37"),
    ("1.24", "1.12"),
    ("1.24", "1.37"),
    ("1.31", "1.37"),
    ("1.37", "1.31"),
    ("1.37", "1.24"),
]
"""Each format of the checkpoint meets a kubelet that reads it, where there is one, and one that doesn't."""
SIMULATED = [("1.8", "1.9"), ("1.31", "1.37")]
"""What make test has of them: one that forgets, and one that doesn't. Each starts three gateways."""
CHOSEN = PAIRS if REAL else SIMULATED


async def says(gateway: Gateway, to: str) -> dict[str, Any]:
    """Nothing runs but the gateway. A simulated kubelet reads a copy of what a real one wrote."""
    given = [f"--config={gateway.folder}/config.yaml", f"--device-plugins-dir={gateway.device_plugins_dir}"]
    given += [
        "--node-name=node",
        f"--control-socket={gateway.folder}/control.sock",
        "--output=json",
        "--rehearse",
        f"--to={to}",
    ]
    process = await asyncio.create_subprocess_exec(*COMMAND, "preflight", *given, stdout=PIPE)
    output, _ = await process.communicate()
    assert process.returncode in (0, 1)
    told: dict[str, Any] = json.loads(output)
    return told


@pytest.mark.parametrize(("kubelet", "new"), CHOSEN, indirect=["kubelet"], ids=map("-".join, CHOSEN))
async def test_forgotten_if_the_preflight_says_so(kubelet: Kubelet, served: Gateway, new: str) -> None:
    old = kubelet.minor
    held = devices(await kubelet.admit("p1", ONE))
    await kubelet.end()
    told = await says(served, new)
    oldest, newest = (int(told["from"][end].removeprefix("1.")) for end in ("oldest", "newest"))
    assert oldest <= old <= newest
    forgotten = [one for one in told["findings"] if one["code"] == "checkpoint-forgotten"]
    assert [set(one["ids"]) for one in forgotten] in ([], [held])
    played = {one["code"] for one in told["findings"] if one["code"].startswith("rehearsal-")}
    assert bool(played) == bool(forgotten), told["rehearsal"]

    await kubelet.start(new, first="pods")
    await kubelet.wait_for_devices(2)
    await kubelet.admit("p2", ONE)  # 1.8 writes its checkpoint when it gives something away, the others at each list
    holders = {
        one.pod_uid for noted in parse(_checkpoint(kubelet)).notes[RESOURCE].values() for one in noted.containers
    }
    assert holders == ({"p2"} if forgotten else {"p1", "p2"})


def _checkpoint(kubelet: Kubelet) -> bytes:
    return (kubelet.directory / "kubelet_internal_checkpoint").read_bytes()
