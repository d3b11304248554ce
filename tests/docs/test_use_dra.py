"""What the page has for its reader to write is what the gateway, the chart and the API take."""

import json
import subprocess

import pytest
from ruamel.yaml import YAML

from tests.docs.pages import DOCS, Page
from tests.support.gateway import COMMAND

PAGE = Page("how-to/use-dra.md")
CHART = DOCS.parent / "deploy/helm/dpgateway"
DRIVER, CLASS = "dra.example.com", "example.com.serial"


def documents(name):
    return [*YAML(typ="safe", pure=True).load_all(PAGE.files[name])]


VALUES = documents("values.yaml")[0]
CONFIGURATIONS = {"chart": VALUES["config"], "systemd": documents("/etc/dpgateway/config.yaml")[0]}


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_the_gateway_takes_each_configuration(name, tmp_path):
    config = CONFIGURATIONS[name] if name != "chart" else {**VALUES["config"], "dra": {"driver": DRIVER}}
    (tmp_path / "config.yaml").write_text(json.dumps(config))
    words = [*COMMAND, "check", "--all-nodes", "--config", tmp_path / "config.yaml"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_values_are_the_charts():
    (known,) = YAML(typ="safe", pure=True).load_all(CHART / "values.yaml")
    assert set(VALUES) <= set(known)
    assert set(VALUES["dra"]) <= set(known["dra"])


def test_pods_and_claims_name_the_resource_and_its_class():
    (reader,), (claim, pod) = documents("reader.yaml"), documents("modem.yaml")
    (resource,) = {one["name"] for config in CONFIGURATIONS.values() for one in config["resources"]}
    (limits,) = [one["resources"]["limits"] for one in reader["spec"]["containers"]]
    assert limits == {resource: 1}
    (request,) = claim["spec"]["spec"]["devices"]["requests"]
    assert request["exactly"]["deviceClassName"] == CLASS == resource.replace("/", ".")
    assert DRIVER in request["exactly"]["selectors"][0]["cel"]["expression"]
    (asked,) = pod["spec"]["resourceClaims"]
    assert asked["resourceClaimTemplateName"] == claim["metadata"]["name"]
    assert pod["spec"]["containers"][0]["resources"]["claims"] == [{"name": asked["name"]}]


def test_parameters_are_for_the_driver_of_the_class():
    (made,) = documents("network.yaml")
    (configuration,) = made["spec"]["config"]
    assert configuration["opaque"]["driver"] == DRIVER
    assert DRIVER in made["spec"]["selectors"][0]["cel"]["expression"]


def test_each_troubles_text_is_the_gateways():
    """Or Kubernetes', which has them in a test of the cluster."""
    source = "\n".join(path.read_text() for path in (DOCS.parent / "src/dpgateway").rglob("*.py"))
    texts = (
        "the kubelet refuses DRA driver",
        "slices aren't as they should be",
        "found status",
        "there is no node",
        "the API server drops",
        "starts pods of an extended resource without their",
    )
    assert [text for text in texts if text not in PAGE.text or text not in source] == []
