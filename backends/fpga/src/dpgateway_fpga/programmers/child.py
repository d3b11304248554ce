"""A child process for operations that may hang in the kernel: executes the steps in its argument until one fails.

Started by its path, with only the standard library, so that it starts within milliseconds. A failed step is printed as
JSON, with its errno, and whether it may have changed the board; the exit code is then 1.
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
    """Takes a lock until this process ends, because the kernel's driver takes none."""
    try:
        fcntl.flock(os.open(path, os.O_RDONLY | os.O_CLOEXEC), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise OSError(error.errno, "another process is programming it") from error


def turn(path: str) -> None:
    """Like ``lock``, but waits: a card's ports are programmed one after the other."""
    fcntl.flock(os.open(path, os.O_RDONLY | os.O_CLOEXEC), fcntl.LOCK_EX)


class UnopenedError(OSError):
    """A device or an attribute couldn't be opened, so the step hasn't changed it."""


def write(path: str, text: str) -> None:
    """Writes the whole text at once: each write(2) is a store of its own (Documentation/filesystems/sysfs.rst)."""
    try:
        attribute = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise UnopenedError(error.errno, error.strerror) from error
    written = os.write(attribute, text.encode())
    if written != len(text.encode()):
        raise OSError(errno.EIO, f"took {written} of {len(text.encode())} bytes")


LONGEST = 4096
"""Limit of an attribute's bytes (Documentation/filesystems/sysfs.rst)."""


def flags(path: str, value: str) -> None:
    """Writes hexadecimal flags, and reads them back, because the attribute's value holds for the next load."""
    write(path, value)
    with open(path, encoding="ascii", errors="replace") as attribute:  # noqa: PTH123  no pathlib here, which costs 10 ms
        found = attribute.read(LONGEST + 1)
    if len(found) > LONGEST:
        raise OSError(errno.EIO, f"says more than {LONGEST} bytes, expected {value}")
    found = found.strip()
    if not re.fullmatch("(0x)?[0-9a-fA-F]+", found) or int(found, 16) != int(value, 16):
        raise OSError(errno.EIO, f"says {found!r}, expected {value}")


def reconfigure(path: str, number: str, port: int, descriptor: int) -> None:
    """Programs the image in the memory at ``descriptor``. O_EXCL: nothing else may have the management engine open."""
    import ctypes  # noqa: PLC0415  nothing else needs it, and where memory can't be executed its import may fail

    device = _device(path, number, os.O_EXCL)
    with mmap.mmap(descriptor, 0, flags=mmap.MAP_PRIVATE) as memory:
        first = ctypes.c_char.from_buffer(memory)
        try:
            argument = PORT_PR.pack(PORT_PR.size, 0, port, len(memory), ctypes.addressof(first))
            fcntl.ioctl(device, FME_PORT_PR, argument)
        finally:
            del first  # else the memory can't be closed
            os.close(device)  # before the lock is released, else the next holder couldn't open the device


def unused(path: str, number: str) -> None:
    """Fails for an open port, which a container uses: the kernel would program it all the same."""
    os.close(_device(path, number, os.O_EXCL))


def reset(path: str, number: str) -> None:
    fcntl.ioctl(_device(path, number, os.O_EXCL), PORT_RESET, 0)


def _device(path: str, number: str, flags: int) -> int:
    """Opens a node and checks its number against sysfs, because it may be the stale node of another device."""
    try:
        device = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | flags)
    except OSError as error:
        busy = error.errno == errno.EBUSY
        raise UnopenedError(error.errno, "another process has it open" if busy else error.strerror) from error
    found = os.fstat(device).st_rdev
    if f"{os.major(found)}:{os.minor(found)}" != number:
        raise UnopenedError(errno.ENXIO, f"is device {os.major(found)}:{os.minor(found)}, expected {number}")
    return device


STEPS: dict[str, Callable[..., None]] = {
    step.__name__: step for step in (lock, turn, write, flags, reconfigure, unused, reset, os.mkdir, os.rmdir)
}


TOUCHING = {write.__name__, reconfigure.__name__}
"""The steps that change a board."""


def main(steps: Sequence[Sequence[str]]) -> int:
    for name, path, *rest in steps:
        try:
            STEPS[name](path, *rest)
        except OSError as error:
            # the kernel answers ENOENT if it found no image, before it touches the hardware (drivers/fpga/fpga-mgr.c)
            untouched = isinstance(error, UnopenedError) or error.errno == errno.ENOENT
            said = {"step": name, "path": path, "errno": error.errno, "why": error.strerror}
            sys.stdout.write(json.dumps({**said, "touched": name in TOUCHING and not untouched}) + "\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
