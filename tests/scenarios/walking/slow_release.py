"""The walk's own driver: allocate makes a file for a device, which release removes after a while."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dpgateway import Allocation, Context, Device, DeviceNode, Mount, hookimpl


@dataclass(frozen=True)
class SlowReleaseOptions:
    nodes: tuple[str, ...] = field(default=(), metadata={"help": "the device nodes"})
    files: Path = field(default=Path("/tmp"), metadata={"help": "the folder of the files"})
    seconds: float = field(default=1.0, metadata={"help": "how long a release takes"})


class SlowRelease:
    Options = SlowReleaseOptions

    def __init__(self, options: SlowReleaseOptions, context: Context) -> None:
        self._options, self._log = options, context.log

    def devices(self) -> Sequence[Device]:
        return [Device(Path(node).name) for node in self._options.nodes]

    def allocate(self, devices: Sequence[Device]) -> Allocation:
        nodes = {Path(node).name: node for node in self._options.nodes}
        for device in devices:
            self._file(device).write_text("made by allocate")
        return Allocation(
            device_nodes=tuple(DeviceNode(nodes[device.id]) for device in devices),
            mounts=tuple(Mount(str(self._file(device)), f"/run/{device.id}") for device in devices),
        )

    def release(self, devices: Sequence[Device]) -> None:
        for device in devices:
            self._log.info("release of %s begins", device.id)
            time.sleep(self._options.seconds)
            self._file(device).unlink(missing_ok=True)
            self._log.info("release of %s ends", device.id)

    def _file(self, device: Device) -> Path:
        return self._options.files / device.id


@hookimpl
def dpgateway_driver() -> type:
    return SlowRelease
