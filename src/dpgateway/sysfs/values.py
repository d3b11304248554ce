"""Small frozen values that the other modules share."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Roots:
    """Where this process sees the host's trees. They differ from the host's in a container, and in tests."""

    sysfs: str = "/sys"
    dev: str = "/dev"
    proc: str = "/proc"
    udev: str = "/run/udev"


@dataclass(frozen=True, slots=True)
class NoValue:
    """Why something has no text: it is absent, or it is there and can't be read. Neither is the same as ``0``."""

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
    """As the kernel writes numbers: decimal, or hexadecimal with 0x; None of anything else."""
    if not re.fullmatch(r"[+-]?(0[xX][0-9a-fA-F]+|[0-9]{1,40})", text):
        return None
    return int(text, 16 if "x" in text.lower() else 10)
