"""deploy/kubernetes is what the chart says, and is installed without helm."""

import json

import pytest

from tests.cluster.installed import simulated
from tests.cluster.machine.box import ClusterError, until
from tests.cluster.manifests import FILE, rendered, template

THING = "example.com/thing"
META = {"name": "dpgateway", "namespace": "dpgateway"}
RIGHT = {"name": THING, "driver": "simulated"}


def test_the_plain_manifests_are_those_of_the_chart():
    assert FILE.read_text() == rendered(), "run make manifests"


def test_they_are_installed_with_kubectl_alone_and_taken_away_again(cluster, chart):
    chart.clear()
    overlay = cluster.folder / "overlay"
    overlay.mkdir()
    config = {"web": {"listen": "0.0.0.0:9480"}, "resources": [simulated(THING, 2)]}
    data = {"config.yaml": json.dumps(config)}
    patch = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": META, "data": data}
    (overlay / "config.yaml").write_text(json.dumps(patch))
    base = (FILE.parent / "dpgateway.yaml", FILE.parent / "namespace.yaml")
    for file in base:
        (overlay / file.name).write_text(file.read_text())
    kustomization = {
        "namespace": "dpgateway",
        "resources": [file.name for file in base],
        "patches": [{"path": "config.yaml"}],
    }
    (overlay / "kustomization.yaml").write_text(json.dumps(kustomization))
    try:
        cluster.kubectl("apply", "-k", overlay)
        cluster.kubectl("rollout", "status", "daemonset/dpgateway", "--namespace=dpgateway", "--timeout=240s")
        until("resources", lambda: all(node.allocatable(THING) == 2 for node in cluster.nodes.values()))
    finally:
        with chart.none_follows():
            cluster.kubectl("delete", "-k", overlay, "--wait")


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"keep_lost": 600}, "keep_lost"),
        ({"shares": {"count": 0}}, "count"),
        ({"preference": "pack"}, "preference"),
        ({"name": "kubernetes.io/thing"}, "name"),
        ({"option": {}}, "option"),
        ({"mounts": [{"host_path": "lib", "container_path": "/lib"}]}, "host_path"),
    ],
    ids=["duration", "shares", "preference", "name", "key", "mount"],
)
def test_helm_itself_refuses_what_the_gateway_would_refuse(changes, named):
    values = json.dumps([RIGHT | changes])
    with pytest.raises(ClusterError, match=f"/config/resources/0.*{named}"):
        template(f"--set-json=config.resources={values}")


@pytest.mark.parametrize(("listen", "host"), [("127.0.0.1:9481", "127.0.0.1"), ("[::1]:9481", "::1")])
def test_in_the_hosts_network_the_pages_may_be_on_its_loopback_where_probes_go(listen, host):
    listens = f"--set-string=config.web.listen={listen}"
    with pytest.raises(ClusterError, match=r"config\.web\.listen of gateway.* or hostNetwork: true"):
        template(listens)
    probe = f'httpGet: {{path: /healthz, port: 9481, host: "{host}"}}'
    assert probe in template(listens, "--set=hostNetwork=true")
