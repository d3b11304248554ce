"""The walk's container runtime: it says that it knows CDI, and finds what a container gets as containerd does."""

import base64
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from dpgateway_simulator.wire.runtime import v1
from dpgateway_simulator.wire.v1beta1 import ContainerAllocateResponse
from tests.scenarios.walking.hardware import Gone, Hardware


class Runtime:
    """`cdi` is where specs are, `socket` where it serves CRI."""

    def __init__(self, folder: Path, hardware: Hardware) -> None:
        self.cdi, self.socket = folder / "cdi", folder / "cri.sock"
        self.cdi.mkdir()
        self._hardware = hardware

    async def start(self) -> None:
        async def version(_: bytes, __: object) -> bytes:
            return bytes(v1.VersionResponse(version="0.1.0", runtime_name="containerd", runtime_version="v2.1.0"))

        async def status(_: bytes, __: object) -> bytes:
            config = {"enableCDI": True, "cdiSpecDirs": [str(self.cdi)]}
            return bytes(v1.StatusResponse(info={"config": json.dumps(config)}))

        rows = {"Version": version, "Status": status}
        methods = {name: grpc.unary_unary_rpc_method_handler(answer) for name, answer in rows.items()}
        self._server = grpc.aio.server()
        handler = grpc.method_handlers_generic_handler("runtime.v1.RuntimeService", methods)
        self._server.add_generic_rpc_handlers((handler,))
        self._server.add_insecure_port(f"unix:{self.socket}")
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop(None)

    def nodes(self, options: Mapping[str, Any]) -> dict[str, str]:
        """What a container gets that a kubelet starts with these options. Raises Gone: it can't be created."""
        found = [self._hardware.resolve(one["host_path"]) for one in options["devices"]]
        return dict([*found, *(node for name in options["cdi_devices"] for node in self._injected(name))])

    def _injected(self, name: str) -> Iterator[tuple[str, str]]:
        kind, _, device = name.partition("=")
        for file in self.cdi.glob("*.json"):
            try:
                spec = json.loads(file.read_text())
            except FileNotFoundError:
                continue
            for one in spec["devices"]:
                if (spec["kind"], one["name"]) == (kind, device):
                    for node in one["containerEdits"].get("deviceNodes", ()):
                        yield self._hardware.resolve(node.get("hostPath") or node["path"], follows=False)
                    return
        raise Gone(f"unresolvable CDI devices {name}")


def remembered(checkpoint: Path, pod: str) -> tuple[frozenset[str], dict[str, Any]] | None:
    """The ids that a pod's container got, and the options that the kubelet makes of the answer; None if it has none.

    For kubelets from 1.10 on, and pods of one container with devices of one resource.
    """
    document = json.loads(checkpoint.read_text())
    for entry in (document.get("Data") or document).get("PodDeviceEntries") or ():
        if entry["PodUID"] == pod:
            ids = entry["DeviceIDs"]
            flat = [one for some in ids.values() for one in some] if isinstance(ids, dict) else ids
            answer = ContainerAllocateResponse().parse(base64.b64decode(entry["AllocResp"]))
            options = {
                "devices": [{"host_path": one.host_path} for one in answer.devices],
                "mounts": [{"host_path": one.host_path} for one in answer.mounts],
                "cdi_devices": [one.name for one in answer.cdi_devices],
            }
            return frozenset(flat), options
    return None
