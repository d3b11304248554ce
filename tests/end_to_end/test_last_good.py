"""A start with a wrong configuration, in the real process: the last good one is served, and everything says so."""

import json
import re
import stat

import pytest

from dpgateway_simulator import Kubelet
from tests.end_to_end.awkward import install
from tests.support.files import texts
from tests.support.gateway import Gateway
from tests.support.http import ask
from tests.support.node import Node
from tests.support.waiting import until

R, S = "example.com/thing", "example.com/other"
PAGES = "the pages are at http://127.0.0.1:"
GOOD = {"name": R, "driver": "simulated", "options": {"count": 2}}
MORE = {"name": S, "driver": "awkward", "options": {"ids": "ab"}}


@pytest.fixture
async def node(short_path, log_put_back):
    install(short_path)
    (short_path / "dp").mkdir()
    async with Gateway(short_path, short_path / "dp") as gateway, Kubelet("1.31", short_path / "dp") as kubelet:
        gateway.environment["PYTHONPATH"] = str(short_path)
        yield Node(short_path, gateway, kubelet)


def kept(node):
    """The names of the resources in the one file that is kept, none without it."""
    found = texts(node.folder / "state", "*.config").values()
    return [one["name"] for text in found for one in json.loads(text)["configuration"]["resources"]]


async def served(node, *resources):
    for name in resources:
        await node.kubelet.wait_for(lambda name=name: node.kubelet.counts(name)[1] == 2)


async def worked(node, *resources):
    """It served these, and has ended."""
    await node.gateway.start(*resources)
    names = [one["name"] for one in resources]
    await served(node, *names)
    await until(lambda: kept(node) == names)
    assert await node.gateway.end() == 0


async def test_refused_start_serves_the_last_good(node):
    node.gateway.web = {"listen": "127.0.0.1:0"}
    await worked(node, GOOD, MORE)
    pages = sum(PAGES in line for line in node.gateway.log)  # none if it ended before it had opened them
    (file,) = (node.folder / "state").glob("*.config")
    before = file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    time = json.loads(before)["kept"]

    await node.gateway.start({**GOOD, "options": {"count": "x"}})
    await served(node, R, S)
    await node.gateway.said(f"the configuration is refused, so the last good one, kept at {time} in {file}, is served")
    told = f"the configuration is refused, and the last good one, kept at {time}, is served"
    reloads = (await node.json())["reloads"]
    assert (reloads["kept"], reloads["refused"], reloads["refusal"]["served"]) == (
        time,
        0,
        f"the last good one, kept at {time}, is served",
    )
    assert "options.count: found" in reloads["refusal"]["problems"][0]
    assert f"the last good one, kept at {time}, is served:" in await node.says()
    await node.gateway.said(PAGES, pages + 1)
    port = int(re.findall(f"{PAGES}([0-9]+)", "\n".join(node.gateway.log))[-1])
    ready = await ask(port, "/readyz")
    assert (ready.status, ready.json["reason"]) == (200, told)
    metrics = (await ask(port, "/metrics")).body.decode()
    assert "\ndpgateway_config_last_good 1.0\n" in metrics
    assert "\ndpgateway_config_last_reload_successful 0.0\n" in metrics

    # the mended file applies as usual, and is kept instead
    assert file.read_text() == before
    node.gateway.reload(GOOD)
    await until(lambda: kept(node) == [R])
    after = (await node.json())["reloads"]
    assert (after["kept"], after["refusal"]) == (None, None)
    assert await node.gateway.end() == 0


async def test_missing_driver_keeps_its_resource(node):
    await worked(node, GOOD, MORE)
    await node.gateway.start(GOOD, {**MORE, "driver": "absent"})
    await served(node, R, S)
    line = f"resource {S} goes on as before, because its new configuration can't be used: it isn't installed"
    await node.gateway.said(line)
    refusal = (await node.json())["reloads"]["refusal"]
    assert refusal["served"] == "the rest of it is served"
    assert refusal["problems"][0].startswith(line)
    assert await node.gateway.end() == 0


async def test_missing_driver_keeps_no_resource_of_dra_without_dra(node):
    """Only the resource is as it was: the rest of the new configuration has no driver of DRA."""
    await worked(node, GOOD, MORE)
    (file,) = (node.folder / "state").glob("*.config")
    last = json.loads(file.read_text())
    last["configuration"]["resources"][1]["front"] = "dra"
    last["configuration"]["dra"] = {"driver": "dra.example.com"}
    file.write_text(json.dumps(last))
    await node.gateway.start(GOOD, {**MORE, "driver": "absent"})
    await served(node, R)

    async def failing():
        return [one["failure"]["reason"] for one in (await node.json())["resources"] if one["failure"]]

    assert "it isn't installed" in (await until(failing))[0]
    assert await node.gateway.end() == 0


async def test_refused_kept_options_fail_alone(node):
    """A new release of the driver refuses the options of both configurations."""
    await worked(node, GOOD, MORE)
    awkward = node.folder / "awkward.py"
    # Of another length: Python takes a cached module whose source has the same size and second.
    awkward.write_text(awkward.read_text().replace("if self.count != 1", "if not self.count == 2"))
    await node.gateway.start(GOOD, MORE)
    await served(node, R)

    async def failing():
        return [one for one in (await node.json())["resources"] if one["failure"]]

    (failed,) = await until(failing)
    assert failed["name"] == S
    assert "its options are wrong: " in failed["failure"]["reason"]
    assert "count: expected 1" in failed["failure"]["reason"]
    assert await node.gateway.end() == 0


async def test_refused_start_without_a_last_good(node):
    wrong = {**GOOD, "shares": 0}
    await node.gateway.start(wrong)
    assert await node.gateway.process.wait() == 2
    await worked(node, GOOD)
    node.gateway.environment["DPGATEWAY_STRICT_CONFIG"] = "true"
    await node.gateway.start(wrong)
    assert await node.gateway.process.wait() == 2
    del node.gateway.environment["DPGATEWAY_STRICT_CONFIG"]
    (file,) = (node.folder / "state").glob("*.config")
    file.write_text("{")
    await node.gateway.start(wrong)
    assert await node.gateway.process.wait() == 2
    await node.gateway.said(f"the last good configuration can't be used: InvalidConfiguration: {file}: found")


async def test_missing_driver_of_a_reload(node):
    await node.gateway.start(GOOD, MORE)
    await served(node, R, S)
    node.gateway.reload(GOOD, {**MORE, "driver": "absent"})
    await node.gateway.said("the configuration was read again")
    reloads = (await node.json())["reloads"]
    assert reloads["refusal"]["served"] == "the rest of it is served"
    assert f"resource {S} goes on as before" in reloads["refusal"]["problems"][0]
    await until(lambda: kept(node) == [R, S])
    (file,) = (node.folder / "state").glob("*.config")
    assert '"absent"' not in file.read_text()
