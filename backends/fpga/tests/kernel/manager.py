"""The kernel's fpga_manager as linux-xlnx has it: a write to ``firmware`` loads a file, and returns when that is over.

Checked against the real core in a virtual machine: the states and their order, the errors, that a load takes no lock.
"""

import errno
import threading
from contextlib import suppress

from tests.support.fuse import File, Text

STATES = ("firmware request", "parse header", "write init", "write", "write complete")


class Gate:
    """Holds up whoever comes, until it is opened."""

    def __init__(self):
        self.reached, self._open = threading.Event(), threading.Event()

    def wait(self):
        self.reached.set()
        self._open.wait()

    def open(self):
        self._open.set()

    def close(self):
        self.reached.clear()
        self._open.clear()


class Manager:
    """One manager, at ``path`` of a tree; ``search`` is the kernel's search path for firmware."""

    def __init__(self, root, path, search, name="Xilinx Zynq FPGA Manager"):
        self.state, self.status, self.seen, self.loaded, self.at_once = "unknown", "", [], [], 0
        self.fail, self.error, self.gate = "", errno.EIO, {}
        self.flags, self.last, self.early = "0", "operating", False
        """``early``: whether a write returns while the load goes on."""
        self.written = threading.Event()
        """Set when whoever wrote has closed the file."""
        self._search, self._lock, self._within = search, threading.Lock(), 0
        self.path = path
        for what, file in {
            "name": Text(f"{name}\n"),
            "state": Text(lambda: f"{self.state}\n"),
            "status": Text(lambda: self.status),
            "flags": _Flags(self),
            "firmware": _Firmware(self),
        }.items():
            root.make(f"{path}/{what}", file)

    def hold(self, state):
        """Loads wait in this state, until the gate is opened that this returns."""
        self.gate[state] = Gate()
        return self.gate[state]

    def load(self, name):
        with self._lock:
            self._within += 1
            self.at_once = max(self.at_once, self._within)
        try:
            self._load(name)
        finally:
            with self._lock:
                self._within -= 1

    def _load(self, name):
        if ".." in name:
            raise OSError(errno.EINVAL, "")  # drivers/base/firmware_loader/main.c, name_contains_dotdot
        content = b""
        for state in STATES:
            self.state = state
            self.seen.append(state)
            if state in self.gate:
                self.gate[state].wait()
            if state == STATES[0]:
                content = self._content(name)
            if state == self.fail:
                self.state, self.status = f"{state} error", "reconfig CRC error\nreconfig operation error\n"
                raise OSError(self.error, "")
        self.state, self.status = self.last, ""
        self.loaded.append((name, content, self.flags))

    def _content(self, name):
        for directory in self._search:
            with suppress(OSError):
                return (directory / name).read_bytes()
        self.state = "firmware request error"
        raise OSError(errno.ENOENT, "")


class _Firmware(File):
    def __init__(self, manager):
        self._manager = manager

    def write(self, text):
        name = text.removesuffix("\n")
        if self._manager.early:
            self._manager.state = "firmware request"
            threading.Thread(target=self._manager.load, args=(name,), daemon=True).start()
        else:
            self._manager.load(name)

    def close(self):
        self._manager.written.set()


class _Flags(File):
    def __init__(self, manager):
        self._manager = manager

    def read(self):
        return f"{self._manager.flags}\n"

    def write(self, text):
        self._manager.flags = f"{int(text, 16):x}"
