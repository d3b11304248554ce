"""Small frozen values shared by the other modules."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Roots:
    """The paths at which this process sees the host's trees. They differ from the host's in containers and tests."""

    sysfs: str = "/sys"
    dev: str = "/dev"
    proc: str = "/proc"
    udev: str = "/run/udev"


@dataclass(frozen=True, slots=True)
class NoValue:
    """Why there is no text: absent, or present and unreadable. Neither equals ``0``."""

    reason: str
    absent: bool = False

    @classmethod
    def missing(cls) -> NoValue:
        return _MISSING

    def __str__(self) -> str:
        return self.reason


_MISSING = NoValue("is absent", absent=True)

Value = str | NoValue


def as_number(text: str) -> int | None:
    """A number in the kernel's notation, decimal or hexadecimal with 0x; None for anything else."""
    if not re.fullmatch(r"[+-]?(0[xX][0-9a-fA-F]+|[0-9]{1,40})", text):
        return None
    return int(text, 16 if "x" in text.lower() else 10)
