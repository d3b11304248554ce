"""Where the time goes between the end of a pod and the release of its device, on a whole node of the newest release.

``python -m tools.endings`` starts static pods on it, two at a time, deletes them, and prints for each sign of their end
how long after the end of the container's process it was first seen. The node and its programs are those of
tests/real_kubelet (``make test-kubelets`` builds them); it needs root.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from dpgateway.errors import GatewayError
from dpgateway.kit.threads import Threads
from dpgateway.node.podresources import PodResources
from tests.real_kubelet.node.node import HOST, Node
from tests.real_kubelet.node.pods import FOREVER
from tests.scenarios.gateway import Gateway
from tests.scenarios.kubelet import RESOURCE

LOOK = 0.02
"""Seconds between two polls; a kubelet allows 100 Lists a second."""
LONGEST = 60.0
"""Seconds for all signs to be seen, at most."""
Times = dict[str, float]
Sign = Callable[[], Awaitable[bool]]


class Endings:
    """Observes the ends of the pods of one node."""

    def __init__(self, node: Node, gateway: Gateway) -> None:
        self._node, self._gateway = node, gateway
        self._resources = PodResources(node.pod_resources_socket, Threads())
        self._listed: frozenset[str] = frozenset()

    async def follow_list(self) -> None:
        while True:
            try:
                listing = await self._resources.list([RESOURCE])
                self._listed = frozenset(holder.pod for holder in listing[RESOURCE].values())
            except GatewayError as error:
                print(f"no List: {error}", flush=True)
            await asyncio.sleep(LOOK)

    async def of(self, name: str) -> Times:
        """Runs a pod and deletes it. The time of each sign of its end, in seconds from the deletion."""
        limits = {"limits": {RESOURCE: 1}}
        await self._node.run_pod(name, [{"name": "c", "resources": limits, "command": [*FOREVER, name]}])
        pod = await self._node.wait_for_pod(name)
        spec = (await self._node.spec(pod.container_id("c")))["annotations"]
        (index,) = [key[-1] for key in spec if key.startswith("example.com/thing_node-")]
        directory = self._node.root / "kubelet/pods" / pod.uid
        container, sandbox = _process(pod.container_id("c")), _process(spec["io.kubernetes.cri.sandbox-id"])
        count = sum(f"released node-{index}" in line for line in self._gateway.log)
        began = time.monotonic()
        (self._node.root / "manifests" / f"{name}.json").unlink()
        signs: dict[str, Sign] = {
            "container's process ended": _gone(container),
            "sandbox's process ended": _gone(sandbox),
            "not listed by PodResources": lambda: _is(f"{name}-{HOST}" not in self._listed),
            "pod's directory removed": _gone(directory),
            "released": lambda: _is(sum(f"released node-{index}" in line for line in self._gateway.log) > count),
        }
        return {sign: seen - began for sign, seen in (await _watch(signs)).items()}


def _process(container: str) -> Path:
    """A container's directory in the machine's /proc, by its cgroup, which is named after the container's id."""
    for path in Path("/proc").glob("[0-9]*/cgroup"):
        try:
            if container in path.read_text():
                return path.parent
        except OSError:  # it has ended
            continue
    raise LookupError(f"no process is in the cgroup of {container}")


async def _is(truth: bool) -> bool:
    return truth


def _gone(path: Path) -> Sign:
    return lambda: _is(not path.exists())


async def _watch(signs: dict[str, Sign]) -> Times:
    seen: Times = {}
    async with asyncio.timeout(LONGEST):
        while len(seen) < len(signs):
            for sign, is_there in signs.items():
                if sign not in seen and await is_there():
                    seen[sign] = time.monotonic()
            await asyncio.sleep(LOOK)
    return seen


async def measure(rounds: int, folder: Path, *, runtime: bool) -> list[Times]:
    async with Node(folder / "node") as node:
        gateway = Gateway(folder, node.device_plugins_dir)
        gateway.runtime = {"socket": str(node.root / "containerd.sock")} if runtime else {"socket": "/nowhere/runtime"}
        gateway.options |= {"count": 2, "annotation_prefix": "example.com/thing", "release": True}
        async with gateway:
            await gateway.start()
            await gateway.said(" registered resource=")
            endings = Endings(node, gateway)
            listing = asyncio.create_task(endings.follow_list())
            found: list[Times] = []
            for number in range(rounds):
                found += await asyncio.gather(*(endings.of(f"{letter}{number}") for letter in "ab"))
                print(json.dumps({sign: round(at, 2) for sign, at in found[-1].items()}), flush=True)
            listing.cancel()
            await gateway.end()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="of two pods each")
    parser.add_argument("--without-runtime", action="store_true", help="the gateway can't ask the container runtime")
    words = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="endings-"))
    try:
        found = asyncio.run(measure(words.rounds, folder, runtime=not words.without_runtime))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print("| seconds after the container's process ended | p50 | p99 | longest |\n|---|---|---|---|")
    for sign in found[0]:
        after = sorted(times[sign] - times["container's process ended"] for times in found)
        p99 = statistics.quantiles(after, n=100, method="inclusive")[98]
        print(f"| {sign} | {statistics.median(after):.2f} | {p99:.2f} | {after[-1]:.2f} |")


if __name__ == "__main__":
    main()
