"""A driver that misbehaves as its options say."""

from pathlib import Path

AWKWARD = """
import ctypes, os, signal, subprocess, sys, threading, time, warnings
from dataclasses import dataclass, field
from dpgateway import Allocation, Device, hookimpl

def hang():
    threading.Event().wait()

if __name__.endswith("_at_import"):
    hang()

@dataclass(frozen=True)
class Options:
    hangs: tuple[str, ...] = field(default=(), metadata={"help": "methods that never return"})
    exits: tuple[str, ...] = field(default=(), metadata={"help": "methods that raise SystemExit"})
    holds: tuple[str, ...] = field(default=(), metadata={"help": "methods that never let go of the interpreter's lock"})
    runs: str = field(default="", metadata={"help": "Python that devices() runs"})
    noisy: bool = field(default=False, metadata={"help": "warns"})
    ids: str = field(default="ab", metadata={"help": "of devices, a letter each"})
    count: int = field(default=1, metadata={"help": "refused unless it is 1"})

    def __post_init__(self):
        if "options" in self.hangs:
            hang()
        if self.count != 1:
            raise ValueError(f"count: expected 1, found {self.count}")

    def claims(self):
        if "claims" in self.hangs:
            hang()
        return ()

class Awkward:
    Options = Options

    def __init__(self, options, context):
        self._options, self._context = options, context
        self._do("init")

    def _do(self, method):
        if self._options.noisy:
            warnings.warn(f"{method} was called", stacklevel=1)
            print(method, "prints")
            print(method, "complains", file=sys.stderr)
            self._context.log.debug("a word")
            threading.Thread(target=lambda: 1 / 0).start()
        if method in self._options.exits:
            sys.exit(3)
        if method in self._options.holds:
            say = f"echo '{{\\"message\\": \\"{method} holds the lock\\"}}' >&2; exec sleep 5 >/dev/null 2>&1"
            ctypes.PyDLL(None).system(say.encode())
        if method in self._options.hangs:
            self._context.log.info(f"{method} hangs")
            hang()

    def devices(self):
        self._do("devices")
        exec(self._options.runs)
        return [Device(id_) for id_ in self._options.ids]

    def allocate(self, devices):
        self._do("allocate")
        return Allocation(env={"GOT": "1"})

    def prepare(self, devices):
        self._do("prepare")

    def release(self, devices):
        self._do("release")

    def close(self):
        self._do("close")

@hookimpl
def dpgateway_driver():
    return Awkward
"""


def install(folder: Path) -> None:
    """The driver ``awkward``, as an installed package would be, and four that hang when they are imported."""
    hanging = [f"awkward_{number}_at_import" for number in range(4)]
    for module in ["awkward", *hanging]:
        (folder / f"{module}.py").write_text(AWKWARD)
    info = folder / "awkward-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: awkward\nVersion: 1.0\n")
    points = "".join(f"{name} = {name}\n" for name in ["awkward", *hanging])
    (info / "entry_points.txt").write_text(f"[dpgateway]\n{points}")
