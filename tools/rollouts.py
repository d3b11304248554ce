"""Rolls the chart's DaemonSet out on the cluster of tests/cluster while pods come and go on each of its nodes.

``python -m tools.rollouts`` (as root, after ``make test-cluster`` has built the programs) prints, for each node, how
many pods its kubelet refused: during a rollout, and with as many pods without one.
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.cluster.conftest import NODES, ROOT
from tests.cluster.installed import Chart, pod, simulated
from tests.cluster.machine.box import until
from tests.cluster.machine.cluster import Cluster

RESOURCES = [f"example.com/thing{number}" for number in range(4)]
DEVICES = 64
MOST = 32
"""Pods per node at a time: few enough for free devices at any time, since a kubelet frees a device after its pod."""
PATH = "/api/v1/namespaces/default/pods"
ADMISSION = "UnexpectedAdmissionError"


@dataclass
class Seen:
    """Observations of the pods."""

    pods: Counter[str] = field(default_factory=Counter)
    """Numbers of pods, by node."""
    refused: Counter[str] = field(default_factory=Counter)
    """Numbers of pods with an UnexpectedAdmissionError, by node."""
    messages: Counter[str] = field(default_factory=Counter)
    """Numbers of failed pods, by node, reason and message."""
    seconds: float = 0


class Churn:
    """Creates pods with one device of every resource, and deletes them once they run or have failed."""

    def __init__(self, cluster: Cluster, per_second: float) -> None:
        self._api, self._nodes, self._pause = cluster.control.api, list(cluster.nodes), 1 / per_second
        self._numbers = itertools.count()
        self._there: dict[str, list[str]] = defaultdict(list)

    def run(self, least: int, rollout: threading.Thread | None) -> Seen:
        """Runs at least ``least`` pods, and until the rollout is over."""
        seen, began = Seen(), time.monotonic()
        if rollout:
            rollout.start()
        while seen.pods.total() < least or (rollout and rollout.is_alive()):
            next_one = time.monotonic() + self._pause
            self._create(seen)
            self._delete(seen)
            time.sleep(max(0.0, next_one - time.monotonic()))
        seen.seconds = time.monotonic() - began
        until("end of the pods", lambda: not self._delete(seen), 120)
        return seen

    def _create(self, seen: Seen) -> None:
        number = next(self._numbers)
        node = self._nodes[number % len(self._nodes)]
        if len(self._there[node]) < MOST:
            one = pod(f"churn-{number}", node, dict.fromkeys(RESOURCES, 1))
            self._api("POST", PATH, one)
            self._there[node].append(one["metadata"]["name"])
            seen.pods[node] += 1

    def _delete(self, seen: Seen) -> int:
        """Deletes every pod that runs or has failed; returns the number of remaining pods."""
        # resourceVersion=0 reads the API server's cache, which is cheap and may lag: a pod that it lacks may be new,
        # so only a GET of the pod itself tells that it is gone.
        found = {one["metadata"]["name"]: one for one in self._api("GET", f"{PATH}?resourceVersion=0")["items"]}
        for node, names in self._there.items():
            for name in names:
                if (one := found.get(name)) and "deletionTimestamp" not in one["metadata"]:
                    self._look(seen, node, one)
            names[:] = [name for name in names if name in found or self._api("GET", f"{PATH}/{name}")]
        return sum(map(len, self._there.values()))

    def _look(self, seen: Seen, node: str, one: dict[str, Any]) -> None:
        status = one["status"]
        if status["phase"] == "Failed":
            seen.refused[node] += status.get("reason") == ADMISSION
            seen.messages[f"{node}: {status.get('reason')}: {status.get('message')}"] += 1
        if status["phase"] in ("Running", "Failed"):
            self._api("DELETE", f"{PATH}/{one['metadata']['name']}")


def measure(cluster: Cluster, least: int, per_second: float, rollouts: int) -> tuple[Seen, Seen]:
    """Observations during successive rollouts, and of as many pods without one."""
    chart = Chart(cluster)
    values = {"config": {"resources": [simulated(name, DEVICES) for name in RESOURCES]}}
    chart.install(values)
    for node in cluster.nodes:
        for name in RESOURCES:
            chart.until_offered(node, name, DEVICES)

    def roll_out() -> None:
        for number in range(rollouts):
            chart.install(values | {"podAnnotations": {"example.com/rollout": str(number)}}, "--timeout=300s")

    churn = Churn(cluster, per_second)
    rolled = churn.run(least, threading.Thread(target=roll_out))
    return rolled, churn.run(rolled.pods.total(), None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=200, help="at least so many, on all nodes together")
    parser.add_argument("--per-second", type=float, default=20, help="at most so many are made")
    parser.add_argument("--rollouts", type=int, default=1)
    words = parser.parse_args()
    cluster = Cluster(NODES)
    with tempfile.TemporaryDirectory(prefix="image-") as where:
        image = Path(where) / "dpgateway.tar"
        make = [sys.executable, "-m", "tools.image", "--driver=simulated", str(image)]
        subprocess.run(make, cwd=ROOT, check=True)
        cluster.up()
        try:
            cluster.load(image)
            rolled, quiet = measure(cluster, words.pods, words.per_second, words.rollouts)
        finally:
            cluster.down()
    print("| kubelet | pods refused during the rollout | without one |")
    print("|---|---|---|")
    for name, (release, _) in NODES.items():
        with_it, without = (f"{seen.refused[name]} of {seen.pods[name]}" for seen in (rolled, quiet))
        print(f"| {release} | {with_it} | {without} |")
    for what, seen in {"with": rolled, "without": quiet}.items():
        print(f"{what}: {seen.pods.total() / seen.seconds:.1f} pods a second for {seen.seconds:.0f} s")
        for message, count in seen.messages.most_common(10):
            print(f"    {count}: {message}")


if __name__ == "__main__":
    main()
