"""The command, on a node that is a directory: what it reads, what it prints, and its exit code."""

import asyncio
import base64
import contextlib
import json
import os
import re
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from hypothesis import HealthCheck, given, settings

from dpgateway.cli import facts
from dpgateway.deviceplugin.wire import v1beta1_pb2 as wire
from dpgateway.dra.claims.records import ClaimRecord, Given, Phase
from dpgateway_simulator import Kubelet
from dpgateway_simulator.kubelet.checkpoint import write
from dpgateway_simulator.kubelet.ledger import Holding
from dpgateway_simulator.wire.dialects import Answer
from dpgateway_simulator.wire.runtime import v1
from tests.node.test_checkpoint import FORMATS, JSON, entry
from tests.support.drivers import GOOD, Site

pytestmark = pytest.mark.usefixtures("fake_driver")

REFERENCE = (Path(__file__).parents[2] / "docs/reference/preflight.md").read_text()
R = "example.com/a"
SERVED = f"resources: [{{name: {R}, driver: fake, options: {{mode: list}}}}]"
SURE = "--from=1.26", "--to=1.34"
"""Between these nothing depends on the machine that runs the tests."""


@pytest.fixture
def node(line, tmp_path):
    return Node(line, tmp_path / "device-plugins")


class Node:
    def __init__(self, line, directory):
        self.line, self.directory = line, directory
        directory.mkdir()
        self.configure(SERVED)

    def configure(self, text, runtime="/nonexistent.sock"):
        state = self.directory.parent / "state"
        self.config = self.line.config(f"{text}\nstate_dir: {state}\nruntime: {{socket: {runtime}}}\n")

    def hold(self, document):
        (self.directory / "kubelet_internal_checkpoint").write_text(json.dumps(document))

    def says(self, *arguments, code):
        given = [f"--config={self.config}", f"--device-plugins-dir={self.directory}", "--node-name=n1"]
        result = self.line("preflight", *given, *(arguments or SURE))
        assert result.exit_code == code, result.output
        return result.stdout

    def json(self, *arguments, code):
        return json.loads(self.says(*(arguments or SURE), "--output=json", code=code))

    def found(self, *arguments, code):
        return [(one["level"], one["code"], one["resource"]) for one in self.json(*arguments, code=code)["findings"]]


def by_node(*entries):
    return {"Data": {"PodDeviceEntries": list(entries), "RegisteredDevices": {}}, "Checksum": 1}


def test_nothing_is_lost(node):
    node.hold(by_node(entry(R, DeviceIDs={"-1": ["n1-0"]})))
    text = node.says(code=0)
    assert text.splitlines()[0] == "kubelet 1.34 in place of 1.26 (--from)"
    assert [line.split() for line in text.splitlines()[-2:]] == [
        [R, "fake", "2", "1"],
        ["nothing", "would", "be", "lost", "with", "kubelet", "1.34"],
    ]


def test_loss_with_advice(node):
    node.hold(by_node(entry(R, DeviceIDs={"-1": ["gone"]})))
    lines = node.says(code=1).splitlines()
    assert lines[-3].startswith(f"loss: {R}: containers hold gone, which driver fake doesn't list; ")
    assert lines[-2].startswith("    what to do: ")
    assert lines[-1] == "findings that would be a loss: 1 of 1"


SPANS = [("1.8", "1.8"), ("1.9", "1.10"), ("1.11", "1.19"), ("1.20", "1.37")]


@pytest.mark.parametrize(("name", "span"), list(zip(FORMATS, SPANS, strict=True)), ids=FORMATS)
def test_each_format_of_the_checkpoint(node, name, span):
    """Nobody says which kubelet it is, so the file does."""
    node.hold(FORMATS[name])
    told = node.json("--to=1.34", code=1)  # in any case because of the runtime
    assert ("checkpoint-forgotten" in {one["code"] for one in told["findings"]}) == (name != "1.20-1.37")
    assert told["from"]["clues"] == ["its checkpoint's format"]
    assert (told["from"]["oldest"], told["from"]["newest"]) == span


@pytest.mark.parametrize(("preference", "expected"), [("packed", True), ("none", False)])
def test_a_preference_that_the_configuration_has(node, preference, expected):
    node.configure(f"resources: [{{name: {R}, driver: fake, options: {{mode: list}}, preference: {preference}}}]")
    found = node.found("--from=1.26", "--to=1.18", code=int(expected))
    assert (("loss", "preference-lost", R) in found) == expected


def test_all_of_the_json(node):
    node.hold(by_node(entry(R, DeviceIDs={"-1": ["bad\x1b[2J"]})))
    told = node.json(code=0)
    assert [one.partition(":")[0] for one in told.pop("not_asked")] == [
        "no gateway is running",
        "the kubelet can't be asked",
        "the container runtime can't be asked",
    ]
    assert told.pop("cgroups") in {1, 2, None}
    assert told == {
        "schema": 1,
        "node_name": "n1",
        "config": str(node.config),
        "device_plugins_dir": str(node.directory),
        "to": "1.34",
        "from": {"oldest": "1.26", "newest": "1.26", "clues": ["--from"]},
        "verdict": "safe",
        "findings": [
            {
                "level": "change",
                "code": "id-unhealthy",
                "text": "containers hold bad\x1b[2J, which would be Unhealthy: no power",
                "advice": "",
                "resource": R,
                "ids": ["bad\x1b[2J"],
                "pods": ["1a"],
            }
        ],
        "resources": [{"name": R, "driver": "fake", "offered": 2, "held": 1}],
        "checkpoint": {"formats": ["by NUMA node"], "unread": None},
        "runtime": None,
        "rehearsal": None,
        "front": None,
    }


def test_a_kubelet_that_does_not_answer(node):
    """As after its end, which leaves the socket behind."""
    path = node.directory.parent / "pod-resources/kubelet.sock"
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as left, contextlib.chdir(path.parent):
        left.bind(path.name)
    (text,) = [one for one in node.json(code=0)["not_asked"] if one.startswith("the kubelet can't be asked: ")]
    assert "UNAVAILABLE" in text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_whoever_is_not_root_is_told_what_is_not_known(line, short_path):
    """A kubelet's root directory is root's alone."""
    short_path.chmod(0o755)
    kubelet, config = short_path / "kubelet", short_path / "config.yaml"
    (kubelet / "device-plugins").mkdir(parents=True)
    kubelet.chmod(0o700)
    config.write_text(f"resources: []\nkubelet: {{device_plugins_dir: {kubelet}/device-plugins}}\n")
    arguments = "preflight", f"--config={config}", *SURE, "--output=json"
    assert "there is no" in json.loads(line(*arguments).stdout)["not_asked"][1]
    os.seteuid(65534)
    try:
        result = line(*arguments)
    finally:
        os.seteuid(0)
    text = f"the kubelet can't be asked: {kubelet}/pod-resources/kubelet.sock: Permission denied"
    assert json.loads(result.stdout)["not_asked"][1] == text


def test_each_json_field_is_documented(node):
    section = REFERENCE[REFERENCE.index("### Preflight") : REFERENCE.index("### Finding")]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == list(node.json(code=0))


def test_features_from_the_checkpoint(node):
    answer = wire.ContainerAllocateResponse(annotations={"a": "b"}, cdi_devices=[wire.CDIDevice(name="v.example/c=d")])
    given = base64.b64encode(answer.SerializeToString()).decode()
    node.hold(by_node(entry(R, DeviceIDs={"-1": ["n1-0"]}, AllocResp=given)))
    found = node.found("--from=1.31", "--to=1.9", code=1)
    assert {("loss", "annotations-lost", R), ("loss", "cdi-lost", R), ("loss", "topology-lost", R)} <= set(found)


def test_an_answer_that_is_none(node):
    node.hold(by_node(entry(R, DeviceIDs={"-1": ["n1-0"]}, AllocResp="/w==")))
    assert node.found(code=1) == [("unknown", "checkpoint-unread", "")]


def test_shares_are_what_is_listed(node):
    node.hold(by_node(entry(R, DeviceIDs={"-1": ["n1-0::1"]})))
    assert node.found(code=1) == [("loss", "id-unlisted", R)]
    node.configure(SERVED.replace("}}]", "}, shares: 2}]"))
    assert node.found(code=0) == []


def test_a_driver_that_fails(node):
    node.configure(SERVED.replace("list", "bug"))
    assert node.found(code=1) == [("unknown", "driver-failed", R)]


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("failCgroupV1: false", True),
        ("failCgroupV1: true", False),
        ("a: b", False),
        ("[]", False),
        ("{", False),
        ("%YAML 1.3\n---\na: b", False),
        ("a: !!int ''", False),
    ],
)
def test_kubelet_allowed_cgroup_v1(tmp_path, text, allowed):
    (tmp_path / "config.yaml").write_text(text)
    assert facts.allows_cgroup_v1(tmp_path / "config.yaml") == allowed
    assert not facts.allows_cgroup_v1(tmp_path / "none.yaml")


def test_kubelet_configuration_that_is_a_pipe(tmp_path: Path) -> None:
    """Nobody writes to it, so whoever opened it would wait for ever."""
    os.mkfifo(tmp_path / "config.yaml")
    assert not facts.allows_cgroup_v1(tmp_path / "config.yaml")


@pytest.mark.parametrize(("files", "version"), [(["cgroup.controllers"], 2), (["tasks"], 1)])
def test_the_version_of_cgroups(tmp_path, files, version):
    for name in files:
        (tmp_path / name).touch()
    assert facts.cgroups(tmp_path) == version
    assert facts.cgroups(tmp_path / "none") is None


@pytest.fixture
def containerd(short_path):
    """The socket of a container runtime."""
    answer = bytes(v1.VersionResponse(runtime_name="containerd", runtime_version="1.6.20"))
    status = bytes(v1.StatusResponse(info={"config": '{"cdiSpecDirs": ["/etc/cdi"]}'}))
    answers = {"Version": lambda request, context: answer, "Status": lambda request, context: status}
    rows = {name: grpc.unary_unary_rpc_method_handler(say) for name, say in answers.items()}
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("runtime.v1.RuntimeService", rows),))
    server.add_insecure_port(f"unix:{short_path}/cri.sock")
    server.start()
    yield f"{short_path}/cri.sock"
    server.stop(None).wait()


def test_a_container_runtime(node, containerd):
    """It says who it is."""
    node.configure(SERVED, containerd)
    told = node.json("--from=1.25", "--to=1.34", code=0)
    who = {"name": "containerd", "version": "1.6.20", "cdi": False}
    assert told["runtime"] == who | {"unread_cdi_dirs": ["/var/run/cdi"]}
    assert [one["code"] for one in told["findings"]] == ["cdi-expanded"]


def test_api_not_configured(node):
    node.configure(f"{SERVED}\nkubelet: {{apis: [v1alpha2]}}")
    assert node.found(code=1) == [("loss", "api-refused", "")]


def test_unreadable_checkpoint(node):
    (node.directory / "kubelet_internal_checkpoint").write_bytes(b"{")
    told = node.json(code=1)
    assert told["verdict"] == "unknown"
    assert "not in a format of any kubelet" in told["checkpoint"]["unread"]


@given(JSON)
@settings(
    deadline=None, max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_verdict_for_any_checkpoint(node, document):
    node.hold(document)
    result = node.line("preflight", f"--config={node.config}", f"--device-plugins-dir={node.directory}", *SURE)
    assert result.exit_code in {0, 1}
    assert result.stdout.splitlines()[-1].startswith(("nothing would be lost", "whether something would", "1 of these"))


class TestTheRehearsal:
    """A gateway of its own, on devices on paper, and a simulated kubelet that reads a copy of the checkpoint."""

    WROTE = (Holding("p1", "c", R, {-1: ["n1-0"]}, Answer()), Holding("p2", "c", R, {-1: ["n1-0::1"]}, Answer()))

    def rehearse(self, node, layout, code):
        node.configure(SERVED.replace("}}]", "}, shares: 2}]"))
        text = write(layout, self.WROTE, {R: ["n1-0", "n1-0::1"]})
        (node.directory / "kubelet_internal_checkpoint").write_text(text)
        told = node.json(*SURE, "--rehearse", code=code)
        assert (node.directory / "kubelet_internal_checkpoint").read_text() == text
        return told

    def test_a_kubelet_that_remembers(self, node):
        told = self.rehearse(node, "by NUMA node", 0)
        assert told["findings"] == []
        assert told["rehearsal"] == {
            "kubelet": "1.34",
            "pods": [{"pod": pod, "admitted": True, "reason": "", "allocated": 0} for pod in ("p1", "p2")],
            "ids": [
                {"resource": R, "id": "n1-0", "before": ["p1/c"], "after": ["p1/c"]},
                {"resource": R, "id": "n1-0::1", "before": ["p2/c"], "after": ["p2/c"]},
            ],
            "crashed": "",
        }

    def test_a_kubelet_that_forgets(self, node):
        told = self.rehearse(node, "with checksum", 1)
        codes = {one["code"] for one in told["findings"]}
        assert "checkpoint-forgotten" in codes
        assert codes & {"rehearsal-allocated", "rehearsal-holders", "rehearsal-refused"}

    def test_who_holds_what_is_not_known(self, node):
        (node.directory / "kubelet_internal_checkpoint").write_text("{")
        assert node.json(*SURE, "--rehearse", code=1)["rehearsal"] is None


def test_a_node_without_a_kubelet(node):
    node.directory.rmdir()
    told = node.json("--to=1.37", code=1)
    assert (told["from"]["oldest"], told["from"]["newest"], told["from"]["clues"]) == ("1.8", "1.37", [])
    assert "doesn't exist" in told["checkpoint"]["unread"]


def test_kubelet_without_a_checkpoint(node):
    assert node.found(code=0) == []


def test_devices_of_another_plugin(node):
    node.hold(by_node(entry("example.com/other", DeviceIDs={"-1": ["x"]})))
    assert node.found(code=0) == [("change", "resource-of-others", "example.com/other")]


async def test_clue_of_a_running_kubelet(line, short_path):
    """It has the checkpoint's format and PodResources."""
    node = Node(line, short_path / "device-plugins")
    async with Kubelet("1.16", node.directory):
        told = await asyncio.to_thread(node.json, "--to=1.19", code=0)
    assert (told["from"]["oldest"], told["from"]["newest"]) == ("1.13", "1.19")
    assert told["from"]["clues"] == ["it serves PodResources v1alpha1"]


def test_without_an_upgrade_it_is_about_this_node(node):
    node.hold(by_node(entry(R, DeviceIDs={"-1": ["gone"]})))
    told = node.json("--from=1.31", code=1)
    assert told["to"] is None
    assert [one["code"] for one in told["findings"]] == ["kubelet-absent", "id-unlisted", "runtime-absent"]
    lines = node.says("--from=1.31", code=1).splitlines()
    assert (lines[0], lines[-1]) == ("this node's kubelet: 1.31 (--from)", "findings that must be mended: 2 of 3")


async def test_nothing_is_in_the_way_of_a_gateway(line, short_path, containerd):
    node = Node(line, short_path / "device-plugins")
    node.configure(SERVED, containerd)
    async with Kubelet("1.31", node.directory):
        told = await asyncio.to_thread(node.says, "--log-level=info", code=0)
    assert told.splitlines()[-1] == "nothing is in the gateway's way on this node"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--rehearse"], "expected --to beside it"),
        (["--to=1.38"], "kubelets newer than 1.37 are unknown to this dpgateway"),
        (["--to=1.7"], "expected a kubelet's version from 1.8 to 1.37"),
        (["--to=1.37", "--from=old"], "found 'old', expected a kubelet's version"),
    ],
)
def test_wrong_usage(line, arguments, expected):
    result = line("preflight", *arguments)
    assert result.exit_code == 2
    assert expected in " ".join(result.stderr.split())


def test_a_configuration_that_is_wrong(line, tmp_path):
    result = line("preflight", "--to=1.37", f"--config={tmp_path}/none.yaml")
    assert result.exit_code == 2
    assert "none.yaml" in result.stderr


def test_a_change_of_the_front(node):
    dra = "dra: {driver: dra.example.com}\ncluster: {server: 'https://127.0.0.1:1', token: /nonexistent}"
    node.configure(f"{SERVED}\n{dra}")
    found = node.json("--front=dra", "--from=1.35", code=1)
    assert found["front"] == {"name": "dra", "resources": {R: "waits"}}
    assert {"dra-kubelet", "dra-unasked"} <= {one["code"] for one in found["findings"]}
    assert re.search(f"{R} +waits", node.says("--front=dra", "--from=1.35", code=1))
    assert node.json(*SURE, code=0)["front"] is None
    assert node.json("--front=deviceplugin", *SURE, code=0)["front"]["resources"] == {R: "ready"}


def test_joint_devices_that_go_to_dra(node, fake_driver):
    joint = "[Device(str(n), hardware=('char 240:1', f'pci {n}'), joint=True) for n in range(2)]"
    source = GOOD.replace("import Allocation", "import Allocation, Device").replace("return []", f"return {joint}")
    Site(fake_driver)(source, module="td_joint")
    node.configure(SERVED.replace("driver: fake", "driver: td_joint").replace("mode: list", "count: 1"))
    assert ("change", "dra-joint", R) in node.found("--front=dra", "--from=1.36", "--to=1.37", code=1)


def test_a_downgrade_under_claims(node):
    folder = node.directory.parent / "state/dra/claims"
    folder.mkdir(parents=True)
    devices = Given("r", R, "n1/thing", (("a", ""),), ("n1-0",))
    record = ClaimRecord("uid-1", "default", "c", Phase.PREPARED, "boot", (devices,), (("u", "web"),))
    (folder / "uid-1.json").write_text(record.to_json())
    node.hold(by_node(entry(R, DeviceIDs={"-1": ["bad\x1b[2J"]})))
    assert node.json("--from=1.36", "--to=1.37", code=0)["resources"][0]["held"] == 2
    assert node.found("--from=1.37", "--to=1.34", code=1)[0] == ("loss", "claims-lost", R)
    assert "claim default/c (pod web)" in node.says("--from=1.37", "--to=1.34", code=1)
    known = {code for _, code, _ in node.found("--from=1.36", "--to=1.37", code=0)}
    assert "claims-lost" not in known
