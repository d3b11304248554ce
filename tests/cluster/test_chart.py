"""What the chart makes of its values, without a cluster: helm alone renders it."""

import json
import re
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.cluster import manifests
from tests.cluster.machine.box import ClusterError
from tests.cluster.manifests import FILE

BOARDS = {"nodeSelector": {"example.com/kind": "boards"}}
CRIO = "/run/crio/crio.sock"
THING = {"name": "example.com/thing", "driver": "simulated"}
DESKS = {"nodeSelector": {"example.com/kind": "desks", "example.com/room": "1"}}


@pytest.fixture
def render():
    """All objects of the chart with these values."""
    return manifests.objects


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

    def test_the_notes_name_those_that_a_node_may_match_both(self):
        rooms = {f"room-{room}": {"nodeSelector": {"example.com/room": room}} for room in ("1", "2")}
        said = manifests.notes({"profiles": {"boards": BOARDS, "desks": DESKS, **rooms}})
        both = re.findall(r"A node may match both profiles, (\S+) and (\S+)[.] It would have two gateways", said)
        assert both == [("boards", "room-1"), ("boards", "room-2"), ("desks", "room-1")]
        said = manifests.notes({"nodeSelector": None, "profiles": {"a": BOARDS, "b": {}}, "otherNodes": False})
        assert "both profiles, a and b" in said
        required: dict[str, Any] = {"nodeSelectorTerms": []}
        there = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
        one = {"nodeSelector": {"example.com/room": "2"}, "affinity": there}
        assert "both profiles" not in manifests.notes({"profiles": {"boards": BOARDS, "desks": DESKS}})
        assert "both profiles" not in manifests.notes({"profiles": {"boards": BOARDS, "one": one}, "otherNodes": False})

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


def test_the_clean_up_runs_where_the_gateways_did(render):
    """Their runtime sees the node's locks, and a quota for memory wants limits."""
    limits = {"memory": "200Mi"}
    boards = BOARDS | {"runtimeClassName": "runc", "resources": {"limits": limits}}
    pod = spec(render(profiles={"boards": boards}, cleanUp=True), "dpgateway-boards-clean-up")
    assert pod["runtimeClassName"] == "runc"
    assert [one["resources"]["limits"] for one in pod["initContainers"] + pod["containers"]] == [limits, limits]


class TestPrometheus:
    def test_it_finds_the_pages_also_in_the_hosts_network_where_the_pod_has_no_port(self, render):
        objects = render(podMonitor={"enabled": True})
        (endpoint,) = objects["PodMonitor", "dpgateway"]["spec"]["podMetricsEndpoints"]
        assert endpoint["port"] == "http"
        host = {"hostNetwork": True, "config": {"web": {"listen": "0.0.0.0:9481"}}}
        objects = render(podMonitor={"enabled": True}, **host)
        (endpoint,) = objects["PodMonitor", "dpgateway"]["spec"]["podMetricsEndpoints"]
        assert "port" not in endpoint
        found = [one["__address__"] for ip in ("10.0.0.7", "fd00::7") for one in scraped(objects, ip)]
        assert found == ["10.0.0.7:9481", "[fd00::7]:9481"]

    @pytest.mark.parametrize("host", [False, True])
    def test_each_gateway_is_one_target_in_whatever_network(self, render, host):
        boards = BOARDS | {"hostNetwork": not host, "config": {"web": {"listen": "0.0.0.0:9481"}}}
        before = [{"name": "load-module", "image": "module"}]
        objects = render(
            podMonitor={"enabled": True}, hostNetwork=host, initContainers=before, profiles={"boards": boards}
        )
        found = {(one["daemonset"], one["__address__"], one["job"], one["instance"]) for one in scraped(objects)}
        common = ("dpgateway", "node")
        assert found == {
            ("dpgateway", "10.0.0.7:9480", *common),
            ("dpgateway-boards", "10.0.0.7:9481", *common),
        }
        assert len(scraped(objects)) == 2

    @pytest.mark.parametrize("host", [False, True])
    def test_the_clean_up_is_no_target(self, render, host):
        objects = render(
            podMonitor={"enabled": True},
            service={"enabled": True},
            hostNetwork=host,
            profiles={"boards": BOARDS},
            cleanUp=True,
        )
        assert ("DaemonSet", "dpgateway-boards-clean-up") in objects
        assert scraped(objects) == []
        assert ("Service", "dpgateway") not in objects


def scraped(objects, ip="10.0.0.7"):
    """The targets that the Prometheus operator's PodMonitors make of one pod of each DaemonSet."""
    found = []
    monitors = [one["spec"] for (kind, _), one in objects.items() if kind == "PodMonitor"]
    daemonsets = [(name, one["spec"]["template"]) for (kind, name), one in objects.items() if kind == "DaemonSet"]
    for monitor in monitors:
        (endpoint,) = monitor["podMetricsEndpoints"]
        wanted = monitor["selector"]["matchLabels"].items()
        for name, pod in daemonsets:
            if not wanted <= pod["metadata"]["labels"].items():
                continue
            for container in pod["spec"]["containers"] + pod["spec"].get("initContainers", []):
                for port in container.get("ports", [{}]):  # one that declares none is a target, too
                    if "port" in endpoint and endpoint["port"] != port.get("name"):
                        continue
                    labels = {
                        "daemonset": name,
                        "__address__": f"{ip}:{port['containerPort']}" if port else ip,
                        "__meta_kubernetes_pod_ip": ip,
                        "__meta_kubernetes_pod_node_name": "node",
                        "__meta_kubernetes_pod_container_name": container["name"],
                    }
                    if relabeled(labels, endpoint["relabelings"]):
                        found.append(labels)
    return found


def relabeled(labels, rules):
    """Whether Prometheus keeps this target. Its labels are then as the rules want them."""
    for rule in rules:
        value = ";".join(labels[one] for one in rule.get("sourceLabels", ()))
        match = re.fullmatch(rule.get("regex", "(.*)"), value)
        action = rule.get("action", "replace")
        if action == "replace" and match:
            labels[rule["targetLabel"]] = match.expand(rule.get("replacement", "$1").replace("$1", r"\1"))
        elif action == "keep" and not match:
            return False
    return True


class TestService:
    def test_it_has_all_gateways_in_whatever_network(self, render):
        def target(**values):
            (port,) = render(service={"enabled": True}, **values)["Service", "dpgateway"]["spec"]["ports"]
            return port["targetPort"]

        other = {"config": {"web": {"listen": "0.0.0.0:9481"}}}
        assert target(profiles={"boards": BOARDS | other}) == "http"
        assert target(profiles={"boards": BOARDS | {"hostNetwork": True}}) == 9480
        assert target(profiles={"boards": BOARDS | {"hostNetwork": False}}, hostNetwork=True, **other) == 9481

    def test_or_helm_refuses_it(self, render):
        boards = BOARDS | {"hostNetwork": True, "config": {"web": {"listen": "0.0.0.0:9481"}}}
        with pytest.raises(ClusterError, match=r"found ports 9481, 9480 .*expected the same port in all profiles"):
            render(service={"enabled": True}, profiles={"boards": boards})


def test_only_some_reach_the_pages(render):
    peer = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    policy = render(networkPolicy={"enabled": True, "from": [peer]})["NetworkPolicy", "dpgateway"]["spec"]
    assert (policy["ingress"], policy["policyTypes"]) == ([{"from": [peer]}], ["Ingress"])
    assert "ingress" not in render(networkPolicy={"enabled": True})["NetworkPolicy", "dpgateway"]["spec"]
    with pytest.raises(ClusterError, match="no policy holds in the node's network"):
        render(networkPolicy={"enabled": True}, hostNetwork=True)


def test_openshift_allows_what_the_values_give(render):
    def allowed(**values):
        return constraints(render, **values)

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
    ("context", "allowed"),
    [
        (None, (False, False, [])),
        ({"privileged": True}, (True, True, [])),
        ({"allowPrivilegeEscalation": True}, (False, True, [])),
        ({"capabilities": {"add": ["SYS_MODULE"]}}, (False, False, ["SYS_MODULE"])),
    ],
    ids=["nothing", "privileged", "escalation", "capability"],
)
def test_openshift_allows_what_init_containers_need(render, context, allowed):
    before = {"name": "load-module", "image": "module", "securityContext": context}
    for values in ({"initContainers": [before]}, {"profiles": {"boards": BOARDS | {"initContainers": [before]}}}):
        found = constraints(render, **values)
        keys = ("allowPrivilegedContainer", "allowPrivilegeEscalation", "allowedCapabilities")
        assert tuple(found[key] for key in keys) == allowed


def test_openshift_allows_the_types_of_volumes_that_a_profile_has(render):
    common = {"configMap", "downwardAPI", "emptyDir", "hostPath", "projected", "secret"}
    assert set(constraints(render)["volumes"]) == common
    more = [{"name": "firmware", "image": {"reference": "firmware"}}, {"name": "state", "csi": {"driver": "disk"}}]
    found = constraints(render, volumes=more[:1], profiles={"boards": BOARDS | {"volumes": more}})
    assert sorted(found["volumes"]) == sorted(common | {"image", "csi"})


def constraints(render, **values):
    objects = render(securityContextConstraints={"enabled": True}, **values)
    return objects["SecurityContextConstraints", "dpgateway-dpgateway"]


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ({"image": {"repository": "registry.example.com/dpgateway:0.1.0"}}, "/image/repository"),
        ({"profiles": {"gateway": BOARDS}}, "invalid propertyName 'gateway'"),
        (
            {"config": {"resources": [THING | {"cdi": "always"}]}},
            "example.com/thing has cdi: always, expected cdiSpecs",
        ),
        ({"config": {"resources": [THING], "defaults": {"cdi": "always"}}}, "expected cdiSpecs: true"),
        ({"tolerations": None, "securityContext": None}, "missing properties 'tolerations', 'securityContext'"),
        ({"config": {"web": None}}, "at '/config': missing property 'web'"),
        ({"kubeletDir": "/var/lib/kubelet/"}, "at '/kubeletDir'"),
        ({"config": {"runtime": {"socket": CRIO}}}, "expected it as runtimeSocket, or its directory in volumeMounts"),
        ({"runtimeSocket": "/run/containerd/containerd.sock", "config": {"runtime": {"socket": CRIO}}}, CRIO),
        ({"podMonitor": {"interval": "1.5s"}}, "at '/podMonitor/interval'"),
    ],
    ids=[
        "tag in the repository",
        "name of no profile",
        "specs that no runtime sees",
        "by default",
        "empty",
        "no pages",
        "slash",
        "runtime's socket in the configuration alone",
        "another one",
        "fraction of a second for Prometheus",
    ],
)
def test_what_helm_refuses_at_once(render, values, found):
    with pytest.raises(ClusterError, match=found):
        render(**values)


@pytest.mark.parametrize("path", ["/run/crio", CRIO], ids=["its directory", "the socket alone"])
def test_the_runtimes_socket_may_have_a_volume_of_its_own(render, path):
    values = {"config": {"runtime": {"socket": CRIO}}, "volumes": [{"name": "crio", "hostPath": {"path": path}}]}
    objects = render(**values, volumeMounts=[{"name": "crio", "mountPath": path}])
    assert CRIO in objects["ConfigMap", "dpgateway"]["data"]["config.yaml"]


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
