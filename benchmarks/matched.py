"""1,000 PCI functions found by `match`: the first look, one change, memory, and the files opened while idle."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from asyncinotify import Inotify, Mask
from dpgateway_chardev import CharDevices

from benchmarks import processes
from benchmarks.budgets import Figures
from benchmarks.numbers import p50, percentile
from benchmarks.stub import Lists, Stub
from dpgateway import from_plain
from dpgateway.testing import FakeTree, Recorder

FUNCTIONS = 1000
_WINDOW = 10.0
"""Seconds without a slow look: ``refresh`` is longer."""
_SETTLED = 5.0
"""Seconds after the first list in which the driver may look once more, because it started to watch after it."""
_ATTRIBUTES = {
    "vendor": "0x8086",
    "device": "0x1889",
    "class": "0x020000",
    "subsystem_vendor": "0x8086",
    "subsystem_device": "0x0000",
    "revision": "0x02",
    "irq": "0",
    "enable": "1",
    "numa_node": "0",
    "local_cpulist": "0-1",
}
_MATCH = {
    "subsystem": "pci",
    "driver": "vfio-pci",
    "attr": {"vendor": "0x8086", "device": ["0x1889", "0x154c"], "class": "0x02*"},
}


async def measure(folder: Path, effort: float) -> Figures:
    """The first look is measured in CPU time, a change in real time until the kubelet has the list."""
    tree = FakeTree(folder / "host")
    tree.write("\n".join(_lines(FUNCTIONS)))

    # A gateway with one function shows the memory that 1,000 functions add.
    few = FakeTree(folder / "few")
    few.write("\n".join(_lines(1)))
    looks = [_first_look(tree) for _ in range(max(3, round(10 * effort)))]
    with ExitStack() as stack:
        alone, _ = _gateway(stack, folder / "alone", few)
        gateway, lists = _gateway(stack, folder / "gateway", tree)
        figures = {
            "matched.first_look.ms": p50(looks),
            "matched.memory.mb": gateway.resident() - alone.resident(),
            "matched.opened.files": float(_opened(tree, _WINDOW * min(1.0, effort))),
        }
        changes = [_change(tree, lists, number) for number in range(max(10, round(50 * effort)))]
    figures |= {"matched.change.ms": p50(changes), "matched.change_p99.ms": percentile(changes, 99)}
    return figures


def _lines(count: int) -> Iterator[str]:
    yield "c /dev/vfio/vfio 10:196"
    for number in range(count):
        address = f"0000:{number // 256:02x}:{number // 8 % 32:02x}.{number % 8}"
        here = f"/sys/devices/pci0000:00/{address}"
        yield from (f"{here}/{name} = {value}" for name, value in _ATTRIBUTES.items())
        yield f"{here}/subsystem -> /sys/bus/pci"
        yield f"{here}/driver -> /sys/bus/pci/drivers/vfio-pci"
        yield f"{here}/iommu_group -> /sys/kernel/iommu_groups/{number}"
        yield f"/sys/bus/pci/devices/{address} -> {here}"
        yield f"c /dev/vfio/{number} 240:{number}"


def _options(tree: FakeTree) -> dict[str, object]:
    return {
        "match": _MATCH,
        "nodes": ["/dev/vfio/vfio", "/dev/vfio/{attr:iommu_group}"],
        "env": {"PCI_RESOURCE": "{kernel}"},
        **tree.roots,
    }


def _first_look(tree: FakeTree) -> float:
    driver = CharDevices(from_plain(_options(tree), CharDevices.Options), Recorder().context())
    began = time.process_time()
    found = driver.devices()
    used = time.process_time() - began
    driver.close()
    if sum(device.health.ok for device in found) != FUNCTIONS:
        raise RuntimeError(f"expected {FUNCTIONS} healthy devices, found {len(found)}")
    return 1000 * used


def _gateway(stack: ExitStack, folder: Path, tree: FakeTree) -> tuple[processes.Process, Lists]:
    """A gateway, and its stream after the first list."""
    process = processes.gateway(folder, 1, _options(tree), driver="chardev")
    stub = Stub(process.directory)
    stub.start()
    stack.callback(stub.stop)
    stack.enter_context(process)
    (plugin,) = stub.plugins(1)
    lists = plugin.lists()
    next(lists)
    return process, lists


def _change(tree: FakeTree, lists: Lists, number: int) -> float:
    """Milliseconds from the removal of a device node to the list at the kubelet."""
    path = tree.at(f"/dev/vfio/{7 * number % FUNCTIONS}")
    device = path.stat().st_rdev
    began = time.monotonic()
    path.unlink()
    next(lists)
    took = time.monotonic() - began
    os.mknod(path, stat.S_IFCHR | 0o600, device)
    next(lists)
    return 1000 * took


def _opened(tree: FakeTree, seconds: float) -> int:
    """The number of opens of files and directories in sysfs in that time."""
    with Inotify(sync_timeout=0) as inotify:
        for directory in tree.at("/sys/devices/pci0000:00").iterdir():
            inotify.add_watch(directory, Mask.OPEN)
        time.sleep(_SETTLED)
        for _ in inotify:
            pass
        time.sleep(seconds)
        return sum(1 for _ in inotify)
