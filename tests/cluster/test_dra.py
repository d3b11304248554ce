"""The DRA front on a real node of 1.37, for pods that ask for nothing but an extended resource."""

import signal
import sys
from pathlib import Path

import pytest

from tests.cluster import installed
from tests.cluster.dra_front import DEVICES, DRIVER, NAME
from tests.cluster.machine.box import until

ROOT = Path(__file__).resolve().parents[2]
NODE = "new"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
SLICES = f"/apis/resource.k8s.io/v1/resourceslices?fieldSelector=spec.driver%3D{DRIVER}"
CLASS = NAME.replace("/", ".")
SELECTOR = f'device.driver == "{DRIVER}" && device.attributes["{DRIVER}"].resource == "{NAME}"'


def pod(name):
    """A pod that the scheduler sends to the node: it makes the claim."""
    made = installed.pod(name, NODE, {NAME: 1})
    del made["spec"]["nodeName"]
    made["spec"]["nodeSelector"] = {"kubernetes.io/hostname": NODE}
    return made


class Front:
    """The front's process on the node, and what it published."""

    def __init__(self, cluster, token):
        self._cluster, self._node, self._token = cluster, cluster.nodes[NODE], token

    def start(self):
        control, state = self._cluster.control, self._node.folder / "dra-state"
        place = f"https://{control.address}", control.pki["ca.crt"], self._token, NODE, state
        environment = {"PYTHONPATH": str(ROOT)}
        program = ROOT / "tests/cluster/dra_front.py"
        self._node.spawn("dra", [sys.executable, "-P", program, *place], environment)

    def kill(self):
        self._node.end("dra", signal.SIGKILL)

    @property
    def slices(self):
        return self._cluster.control.api("GET", SLICES)["items"]

    def until_published(self):
        until("all devices in slices", lambda: sum(len(one["spec"].get("devices", ())) for one in self.slices) == 3)


@pytest.fixture
def front(cluster):
    api = cluster.control.api
    api("POST", ACCOUNTS, {"metadata": {"name": "dra"}})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    subjects = [{"kind": "ServiceAccount", "name": "dra", "namespace": "default"}]
    api("POST", BINDINGS, {"metadata": {"name": "dra"}, "roleRef": role, "subjects": subjects})
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    token = cluster.folder / "dra-token"
    token.write_text(api("POST", f"{ACCOUNTS}/dra/token", asked)["status"]["token"])
    spec = {"extendedResourceName": NAME, "selectors": [{"cel": {"expression": SELECTOR}}]}
    api("POST", CLASSES, {"metadata": {"name": CLASS}, "spec": spec})
    one = Front(cluster, token)
    one.start()
    yield one
    api("DELETE", f"{CLASSES}/{CLASS}")
    one.kill()
    api("DELETE", f"{BINDINGS}/dra")
    api("DELETE", f"{ACCOUNTS}/dra")


@pytest.fixture
def used(cluster, front):
    """Each device is in a pod; the devices, by pod."""
    front.until_published()
    for name in ("one", "two", "three"):
        cluster.create(pod(name))
    yield {name: device_of(cluster, name) for name in ("one", "two", "three")}
    cluster.until_gone(cluster.delete("one", "two", "three", "later"))


def device_of(cluster, name):
    cluster.wait_for_pod(name)
    return cluster.kubectl("exec", name, "--", "sh", "-c", "ls /dev/claimed-0 >/dev/null && echo $DEVICES").strip()


def test_pods_get_their_devices_through_kills_of_gateway_and_kubelet(cluster, front, used):
    assert sorted(used.values()) == sorted(DEVICES)

    # The next pod waits until the device of an ended one is released.
    cluster.create(pod("later"))
    cluster.delete("one")
    assert device_of(cluster, "later") == used["one"]

    # Another gateway knows the claims of a killed one, and writes no slice anew.
    before = [one["metadata"]["resourceVersion"] for one in front.slices]
    front.kill()
    front.start()
    cluster.until_gone(cluster.delete("two"))
    assert [one["metadata"]["resourceVersion"] for one in front.slices] == before

    # A kubelet deletes all slices of its node when it starts.
    node = cluster.nodes[NODE]
    node.stop_kubelet(signal.SIGKILL)
    node.start_kubelet(node.release)
    front.until_published()
    cluster.create(pod("two"))
    assert device_of(cluster, "two") == used["two"]
