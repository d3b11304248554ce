"""Processes in namespaces of their own, with a network: a node, or the control plane.

When the first process of a process namespace ends, the kernel ends all others in it, and their mounts and networks go
with the last of them. Here the first one ends with its stdin, so nothing stays behind, even when the tests are killed.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

OWN = ("--mount", "--pid", "--net", "--uts", "--ipc")
# The shell waits for cat, and meanwhile for every orphan that the kernel gives to the first process of the namespace.
HOLD = "echo held; exec 3<&0; cat <&3 >/dev/null & wait"
LOG_END = 3000  # characters of a log that an error shows
PATIENCE = 150.0
"""Seconds for what is going to be. A kubelet asks again after 45 to 85 s for a claim that was refused: the API server
refuses one to it that comes before the server knows that the node has the pod. And a busy machine takes its time.
"""

T = TypeVar("T")


class ClusterError(RuntimeError):
    """Something of the cluster isn't as it was asked to be."""


def until(what: str, check: Callable[[], T | None], timeout: float = PATIENCE) -> T:
    """What `check` returns once that is true. It is polled, because each caller looks at something else; the longer it
    takes, the less often, because most ask the API server.
    """
    began = time.monotonic()
    while not (found := check()):
        waited = time.monotonic() - began
        if waited > timeout:
            raise ClusterError(f"no {what} within {timeout:g} s")
        time.sleep(min(0.05 + 0.05 * waited, 0.5))
    return found


def run(*argv: object, **more: object) -> str:
    """The command's output. Raises ClusterError with what it said when it fails."""
    done = subprocess.run(list(map(str, argv)), capture_output=True, text=True, check=False, **more)  # type: ignore[call-overload]
    if done.returncode:
        raise ClusterError(f"{' '.join(map(str, argv))}: {done.stderr.strip() or done.stdout.strip()}")
    return str(done.stdout)


def children(pid: int) -> list[int]:
    return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


def child(pid: int) -> int:
    """The only child of unshare or nsenter, which fork to enter a process namespace."""
    for one in children(pid):
        return one
    raise ClusterError(f"process {pid} has no child")


def is_first(pid: int) -> bool:
    """Whether it is its container's first process: a shell doesn't pass all variables on."""
    status = Path(f"/proc/{pid}/status").read_text()
    return status.partition("NSpid:")[2].partition("\n")[0].split()[-1:] == ["1"]


class Box:
    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self._holder: subprocess.Popen[bytes] | None = None
        self._first = 0
        self._services: dict[str, subprocess.Popen[bytes]] = {}

    def open(self, script: Iterable[str]) -> None:
        """Makes the namespaces, and runs the shell's lines in them."""
        self.folder.mkdir(parents=True, exist_ok=True)
        network = ["ip link set lo up", "echo 1 >/proc/sys/net/ipv4/ip_forward"]
        lines = ["set -e", "mount --make-rshared /", f"hostname {self.name}", *network, *script, HOLD]
        unshare = ["unshare", *OWN, "--fork", "--kill-child", "--mount-proc", "--propagation", "private"]
        with (self.folder / "box.log").open("ab") as log:
            argv = [*unshare, "sh", "-c", "\n".join(lines)]
            pipe = subprocess.PIPE
            self._holder = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=log, cwd="/", start_new_session=True)
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != b"held\n":
            self._holder.communicate()
            self._holder = None  # there is nothing to close
            raise ClusterError(f"no namespaces for {self.name}: {self.log('box')}")
        self._first = child(self._holder.pid)

    def close(self) -> None:
        """Ends everything in it at once, as when the power fails; returns when the kernel has."""
        if self._holder is None:
            return
        os.kill(self._first, signal.SIGKILL)
        assert self._holder.stdin is not None
        assert self._holder.stdout is not None
        self._holder.wait()
        self._holder.stdin.close()
        self._holder.stdout.close()
        for service in self._services.values():
            service.wait()
        self._holder, self._services = None, {}

    @property
    def is_open(self) -> bool:
        return self._holder is not None

    @property
    def pid(self) -> int:
        """Of the first process, as the machine sees it."""
        return self._first

    def command(self, argv: Iterable[object]) -> list[str]:
        return ["nsenter", *OWN, "--target", str(self._first), "--wd=/", "--", *map(str, argv)]

    def run(self, *argv: object, **more: object) -> str:
        return run(*self.command(argv), **more)

    def spawn(self, name: str, argv: Iterable[object], environment: Mapping[str, str] | None = None) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            null, environment = subprocess.DEVNULL, {**os.environ, **(environment or {})}
            service = self._services[name] = subprocess.Popen(
                self.command(argv), stdin=null, stdout=log, stderr=log, cwd="/", env=environment
            )
        # A signal is for nsenter's child, which isn't there at once.
        until(f"process of {name}", lambda: children(service.pid) or service.poll() is not None)

    def check_running(self, *names: str) -> None:
        for name in names:
            if self.has_ended(name):
                raise ClusterError(f"{name} of {self.name} ended: {self.log(name)[-LOG_END:]}")

    def has_ended(self, name: str) -> bool:
        """Whether this service ended by itself."""
        return self._services[name].poll() is not None

    def runs(self, name: str) -> bool:
        """Whether this service was started, and wasn't ended since."""
        return name in self._services

    def pid_of(self, name: str) -> int:
        """Of one of its services, as the machine sees it."""
        return child(self._services[name].pid)

    def end(self, name: str, number: signal.Signals = signal.SIGTERM) -> None:
        """Sends the signal to one of its services, and waits for its end. nsenter, our child, ends with it."""
        service = self._services.pop(name)
        os.kill(child(service.pid), number)
        service.wait(PATIENCE)

    def log(self, name: str) -> str:
        """What a service wrote, in all its runs."""
        return (self.folder / f"{name}.log").read_text(errors="replace")
