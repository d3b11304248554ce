"""The chart's schema knows what the gateway knows. tests/cluster renders the chart, and installs it."""

import asyncio
import dataclasses
import hashlib
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from dpgateway.config.checks import dra_driver, https
from dpgateway.config.problems import Wrong
from dpgateway.config.spelling import check_resource_name, parse_duration, parse_listen
from dpgateway.config.values import (
    CDI_DIRS,
    ClusterSettings,
    DraSettings,
    KubeletSettings,
    ResourceKeys,
    RuntimeSettings,
    Shares,
    Timeouts,
    WebSettings,
)
from dpgateway.model import Mount
from dpgateway.resource.ownership import FOLDER, LAST
from dpgateway_simulator import Kubelet as Simulated
from tests.support.gateway import Gateway
from tests.support.waiting import until

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy/helm/dpgateway"
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
DEFINED = SCHEMA["definitions"]
CONFIG = DEFINED["config"]["properties"]
RESOURCE = DEFINED["resource"]["properties"]


def read(path):
    return YAML(typ="safe", pure=True).load(path)


@pytest.mark.parametrize(
    ("schema", "keys"),
    [
        (DEFINED["resource"], ResourceKeys),
        (RESOURCE["shares"]["oneOf"][1], Shares),
        (RESOURCE["timeouts"], Timeouts),
        (RESOURCE["mounts"]["items"], Mount),
        (CONFIG["kubelet"], KubeletSettings),
        (CONFIG["runtime"], RuntimeSettings),
        (CONFIG["web"], WebSettings),
        (CONFIG["dra"], DraSettings),
        (CONFIG["cluster"], ClusterSettings),
    ],
    ids=["resource", "shares", "timeouts", "mounts", "kubelet", "runtime", "web", "dra", "cluster"],
)
def test_the_schema_has_the_gateways_keys_and_no_other(schema, keys):
    fields = dataclasses.fields(keys)
    assert set(schema["properties"]) == {field.name for field in fields}
    assert schema["additionalProperties"] is False


def test_defaults_may_be_any_key_of_a_resource_but_two():
    assert set(CONFIG["defaults"]["properties"]) == set(RESOURCE) - {"name", "driver"}


def test_the_reference_names_the_keys_of_the_file():
    text = (ROOT / "docs/reference/configuration.md").read_text()
    section = text[text.index("## The file") : text.index("## A resource")]
    assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == set(CONFIG)


def test_specs_of_cdi_devices_are_mounted_where_the_gateway_looks_for_them():
    directories = " ".join(f'"{path}"' for path in CDI_DIRS)  # in the image /var/run is no link to /run
    assert f'dig "runtime" "cdi_dirs" (list {directories})' in (CHART / "templates/_helpers.tpl").read_text()


async def test_the_clean_up_ends_a_gateway_that_lingers_and_removes_all_that_it_kept(short_path):
    directory = short_path / "device-plugins"
    directory.mkdir()
    program = (CHART / "files/clean_up.py").read_text()
    for path, here in (("/var/lib/kubelet/device-plugins", directory), ("/node/var-lib", short_path)):
        program = program.replace(f'"{path}/dpgateway"', f'"{here}/dpgateway"')
    async with Gateway(short_path, directory) as gateway, Simulated("1.31", directory) as kubelet:
        gateway.environment["DPGATEWAY_LINGER"] = "10m"
        await gateway.start({"name": "example.com/a", "driver": "simulated", "options": {"count": 1}})
        await kubelet.wait_for(lambda: kubelet.counts("example.com/a")[1] == 1)
        cleaning = await asyncio.create_subprocess_exec(sys.executable, "-I", "-c", program)
        last = directory / FOLDER / LAST
        await until(last.exists)
        last.unlink()  # as one does that has just begun
        gateway.process.send_signal(signal.SIGTERM)
        await gateway.said("told to end: serving on")
        async with asyncio.timeout(60):
            assert await gateway.process.wait() == 0
            assert await cleaning.wait() == 0
    assert not (directory / "dpgateway").exists()


def test_the_clean_up_leaves_what_ends_the_claims_of_pods(tmp_path):
    driver, kubelet = "dra.example.com", tmp_path / "kubelet"
    program = (CHART / "files/clean_up.py").read_text().replace('"/node/kubelet"', f'"{kubelet}"')
    program = program.replace('"/node/var-lib/dpgateway"', f'"{tmp_path}/state"')
    lock, record = kubelet / "plugins" / driver / "dpgateway/0.lock", tmp_path / "state/dra/claims/uid.json"
    socket = kubelet / f"plugins_registry/dpgateway-{hashlib.sha256(driver.encode()).hexdigest()[:8]}-01234567.sock"
    other = socket.with_name("other-driver.sock")
    for path in (lock, record, socket, other):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    run = [sys.executable, "-I", "-c", program, driver]
    done = subprocess.run(run, check=False, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr[:28]) == (1, "found 1 claims with devices,")
    assert all(path.exists() for path in (lock, record, socket))
    record.unlink()
    subprocess.run(run, check=True)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [other]


def accepted(schema, text):
    other = schema.get("not", {}).get("pattern")
    fits = len(text) >= schema.get("minLength", 0) and re.search(schema["pattern"], text) is not None
    return fits and len(text) <= schema.get("maxLength", len(text)) and not (other and re.search(other, text))


def judged(check, text):
    try:
        check(text)
    except Wrong:
        return False
    return True


@pytest.mark.parametrize("text", ["10s", "1m30s", "500ms", "1.5h", "1h2m3s4ms", "600", "", "1d", "30s1m", "-1s", "1 s"])
def test_the_schema_judges_durations_as_the_gateway_does(text):
    assert accepted(DEFINED["duration"], text) == judged(parse_duration, text)


NAMES = """
    example.com/serial a/B_c.d Example.com/x example.com/ /x a/b/c a.kubernetes.io/x requests.a/x a/-x a..b/x -a/x a
""".split()  # noqa: SIM905  a list of words is easier to read


@pytest.mark.parametrize("text", [*NAMES, f"a/{'x' * 63}", f"a/{'x' * 64}"])
def test_the_schema_judges_names_as_the_gateway_does(text):
    assert accepted(RESOURCE["name"], text) == judged(check_resource_name, text)


@pytest.mark.parametrize("text", ["dra.example.com", "x", "a..b", "A.b", "-a", "a_b", "a" * 63, "a" * 64, ""])
def test_the_schema_judges_names_of_drivers_as_the_gateway_does(text):
    assert accepted(DEFINED["driver"], text) == judged(dra_driver, text)


@pytest.mark.parametrize(
    "text", ["0.0.0.0:9480", "[::]:9480", "10.0.0.7:80", "localhost:9480", ":9480", "10.0.0.7", "x"]
)
def test_the_schema_judges_addresses_as_the_gateway_does(text):
    assert accepted(CONFIG["web"]["properties"]["listen"], text) == judged(parse_listen, text)


@pytest.mark.parametrize(
    "text",
    ["https://a", "https://a:64430b", "https://[::1]:6443", "https://::1:6443", "https://a/b", "http://a:0", "a:1"],
)
def test_the_schema_judges_servers_as_the_gateway_does(text: str) -> None:
    assert accepted(CONFIG["cluster"]["properties"]["server"], text) == judged(https, text)


def test_the_pages_must_be_where_probes_can_be_told_to_go():
    """tests/cluster: a loopback address is refused by a template, unless the pod is in the node's network."""
    assert judged(parse_listen, "0.0.0.0:0")
    assert not accepted(CONFIG["web"]["properties"]["listen"], "0.0.0.0:0")


def test_every_value_is_in_the_schema_and_in_the_file_with_its_default():
    values = read(CHART / "values.yaml")
    assert set(SCHEMA["properties"]) == {*values, "global"}
    assert set(DEFINED["profile"]["properties"]) < set(values)
    assert SCHEMA["additionalProperties"] is DEFINED["profile"]["additionalProperties"] is False


def test_plain_manifests_are_yaml_and_name_the_gateways_own_directories():
    documents = list(YAML(typ="safe", pure=True).load_all(ROOT / "deploy/kubernetes/dpgateway.yaml"))
    (daemonset,) = [one for one in documents if one and one["kind"] == "DaemonSet"]
    (container,) = daemonset["spec"]["template"]["spec"]["containers"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    writable = {one["mountPath"] for one in container["volumeMounts"] if not one.get("readOnly")}
    assert writable == {"/run", "/var/lib/kubelet/device-plugins", "/var/lib/dpgateway"}
