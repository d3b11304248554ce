"""How long claims and slices take, at a real API server: ``python -m benchmarks.dra_claims``.

``dpgateway run`` serves by DRA, and this program is its kubelet: it registers the driver, deletes the slices as a
kubelet does at its start, and has claims prepared and ended. API server and etcd are those of tests/cluster, the
driver is simulated. Beside it runs *bare*, the least helper with the same effect: a grpc.aio handler that reads the
claim from the API server, writes a CDI spec, and answers. It needs root.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import os
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from benchmarks.machine import describe
from benchmarks.numbers import percentile
from dpgateway.cluster.account import Account
from dpgateway.cluster.server import ApiServer, ObjectKind
from dpgateway.dra.wire import dra_pb2 as dra
from dpgateway.registry.wire import pluginregistration_pb2 as registration
from tests.cluster.machine.cluster import free_net
from tests.cluster.machine.control import Control
from tests.support.gateway import COMMAND

DRIVER, NODE, POOL = "dra.example.com", "node", "boards"
RESOURCES = "example.com/aes", "example.com/fft"
"""Two names of the same devices, so that each consumes a counter."""
DEVICES = 8
SERVICE = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
SLICES = f"/apis/resource.k8s.io/v1/resourceslices?fieldSelector=spec.driver%3D{DRIVER}"
DUE = 60.0
"""Seconds for any wait, before the run fails."""


class Api:
    """The API server as an administrator sees it, over one connection."""

    def __init__(self, control: Control) -> None:
        context = ssl.create_default_context(cafile=control.pki["ca.crt"])
        context.load_cert_chain(control.pki["admin.crt"], control.pki["admin.key"])
        self._connection = http.client.HTTPSConnection(control.address, timeout=10, context=context)

    def ask(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401  as JSON has it
        self._connection.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        data = answer.read()
        if answer.status >= 400:
            raise RuntimeError(f"{method} {path}: {answer.status} {data.decode(errors='replace')}")
        return json.loads(data)

    def devices(self) -> list[str]:
        found = self.ask("GET", SLICES)["items"]
        return [device["name"] for one in found for device in one["spec"].get("devices", ())]

    def claim(self, name: str, device: str) -> dra.Claim:
        """A claim to which the scheduler has allocated the device."""
        request = {"name": "r", "exactly": {"deviceClassName": "any"}}
        made = self.ask("POST", CLAIMS, {"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}})
        result = {"request": "r", "driver": DRIVER, "pool": f"{NODE}/{POOL}", "device": device}
        made["status"] = {"allocation": {"devices": {"results": [result]}}}
        self.ask("PUT", f"{CLAIMS}/{name}/status", made)
        return dra.Claim(namespace="default", name=name, uid=made["metadata"]["uid"])


class Plugin:
    """What the kubelet asks of a driver."""

    def __init__(self, socket: Path) -> None:
        self._channel = grpc.insecure_channel(f"unix:{socket}")

    def prepare(self, claim: dra.Claim) -> None:
        self._ask("NodePrepareResources", dra.NodePrepareResourcesRequest(claims=[claim]), claim)

    def unprepare(self, claim: dra.Claim) -> None:
        self._ask("NodeUnprepareResources", dra.NodeUnprepareResourcesRequest(claims=[claim]), claim)

    def _ask(self, call: str, request: Any, claim: dra.Claim) -> None:  # noqa: ANN401  generated
        raw = self._channel.unary_unary(f"{SERVICE}/{call}")(request.SerializeToString(), timeout=DUE)
        if error := getattr(dra, f"{call}Response").FromString(raw).claims[claim.uid].error:
            raise RuntimeError(error)


def register(root: Path) -> Path:
    """Accepts the driver, as a kubelet does. Returns the socket of its service."""
    found = until(lambda: [one for one in (root / "plugins_registry").iterdir() if not one.name.startswith(".")])
    with grpc.insecure_channel(f"unix:{found[0]}") as channel:
        ask = channel.unary_unary("/pluginregistration.Registration/GetInfo")
        info = registration.PluginInfo.FromString(ask(b"", timeout=DUE))
        said = registration.RegistrationStatus(plugin_registered=True).SerializeToString()
        channel.unary_unary("/pluginregistration.Registration/NotifyRegistrationStatus")(said, timeout=DUE)
    return Path(info.endpoint)


def until(check: Callable[[], Any]) -> Any:  # noqa: ANN401  what it returns
    """Polled without a pause: an answer of the API server takes a millisecond or two."""
    end = time.monotonic() + DUE
    while not (found := check()):
        if time.monotonic() > end:
            raise RuntimeError("what a benchmark waits for didn't come")
    return found


@contextmanager
def process(command: list[str], log: Path) -> Iterator[None]:
    with log.open("wb") as file:
        running = subprocess.Popen(command, stderr=file)
    try:
        yield
    finally:
        running.terminate()
        running.wait(DUE)


def gateway(folder: Path, specs: Path, account: dict[str, str]) -> list[str]:
    """``specs``: the directory of CDI specs, in memory as on a node."""
    options = {"ids": [f"b{number}" for number in range(DEVICES)], "env_prefix": "BOARD", "release": True}
    resources = [{"name": name, "driver": "simulated", "pool": POOL, "options": options} for name in RESOURCES]
    config = {
        "defaults": {"front": "dra"},
        "dra": {"driver": DRIVER},
        "cluster": account,
        "resources": resources,
        "state_dir": str(folder / "state"),
        "runtime": {"cdi_dirs": [str(specs)]},
        "kubelet": {"device_plugins_dir": str(folder / "device-plugins"), "root_dir": str(folder)},
    }
    for name in ("device-plugins", "plugins", "plugins_registry", "pods"):
        (folder / name).mkdir()
    # As after the first comparison with a kubelet's claims.
    (folder / "state" / "dra").mkdir(parents=True, mode=0o700)
    (folder / "state" / "dra" / "complete").touch()
    file = folder / "config.json"
    file.write_text(json.dumps(config))
    return [*COMMAND, "run", f"--config={file}", f"--node-name={NODE}", f"--control-socket={folder / 'control.sock'}"]


async def bare(socket: str, server: str, ca: str, token: str) -> None:
    """The least helper: reads each claim, writes a CDI spec, and answers."""
    api, folder = ApiServer(Account(server, Path(ca), Path(token))), Path(socket).parent

    async def prepare(request: dra.NodePrepareResourcesRequest, _: object) -> dra.NodePrepareResourcesResponse:
        answer = dra.NodePrepareResourcesResponse()
        for one in request.claims:
            found = await api.get(ObjectKind.CLAIM, one.name, one.namespace) or {}
            name = f"dra.example.com/thing={one.uid}"
            edits = {"env": [f"BOARD={found['metadata']['name']}"]}
            devices = [{"name": one.uid, "containerEdits": edits}]
            spec = {"cdiVersion": "0.6.0", "kind": "dra.example.com/thing", "devices": devices}
            path = folder / f"{one.uid}.json"
            path.with_suffix(".new").write_text(json.dumps(spec))
            path.with_suffix(".new").rename(path)
            results = found["status"]["allocation"]["devices"]["results"]
            said = [dra.Device(pool_name=it["pool"], device_name=it["device"], cdi_device_ids=[name]) for it in results]
            answer.claims[one.uid].devices.extend(said)
        return answer

    async def unprepare(request: dra.NodeUnprepareResourcesRequest, _: object) -> dra.NodeUnprepareResourcesResponse:
        answer = dra.NodeUnprepareResourcesResponse()
        for one in request.claims:
            (folder / f"{one.uid}.json").unlink()
            answer.claims[one.uid].error = ""
        return answer

    rows = {
        call: grpc.unary_unary_rpc_method_handler(
            run,
            getattr(dra, f"{call}Request").FromString,
            getattr(dra, f"{call}Response").SerializeToString,
        )
        for call, run in (("NodePrepareResources", prepare), ("NodeUnprepareResources", unprepare))
    }
    made = grpc.aio.server()
    made.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE.strip("/"), rows),))
    made.add_insecure_port(f"unix:{socket}")
    await made.start()
    await made.wait_for_termination()


def milliseconds(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return 1000 * (time.perf_counter() - began)


def said(what: str, values: list[float]) -> None:
    figures = f"p50 {percentile(values, 50):.1f} ms, p99 {percentile(values, 99):.1f} ms, of {len(values)}"
    print(f"{what}: {figures}", flush=True)


def measure(api: Api, root: Path, other: Path, rounds: int) -> None:
    """``other``: the socket of the bare helper."""
    plugin, helper = Plugin(register(root)), Plugin(other)
    names = until(lambda: len(found := api.devices()) == len(RESOURCES) * DEVICES and found)
    until(other.exists)

    # Both take turns, with a claim of their own each time. The first rounds open connections.
    took: dict[str, list[float]] = {"prepare": [], "bare": [], "unprepare": []}
    for number in range(rounds + 5):
        device = f"aes-b{number % DEVICES}"
        claim, same = api.claim(f"c{number}", device), api.claim(f"d{number}", device)
        bare_took = milliseconds(lambda: helper.prepare(same))  # noqa: B023  called at once
        prepared = milliseconds(lambda: plugin.prepare(claim))  # noqa: B023
        helper.unprepare(same)
        if number >= 5:
            took["bare"].append(bare_took)
            took["prepare"].append(prepared)
            took["unprepare"].append(milliseconds(lambda: plugin.unprepare(claim)))  # noqa: B023
        else:
            plugin.unprepare(claim)

    for what, values in took.items():
        said(what, values)

    # A kubelet's start: it registers the driver, and deletes the slices of its node.
    back = []
    for _ in range(rounds // 10):
        time.sleep(1.1)
        register(root)
        api.ask("DELETE", SLICES)
        back.append(milliseconds(lambda: until(lambda: len(api.devices()) == len(names))))
        time.sleep(15)  # more deletions in a minute would be another publisher's
    said("slices back after a kubelet's start", back)


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.dra_claims", description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--bare", nargs=4, metavar=("SOCKET", "SERVER", "CA", "TOKEN"), help="be the bare helper")
    options = parser.parse_args()
    if options.bare:
        asyncio.run(bare(*options.bare))
        return
    with tempfile.TemporaryDirectory(prefix="dra-") as where, ExitStack() as stack:
        folder, (claim, net) = Path(where), free_net()
        memory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dra-", dir="/dev/shm")))
        stack.callback(claim.close)
        control = Control(folder / "control", net)
        stack.callback(control.close)
        control.up_with_api_server()
        token = folder / "token"
        control.api("POST", "/api/v1/nodes", {"metadata": {"name": NODE}})
        token.write_text(administrator(control))
        account = {"server": f"https://{control.address}", "ca": str(control.pki["ca.crt"]), "token": str(token)}
        root = folder / "kubelet"
        root.mkdir()
        socket = memory / "bare.sock"
        me = [sys.executable, "-m", "benchmarks.dra_claims", "--bare", str(socket), *account.values()]
        stack.enter_context(process(gateway(root, memory, account), folder / "gateway.log"))
        stack.enter_context(process(me, Path(os.devnull)))
        print(describe(), flush=True)
        measure(Api(control), root, socket, options.rounds)


def administrator(control: Control) -> str:
    """The token of an account that may do anything."""
    accounts, rbac = "/api/v1/namespaces/default/serviceaccounts", "/apis/rbac.authorization.k8s.io/v1"
    control.api("POST", accounts, {"metadata": {"name": "gateway"}})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    subjects = [{"kind": "ServiceAccount", "name": "gateway", "namespace": "default"}]
    binding = {"metadata": {"name": "gateway"}, "roleRef": role, "subjects": subjects}
    control.api("POST", f"{rbac}/clusterrolebindings", binding)
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    text: str = control.api("POST", f"{accounts}/gateway/token", asked)["status"]["token"]
    return text


if __name__ == "__main__":
    main()
