"""Runs another device plugin beside a real kubelet's device manager, and records what its containers get.

``python -m tools.peers NAME PROGRAM`` writes ``answers.json`` beside the configuration and the files that NAME has in
RECORDED. The importer's test gives dpgateway the same configuration and the same files, and compares. PROGRAM is
the plugin's own, built as its page says; CI doesn't build it. ``python -m tests.real_kubelet.build`` builds the device
manager. It needs root: the plugin sees the tree's ``/dev``, ``/sys`` and ``/opt`` in a mount namespace of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dpgateway.testing import FakeTree
from tests.real_kubelet.build import missing_to_run
from tests.real_kubelet.device_manager import DeviceManager

RECORDED = Path(__file__).resolve().parent.parent / "backends/chardev/tests/importers/recorded"
RELEASE = "1.37"
WORDS: Mapping[str, Sequence[str]] = {
    "generic-device-plugin": ("--config={config}", "--plugin-directory={plugins}", "--listen=127.0.0.1:0"),
    "smarter-device-manager": ("-config={config}", "-logtostderr"),
}
PLUGINS = "/var/lib/kubelet/device-plugins"
IN_NAMESPACE = f"""set -e
mount --bind "$1/device-plugins" {PLUGINS}
for name in opt sys dev; do mount --bind "$1/tree/$name" /$name; done
shift
exec "$@"
"""
ALIKE = 3.0
"""Seconds without a change after which the plugin's lists count as complete."""


@contextmanager
def running(name: str, program: Path, where: Path) -> Iterator[None]:
    words = [one.format(config=RECORDED / name / "config.yaml", plugins=PLUGINS) for one in WORDS[name]]
    unshare = ["unshare", "--mount", "--propagation", "private", "sh", "-c", IN_NAMESPACE, "sh", str(where)]
    with (where / "plugin.log").open("wb") as log:
        process = subprocess.Popen(
            [*unshare, str(program.resolve()), *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        try:
            yield
        finally:
            process.kill()
            process.wait()


async def settled(kubelet: DeviceManager) -> dict[str, int]:
    """The allocatable counts, once they haven't changed for ALIKE seconds."""
    seen: dict[str, int] = {}
    while True:
        await asyncio.sleep(ALIKE)
        now = (await kubelet.capacity())["allocatable"]
        if now and now == seen:
            return now
        seen = now


async def record(name: str, program: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="peer-") as folder:
        where = Path(folder)
        FakeTree(where / "tree").write((RECORDED / name / "tree.txt").read_text())
        kubelet = DeviceManager(RELEASE, where / "device-plugins")
        await kubelet.start()
        try:
            with running(name, program, where):
                counts = await settled(kubelet)
                return {one: await answers(kubelet, one, count) for one, count in sorted(counts.items())}
        finally:
            await kubelet.kill()


async def answers(kubelet: DeviceManager, resource: str, count: int) -> dict[str, Any]:
    """The container's options for each device, by the device's id."""
    found: dict[str, Any] = {}
    for number in range(count):
        pod = f"{resource}-{number}"
        admitted = await kubelet.admit(pod, {"c": {resource: 1}})
        given: Any = admitted["containers"][0]["options"]
        found[_held(kubelet, pod)] = {what: sorted(map(_short, some)) for what, some in given.items() if some}
    return dict(sorted(found.items()))


def _short(given: Mapping[str, Any]) -> list[object]:
    return [given["host_path"], given["container_path"], given.get("permissions", given.get("read_only"))]


def _held(kubelet: DeviceManager, pod: str) -> str:
    """The id that a pod holds, from the kubelet's checkpoint."""
    written: Any = kubelet.checkpoint()
    (entry,) = [one for one in written["Data"]["PodDeviceEntries"] if one["PodUID"] == pod]
    ((id_,),) = entry["DeviceIDs"].values()
    return str(id_)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=WORDS)
    parser.add_argument("program", type=Path)
    given = parser.parse_args()
    if texts := missing_to_run():
        sys.exit("\n".join(texts))
    found = asyncio.run(record(given.name, given.program))
    (RECORDED / given.name / "answers.json").write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
