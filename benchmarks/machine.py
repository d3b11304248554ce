"""The machine's description, and the kernel's figures for a process."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path

MB = 1024 * 1024


def describe() -> str:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024**3
    kind = "VM" if "hypervisor" in Path("/proc/cpuinfo").read_text() else "machine"
    # Rounded up, because SC_PHYS_PAGES excludes the kernel's reserved memory.
    return f"{os.cpu_count()} cores, {-(-total // 1):.0f} GB, {platform.system()} {kind}"


def resident(pid: int) -> float:
    """VmRSS in MB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) * 1024 / MB


def cpu_seconds(pid: int) -> float:
    """The CPU time of all threads of a process, in nanosecond precision: clock_getcpuclockid(3)."""
    return time.clock_gettime((~pid << 3) | 2)
