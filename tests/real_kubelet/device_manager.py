"""The device manager of a real kubelet, of any release of RELEASES, as a child process.

One DeviceManager is one kubelet after another on one directory: start it, stop or kill it, start it again. Another
release's on the same directory is an upgrade. What is not in it: containers, the pod-resources server, the node object
(capacity is always fresh) and, for 1.8, the scheduler's predicates.
"""

import asyncio
import json
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Self, cast

from tests.real_kubelet.link import Died, Link
from tests.real_kubelet.programs import PROGRAMS
from tests.real_kubelet.replies import Admission, Capacity, Checkpoint, Devices, Started

__all__ = ["DeviceManager", "Died"]

# The kubelet's code has this path built in. In a mount namespace of its own the process sees our directory there.
IN_NAMESPACE = """set -e
mkdir -p /var/lib/kubelet/device-plugins
mount --bind "$1" /var/lib/kubelet/device-plugins
shift
exec "$@"
"""

Containers = Mapping[str, Mapping[str, int]] | Iterable[Mapping[str, Any]]


class DeviceManager:
    """`release` is one of RELEASES; `directory` is the kubelet's device-plugins directory."""

    def __init__(self, release: str, directory: Path, *, log: Path | None = None, timeout: float = 150) -> None:
        self.release, self.directory, self.timeout = release, directory, timeout
        self.minor = int(release.partition(".")[2])
        self.log_path = log or directory.parent / f"device-manager-{release}.log"
        self.events: list[dict[str, Any]] = []
        self._link: Link | None = None

    @property
    def socket(self) -> Path:
        return self.directory / "kubelet.sock"

    @property
    def pid(self) -> int:
        return self._link.process.pid if self._link else 0

    @property
    def running(self) -> bool:
        return self._link is not None and self._link.process.returncode is None

    async def start(
        self,
        *,
        sources_ready: bool = True,
        running: Iterable[str] = (),
        policy: str = "none",
        scope: str = "container",
        numa: int = 1,
        gates: str = "",
        registry: Path | None = None,
    ) -> None:
        """Returns when kubelet.sock is served.

        A restart with pods on the node is faithful if it starts with sources_ready=False and running=["pod/container"]
        (what the container runtime shows running, heeded from 1.25 on), then admits every old pod with start=False, and
        then calls sources_ready(). `policy`, `scope`, `numa` and `gates` (A=true,B=false) count from 1.24 on; from 1.12
        on `registry` is the plugin watcher's directory.
        """
        if self.running:
            raise RuntimeError(
                f"device manager {self.release} is running already: stop or kill it before it starts again"
            )
        flags = [f"-v=4 -sources-ready={str(sources_ready).lower()} -policy={policy} -scope={scope} -numa={numa}"]
        flags = [*flags[0].split(), f"-gates={gates}", f"-running={','.join(running)}", f"-registry={registry or ''}"]
        self.directory.mkdir(parents=True, exist_ok=True)
        binary = PROGRAMS[f"device-manager-{self.release}"].binary()
        unshare = ["unshare", "--mount", "--propagation", "private", "sh", "-c", IN_NAMESPACE, "sh"]
        command = [*unshare, str(self.directory.resolve()), str(binary), *flags]  # exec keeps the process id
        self._link = await Link.open(command, self.log_path, self.events.append)
        try:
            async with asyncio.timeout(self.timeout):
                await asyncio.shield(self._link.ready)
        except BaseException:
            await self.kill()
            raise

    async def capacity(self) -> Capacity:
        return cast("Capacity", await self._call("capacity"))

    async def wait_for(self, predicate: Callable[[Capacity], bool], timeout: float = 60) -> Capacity:  # noqa: ASYNC109
        """The first capacity for which `predicate` holds; raises TimeoutError with the last one.

        It asks every 5 ms, and less often the longer it takes: a device manager tells nobody when its capacity changes,
        the kubelet itself asks it before each node status.
        """
        began = time.monotonic()
        seen = await self.capacity()
        try:
            async with asyncio.timeout(timeout):
                while not predicate(seen):
                    await asyncio.sleep(max(0.005, min(0.05 * (time.monotonic() - began), 0.1)))
                    seen = await self.capacity()
        except TimeoutError:
            raise TimeoutError(f"kubelet {self.release}: not what was waited for within {timeout} s: {seen}") from None
        return seen

    async def admit(
        self,
        pod: str,
        containers: Containers,
        init: Containers = (),
        *,
        start: bool = True,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> Admission:
        """Admits a pod, starts its containers: {"name": {"example.com/thing": 1}}, or container objects of the API."""
        fields = {"pod": pod, "containers": _containers(containers), "init": _containers(init), "start": start}
        return cast("Admission", await self._call("admit", timeout, **fields))

    async def start_container(self, pod: str, container: str, timeout: float | None = None) -> Started:  # noqa: ASYNC109
        return cast("Started", await self._call("start-container", timeout, pod=pod, container=container))

    async def remove(self, pod: str) -> None:
        """The pod is gone from the kubelet's active ones; the kubelet frees its devices at the next admission."""
        await self._call("remove", pod=pod)

    async def devices(self, pod: str, container: str) -> Devices:
        """What the device manager says of a container's devices, in its release's own structures (nothing in 1.12)."""
        reply = await self._call("devices", pod=pod, container=container)
        return cast("Devices", reply["devices"])

    async def sources_ready(self, value: bool = True) -> None:
        await self._call("sources-ready", value=value)

    async def stop(self) -> bool:
        """Stops it as SIGTERM stops a kubelet; whether its process ended with 0."""
        if self._link is None:
            return False
        try:
            await self._call("stop")
        except (Died, TimeoutError):
            self._link.process.kill()
        return await self._link.close() == 0

    async def kill(self) -> None:
        """A crash: SIGKILL. Sockets and checkpoint stay as they are."""
        if self._link is None:
            return
        if self.running:
            self._link.process.send_signal(signal.SIGKILL)
        await self._link.close()

    def log(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def checkpoint(self) -> Checkpoint | None:
        path = self.directory / "kubelet_internal_checkpoint"
        return cast("Checkpoint", json.loads(path.read_text())) if path.exists() else None

    async def _call(self, op: str, timeout: float | None = None, **fields: Any) -> dict[str, Any]:  # noqa: ASYNC109
        if self._link is None:
            raise RuntimeError(f"device manager {self.release} was never started")
        async with asyncio.timeout(timeout or self.timeout):
            return await self._link.call({"op": op, **fields})

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()


def _containers(given: Containers) -> list[dict[str, Any]]:
    if isinstance(given, Mapping):
        return [{"name": name, "resources": dict(resources)} for name, resources in given.items()]
    return [dict(one) for one in given]
