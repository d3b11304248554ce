"""The kernel's own uevents, which every process of the machine hears."""

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_MEMORY = Path("/sys/devices/virtual/mem")


def _change(name: str) -> None:
    (_MEMORY / name / "uevent").write_text("change")


@contextmanager
def changes() -> Iterator[Callable[[str], None]]:
    """Has the kernel say that ``null`` or ``zero`` of /sys/devices/virtual/mem changed.

    Nobody else who asks here does so meanwhile, because tests that run side by side would hear each other's changes.
    """
    try:
        lock = open(_MEMORY / "null/uevent", "wb", buffering=0)  # noqa: PTH123, SIM115
    except PermissionError:
        pytest.fail("this test needs to run as root, because only root may have the kernel send a uevent")
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield _change
