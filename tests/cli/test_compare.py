"""``dpgateway check --against-running`` says what a reload does, before it is done."""

import json

import pytest

from tests.support.gateway import Gateway
from tests.support.waiting import until


def resource(name, **keys):
    return {"name": f"example.com/{name}", "driver": "simulated", "options": {"count": 2}} | keys


SERVED = [resource(name) for name in "abcd"]
WANTED = [
    resource("a", refresh="30s"),  # the default
    resource("b", shares=2, env={"A": "b"}),
    resource("c", options={"count": 3}),
    resource("e"),
]


@pytest.fixture
async def gateway(short_path):
    (short_path / "dp").mkdir()
    async with Gateway(short_path, short_path / "dp") as gateway:
        yield gateway


def check(line, gateway, *arguments):
    socket, directory = gateway.folder / "control.sock", gateway.device_plugins_dir
    given = ("--control-socket", socket, "--device-plugins-dir", directory, "--node-name", "another")
    return line("check", "--against-running", *given, *arguments)


async def test_prediction_is_what_a_reload_does(line, gateway):
    await gateway.start(*SERVED)
    await gateway.said("serving 4 resources")
    state = str(gateway.folder / "state")
    besides = {"state_dir": state, "kubelet": {"apis": ["v1beta1"]}, "web": {"listen": "[::1]:0"}}
    new = line.config(json.dumps({"resources": WANTED, **besides}))
    await until((gateway.folder / "control.sock").exists)
    found = json.loads(check(line, gateway, "--config", new, "--output", "json").stdout)
    assert found["node_name"] == "node"
    assert found["against_running"] == {
        "resources": [
            {"name": "example.com/a", "change": "untouched", "keys": []},
            {"name": "example.com/b", "change": "changed", "keys": ["shares", "env"]},
            {"name": "example.com/c", "change": "restarted", "keys": ["options"]},
            {"name": "example.com/e", "change": "added", "keys": []},
            {"name": "example.com/d", "change": "removed", "keys": []},
        ],
        "next_start": ["kubelet.apis"],
        "taken_over": ["web"],
    }
    gateway.reload(*WANTED)
    await gateway.said(
        "the configuration was read again; added: example.com/e; removed: example.com/d; "
        "restarted: example.com/c (options); changed in place: example.com/b (shares, env)"
    )
    result = check(line, gateway, "--config", gateway.folder / "config.yaml")
    assert result.exit_code == 0
    rows = [row.split() for row in result.stdout.partition("effects of a reload")[2].splitlines()[2:]]
    assert rows == [[one["name"], "untouched", "-"] for one in WANTED]
    wrong = check(line, gateway, "--config", line.config("resources: 1"), "--output", "json")
    assert (wrong.exit_code, json.loads(wrong.stdout)["against_running"]) == (2, None)


async def test_pages_already_on_are_no_change(line, gateway):
    gateway.web = {"listen": "127.0.0.1:0"}
    await gateway.start(*SERVED)
    await gateway.said("the pages are at ")
    await until((gateway.folder / "control.sock").exists)
    for listen, done in (("127.0.0.1:0", "nothing changed"), ("[::1]:0", "taken over: web")):
        gateway.web = {"listen": listen}
        gateway.reload(*SERVED)
        await gateway.said(f"the configuration was read again; {done}")
        result = check(line, gateway, "--config", gateway.folder / "config.yaml", "--output", "json")
        assert json.loads(result.stdout)["against_running"]["taken_over"] == []


async def test_keys_that_a_reload_has_taken_over_are_no_change(line, gateway):
    gateway.more = {"dra": {"driver": "dra.example.com"}, "cluster": {"events": False}}
    await gateway.start(*SERVED)
    await until((gateway.folder / "control.sock").exists)
    gateway.more = {"dra": {"driver": "dra.example.com", "withdraw": True}, "cluster": {"events": True}}
    for taken_over in (["dra.withdraw", "cluster.events"], []):
        new = line.config(json.dumps({"resources": SERVED, "state_dir": str(gateway.folder / "state"), **gateway.more}))
        result = check(line, gateway, "--config", new, "--output", "json")
        assert json.loads(result.stdout)["against_running"]["taken_over"] == taken_over
        gateway.reload(*SERVED)
        await gateway.said("the configuration was read again")


async def test_directory_given_by_an_option(line, gateway):
    await gateway.start(*SERVED)
    await until((gateway.folder / "control.sock").exists)
    same = ("check", "--against-running", "--control-socket", gateway.folder / "control.sock", "--output", "json")
    result = line(*same, "--config", gateway.folder / "config.yaml")
    assert json.loads(result.stdout)["against_running"]["next_start"] == []
    kubelet = {"device_plugins_dir": "/elsewhere"}
    other = line.config(json.dumps({"resources": SERVED, "state_dir": f"{gateway.folder}/state", "kubelet": kubelet}))
    result = line(*same, "--config", other)
    assert json.loads(result.stdout)["against_running"]["next_start"] == ["kubelet.device_plugins_dir"]


def test_without_a_gateway_that_is_said(line, tmp_path):
    new = line.config("resources: []")
    result = line("check", "--against-running", "--control-socket", tmp_path / "none", "--config", new)
    assert result.exit_code == 1
    assert f"no gateway is running: nothing answers at {tmp_path}/none" in result.stderr


async def test_another_front_restarts_a_resource(line, gateway):
    gateway.more = {"dra": {"driver": "dra.example.com"}}
    await gateway.start(*SERVED)
    await until((gateway.folder / "control.sock").exists)
    wanted = {"resources": [resource("a", front="dra")], "state_dir": str(gateway.folder / "state")}
    for driver, next_start in (("dra.example.com", []), ("other.example.com", ["dra.driver"])):
        new = line.config(json.dumps({**wanted, "dra": {"driver": driver}}))
        found = json.loads(check(line, gateway, "--config", new, "--output", "json").stdout)["against_running"]
        assert found["resources"][0] == {"name": "example.com/a", "change": "restarted", "keys": ["front"]}
        assert found["next_start"] == next_start
