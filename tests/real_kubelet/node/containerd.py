"""containerd of the node, and ctr, its client."""

import os
from pathlib import Path

from tests.real_kubelet.node import settings
from tests.real_kubelet.node.image import write_image
from tests.real_kubelet.node.namespaces import Finished, Namespaces, NodeError, Service
from tests.real_kubelet.node.waiting import until
from tests.real_kubelet.programs import CONTAINERD


class Containerd:
    def __init__(self, root: Path, namespaces: Namespaces) -> None:
        self._root, self._namespaces = root, namespaces
        self._service: Service | None = None

    async def start(self) -> None:
        config = self._root / "containerd.toml"
        config.write_text(settings.containerd(self._root))
        binary = CONTAINERD.binary("containerd")
        path = {"PATH": f"{binary.parent}:{os.environ['PATH']}"}  # its shim is beside it
        self._service = await self._namespaces.spawn("containerd", [str(binary), f"--config={config}"], path)
        await until("answer of containerd", self._answers)
        image = self._root / "image.tar"
        write_image(image)
        await self.ctr("images", "import", "--local", "--snapshotter", "native", image)

    async def _answers(self) -> bool:
        if self._service is None or not self._service.running:
            raise NodeError(f"containerd ended: {(self._root / 'containerd.log').read_text()[-3000:]}")
        return not (await self.run_ctr("version")).status

    async def ctr(self, *argv: str | Path) -> str:
        """Its output; raises NodeError when it fails."""
        done = await self.run_ctr(*argv)
        if done.status:
            raise NodeError(f"ctr {' '.join(map(str, argv))}: {done.errors.strip()}")
        return done.output

    async def run_ctr(self, *argv: str | Path) -> Finished:
        ctr = [str(CONTAINERD.binary("ctr")), f"--address={self._root}/containerd.sock", "--namespace=k8s.io"]
        return await self._namespaces.run([*ctr, *argv])

    async def has_processes(self, pod: str) -> bool:
        """Whether a process of any container of the pod is left."""
        own = await self.ctr("containers", "ls", "-q", f'labels."io.kubernetes.pod.name"=={pod}')
        return bool(set(own.split()) & set((await self.ctr("tasks", "ls", "-q")).split()))
