"""A whole node of the newest release: its kubelet with static pods and no API server, on its own containerd and runc.

Everything lives under one folder; several nodes may run at once. Plugins serve in `device_plugins_dir`, CDI specs go to
`cdi_dir`; host paths in a plugin's answers are the machine's own.
"""

import asyncio
import json
import os
import shutil
import signal
from collections.abc import Awaitable, Iterable, Mapping
from pathlib import Path
from typing import Any, Self

from tests.real_kubelet.node import settings
from tests.real_kubelet.node.containerd import Containerd
from tests.real_kubelet.node.namespaces import Finished, Namespaces, NodeError, Service
from tests.real_kubelet.node.pods import Containers, Pod, manifest
from tests.real_kubelet.node.waiting import until
from tests.real_kubelet.programs import KUBELET

HOST = "node"  # the kubelet appends it to the names of static pods
FOLDERS = ("kubelet", "log-containers", "run-containerd", "manifests", "cdi", "cni", "opt", "logs")
LISTED = "Processed device updates for resource"  # in the kubelet's log
BINDS = {"kubelet": "/var/lib/kubelet", "log-containers": "/var/log/containers", "run-containerd": "/run/containerd"}


class Node:
    """`root` must not exist yet; `config` changes the KubeletConfiguration."""

    def __init__(self, root: Path, *, numa: int = 2, config: Mapping[str, Any] | None = None) -> None:
        self.root, self.config = root.resolve(), config or {}
        self.device_plugins_dir = self.root / "kubelet" / "device-plugins"
        self.pod_resources_socket = self.root / "kubelet" / "pod-resources" / "kubelet.sock"
        self.cdi_dir = self.root / "cdi"
        self._numa = numa
        self._ports = settings.free_port(), settings.free_port()
        self._namespaces = Namespaces(self.root)
        self._containerd = Containerd(self.root, self._namespaces)
        self._kubelet: Service | None = None

    async def up(self) -> None:
        for name in FOLDERS:
            (self.root / name).mkdir(parents=True)
        os.mkfifo(self.root / "nothing")
        self._show("manifests")
        binds = {self.root / name: target for name, target in BINDS.items()}
        for target in map(Path, binds.values()):
            target.mkdir(parents=True, exist_ok=True)
        binds |= settings.write_sysctls(self.root / "sysctl")
        binds |= [settings.write_numa(self.root / "numa", self._numa)]
        try:
            await self._namespaces.open(binds, settings.cgroup_mounts())
            await self._containerd.start()
            await self.start_kubelet()
        except BaseException:
            await self.down()
            raise

    async def down(self) -> None:
        """Ends every process and removes the folder."""
        sandboxes = [path.name for path in (self.root / "containerd-state").glob("*/k8s.io/*")]
        await self._namespaces.close()
        await asyncio.to_thread(_remove_cgroups, sandboxes)
        await asyncio.to_thread(shutil.rmtree, self.root)

    async def start_kubelet(self) -> None:
        """Returns when it takes registrations and is healthy."""
        config = self.root / "kubelet.json"
        config.write_text(settings.kubelet(self.root, self._ports, self.config))
        argv = [str(KUBELET.binary()), f"--config={config}", f"--hostname-override={HOST}", "--v=4"]
        service = self._kubelet = await self._namespaces.spawn("kubelet", argv, {})

        async def healthy() -> bool:
            if not service.running:
                raise NodeError(f"the kubelet ended: {self.kubelet_log()[-3000:]}")
            if not await _accepts(self.device_plugins_dir / "kubelet.sock"):
                return False
            try:
                return await self._get("/healthz") == b"ok"
            except OSError:
                return False

        await until("healthy kubelet", healthy)

    async def stop_kubelet(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Ends the kubelet alone; pods go on."""
        if self._kubelet:
            await self._kubelet.end(number)

    async def restart_kubelet(
        self, number: signal.Signals = signal.SIGTERM, *, before_pods: Awaitable[None] | None = None
    ) -> None:
        """It admits its pods when `before_pods` is done. Without it that is 40 to 145 ms after kubelet.sock, and a race
        with the plugin, as on any node.
        """
        await self.stop_kubelet(number)
        self._show("nothing" if before_pods else "manifests")
        await self.start_kubelet()
        if before_pods:
            await before_pods
            self._show("manifests")

    async def run_pod(self, name: str, containers: Containers, init: Containers = (), **spec: Any) -> None:
        """Containers: {"name": {"example.com/thing": 1}}, or objects of the API laid over the usual one.

        Wait before until the resource is allocatable: a static pod that asks for a resource of which the kubelet never
        heard is admitted, and runs without a device.
        """
        new = self.root / "manifests" / f".{name}"  # the kubelet passes over names with a dot in front
        new.write_text(json.dumps(manifest(name, containers, init, spec)))
        new.rename(self.root / "manifests" / f"{name}.json")

    async def pod(self, name: str) -> Pod | None:
        for given in json.loads(await self._get("/pods"))["items"] or ():
            if given["metadata"]["name"] == f"{name}-{HOST}":
                return Pod(given)
        return None

    async def wait_for_pod(self, name: str, phase: str = "Running", timeout: float = 60) -> Pod:  # noqa: ASYNC109
        """The pod once it is in `phase`; for Running every container must be."""

        async def there() -> Pod | None:
            pod = await self.pod(name)
            return pod if pod and pod.phase == phase and (phase != "Running" or pod.all_running) else None

        try:
            return await until(f"pod {name} {phase}", there, timeout)
        except NodeError as error:
            raise NodeError(f"{error}; it is {await self.pod(name)}") from None

    async def another_container(self, pod: str, before: str) -> str:
        """The id of container c of a pod, once it runs in place of the one before."""

        async def there() -> str:
            now = await self.pod(pod)
            found = now.container_id("c") if now is not None and now.all_running else before
            return found if found != before else ""

        return await until("another container", there)

    async def delete_pod(self, name: str) -> None:
        """Returns when the kubelet doesn't list it and none of its processes is left."""
        (self.root / "manifests" / f"{name}.json").unlink()

        async def gone() -> bool:
            return not await self.pod(name) and not await self._containerd.has_processes(f"{name}-{HOST}")

        await until(f"end of pod {name}", gone)

    async def exec(self, container_id: str, *argv: str) -> Finished:
        """Runs a command in a running container."""
        return await self._containerd.run_ctr("tasks", "exec", "--exec-id", f"exec-{id(argv)}", container_id, *argv)

    async def spec(self, container_id: str) -> dict[str, Any]:
        """The OCI spec of a container; the annotations of the CRI are in it."""
        return dict(json.loads(await self._containerd.ctr("containers", "info", container_id))["Spec"])

    async def kill_container(self, container_id: str) -> None:
        await self._containerd.ctr("tasks", "kill", "--signal", "SIGKILL", container_id)

    def kubelet_log(self) -> str:
        """Of all its kubelets, one after the other."""
        return (self.root / "kubelet.log").read_text(errors="replace")

    @property
    def lists(self) -> int:
        """How many lists of devices its kubelets took."""
        return self.kubelet_log().count(LISTED)

    async def listed(self, count: int = 1) -> None:
        """Until they took so many: a pod that is admitted before the first one is never given a device."""

        async def there() -> bool:
            return self.lists >= count

        await until("list of devices at the kubelet", there)

    def _show(self, name: str) -> None:
        """What the kubelet finds where it looks for its static pods. While it finds a FIFO it neither has pods nor ends
        those that run (pkg/kubelet/config/file.go, 1.37: an error, so the source hasn't been seen yet).
        """
        new = self.root / "shown.new"
        new.symlink_to(name)
        new.rename(self.root / "shown")

    async def _get(self, path: str) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._ports[1])
        try:
            writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        finally:
            writer.close()
            await writer.wait_closed()
        if b" 200 " not in head.partition(b"\r\n")[0]:
            raise NodeError(f"kubelet {path}: {(head + body)[:300]!r}")
        return body

    async def __aenter__(self) -> Self:
        await self.up()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.down()


async def _accepts(path: Path) -> bool:
    try:
        _, writer = await asyncio.open_unix_connection(path)
    except OSError:
        return False
    writer.close()
    await writer.wait_closed()
    return True


def _remove_cgroups(names: Iterable[str]) -> None:
    """The cgroups of containers whose processes are gone, on cgroup v1 (a tree per controller) and v2."""
    roots = [*Path("/sys/fs/cgroup").glob("k8s.io"), *Path("/sys/fs/cgroup").glob("*/k8s.io")]
    for root in roots:
        for name in names:
            _remove_cgroup(root / name)
        if not any(path.is_dir() for path in root.iterdir()):
            _remove_cgroup(root)


def _remove_cgroup(path: Path) -> None:
    try:
        path.rmdir()
    except OSError:  # never made, or another node's container came in between
        return
