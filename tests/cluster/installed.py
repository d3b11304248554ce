"""The chart on the cluster, as an operator installs and changes it."""

import contextlib
import json
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from dpgateway.resource.ownership import FOLDER as SOCKETS
from dpgateway.resource.ownership import LAST
from tests.cluster.machine.box import ClusterError, until
from tests.cluster.machine.cluster import Cluster
from tests.real_kubelet.node.image import IMAGE

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "helm" / "dpgateway"
NAMESPACE = "hardware"
RELEASE = "dpgateway"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=app.kubernetes.io%2Fname%3Ddpgateway"

ROUNDED = 1.5
"""The status says whole seconds. No kubelet lives so short that this is of its predecessor."""


class Chart:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._values: Mapping[str, Any] | None = None
        """Of the chart that is installed."""
        self._before: Mapping[str, Any] | None = None
        """Of the one before it."""
        self._earlier = False
        """Whether an earlier test installed it."""

    def begin(self) -> None:
        """Another test begins."""
        self._earlier = True

    def ensure(self, values: Mapping[str, Any]) -> None:
        """Installs, unless an earlier test has left a chart with exactly these values, which saves some seconds."""
        if self._values != values:
            self.install(values)
        self._earlier = False
        for node in self._cluster.nodes:
            self.until_served(node)

    def install(self, values: Mapping[str, Any], *options: str) -> str:
        """Installs or upgrades, with exactly these values, and waits as `--wait` does. Returns what helm prints."""
        if self._earlier:
            self.clear()
        self._before, self._values = self._values, {}  # until it is done, nobody knows
        file = self._cluster.folder / "values.json"
        file.write_text(json.dumps(values))
        where = ("--namespace", NAMESPACE, "--create-namespace", "--wait", "--timeout=240s")
        said = self._cluster.helm("upgrade", "--install", RELEASE, FOLDER, *where, f"--values={file}", *options)
        self._values = values
        return said

    def roll_back(self) -> None:
        """To the values before the last ones, which failed."""
        self._cluster.helm("rollback", RELEASE, "--namespace", NAMESPACE, "--wait", "--timeout=240s")
        self._values = self._before

    def test(self) -> str:
        return self._cluster.helm("test", RELEASE, "--namespace", NAMESPACE, "--logs", "--timeout=240s")

    def uninstall(self, told: Iterable[Path] = ()) -> None:
        """``told``: the files that say that no gateway follows; one that has just begun removes its own."""
        self._earlier = False

        def ended() -> bool:
            for file in told:
                file.touch()
            return not self._cluster.control.api("GET", PODS)["items"]

        if self._values is not None:
            self._cluster.helm("uninstall", RELEASE, "--namespace", NAMESPACE, "--wait", "--ignore-not-found")
            until("end of the gateways", ended, 240)
            self._values = None

    def clear(self) -> None:
        """Uninstalls what an earlier test installed."""
        with self.none_follows() as told:
            self.uninstall(told)

    @contextlib.contextmanager
    def none_follows(self) -> Iterator[Iterable[Path]]:
        """Gateways are told that none follows, as the chart's clean-up tells them: to find that out takes them 15 s."""
        told = [node.device_plugins_dir / SOCKETS / LAST for node in self._cluster.nodes.values()]
        told = [file for file in told if file.parent.is_dir()]
        for file in told:
            file.touch()
        try:
            yield told
        finally:
            for file in told:
                file.unlink(missing_ok=True)

    def pods(self) -> dict[str, Any]:
        """The pods that live, by their nodes."""
        return {one["spec"]["nodeName"]: one for one in self._living() if "nodeName" in one["spec"]}

    def uids(self) -> set[str]:
        """Of all pods that live: in a rolling update a node may have two."""
        return {one["metadata"]["uid"] for one in self._living()}

    def _living(self) -> list[dict[str, Any]]:
        found = self._cluster.control.api("GET", PODS)["items"]
        return [one for one in found if "deletionTimestamp" not in one["metadata"]]

    def restarts(self) -> dict[str, tuple[str, int]]:
        """Each node's pod, and how often its container was started again."""
        pods = self.pods().items()
        return {
            node: (one["metadata"]["name"], one["status"]["containerStatuses"][0]["restartCount"]) for node, one in pods
        }

    def status(self, node: str) -> Any:
        """What `dpgateway status` says on the node, from the gateway's page: to start a program takes much longer."""
        address = self.pods()[node]["status"]["podIP"]
        with urllib.request.urlopen(f"http://{address}:9480/status.json", timeout=10) as answer:
            return json.load(answer)

    def run(self, node: str, *command: str) -> str:
        """What the command says that runs in the gateway's container."""
        name = self.pods()[node]["metadata"]["name"]
        return self._cluster.kubectl("exec", "--namespace", NAMESPACE, name, "--", *command)

    def until_served(self, node: str) -> None:
        """Until the kubelet that is there now has the list of every resource. For a moment after its start the gateway
        still says how it stood with the one before.
        """
        kubelet = self._cluster.nodes[node].device_plugins_dir / "kubelet.sock"

        def served() -> bool:
            try:
                since = kubelet.stat().st_ctime - ROUNDED
                found = [one for each in self.status(node)["resources"] for one in each["registrations"]]
            except (OSError, KeyError):  # the pod, or its kubelet, isn't there yet
                return False
            return bool(found) and all(one["state"] == "serving" and at(one["since"]) > since for one in found)

        until(f"stream to the kubelet of {node}", served)

    def until_offered(self, node: str, resource: str, count: int | None) -> None:
        """Until the scheduler sees that many. A kubelet writes its node object every 10 s."""
        one = self._cluster.nodes[node]
        try:
            until(f"{count} of {resource} on {node}", lambda: one.allocatable(resource) == count)
        except ClusterError as error:
            error.add_note(f"the Node has {one.object()['status'].get('allocatable')}")
            error.add_note(f"the pods are {[found['metadata']['name'] for found in self._living()]}")
            name = self.pods()[node]["metadata"]["name"]
            error.add_note(self._cluster.kubectl("logs", "--namespace", NAMESPACE, name, "--tail=80"))
            error.add_note(json.dumps(self.status(node)))
            raise


def at(stamp: str) -> float:
    """Seconds since 1970."""
    return datetime.fromisoformat(stamp).timestamp()


def pod(name: str, node: str, limits: Mapping[str, int] | None = None) -> dict[str, Any]:
    """A pod of busybox that sleeps."""
    container = {"name": "c", "image": IMAGE, "resources": {"limits": limits or {}}}
    spec = {"nodeName": node, "terminationGracePeriodSeconds": 0, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def simulated(name: str = "example.com/thing", count: int = 2) -> dict[str, Any]:
    options = {"count": count, "env_prefix": "THING"}
    return {"name": name, "driver": "simulated", "options": options}
