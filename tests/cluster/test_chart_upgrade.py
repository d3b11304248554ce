"""What the chart makes of the cluster that it is installed on, and of its own earlier versions: an API server without
nodes that run, so no pod is ever started.
"""

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.cluster.installed import FOLDER
from tests.cluster.machine.cluster import free_net
from tests.cluster.machine.control import MERGE, Control

pytestmark = pytest.mark.xdist_group("an API server")  # it is started once

DRIVER, NAMESPACE = "dra.example.com", "hardware"
DRA = {"enabled": True, "driver": DRIVER}
THING = {"name": "example.com/thing", "driver": "simulated"}
NODES = {
    "old": ("v1.34.9", "containerd://2.4.2"),
    "new-1": ("v1.37.1", "containerd://2.4.2"),
    "new-2": ("v1.37.1", "containerd://2.4.2"),
    "runtime": ("v1.37.1", "containerd://1.6.20"),
}
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"


class Plane:
    """An API server, and helm for it."""

    def __init__(self, folder, control):
        self.folder, self.control = folder, control

    def up(self):
        self.control.up_with_api_server()
        for name, (kubelet, runtime) in NODES.items():
            meta = {"name": name, "labels": {"kubernetes.io/os": "linux"}}
            self.control.api("POST", "/api/v1/nodes", {"metadata": meta})
            info = dict.fromkeys(
                ("machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "kubeProxyVersion"), ""
            )
            info |= {"operatingSystem": "linux", "architecture": "amd64"}
            info |= {"kubeletVersion": kubelet, "containerRuntimeVersion": runtime}
            self.control.api("PATCH", f"/api/v1/nodes/{name}/status", {"status": {"nodeInfo": info}}, MERGE)

    def helm(self, *argv, fails=False):
        """All that it says."""
        own = {"KUBECONFIG": str(self.control.pki["admin.kubeconfig"]), "HELM_CACHE_HOME": str(self.folder / "helm")}
        words = [self.control.bin / "helm", *argv, "--namespace", NAMESPACE]
        done = subprocess.run(words, capture_output=True, text=True, env=os.environ | own, check=False)
        said = done.stdout + done.stderr
        assert (done.returncode != 0) == fails, said
        return said

    def install(self, *options, chart=FOLDER, fails=False, **values):
        file = self.folder / "values.json"
        file.write_text(json.dumps({"checkConfig": False, **values}))
        where = ("--install", "--create-namespace", f"--values={file}")
        return self.helm("upgrade", "dpgateway", chart, *where, *options, fails=fails)

    def configuration(self):
        found = self.control.api("GET", f"/api/v1/namespaces/{NAMESPACE}/configmaps/dpgateway")
        return YAML(typ="safe", pure=True).load(found["data"]["config.yaml"])

    def classes(self):
        found = self.control.api("GET", "/apis/resource.k8s.io/v1/deviceclasses")["items"]
        return {one["spec"]["extendedResourceName"] for one in found}

    def claim(self, name, driver):
        """A claim that the scheduler has allocated."""
        exactly = {"deviceClassName": "example.com.thing"}
        spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
        self.control.api("POST", CLAIMS, {"metadata": {"name": name}, "spec": spec})
        result = {"request": "r", "driver": driver, "pool": "p", "device": "d"}
        status = {"status": {"allocation": {"devices": {"results": [result]}}}}
        self.control.api("PATCH", f"{CLAIMS}/{name}/status", status, MERGE)


@pytest.fixture(scope="module")
def started():
    folder = Path(tempfile.mkdtemp(prefix="plane-"))
    folder.chmod(0o755)
    taken, net = free_net()
    plane = Plane(folder, Control(folder / "control", net))
    try:
        plane.up()
        yield plane
    finally:
        plane.control.close()
        taken.close()
        shutil.rmtree(folder)


@pytest.fixture
def plane(started):
    yield started
    started.helm("uninstall", "dpgateway")


def test_the_upgrade_of_a_chart_before_dra_moves_nothing_until_it_is_enabled(plane, tmp_path):
    earlier, values = tmp_path / "dpgateway", YAML(typ="safe", pure=True).load(FOLDER / "values.yaml")
    shutil.copytree(FOLDER, earlier)
    known = {key: value for key, value in values.items() if key not in {"dra", "events"}}
    (earlier / "values.yaml").write_text(json.dumps(known))
    plane.install(chart=earlier, config={"resources": [THING]})
    before = plane.configuration()
    plane.install("--reuse-values")
    assert (plane.configuration(), plane.classes()) == (before, set())
    plane.install("--reuse-values", dra=DRA)
    dra = {"driver": DRIVER, "withdraw": False}
    assert plane.configuration() == before | {"defaults": {"front": "auto"}, "dra": dra}
    assert plane.classes() == {THING["name"]}


def test_the_notes_say_what_each_kind_of_node_will_be(plane):
    lines = [line.strip() for line in plane.install(dra=DRA, config={"resources": [THING]}).splitlines()]
    assert [line for line in lines if line.startswith("kubelet v")] == [
        "kubelet v1.34.9, containerd://2.4.2 (1): the device plugin",
        "kubelet v1.37.1, containerd://1.6.20 (1): the device plugin",
        "kubelet v1.37.1, containerd://2.4.2 (2): DRA",
    ]


def test_a_node_that_would_offer_nothing_is_refused(plane):
    resources = [THING | {"front": "dra"}]
    plane.install()
    said = plane.install(dra=DRA, config={"resources": resources}, fails=True)
    assert "has front: dra, and node old has kubelet v1.34.9: expected 1.36 at least" in said
    plane.install(dra=DRA, config={"resources": resources}, nodeSelector={"example.com/kind": "none"})


@pytest.mark.parametrize("end", [{"cleanUp": True}, {"dra": {"enabled": False}}], ids=["clean up", "disable"])
def test_gateways_stay_while_claims_have_devices(plane, end):
    values = {"dra": DRA, "config": {"resources": [THING]}}
    plane.install(**values)
    plane.claim("held", DRIVER)
    plane.claim("foreign", "other.example.com")
    try:
        said = plane.install(**values | end, fails=True)
        assert "found claims with devices by DRA: default/held; expected none" in said
        plane.install(**values | {"dra": DRA | {"withdraw": True}})
    finally:
        for name in ("held", "foreign"):
            plane.control.api("DELETE", f"{CLAIMS}/{name}")
    plane.install(**values | end)
    assert plane.classes() == set()
