"""The driver: simulated devices, and the effects of active faults."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from dpgateway import Allocation, Busy, Context, Device, DeviceNode, DeviceUnavailable, DriverError, Health, refuse
from dpgateway_simulated.control import ControlFile
from dpgateway_simulated.faults import Call, Fault
from dpgateway_simulated.timeline import Timeline

_CDI_KIND = re.compile(r"[^/=\s]+/[^/=\s]+")


@dataclass(frozen=True, slots=True)
class SimulatedOptions:
    """By default there are two devices, and everything else is off."""

    count: int = field(default=2, metadata={"help": "how many devices there are"})
    ids: tuple[str, ...] = field(default=(), metadata={"help": "the ids of all devices; count is then of no effect"})
    device_id_prefix: str = field(default="", metadata={"help": "ids are <prefix>-<node name>-<index>"})
    env_prefix: str = field(default="", metadata={"help": "sets <prefix>_<id>=/dev/<id> for each device"})
    annotation_prefix: str = field(default="", metadata={"help": "annotates <prefix>_<id>=/dev/<id> for each device"})
    device_file_prefix: str = field(default="", metadata={"help": "gives /dev/<prefix>-<index> for each device"})
    cdi_kind: str = field(default="", metadata={"help": "gives the CDI device <kind>=<id>, for each device"})
    numa: tuple[int, ...] = field(default=(), metadata={"help": "the NUMA node of each index; the list repeats"})
    prepare: bool = field(default=False, metadata={"help": "whether devices are prepared before a container starts"})
    release: bool = field(default=False, metadata={"help": "whether the log says which devices are free again"})
    faults: tuple[Fault, ...] = field(default=(), metadata={"help": "what goes wrong; times count from the start"})
    control_file: Path | None = field(
        default=None, metadata={"help": "a JSON file of faults, read as soon as it is written"}
    )

    def __post_init__(self) -> None:
        wrong: list[str] = []
        if self.count < 0:
            wrong.append(f"count: expected 0 or more, found {self.count}")
        if "" in self.ids or len(set(self.ids)) < len(self.ids):
            wrong.append(f"ids: expected texts that differ, found {', '.join(map(repr, self.ids))}")
        if self.cdi_kind and not _CDI_KIND.fullmatch(self.cdi_kind):
            wrong.append(f"cdi_kind: expected vendor.example/class, found {self.cdi_kind!r}")
        if min(self.numa, default=0) < 0:
            wrong.append(f"numa: expected no node below 0, found {min(self.numa)}")
        if self.control_file and not self.control_file.is_absolute():
            wrong.append(f"control_file: expected an absolute path, found {str(self.control_file)!r}")
        if not self.prepare and any(fault.call == "prepare" for fault in self.faults):
            wrong.append("faults: 'call: prepare' needs 'prepare: true', because nothing is prepared without it")
        refuse(wrong)

    @property
    def number(self) -> int:
        """The number of devices without faults, which may make some absent or add extra ones."""
        return len(self.ids) or self.count


class SimulatedDriver:
    """Has no state but its options: everything else follows from the active faults."""

    Options = SimulatedOptions

    def __init__(self, options: SimulatedOptions, context: Context) -> None:
        self._options, self._node_name, self._log = options, context.node_name, context.log
        self._paper = {device.id: device for device in map(self._device, range(options.number))}
        self._timeline = Timeline(context.changed)
        if options.prepare:
            self.prepare = self._prepare
        if options.release:
            self.release = self._release
        self._control = None
        if options.control_file:
            obey = partial(self._plan, "control file")
            self._control = ControlFile(options.control_file, obey, context.log)
        if options.faults:  # last, because this starts timers
            self._plan("options", options.faults)

    def devices(self) -> Iterable[Device]:
        self._suffer("list")
        return list(self._present().values())

    def allocate(self, devices: Sequence[Device]) -> Allocation:
        self._suffer("allocate", devices)
        options, indexes = self._options, self._usable(devices)
        files = [f"/dev/{options.device_file_prefix}-{index}" for index in indexes]
        return Allocation(
            env=_texts(options.env_prefix, devices),
            annotations=_texts(options.annotation_prefix, devices),
            device_nodes=tuple(map(DeviceNode, files)) if options.device_file_prefix else (),
            cdi_devices=tuple(f"{options.cdi_kind}={device.id}" for device in devices) if options.cdi_kind else (),
        )

    def close(self) -> None:
        self._timeline.close()
        if self._control:
            self._control.close()

    def _prepare(self, devices: Sequence[Device]) -> None:
        self._suffer("prepare", devices)
        self._usable(devices)

    def _release(self, devices: Sequence[Device]) -> None:
        for device in devices:
            self._log.info("released %s", device.id)

    def _device(self, index: int) -> Device:
        parts = (self._options.device_id_prefix, self._node_name, str(index))
        numa, ids = self._options.numa, self._options.ids
        id_ = ids[index] if index < len(ids) else "-".join(filter(None, parts))
        return Device(id_, numa_nodes=(numa[index % len(numa)],) if numa else ())

    def _plan(self, source: str, faults: Sequence[Fault]) -> None:
        planned = []
        for fault in faults:
            ids = tuple(self._device(index).id for index in fault.indexes)
            planned.append(replace(fault, indexes=(), devices=fault.devices + ids))
        self._timeline.plan(source, tuple(planned))

    def _present(self) -> dict[str, Device]:
        """The devices present now, keyed by id."""
        faults = self._timeline.active()
        if not faults:
            return self._paper
        count = self._options.number
        extra = range(count, count + sum(fault.extra for fault in faults))
        present = self._paper | {device.id: device for device in map(self._device, extra)}
        for fault in faults:
            for name in [name for name in present if not fault.extra and fault.concerns(name)]:
                device = present.pop(name) if fault.absent else present[name]
                if fault.unhealthy:
                    present[name] = replace(device, health=Health.unhealthy(fault.unhealthy))
        return present

    def _usable(self, devices: Sequence[Device]) -> list[int]:
        """The devices' indexes. Raises DeviceUnavailable unless all are present and healthy."""
        present, ids = self._present(), self._options.ids
        for device in devices:
            if device.id not in present:
                raise DeviceUnavailable(f"device {device.id!r} is gone")
            health = present[device.id].health
            if not health.ok:
                raise DeviceUnavailable(f"device {device.id!r} is unhealthy: {health.reason}")
        # the inverse of _device
        return [ids.index(one.id) if one.id in ids else int(one.id.rpartition("-")[2]) for one in devices]

    def _suffer(self, call: Call, devices: Sequence[Device] = ()) -> None:
        """Applies the active faults of ``call``, one after the other."""

        def concerned() -> list[Fault]:
            active = self._timeline.active(call)
            return [fault for fault in active if not fault.devices or any(fault.concerns(d.id) for d in devices)]

        def over(fault: Fault) -> bool:
            return fault not in concerned()

        for fault in concerned():
            # the wait ends early when the fault does, or when another plan replaces it
            if fault.hang or fault.delay:
                self._log.debug("%s is held up", call)
                self._timeline.wait(partial(over, fault), None if fault.hang else fault.delay.total_seconds())
            if fault.busy:
                raise Busy(fault.error or f"the simulated {call} is busy")
            if fault.error:
                raise DriverError(fault.error)


def _texts(prefix: str, devices: Sequence[Device]) -> dict[str, str]:
    return {f"{prefix}_{device.id}": f"/dev/{device.id}" for device in devices} if prefix else {}
