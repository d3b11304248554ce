"""Files that another thread or process writes and removes meanwhile, and those of an earlier boot."""

import contextlib
import secrets
from pathlib import Path

BOOT = Path("/proc/sys/kernel/random/boot_id")


def texts(folder: Path, pattern: str = "*.json") -> dict[Path, str]:
    """What the matching files contain, without those that were removed between listing and reading."""
    found = {}
    for path in folder.glob(pattern):
        with contextlib.suppress(FileNotFoundError):
            found[path] = path.read_text()
    return found


def grow_old(folder: Path) -> None:
    """All that a gateway has remembered in this folder is of an earlier boot from now on. Without a gateway."""
    boot, other = BOOT.read_bytes().strip(), secrets.token_hex(8).encode()
    for path in folder.rglob("*"):
        if path.is_file() and boot in (content := path.read_bytes()):
            path.write_bytes(content.replace(boot, other))
