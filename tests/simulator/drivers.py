"""A DRA driver for tests of simulated kubelets. It speaks through grpcio, because they speak through grpclib."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import grpc

from dpgateway_simulator import Kubelet
from dpgateway_simulator.cluster import SimulatedCluster
from dpgateway_simulator.wire import pluginregistration as registration
from dpgateway_simulator.wire import v1
from dpgateway_simulator.wire.k8s.io.kubelet.pkg.apis.dra import v1 as dra

DRIVER, X = "dra.example.com", "example.com/x"
ALL = ("v1.DRAPlugin", "v1beta1.DRAPlugin", "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")


def device(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "attributes": {"resource": {"string": X}}, **more}


class DraRig:
    """One instance of a driver. `calls` has (method, claims' names) of each call; a method awaits its hook."""

    def __init__(self, cluster: SimulatedCluster, root: Path, tag: str = "a", versions: tuple[str, ...] = ALL) -> None:
        self.cluster, self.root, self.versions = cluster, root, versions
        self.socket = root / "plugins" / DRIVER / f"{tag}.sock"
        self.registration = root / "plugins_registry" / f"{tag}.sock"
        self.calls: list[tuple[str, tuple[str, ...]]] = []
        self.hooks: dict[str, Callable[[], Awaitable[object]]] = {}
        self.said: list[tuple[bool, str]] = []
        self.paths: list[str] = []
        self.error = ""
        self.service: list[str] = []
        self.health: list[v1.DeviceHealth] = []
        self._changed = asyncio.Event()
        self._servers: list[grpc.aio.Server] = []

    async def serve(self) -> "DraRig":
        method = grpc.unary_unary_rpc_method_handler
        rows = {
            "NodePrepareResources": method(self._prepare, dra.NodePrepareResourcesRequest.FromString, bytes),
            "NodeUnprepareResources": method(self._unprepare, dra.NodeUnprepareResourcesRequest.FromString, bytes),
        }
        health = {"NodeWatchResources": grpc.unary_stream_rpc_method_handler(self._watch, bytes, bytes)}
        services: dict[str, Mapping[str, Any]] = {}
        for one in self.versions:
            version, _, name = one.partition(".")
            if name == "DRAPlugin":
                services[f"k8s.io.kubelet.pkg.apis.dra.{version}.DRAPlugin"] = rows
            else:
                services[f"{version}.DRAResourceHealth"] = health
        await self._listen(self.socket, services)
        return self

    async def register(self) -> None:
        method = grpc.unary_unary_rpc_method_handler
        rows = {
            "GetInfo": method(self._info, bytes, bytes),
            "NotifyRegistrationStatus": method(self._notify, registration.RegistrationStatus.FromString, bytes),
        }
        hidden = self.registration.with_name(f".{self.registration.name}")
        await self._listen(hidden, {"pluginregistration.Registration": rows})
        hidden.rename(self.registration)

    async def start(self, kubelet: Kubelet) -> "DraRig":
        """Serves, registers, and waits until the kubelet is connected."""
        await self.serve()
        since = len(kubelet.events)
        await self.register()
        await kubelet.wait_for_event("driver connected", since, endpoint=str(self.socket))
        return self

    async def stop(self) -> None:
        self.registration.unlink(missing_ok=True)
        for server in self._servers:
            await server.stop(0)

    def publish(self, *devices: dict[str, Any], name: str = "s", node: str = "n1", **spec: Any) -> None:
        pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
        content = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": list(devices), **spec}
        with contextlib.suppress(Exception):
            self.cluster.server.store.delete(("resourceslices", "", name))
        self.cluster.server.store.create("resourceslices", "", {"metadata": {"name": name}, "spec": content})

    def say(self, **health: str) -> None:
        """The health of devices by name, with the same text as message."""
        states = {"Healthy": v1.HealthStatus.HEALTHY, "Unhealthy": v1.HealthStatus.UNHEALTHY}
        self.health = [
            v1.DeviceHealth(
                v1.DeviceIdentifier("p", name), v1.HealthStatus(states[state]), message=f"{name} is {state}"
            )
            for name, state in health.items()
        ]
        self._changed.set()
        self._changed = asyncio.Event()

    def count(self, method: str) -> int:
        return [name for name, _ in self.calls].count(method)

    async def _listen(self, path: Path, services: Mapping[str, Mapping[str, Any]]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        server = grpc.aio.server()
        for name, rows in services.items():
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, rows),))
        server.add_insecure_port(f"unix:{path}")
        await server.start()
        self._servers.append(server)

    async def _info(self, _: bytes, context: Any) -> bytes:
        self.calls.append(("GetInfo", ()))
        await self._hooked("GetInfo")
        return bytes(registration.PluginInfo("DRAPlugin", DRIVER, str(self.socket), list(self.versions)))

    async def _notify(self, said: registration.RegistrationStatus, context: Any) -> bytes:
        self.said.append((said.plugin_registered, said.error))
        await self._hooked("Notify")
        return b""

    async def _hooked(self, method: str) -> None:
        if method in self.hooks:
            await self.hooks[method]()

    async def _prepare(self, request: dra.NodePrepareResourcesRequest, context: Any) -> bytes:
        self.calls.append(("prepare", tuple(one.name for one in request.claims)))
        await self._hooked("prepare")
        answer = dra.NodePrepareResourcesResponse()
        for one in request.claims:
            if self.error:
                answer.claims[one.uid] = dra.NodePrepareResourceResponse(error=self.error)
                continue
            claim = self.cluster.server.store.get(("resourceclaims", one.namespace, one.name))
            found, specs = [], []
            for index, it in enumerate(claim["status"]["allocation"]["devices"]["results"]):
                if it["driver"] != DRIVER:
                    continue
                name, request_ = f"{one.uid}-{index}", it["request"].partition("/")[0]
                edits = {"env": [f"DEVICE_{index}={it['device']}"], "deviceNodes": [{"path": f"/dev/{it['device']}"}]}
                specs.append({"name": name, "containerEdits": edits})
                found.append(
                    dra.Device([request_], it["pool"], it["device"], [f"{DRIVER}/x={name}"], it.get("shareID"))
                )
            (self.root / "cdi").mkdir(exist_ok=True)
            spec = {"cdiVersion": "0.6.0", "kind": f"{DRIVER}/x", "devices": specs}
            (self.root / "cdi" / f"{one.uid}.json").write_text(json.dumps(spec))
            answer.claims[one.uid] = dra.NodePrepareResourceResponse(found)
        return bytes(answer)

    async def _unprepare(self, request: dra.NodeUnprepareResourcesRequest, context: Any) -> bytes:
        self.calls.append(("unprepare", tuple(one.name for one in request.claims)))
        await self._hooked("unprepare")
        answer = dra.NodeUnprepareResourcesResponse()
        for one in request.claims:
            (self.root / "cdi" / f"{one.uid}.json").unlink(missing_ok=True)
            answer.claims[one.uid] = dra.NodeUnprepareResourceResponse(error=self.error)
        return bytes(answer)

    async def _watch(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        while True:
            changed = self._changed  # the test may go on with the next before this one returns from the yield
            yield bytes(v1.NodeWatchResourcesResponse(self.health))
            await changed.wait()
