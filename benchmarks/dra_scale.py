"""What the DRA fronts of a thousand nodes ask of an API server: ``python -m benchmarks.dra_scale``.

The API server and etcd are real, those of tests/cluster, and nobody else asks anything of them; the Nodes are objects
without kubelets. Fronts run in a few processes (``dra_nodes.py``). Requests are counted in the API server's audit log,
bytes at the network interface that all of them pass, CPU time at the processes. It needs root, and takes some 15
minutes with the usual 10 minutes of idling.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.dra_nodes import DEVICES, RESOURCES
from benchmarks.machine import cpu_seconds, describe
from benchmarks.numbers import percentile
from tests.cluster.machine.cluster import free_net
from tests.cluster.machine.control import Control

ACCOUNT = "system:serviceaccount:default:gateway"
POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "users": [ACCOUNT]}],
}
SETTLING = 240.0
"""Seconds in which all nodes must have their slices right."""
FLAPPING = 60.0
"""Seconds."""


@dataclass
class Phase:
    """What was seen while something was done."""

    name: str
    seconds: float = 0.0
    right: float = 0.0
    """Seconds until the slices of all nodes were right, and seen; of a restart, after the API server was ready."""
    requests: list[tuple[float, str, int]] = field(default_factory=list)
    """The moment, verb and kind, and the status of each."""
    sent: int = 0
    received: int = 0
    """Bytes, as the API server sees them."""
    cpu: Mapping[str, float] = field(default_factory=dict)
    """Seconds, by program."""


class Scale:
    """The control plane, and the processes with the nodes."""

    def __init__(self, folder: Path, nodes: int, processes: int) -> None:
        self.nodes, self.processes, self._folder = nodes, processes, folder
        self._claim, net = free_net()
        policy, self._audit = folder / "policy.json", folder / "audit.log"
        policy.write_text(json.dumps(POLICY))
        flags = f"--audit-policy-file={policy}", f"--audit-log-path={self._audit}", "--audit-log-mode=batch"
        self.control = Control(folder / "control", net, *flags)
        self._workers: list[subprocess.Popen[str]] = []

    def up(self) -> None:
        api = self.control.api
        self.control.up_with_api_server()
        api("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "gateway"}})
        rules = [{"apiGroups": ["resource.k8s.io"], "resources": ["resourceslices"], "verbs": ["*"]}]
        rules.append({"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]})
        rbac = "/apis/rbac.authorization.k8s.io/v1"
        api("POST", f"{rbac}/clusterroles", {"metadata": {"name": "gateway"}, "rules": rules})
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "gateway"}
        subjects = [{"kind": "ServiceAccount", "name": "gateway", "namespace": "default"}]
        binding = {"metadata": {"name": "gateway"}, "roleRef": role, "subjects": subjects}
        api("POST", f"{rbac}/clusterrolebindings", binding)
        with ThreadPoolExecutor(8) as threads:
            made = [{"metadata": {"name": f"n{number}"}} for number in range(self.nodes)]
            list(threads.map(lambda one: api("POST", "/api/v1/nodes", one), made))
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 7200}}
        said = api("POST", "/api/v1/namespaces/default/serviceaccounts/gateway/token", asked)
        (self._folder / "token").write_text(said["status"]["token"])

    def start(self) -> None:
        """All nodes at once."""
        each, place = self.nodes // self.processes, f"https://{self.control.address}"
        for number in range(self.processes):
            files = self.control.pki["ca.crt"], self._folder / "token"
            argv = [sys.executable, "-m", "benchmarks.dra_nodes", place, *files, number * each, each]
            pipe = subprocess.PIPE
            self._workers.append(subprocess.Popen(list(map(str, argv)), stdin=pipe, stdout=pipe, text=True))

    def tell(self, command: str) -> None:
        for one in self._workers:
            if one.stdin is not None:
                one.stdin.write(f"{command}\n")
                one.stdin.flush()

    def right(self) -> int:
        """The nodes whose slices are right, and seen."""
        self.tell("state")
        return sum(int(one.stdout.readline()) for one in self._workers if one.stdout is not None)

    def until_right(self) -> float:
        """Returns the seconds that it took."""
        began = time.monotonic()
        while (found := self.right()) < self.nodes:
            if time.monotonic() - began > SETTLING:
                raise RuntimeError(f"found the slices of {found} nodes right, expected {self.nodes}")
            time.sleep(0.2)
        return time.monotonic() - began

    def down(self) -> None:
        for one in self._workers:
            one.kill()
            one.wait()
        self.control.close()
        self._claim.close()

    @contextmanager
    def phase(self, name: str) -> Iterator[Phase]:
        one, began = Phase(name), time.time()
        sent, received, cpu = self._bytes("rx"), self._bytes("tx"), self._cpu()
        yield one
        one.seconds = time.time() - began
        one.sent, one.received = self._bytes("rx") - sent, self._bytes("tx") - received
        # A process that was started meanwhile has used all that it has.
        one.cpu = {key: now - was if now > (was := cpu.get(key, 0.0)) else now for key, now in self._cpu().items()}
        time.sleep(2)  # until the audit log is written (--audit-log-batch-max-wait is 30 s, but batches are full)
        one.requests = [request for request in self._requests() if began <= request[0] <= began + one.seconds]

    def _bytes(self, which: str) -> int:
        return int(Path(f"/sys/class/net/{self.control.link}/statistics/{which}_bytes").read_text())

    def _cpu(self) -> dict[str, float]:
        names = [name for name in ("kube-apiserver", "etcd") if self.control.runs(name)]
        return {name: cpu_seconds(self.control.pid_of(name)) for name in names}

    def _requests(self) -> Iterator[tuple[float, str, int]]:
        seen = set()
        for line in self._audit.read_text().splitlines():
            event: dict[str, Any] = json.loads(line)
            if event["auditID"] not in seen:  # a watch is in it when it begins, and when it ends
                seen.add(event["auditID"])
                at = datetime.fromisoformat(event["requestReceivedTimestamp"]).astimezone(UTC).timestamp()
                dry = " dry run" if "dryRun" in event["requestURI"] else ""
                what = f"{event['verb']} {event['objectRef']['resource']}{dry}"
                yield at, what, event.get("responseStatus", {}).get("code", 0)


def measure(scale: Scale, idle: float, outages: list[float]) -> Iterator[Phase]:
    with scale.phase("start, all at once") as one:
        scale.start()
        one.right = scale.until_right()
    yield one
    with scale.phase(f"idle for {idle:.0f} s") as one:
        time.sleep(idle)
    yield one
    flapping = scale.nodes * len(RESOURCES) * DEVICES // 100
    with scale.phase(f"{flapping} devices flap, once a second") as one:
        scale.tell(f"flap 1 {flapping // scale.processes}")
        time.sleep(FLAPPING)
        scale.tell("still")
        one.right = scale.until_right()
    yield one
    for seconds in outages:
        scale.control.end("kube-apiserver", signal.SIGKILL)  # SIGTERM waits a minute for watches
        time.sleep(seconds)
        with scale.phase(f"the API server is back after {seconds:.0f} s") as one:
            scale.control.start_api_server()
            one.right = scale.until_right()
        yield one


def row(one: Phase, nodes: int) -> str:
    by_second = Counter(int(at) for at, _, _ in one.requests)
    kinds = Counter(what for _, what, _ in one.requests)
    refused = Counter(status for _, _, status in one.requests if status >= 400)
    times = [at for at, _, _ in one.requests]
    middle = percentile(times, 97.5) - percentile(times, 2.5) if times else 0.0
    return (
        f"{one.name}: {one.seconds:.0f} s, right after {one.right:.1f} s\n"
        f"  requests {len(one.requests)}, {len(one.requests) / nodes:.2f} a node: {dict(kinds)}\n"
        f"  refused {dict(refused)}\n"
        f"  most in a second {max(by_second.values(), default=0)}, 95 % within {middle:.1f} s\n"
        f"  bytes to the server {one.sent / nodes:.0f} a node, from it {one.received / nodes:.0f} a node\n"
        f"  CPU ms a node: " + ", ".join(f"{key} {1000 * value / nodes:.2f}" for key, value in one.cpu.items())
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.dra_scale", description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--idle", type=float, default=600.0, help="seconds")
    parser.add_argument("--outages", type=float, nargs="*", default=[3.0, 60.0], help="seconds each")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="dra-scale-"))
    scale = Scale(folder, options.nodes, options.processes)
    try:
        scale.up()
        print(f"{describe()}; {options.nodes} nodes", flush=True)
        for one in measure(scale, options.idle, options.outages):
            print(row(one, options.nodes), flush=True)
    finally:
        scale.down()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
