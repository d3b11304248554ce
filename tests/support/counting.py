"""What a process has open. Its other threads, and what earlier tests left, open and close files meanwhile.

So a test asks for those that lead to a path of its own. Where it can't, it waits for the number, or repeats what it
looks at until a leak would be far more.
"""

import os
from pathlib import Path


def descriptors() -> int:
    """How many files this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def leading_to(path: Path) -> int:
    """How many descriptors of this process lead to the file or directory at ``path``."""
    return sum(_leads_to(int(one.name), path.stat()) for one in Path("/proc/self/fd").iterdir())


def _leads_to(descriptor: int, found: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), found)
    except OSError:  # closed meanwhile
        return False
