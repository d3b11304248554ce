"""What a person sees of the front for DRA, from the gateway's real process: status, table, pages and metrics."""

import asyncio
import json
import re

import pytest

from dpgateway.kit.channel import Channel
from dpgateway.registry.wire import pluginregistration_pb2 as registration
from tests.end_to_end import test_dra
from tests.end_to_end.test_dra import NAME, US, gives, publishes, resource
from tests.support.gateway import COMMAND
from tests.support.http import ask
from tests.support.waiting import until

node, kubelet, gateways, gateway = (getattr(test_dra, name) for name in ("node", "kubelet", "gateways", "gateway"))


async def command(gateway, *words):
    """What the command prints."""
    socket = f"--control-socket={gateway.folder / 'control.sock'}"
    process = await asyncio.create_subprocess_exec(*COMMAND, *words, socket, stdout=-1, stderr=-1)
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode()


async def page(gateway, path):
    await gateway.said("the pages are at")
    (port,) = re.findall(r"the pages are at http://127\.0\.0\.1:(\d+)/", "".join(gateway.log))
    return await ask(int(port), path)


async def dra(gateway):
    return json.loads(await command(gateway, "status", "--output=json"))["dra"]


async def troubles(gateway):
    return [one["reason"] for one in json.loads(await command(gateway, "status", "--output=json"))["troubles"]]


async def shows(gateway, holds):
    """The status' part about DRA, once ``holds`` is true of it: it is watched."""
    socket = gateway.folder / "control.sock"
    await until(socket.exists)
    words = "status", "--output=json", "--watch", f"--control-socket={socket}"
    process = await asyncio.create_subprocess_exec(*COMMAND, *words, stdout=-1, limit=2**20)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            async for line in process.stdout:
                if holds(found := json.loads(line)["dra"]):
                    return found
        raise AssertionError("the gateway has ended")
    finally:
        process.kill()
        await process.wait()


async def refuse(node, reason):
    """The kubelet doesn't take the driver."""
    await until(lambda: node.sockets)
    said = registration.RegistrationStatus(plugin_registered=False, error=reason).SerializeToString()
    async with Channel(node.sockets[0]) as channel:
        await channel.unary_unary("/pluginregistration.Registration/GetInfo")(b"")
        await channel.unary_unary("/pluginregistration.Registration/NotifyRegistrationStatus")(said)


async def test_a_claim_in_status_table_pages_and_metrics(node, kubelet, gateway):
    gateway.web = {"listen": "127.0.0.1:0"}
    await publishes(node, gateway)
    claim = node.allocate("c", "node-0")
    await node.prepare(claim)

    found = await shows(gateway, lambda one: one["registration"]["state"] == "published" and one["claims"])
    assert found["resources"] == [NAME]
    assert found["registration"]["failure"] is None
    slices = found["slices"]
    assert (slices["count"], slices["devices"], slices["right"]) == (1, 2, True)
    assert [(one["slices"], one["devices"]) for one in slices["pools"]] == [(1, 2)]
    (one,) = found["claims"]
    assert (one["namespace"], one["name"], one["phase"]) == ("default", "c", "prepared")
    assert [(given["resource"], given["ids"]) for given in one["given"]] == [(NAME, ["node-0"])]
    assert await troubles(gateway) == []

    assert f"DRA driver {US.driver}: published" in await command(gateway, "status")
    assert "claim default/c for" in await command(gateway, "status", NAME)
    assert "node-0, held by claim default/c" in (await page(gateway, "/statusz")).body.decode()
    (line,) = [one for one in gateway.entries() if one["message"] == "prepared claim default/c: 1 device"]
    assert (line["claim"], line["resource"], line["devices"], line["count"]) == ("default/c", NAME, ["node-0"], 1)
    assert line["seconds"] > 0
    ready = (await page(gateway, "/readyz")).json
    assert [(one["ready"], one["reason"]) for one in ready["resources"]] == [(True, None)]
    metrics = (await page(gateway, "/metrics")).body.decode().splitlines()
    for line in (
        "dpgateway_dra_registered 1.0",
        "dpgateway_dra_slices 1.0",
        "dpgateway_dra_slices_right 1.0",
        "dpgateway_dra_in_doubt 0.0",
        "dpgateway_cluster_up 1.0",
        f'dpgateway_dra_devices{{resource="{NAME}"}} 2.0',
        f'dpgateway_dra_claims{{phase="prepared",resource="{NAME}"}} 1.0',
        'dpgateway_dra_calls_total{method="prepare",outcome="success"} 1.0',
    ):
        assert line in metrics
    asked = 'dpgateway_cluster_requests_total{code="200",kind="resourceclaims",verb="get"} '
    assert [line for line in metrics if line.startswith(asked)]
    assert not [line for line in metrics if line.startswith("dpgateway_resource_streaming{")]


async def test_metrics_name_the_pod_of_a_claim(node, kubelet, gateway):
    gateway.web = {"listen": "127.0.0.1:0", "metrics": "full"}
    await publishes(node, gateway)
    await node.prepare(node.allocate("own", "node-0", "encoder"))
    await node.prepare(node.allocate("shared", "node-1", "one", "other"))
    metrics = (await page(gateway, "/metrics")).body.decode().splitlines()
    labels = f'container="",namespace="default",pod="%s",resource="{NAME}"'
    assert sorted(line for line in metrics if line.startswith("dpgateway_holdings")) == [
        f'dpgateway_holdings{{claim="own",{labels % "encoder"}}} 1.0',
        f'dpgateway_holdings{{claim="shared",{labels % ""}}} 1.0',
    ]


async def test_no_word_of_dra_without_it(kubelet, gateway):
    gateway.web, gateway.more = {"listen": "127.0.0.1:0"}, {}
    await gateway.start(resource("deviceplugin"))
    await kubelet.wait_for(lambda: kubelet.counts(NAME) == (2, 2))
    assert await dra(gateway) is None
    assert "DRA" not in await command(gateway, "status")
    metrics = (await page(gateway, "/metrics")).body.decode()
    assert "_dra_" not in metrics
    assert not [line for line in metrics.splitlines() if line.startswith("dpgateway_cluster_")]


async def test_a_kubelet_that_refuses_the_driver(node, kubelet, gateway):
    await gateway.start(resource())
    await shows(gateway, lambda one: one["registration"]["state"] == "waiting")
    assert f"the kubelet hasn't registered DRA driver {US.driver} yet" in await troubles(gateway)
    await refuse(node, "no handler registered for plugin type: DRAPlugin")
    found = await shows(gateway, lambda one: one["registration"]["failure"])
    assert found["registration"]["failure"] == "no handler registered for plugin type: DRAPlugin"
    assert not found["slices"]["right"]
    (reason,) = await troubles(gateway)
    assert "no handler registered" in reason
    assert "what to do: this kubelet doesn't speak DRA" in await command(gateway, "status")


@pytest.mark.parametrize("verb", ["create", "list"])
async def test_an_account_without_rights(node, kubelet, gateway, api, verb):
    api.forbidden.add((verb, "resourceslices"))
    await gateway.start(resource())
    await node.register()
    found = await shows(gateway, lambda one: one["slices"]["failure"])
    assert f'cannot {verb} resource "resourceslices"' in found["slices"]["failure"]["reason"]
    assert found["registration"]["registered"]
    assert found["api_server"]["failure"] is None
    assert "its account needs get, list, watch, create, update and delete" in await command(gateway, "status")


async def test_an_api_server_that_is_away(node, kubelet, gateway, api):
    await api.down()
    await gateway.start(resource())
    await node.register()
    found = await shows(gateway, lambda one: one["api_server"]["failure"] and one["registration"]["registered"])
    assert found["registration"]["state"] == "registered"
    assert found["slices"]["count"] == 0
    # Ready nevertheless: another gateway couldn't publish either.
    await gateway.said("the kubelet registered")
    await api.up()
    found = await shows(gateway, lambda one: one["slices"]["right"])
    assert found["api_server"]["failure"] is None


async def test_another_gateway_has_the_driver(node, kubelet, gateways):
    first, second = gateways(), gateways()
    second.folder = first.folder / "second"
    second.folder.mkdir()
    await publishes(node, first)
    await second.start(resource())
    found = await shows(first, lambda one: one["elsewhere"])
    assert any(f"DRA driver {US.driver}: {found['elsewhere']}" in one for one in await troubles(first))


async def test_what_the_other_front_gave(node, kubelet, gateway):
    held = await gives(kubelet, gateway)
    gateway.reload(resource())
    await node.register()
    await until(lambda: len(node.devices) == 1)
    found = json.loads(await command(gateway, "status", "--output=json"))
    (served,) = found["resources"]
    assert [(one["id"], one["holders"][0]["pod"]) for one in served["devices"] if one["held"]] == [(held, "one")]
    assert served["counts"]["held"] == 1
    assert f"offered by DRA now, but default/one (c) holds {held} by the device plugin" in await troubles(gateway)


async def test_claims_of_a_resource_that_is_offered_by_the_device_plugin_now(node, kubelet, gateway):
    await publishes(node, gateway)
    await node.prepare(node.allocate("c", "node-0"))
    gateway.reload(resource("deviceplugin"))
    await kubelet.wait_for(lambda: kubelet.counts(NAME) == (2, 1))
    found = await dra(gateway)
    assert found["resources"] == []
    assert [one["name"] for one in found["claims"]] == ["c"]
    assert "not offered by DRA any more, but claim default/c has node-0" in await troubles(gateway)


async def test_a_damaged_record(node, kubelet, gateway, short_path):
    folder = short_path / "state" / "dra" / "claims"
    folder.mkdir(parents=True)
    (folder / "uid-1.json").write_text("{")
    await gateway.start(resource())
    await node.register()
    found = await shows(gateway, lambda one: one["doubt"])
    assert "uid-1.json" in found["doubt"]["reason"]
    assert any(one.startswith("no claim gets devices: ") for one in await troubles(gateway))


async def test_a_claim_that_is_refused(node, kubelet, gateway):
    await publishes(node, gateway)
    claim = node.allocate("c", "node-0")
    node.store.delete(("resourceclaims", "default", "c"))
    assert "isn't there any more" in (await node.prepare(claim)).error
    found = await shows(gateway, lambda one: one["refused"])
    assert "default/c isn't there any more" in found["refused"]["reason"]
    await node.prepare(node.allocate("d", "node-0"))
    await shows(gateway, lambda one: one["refused"] is None)


async def test_claims_without_a_gateway(node, kubelet, gateway):
    await publishes(node, gateway)
    await node.prepare(node.allocate("c", "node-0"))
    await gateway.end()
    socket, config = gateway.folder / "control.sock", gateway.folder / "config.yaml"
    for form in ("table", "json"):
        words = "status", f"--control-socket={socket}", f"--config={config}", f"--output={form}"
        process = await asyncio.create_subprocess_exec(*COMMAND, *words, stdout=-1)
        out, _ = await process.communicate()
        assert process.returncode == 1
        if form == "table":
            assert re.search(rf"default/c +prepared +{NAME} +node-0", out.decode()), out.decode()
        else:
            (claim,) = json.loads(out)["claims"]
            assert (claim["name"], claim["given"][0]["ids"]) == ("c", ["node-0"])
