"""What the chart makes of its values for DRA and events, without a cluster: helm alone renders it."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from dpgateway.cli.front_facts import RIGHTS
from dpgateway.cluster.account import IN_POD
from dpgateway.dra.slices.names import label
from dpgateway.registry.socket import FOLDER
from tests.cluster import manifests
from tests.cluster.machine.box import ClusterError
from tests.support.gateway import COMMAND

ROOT = Path(__file__).resolve().parents[2]
DRIVER = "dra.example.com"
DRA = {"enabled": True, "driver": DRIVER}
THING = {"name": "example.com/thing", "driver": "simulated", "front": "dra"}
PLUGIN = THING | {"name": "example.com/other", "front": "deviceplugin"}
PLAIN = {"name": "example.com/plain", "driver": "simulated"}
BOARDS = {"nodeSelector": {"example.com/kind": "boards"}}


@pytest.fixture
def render():
    """All objects of the chart with these values, and DRA enabled."""

    def rendered(*options, resources=(THING,), dra=DRA, config=None, **values):
        return manifests.objects(*options, dra=dra, config={"resources": resources, **(config or {})}, **values)

    return rendered


def spec(objects, name="dpgateway"):
    return objects["DaemonSet", name]["spec"]["template"]["spec"]


def configuration(objects, name="dpgateway"):
    return YAML(typ="safe", pure=True).load(objects["ConfigMap", name]["data"]["config.yaml"])


def classes(objects):
    return {
        one["spec"]["extendedResourceName"]: (name, one["spec"]["selectors"][0]["cel"]["expression"])
        for (kind, name), one in objects.items()
        if kind == "DeviceClass"
    }


VERBS = {"get": {"get"}, "list": {"list"}, "create": {"create"}, "replace": {"update"}, "delete": {"delete"}}
REQUEST = re.compile(r"_?server\.(get|list|create|replace|delete)\(\s*ObjectKind\.(\w+)")
WATCHED = re.compile(r"WatchedObjects\([^)]*?ObjectKind\.(\w+)")
PLURALS = {"SLICE": "resourceslices", "CLAIM": "resourceclaims", "CLASS": "deviceclasses"}
PLURALS |= {"NODE": "nodes", "EVENT": "events", "ACCESS": "its own rights, which each account may ask for"}


def asked():
    """The rights that the gateway's code needs: (plural, verb)."""
    found = set()
    for file in (ROOT / "src/dpgateway").rglob("*.py"):
        text = file.read_text()
        found |= {(PLURALS[kind], verb) for method, kind in REQUEST.findall(text) for verb in VERBS[method]}
        found |= {(PLURALS[kind], verb) for kind in WATCHED.findall(text) for verb in ("list", "watch")}
    found |= {(kind.plural, verb) for verb, kind in RIGHTS}
    return {(plural, verb) for plural, verb in found if plural != PLURALS["ACCESS"]}


def granted(objects):
    roles = [one for (kind, _), one in objects.items() if kind == "ClusterRole"]
    return {
        (plural, verb)
        for role in roles
        for rule in role["rules"]
        for plural in rule["resources"]
        for verb in rule["verbs"]
    }


class TestRights:
    def test_they_are_what_the_gateway_asks_for(self, render):
        assert granted(render(events={"enabled": True})) == asked()

    def test_events_have_a_role_of_their_own(self, render):
        only = {one for one in asked() if one[0] == "events"}
        objects = render(dra={}, resources=[], events={"enabled": True})
        assert granted(objects) == only
        assert configuration(objects)["cluster"] == {"events": True}
        assert granted(render()) == asked() - only
        assert not granted(render(dra={}, resources=[]))

    def test_all_claims_may_be_listed_unless_the_values_forbid_it(self, render):
        assert ("resourceclaims", "list") in granted(render())
        assert ("resourceclaims", "list") not in granted(render(dra=DRA | {"rights": {"listClaims": False}}))

    def test_they_belong_to_an_account_of_the_gateways_alone(self, render):
        account = {"create": False, "name": "own"}
        binding = render(serviceAccount=account)["ClusterRoleBinding", "dpgateway-dpgateway-dra"]
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "own", "namespace": "dpgateway"}]
        with pytest.raises(ClusterError, match=r"serviceAccount\.name: found nothing"):
            render(serviceAccount={"create": False})

    def test_slices_are_written_for_the_own_node_and_driver_only(self, render):
        objects = render()
        policy = objects["ValidatingAdmissionPolicy", "dpgateway-dpgateway-slices"]["spec"]
        assert policy["failurePolicy"] == "Fail"
        assert policy["matchConditions"][0]["expression"].endswith('"system:serviceaccount:dpgateway:dpgateway"')
        assert any(DRIVER in one["expression"] for one in policy["validations"])
        binding = objects["ValidatingAdmissionPolicyBinding", "dpgateway-dpgateway-slices"]["spec"]
        assert binding == {"policyName": "dpgateway-dpgateway-slices", "validationActions": ["Deny"]}


class TestFronts:
    def test_resources_that_say_none_move_by_themselves(self, render):
        found = configuration(render(resources=[THING, PLUGIN, PLAIN], config={"defaults": {"preference": "packed"}}))
        assert found["defaults"] == {"front": "auto", "preference": "packed"}
        assert found["resources"] == [THING, PLUGIN, PLAIN]

    def test_unless_the_values_say_one(self, render):
        profiles = {"boards": BOARDS | {"config": {"defaults": {"front": "dra"}}}}
        objects = render(config={"defaults": {"front": "deviceplugin"}}, profiles=profiles)
        fronts = [configuration(objects, name)["defaults"]["front"] for name in ("dpgateway", "dpgateway-boards")]
        assert fronts == ["deviceplugin", "dra"]

    def test_nothing_moves_before_dra_is_enabled(self, render):
        before = render(dra={}, resources=[PLAIN])
        assert configuration(before).keys() == {"web", "resources"}
        assert {kind for kind, _ in before} == {"ConfigMap", "DaemonSet", "Pod", "ServiceAccount"}

    def test_values_of_a_chart_before_dra(self, render):
        assert render("--set=dra=null,events=null", resources=[PLAIN]) == render(dra={}, resources=[PLAIN])

    @pytest.mark.parametrize("front", [None, "dra", "deviceplugin", "auto"])
    @pytest.mark.parametrize("withdraw", [False, True])
    def test_the_gateway_takes_the_configuration(self, render, tmp_path, front, withdraw):
        config = {"defaults": {"front": front}} if front else {}
        found = configuration(render(dra=DRA | {"withdraw": withdraw}, resources=[PLAIN], config=config))
        file = tmp_path / "config.yaml"
        file.write_text(json.dumps(found))
        words = [*COMMAND, "check", "--all-nodes", "--config", file]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


class TestNotes:
    def test_each_resource_has_its_front(self):
        lines = [line.strip() for line in said(DRA, THING, PLUGIN, PLAIN).splitlines()]
        assert f"{THING['name']} of gateway: by DRA alone" in lines
        assert f"{PLUGIN['name']} of gateway: by the device plugin" in lines
        assert f"{PLAIN['name']} of gateway: auto, as its node can" in lines

    def test_they_say_what_comes_before_an_uninstall(self):
        assert "Before you uninstall: --set dra.withdraw=true" in said(DRA, PLAIN)
        assert "Nothing is offered by DRA any more" in said(DRA | {"withdraw": True}, PLAIN)
        assert "DRA" not in said({}, PLAIN)


def said(dra, *resources):
    return manifests.notes({"dra": dra, "config": {"resources": resources}})


class TestClasses:
    def test_each_resource_has_one(self, render):
        profiles = {"boards": BOARDS | {"config": {"resources": [THING, PLUGIN]}}}
        expression = f'device.driver == "{DRIVER}" && device.attributes["{DRIVER}"].resource == "example.com/thing"'
        assert classes(render(profiles=profiles)) == {"example.com/thing": ("example.com.thing", expression)}

    def test_by_default_too(self, render):
        resources = [THING, PLUGIN, PLAIN]
        assert classes(render(resources=resources)).keys() == {THING["name"], PLAIN["name"]}
        for front, more in (("dra", {PLAIN["name"]}), ("deviceplugin", set())):
            found = render(resources=resources, config={"defaults": {"front": front}})
            assert classes(found).keys() == {THING["name"], *more}

    @pytest.mark.parametrize("name", ["example.com/Some_Thing", f"{'a' * 60}.example.com/{'b' * 63}", "a.b/c._d"])
    def test_names_that_no_object_can_have(self, render, name):
        ((class_, expression),) = classes(render(resources=[THING | {"name": name}])).values()
        assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", class_)
        assert expression.endswith(f'== "{name if len(name) <= 63 else label(name)}"')

    def test_or_there_are_none(self, render):
        assert not classes(render(dra=DRA | {"deviceClasses": False}))


class TestPods:
    def test_a_gateway_has_the_directories_and_a_token_of_its_pod(self, render):
        pod = spec(render())
        mounts = {one["mountPath"]: one.get("readOnly", False) for one in pod["containers"][0]["volumeMounts"]}
        writable = {f"/var/lib/kubelet/plugins/{DRIVER}", f"/var/lib/kubelet/{FOLDER}", "/var/run/cdi"}
        assert writable <= {path for path, read_only in mounts.items() if not read_only}
        assert mounts[str(IN_POD)] is True
        assert pod["automountServiceAccountToken"] is False
        (token,) = [one["projected"] for one in pod["volumes"] if one["name"] == "account"]
        assert token["sources"][0] == {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}}
        assert token["defaultMode"] == 0o400

    def test_otherwise_it_has_none_of_them(self, render):
        text = json.dumps(spec(render(dra={}, resources=[])))
        assert not any(word in text for word in ("plugins_registry", "serviceAccountToken", "cdi"))

    def test_another_root_directory_of_the_kubelet(self, render):
        root = "/var/lib/k0s/kubelet"
        objects = render(kubeletDir=root)
        assert configuration(objects)["kubelet"] == {"root_dir": root}
        mounts = {one["mountPath"] for one in spec(objects)["containers"][0]["volumeMounts"]}
        below = {"pods", "pod-resources", "plugins_registry", f"plugins/{DRIVER}"}
        assert {f"{root}/{one}" for one in below} < mounts
        assert {"/var/lib/kubelet/pods", "/var/lib/kubelet/pod-resources"} < mounts

    def test_the_configuration_names_the_driver(self, render):
        assert configuration(render())["dra"] == {"driver": DRIVER, "withdraw": False}
        objects = render(dra=DRA | {"withdraw": True}, profiles={"boards": BOARDS})
        assert configuration(objects, "dpgateway-boards")["dra"]["withdraw"] is True

    def test_the_clean_up_sees_what_it_removes(self, render):
        objects = render(cleanUp=True, kubeletDir="/root-dir")
        pod = spec(objects, "dpgateway-clean-up")
        assert pod["initContainers"][0]["args"][1:] == [DRIVER]
        paths = {one["hostPath"]["path"] for one in pod["volumes"]}
        assert {"/root-dir/plugins", "/root-dir/plugins_registry"} < paths
        assert not granted(objects)
        # pods' volumes are mounted below these two, and what the kubelet unmounts must go there, too
        below = {one["name"] for one in pod["volumes"] if one["hostPath"]["path"] in {"/var/lib", "/root-dir/plugins"}}
        mounts = pod["initContainers"][0]["volumeMounts"]
        assert {one["name"] for one in mounts if one.get("mountPropagation") == "HostToContainer"} == below


def test_gateways_may_reach_the_api_server_alone(render):
    peer = {"ipBlock": {"cidr": "10.0.0.1/32"}}
    policy = render(networkPolicy={"enabled": True, "to": [peer]})["NetworkPolicy", "dpgateway"]["spec"]
    assert (policy["egress"], policy["policyTypes"]) == ([{"to": [peer]}], ["Ingress", "Egress"])


LONG = f"{'d' * 50}.example"


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ({"dra": {}}, r"example.com/thing has front: dra, expected dra.enabled: true"),
        (
            {"dra": {}, "profiles": {"boards": BOARDS | {"config": {"defaults": {"front": "dra"}}}}},
            r"config.resources of boards",
        ),
        ({"dra": {}, "resources": [PLAIN | {"front": "auto"}]}, r"plain has front: auto, expected dra.enabled: true"),
        ({"dra": {}, "resources": [], "config": {"dra": {"driver": "a.b"}}}, r"config.dra.driver of gateway"),
        ({"dra": {"enabled": True}}, r"dra.driver: found nothing"),
        ({"dra": DRA | {"driver": "No_Name"}}, r"/dra/driver"),
        (
            {"profiles": {"boards": BOARDS | {"config": {"dra": {"driver": "a.b"}}}}},
            r"config.dra.driver of boards: found a.b, expected dra.example.com",
        ),
        ({"config": {"kubelet": {"root_dir": "/x"}}}, r"found /x, expected /var/lib/kubelet, as kubeletDir is"),
        ({"dra": DRA | {"driver": LONG}, "kubeletDir": "/var/snap/microk8s/common/var/lib/kubelet"}, r"at most 107"),
        ({"dra": {}, "resources": [], "config": {"cluster": {"events": True}}}, r"expected events.enabled: true"),
    ],
    ids=[
        "no dra",
        "by default",
        "auto",
        "driver alone",
        "no driver",
        "no name",
        "two drivers",
        "root",
        "socket",
        "events",
    ],
)
def test_what_helm_refuses_at_once(render, values, found):
    with pytest.raises(ClusterError, match=found):
        render(**values)


def test_a_cluster_whose_kubelets_are_too_old(render):
    with pytest.raises(ClusterError, match=r"found Kubernetes v1\.35\.9, expected 1\.36 at least"):
        render("--kube-version=1.35.9")
    assert render("--kube-version=1.36.0")
