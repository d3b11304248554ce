"""``dpgateway status`` asks the real process, which serves a simulated kubelet."""

import asyncio
import json
from importlib.metadata import version

import pytest

from dpgateway.cli.control_client import asked
from dpgateway_simulator import Kubelet
from tests.support.gateway import Gateway
from tests.support.node import Node
from tests.support.waiting import until

R = "example.com/thing"
THING = {"name": R, "driver": "simulated", "options": {"count": 2}}
ABSENT = {"name": "example.com/absent", "driver": "absent"}


@pytest.fixture
async def node(short_path, log_put_back):
    (short_path / "dp").mkdir()
    async with Gateway(short_path, short_path / "dp") as gateway, Kubelet("1.31", short_path / "dp") as kubelet:
        yield Node(short_path, gateway, kubelet)


async def offered(node, *resources):
    await node.gateway.start(THING, *resources)
    await node.kubelet.wait_for(lambda: node.kubelet.counts(R)[1] == 2)
    await node.gateway.said("registered")


def lines(text):
    return [line.split() for line in text.splitlines()]


async def test_table_of_resources_and_troubles(node):
    (node.folder / "state").mkdir()
    (node.folder / "state").chmod(0o777)
    await offered(node, ABSENT)
    assert (await node.kubelet.admit("p", {"c": {R: 1}}))["ok"]
    await node.gateway.said("nobody will remember")
    table = await node.says()
    rows = {line[0]: line for line in lines(table) if line}
    assert f"pid {node.gateway.pid}, for " in table
    assert "kubelet: there for " in table
    assert ", speaks v1beta1, release 1." in table
    socket = (node.folder / "dp/kubelet.sock").stat()
    incarnation = (await node.json())["kubelet"]["incarnation"]
    assert incarnation == f"{socket.st_dev}:{socket.st_ino}:{socket.st_ctime_ns}"
    head = dict(zip(rows["RESOURCE"], rows[R], strict=False))
    assert {name: head[name] for name in ("KUBELET", "HEALTHY", "UNHEALTHY", "HELD", "FREE")} == {
        "KUBELET": "serving",
        "HEALTHY": "2",
        "UNHEALTHY": "0",
        "HELD": "1",
        "FREE": "1",
    }
    assert "example.com/absent, for " in table
    assert "it isn't installed" in table
    assert "what to do about example.com/absent: `dpgateway drivers` says which drivers are installed" in table
    assert f"{R}: after a restart of the gateway nobody will remember what is given away now: {node.folder}" in table
    assert f"what to do about {R}: look at the disk of `state_dir`" in table
    assert f"registered ({R})\n" in table


async def test_refused_containers_until_one_succeeds(node):
    faults, new = node.folder / "faults.json", node.folder / "faults.new"
    new.write_text(json.dumps({"faults": [{"call": "allocate", "error": "the bus is stuck"}]}))
    new.rename(faults)
    node.gateway.resources = [{**THING, "options": {"count": 2, "control_file": str(faults)}}]
    await node.gateway.start()
    await node.kubelet.wait_for(lambda: node.kubelet.counts(R)[1] == 2)
    for pod in "pq":
        assert not (await node.kubelet.admit(pod, {"c": {R: 1}}))["ok"]
    status = await node.json()
    (trouble,) = [one for one in status["troubles"] if one["resource"] == R]
    assert trouble["level"] == "warning"
    assert trouble["reason"].startswith("the last container that wanted a device got none: ")
    assert trouble["reason"].endswith("the bus is stuck")
    assert trouble["since"] == status["resources"][0]["refused"]["since"]
    assert "the bus is stuck" in (await node.says()).partition("what to do")[0]
    faults.unlink()

    async def admitted():
        return (await node.kubelet.admit("r", {"c": {R: 1}}))["ok"]

    await until(admitted)
    status = await node.json()
    assert status["resources"][0]["refused"] is None
    assert R not in [one["resource"] for one in status["troubles"]]


async def test_one_resource_with_its_holders(node):
    await offered(node, ABSENT)
    reply = await node.kubelet.admit("p", {"c": {R: 1}})
    assert reply["ok"]

    async def held():
        """Once the gateway has read who it is."""
        table = await node.says(R)
        assert "absent" not in table
        return [line for line in lines(table) if line[:1] == [R] and "pod" in line]

    assert [line[2:8] for line in await until(held)] == [["Healthy", "-", "pod", "p", "(c)", "for"]]
    (resource,) = (await node.json(R))["resources"]
    (device,) = [device for device in resource["devices"] if device["held"]]
    assert device["holders"] == [{"namespace": None, "pod": None, "pod_uid": "p", "container": "c", "claim": None}]
    assert resource["driver"]["version"] == version("dpgateway-simulated")
    assert resource["driver"]["error"] is None
    since = device["held_since"]
    assert since
    await node.gateway.end()
    await node.gateway.start()
    await until((node.folder / "control.sock").exists)
    await node.gateway.said("registered", count=2)
    (device,) = [device for device in (await node.json(R))["resources"][0]["devices"] if device["held"]]
    assert device["held_since"] == since


async def test_configured_order_after_a_reload(node):
    first, last = ({**THING, "name": f"example.com/{name}"} for name in ("first", "last"))
    await offered(node, last)
    await node.gateway.said("serving 2 resources")
    node.gateway.reload(first, {**THING, "options": {"count": 3}}, last)
    await node.gateway.said("the configuration was read again")
    names = [one["name"] for one in (await node.json())["resources"]]
    assert names == [first["name"], R, last["name"]]


async def test_a_resource_that_there_is_not(node):
    await offered(node)
    told = "the gateway has no resource example.com/thign\n"
    assert await node.says("example.com/thign", code=1) == told
    for more in ([], ["--watch"]):
        process = await node.start("--output=json", "example.com/thign", *more)
        output, errors = await process.communicate()
        assert (process.returncode, output.decode(), errors.decode()) == (1, "", told)


async def test_watch_sees_a_device_fail(node):
    faults = node.folder / "faults.json"
    node.gateway.resources = [{**THING, "options": {"count": 2, "control_file": str(faults)}}]
    await node.gateway.start()
    await node.kubelet.wait_for(lambda: node.kubelet.counts(R)[1] == 2)
    process = await node.start("--watch", "--output=json")
    async with asyncio.timeout(60):
        status = json.loads(await process.stdout.readline())
        ids = [device["id"] for device in status["resources"][0]["devices"]]
        new = node.folder / "faults.new"
        new.write_text(json.dumps({"faults": [{"devices": ids[:1], "unhealthy": "too hot"}]}))
        new.rename(faults)
        while status["resources"][0]["counts"]["unhealthy"] == 0 or status["events"][-1]["devices"] != ids[:1]:
            status = json.loads(await process.stdout.readline())
    device = status["resources"][0]["devices"][0]
    assert (device["healthy"], device["reason"]) == (False, "too hot")
    assert device["since"]
    with asked(node.folder / "control.sock", "summary") as answers:
        (summed,) = next(answers)["resources"]
    assert ([one["id"] for one in summed["devices"]], summed["counts"]["listed"]) == (ids[:1], len(ids))
    assert await node.gateway.end() == 0
    _, errors = await process.communicate()
    assert (process.returncode, errors.decode()) == (1, "the gateway has ended\n")


async def test_refused_configuration_until_the_next(node):
    await offered(node)
    before = (await node.json())["reloads"]
    assert (before["succeeded"], before["refused"], before["refusal"]) == (0, 0, None)
    node.gateway.reload({**THING, "shares": 0})
    await node.gateway.said("the new configuration is refused")
    problem = "config.yaml:1: resources[0].shares: found 0, expected a number of shares from 1 to 1000"
    assert (await node.json())["reloads"]["refusal"]["problems"] == [f"{node.folder}/{problem}"]
    table = await node.says()
    assert "the configuration has been refused for " in table
    assert problem in table
    assert "the new configuration is refused because of 1 problem" in table  # the event
    node.gateway.reload(THING)
    await node.gateway.said("the configuration was read again; nothing changed")
    after = (await node.json())["reloads"]
    assert min(after["succeeded"], after["refused"]) >= 1  # it reads because of the signal, and because of the file
    assert after["refusal"] is None
    assert before["read"] <= after["read"]


async def test_checkpoint_without_a_gateway(node):
    await offered(node)
    assert (await node.kubelet.admit("p", {"c": {R: 1}}))["ok"]
    assert await node.gateway.end() == 0
    found = await node.says(code=1)
    assert found.startswith(f"no gateway is running: nothing answers at {node.folder}/control.sock\n")
    assert [line[2:] for line in lines(found) if line[0] == R] == [["p", "(c)"]]
    (resource,) = (await node.json(code=1))["checkpoint"]
    assert resource["name"] == R
    assert [device["holders"] for device in resource["devices"]] == [[{"pod_uid": "p", "container": "c"}]]


async def test_without_a_checkpoint_it_says_so(node):
    found = await node.json("--device-plugins-dir=/nonexistent", code=1)
    assert found["gateway"] is None
    assert found["checkpoint"] == []
    assert found["unread"] == "/nonexistent/kubelet_internal_checkpoint: No such file or directory"


def test_records_of_claims_that_cannot_be_read(line, tmp_path):
    """Root can read all, so a link to itself takes the place of a folder that nobody else may read."""
    folder = tmp_path / "state/dra/claims"
    folder.mkdir(parents=True)
    (folder / "u1.json").write_text("{")
    (tmp_path / "config.yaml").write_text(f"resources: []\nstate_dir: {tmp_path}/state\n")
    words = [f"--control-socket={tmp_path}/none", f"--config={tmp_path}/config.yaml", "--device-plugins-dir=/none"]
    (damaged,) = json.loads(line("status", "--output=json", *words).stdout)["unread_claims"]
    assert damaged.startswith(f"{folder}/u1.json: ")
    assert f"whether a claim has devices isn't known: {damaged}\n" in line("status", *words).stdout

    (folder / "u1.json").unlink()
    folder.rmdir()
    folder.symlink_to("claims")
    result = line("status", *words)
    assert result.exit_code == 1
    assert f"whether a claim has devices isn't known: {folder}: Too many levels of symbolic links\n" in result.stdout


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "config.yaml: found "),
        ("state_dir: [", "config.yaml:1: found broken YAML, "),
        ("state_dir: 3\nresources: []", "config.yaml:1: state_dir: found 3, "),
        ("kubelt: {}\nresources: []", "config.yaml:1: kubelt: found an unknown key, "),
        ("resources: [3]\nweb: 3", ""),
    ],
)
def test_directories_of_a_broken_configuration(line, tmp_path, text, says):
    if text is not None:
        line.config(text)
    words = [f"--control-socket={tmp_path}/none", f"--config={tmp_path}/config.yaml", "--device-plugins-dir=/none"]
    unknown = json.loads(line("status", "--output=json", *words).stdout)["unread_claims"]
    assert len(unknown) == bool(says)
    for one in unknown:
        assert one.startswith(f"{tmp_path}/{says}")
        assert one.endswith("; /none and /var/lib/dpgateway are looked at")
        assert f"whether a claim has devices isn't known: {one}\n" in line("status", *words).stdout
