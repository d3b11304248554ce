"""What a process has open. Its other threads, and what earlier tests left, open and close files meanwhile.

So a test asks for those that lead to a path of its own. Where it can't, it waits for the number, or repeats what it
looks at until a leak would be far more.
"""

import contextlib
import os
from pathlib import Path


def descriptors() -> int:
    """How many files this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def opened() -> dict[str, str]:
    """What each descriptor of this process leads to."""
    found = {}
    for one in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            found[one.name] = str(one.readlink())
    return found


def inotify_watches() -> dict[str, list[str]]:
    """What each inotify instance of this process watches, by its descriptor (proc(5), /proc/pid/fdinfo)."""
    found = {}
    for descriptor, target in opened().items():
        if "inotify" in target:
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                lines = Path("/proc/self/fdinfo", descriptor).read_text().splitlines()
                found[descriptor] = [line for line in lines if line.startswith("inotify wd:")]
    return found


def leading_to(path: Path) -> int:
    """How many descriptors of this process lead to the file or directory at ``path``."""
    return sum(_leads_to(int(one.name), path.stat()) for one in Path("/proc/self/fd").iterdir())


def _leads_to(descriptor: int, found: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), found)
    except OSError:  # closed meanwhile
        return False
