"""What may hang in the kernel, in a process of its own: takes the steps of its argument, until one fails.

Started by its path, with nothing but the standard library, so that it begins to work within some milliseconds. Prints
which step failed, with which errno, as JSON; exit code 1 then.
"""

import errno
import fcntl
import json
import mmap
import os
import re
import struct
import sys
from collections.abc import Callable, Sequence

# include/uapi/linux/fpga-dfl.h: _IO(DFL_FPGA_MAGIC, DFL_PORT_BASE + 0) and _IO(DFL_FPGA_MAGIC, DFL_FME_BASE + 0)
PORT_RESET = 0xB640
FME_PORT_PR = 0xB680
PORT_PR = struct.Struct("=IIIIQ")
"""struct dfl_fpga_fme_port_pr: argsz, flags, port_id, buffer_size, buffer_address."""


def lock(path: str) -> None:
    """Until this process ends, because the kernel's driver takes none."""
    try:
        fcntl.flock(os.open(path, os.O_RDONLY | os.O_CLOEXEC), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise OSError(error.errno, "another process is programming it") from error


def turn(path: str) -> None:
    """The same, but waits: the ports of a card are programmed one after the other."""
    fcntl.flock(os.open(path, os.O_RDONLY | os.O_CLOEXEC), fcntl.LOCK_EX)


def write(path: str, text: str) -> None:
    """The whole text at once, because each write(2) is one store for sysfs (Documentation/filesystems/sysfs.rst)."""
    attribute = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    written = os.write(attribute, text.encode())
    if written != len(text.encode()):
        raise OSError(errno.EIO, f"took {written} of {len(text.encode())} bytes")


LONGEST = 4096
"""Bytes of an attribute (Documentation/filesystems/sysfs.rst)."""


def flags(path: str, value: str) -> None:
    """Hexadecimal, and read back, because the value stays for the next load."""
    write(path, value)
    with open(path, encoding="ascii", errors="replace") as attribute:  # noqa: PTH123  no pathlib here, which costs 10 ms
        found = attribute.read(LONGEST + 1)
    if len(found) > LONGEST:
        raise OSError(errno.EIO, f"says more than {LONGEST} bytes, expected {value}")
    found = found.strip()
    if not re.fullmatch("(0x)?[0-9a-fA-F]+", found) or int(found, 16) != int(value, 16):
        raise OSError(errno.EIO, f"says {found!r}, expected {value}")


def reconfigure(path: str, number: str, port: int, descriptor: int) -> None:
    """Programs what the memory at ``descriptor`` has. O_EXCL: we alone have the management engine open."""
    import ctypes  # noqa: PLC0415  nothing else needs it, and where memory can't be executed its import may fail

    device = _device(path, number, os.O_EXCL)
    with mmap.mmap(descriptor, 0, flags=mmap.MAP_PRIVATE) as memory:
        first = ctypes.c_char.from_buffer(memory)
        try:
            argument = PORT_PR.pack(PORT_PR.size, 0, port, len(memory), ctypes.addressof(first))
            fcntl.ioctl(device, FME_PORT_PR, argument)
        finally:
            del first  # else the memory can't be closed
            os.close(device)  # before another process gets the card's lock, and couldn't open it


def unused(path: str, number: str) -> None:
    """A port that is open is in use by a container. The kernel would program it all the same."""
    os.close(_device(path, number, os.O_EXCL))


def reset(path: str, number: str) -> None:
    fcntl.ioctl(_device(path, number, os.O_EXCL), PORT_RESET, 0)


def _device(path: str, number: str, flags: int) -> int:
    """``number``: what sysfs calls the device, because a node may be an old one of another device."""
    try:
        device = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | flags)
    except OSError as error:
        if error.errno == errno.EBUSY:
            raise OSError(errno.EBUSY, "somebody has it open, so it is in use") from error
        raise
    found = os.fstat(device).st_rdev
    if f"{os.major(found)}:{os.minor(found)}" != number:
        raise OSError(errno.ENXIO, f"is device {os.major(found)}:{os.minor(found)}, expected {number}")
    return device


STEPS: dict[str, Callable[..., None]] = {
    step.__name__: step for step in (lock, turn, write, flags, reconfigure, unused, reset, os.mkdir, os.rmdir)
}


def main(steps: Sequence[Sequence[str]]) -> int:
    for name, path, *rest in steps:
        try:
            STEPS[name](path, *rest)
        except OSError as error:
            sys.stdout.write(
                json.dumps({"step": name, "path": path, "errno": error.errno, "why": error.strerror}) + "\n"
            )
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
