"""What the chart makes of its values, without a cluster: helm alone renders it."""

import json

import pytest
from ruamel.yaml import YAML

from tests.cluster.machine.box import ClusterError
from tests.cluster.manifests import FILE, template

BOARDS = {"nodeSelector": {"example.com/kind": "boards"}}
DESKS = {"nodeSelector": {"example.com/kind": "desks", "example.com/room": "1"}}


@pytest.fixture
def render(tmp_path):
    """All objects of the chart with these values."""

    def rendered(*options, **values):
        file = tmp_path / "values.json"
        file.write_text(json.dumps(values))
        found = YAML(typ="safe", pure=True).load_all(template(f"--values={file}", *options))
        return {(one["kind"], one["metadata"]["name"]): one for one in found if one}

    return rendered


def spec(objects, name="dpgateway"):
    return objects["DaemonSet", name]["spec"]["template"]["spec"]


def terms(objects):
    affinity = spec(objects)["affinity"]["nodeAffinity"]
    found = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return [[(one["key"], one["operator"], *one["values"]) for one in term["matchExpressions"]] for term in found]


class TestProfiles:
    def test_the_other_nodes_keep_their_gateway(self, render):
        objects = render(profiles={"boards": BOARDS, "desks": DESKS})
        kind, room = "example.com/kind", "example.com/room"
        assert terms(objects) == [
            [(kind, "NotIn", "boards"), (kind, "NotIn", "desks")],
            [(kind, "NotIn", "boards"), (room, "NotIn", "1")],
        ]
        assert "affinity" not in spec(objects, "dpgateway-boards")
        assert "affinity" not in spec(render())

    def test_labels_of_all_nodes_tell_nothing(self, render):
        selector = {"example.com/kind": "boards", "kubernetes.io/os": "linux"}
        objects = render(profiles={"boards": {"nodeSelector": selector}})
        assert terms(objects) == [[("example.com/kind", "NotIn", "boards")]]

    def test_an_affinity_of_all_nodes_holds_too(self, render):
        zone = {"key": "zone", "operator": "In", "values": ["a"]}
        required = {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
        objects = render(affinity=affinity, profiles={"boards": BOARDS})
        assert terms(objects) == [[("zone", "In", "a"), ("example.com/kind", "NotIn", "boards")]]
        assert spec(objects, "dpgateway-boards")["affinity"] == affinity

    def test_or_they_have_none(self, render):
        objects = render(profiles={"boards": BOARDS}, otherNodes=False)
        assert [name for kind, name in objects if kind == "DaemonSet"] == ["dpgateway-boards"]

    @pytest.mark.parametrize(
        ("profile", "found"),
        [
            ({}, "no label of its own"),
            (
                BOARDS | {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"a": 1}}}},
                "a node",
            ),
        ],
        ids=["every node", "affinity"],
    )
    def test_a_profile_from_which_other_nodes_cannot_be_told(self, render, profile, found):
        with pytest.raises(ClusterError, match=f"profiles.boards: found {found}.*or otherNodes: false"):
            render(profiles={"boards": profile})


class TestCheck:
    def test_one_pod_has_the_configurations_and_images_of_all_profiles(self, render):
        objects = render(
            profiles={"boards": BOARDS | {"image": {"tag": "vendor"}, "imagePullSecrets": [{"name": "s"}]}}
        )
        files = {"boards.yaml", "gateway.yaml"}
        assert set(objects["ConfigMap", "dpgateway-check"]["data"]) == files
        pod = objects["Pod", "dpgateway-check"]["spec"]
        assert {one["args"][-1].rpartition("/")[2] for one in pod["containers"]} == files
        assert {one["image"].rpartition(":")[2] for one in pod["containers"]} == {"vendor", "0.1.0"}
        assert (pod["imagePullSecrets"], pod["activeDeadlineSeconds"]) == ([{"name": "s"}], 60)
        sources = objects["Pod", "dpgateway-test"]["spec"]["volumes"][0]["projected"]["sources"]
        assert {one["configMap"]["items"][0]["path"] for one in sources} == files
        assert {one["configMap"]["name"] for one in sources} == {"dpgateway", "dpgateway-boards"}

    def test_it_is_refused_where_the_gateways_would_be(self, render):
        objects = render(priorityClassName="high")
        pod = objects["Pod", "dpgateway-check"]["spec"]
        assert any("hostPath" in volume for volume in pod["volumes"])
        assert pod["priorityClassName"] == spec(objects)["priorityClassName"] == "high"

    def test_helm_test_asks_a_node_with_a_gateways_rights_and_mounts(self, render):
        context = {"seLinuxOptions": {"type": "spc_t"}}
        objects = render(profiles={"boards": BOARDS | {"podSecurityContext": context, "kubeletDir": "/root-dir"}})
        pod, gateway = objects["Pod", "dpgateway-boards-preflight"]["spec"], spec(objects, "dpgateway-boards")
        assert pod["volumes"][1:] == gateway["volumes"][1:]
        assert pod["containers"][0]["volumeMounts"][1:] == gateway["containers"][0]["volumeMounts"][1:]
        for key in ("securityContext", "terminationMessagePath"):
            assert pod["containers"][0][key] == gateway["containers"][0][key]
        assert pod["securityContext"] == context
        assert pod["volumes"][0]["name"] != gateway["volumes"][0]["name"]  # or gateways would take it for one of them

    def test_or_it_is_left_out(self, render):
        assert ("Pod", "dpgateway-check") not in render(checkConfig=False)


def test_the_gateway_sees_the_directories_of_specs_that_its_configuration_names(render):
    directories = ["/var/cdi/static", "/var/cdi/dynamic"]
    found = spec(render(cdiSpecs=True, config={"runtime": {"cdi_dirs": directories}}))
    mounts = {
        one["mountPath"]: one["readOnly"] for one in found["containers"][0]["volumeMounts"] if "cdi" in one["name"]
    }
    assert mounts == {"/var/cdi/static": True, "/var/cdi/dynamic": False}
    assert [one["hostPath"]["path"] for one in found["volumes"] if "cdi" in one["name"]] == directories


def test_the_pod_may_get_more_time_to_end_but_not_less(render):
    assert spec(render())["terminationGracePeriodSeconds"] == 190
    assert spec(render(terminationGracePeriodSeconds=600))["terminationGracePeriodSeconds"] == 600
    with pytest.raises(ClusterError, match="found 30, expected 190 at least"):
        render(terminationGracePeriodSeconds=30)


def test_the_end_of_a_log_may_be_the_termination_message(render):
    (container,) = spec(render(terminationMessagePolicy="FallbackToLogsOnError"))["containers"]
    assert container["terminationMessagePolicy"] == "FallbackToLogsOnError"


def test_prometheus_may_drop_series(render):
    rule = {"action": "drop", "regex": "dpgateway_rpcs_total", "sourceLabels": ["__name__"]}
    objects = render(podMonitor={"enabled": True, "metricRelabelings": [rule]})
    (endpoint,) = objects["PodMonitor", "dpgateway"]["spec"]["podMetricsEndpoints"]
    assert endpoint["metricRelabelings"] == [rule]


def test_only_some_reach_the_pages(render):
    peer = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    policy = render(networkPolicy={"enabled": True, "from": [peer]})["NetworkPolicy", "dpgateway"]["spec"]
    assert (policy["ingress"], policy["policyTypes"]) == ([{"from": [peer]}], ["Ingress"])
    assert "ingress" not in render(networkPolicy={"enabled": True})["NetworkPolicy", "dpgateway"]["spec"]
    with pytest.raises(ClusterError, match="no policy holds in the node's network"):
        render(networkPolicy={"enabled": True}, hostNetwork=True)


def test_openshift_allows_what_the_values_give(render):
    def allowed(**values):
        objects = render(securityContextConstraints={"enabled": True}, **values)
        return objects["SecurityContextConstraints", "dpgateway-dpgateway"]

    assert allowed()["users"] == ["system:serviceaccount:dpgateway:dpgateway"]
    assert [allowed()[key] for key in ("allowPrivilegedContainer", "allowedCapabilities", "allowHostPorts")] == [
        False,
        [],
        False,
    ]
    context = {"privileged": True, "capabilities": {"add": ["DAC_READ_SEARCH"]}}
    more = allowed(profiles={"boards": BOARDS | {"securityContext": context, "hostNetwork": True}})
    assert [more[key] for key in ("allowPrivilegedContainer", "allowedCapabilities", "allowHostPorts")] == [
        True,
        ["DAC_READ_SEARCH"],
        True,
    ]


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ({"image": {"repository": "registry.example.com/dpgateway:0.1.0"}}, "/image/repository"),
        ({"profiles": {"gateway": BOARDS}}, "invalid propertyName 'gateway'"),
    ],
    ids=["tag in the repository", "name of no profile"],
)
def test_what_helm_refuses_at_once(render, values, found):
    with pytest.raises(ClusterError, match=found):
        render(**values)


PRESETS = sorted((FILE.parents[1] / "helm/dpgateway/presets").glob("*.yaml"))


@pytest.mark.parametrize("preset", PRESETS, ids=[one.stem for one in PRESETS])
def test_each_preset_changes_what_it_says(render, preset):
    values = YAML(typ="safe", pure=True).load(preset)
    objects = render(f"--values={preset}", cdiDirectories=True)
    text = json.dumps([*objects.values()])
    assert preset.name in (FILE.parents[2] / "docs/how-to/distributions.md").read_text()
    kubelet = values.get("kubeletDir", "/var/lib/kubelet")
    paths = [one["hostPath"]["path"] for one in spec(objects)["volumes"] if "hostPath" in one]
    assert {f"{kubelet}/pods", f"{kubelet}/pod-resources", "/var/lib/kubelet/device-plugins"} < set(paths)
    assert set(values.get("config", {}).get("runtime", {}).get("cdi_dirs", ["/etc/cdi"])) < set(paths)
    assert ("SecurityContextConstraints" in text) == ("securityContextConstraints" in values)
    assert spec(objects).get("securityContext") == values.get("podSecurityContext")
    assert (spec(objects)["priorityClassName"] or "") == values.get("priorityClassName", "system-node-critical")


def test_a_chart_that_depends_on_this_one_may_leave_it_out(render):
    assert render(enabled=True) == render()
