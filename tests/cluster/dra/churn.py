"""Pods that come and go at a rate, and what became of each; and what the containers of a node really have meanwhile."""

import os
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tests.cluster.machine.box import ClusterError, is_first, until
from tests.cluster.machine.cluster import PODS
from tests.real_kubelet.node.image import IMAGE

LONG = 120.0
"""Seconds that a pod may wait for its device, or take to end, with many others on a busy machine. That it was refused,
which costs a minute, an event tells.
"""
MOST_FAULTS = 9
SLEEPS = ["sh", "-c", "trap 'exit 0' TERM; sleep 10000 & wait"]
"""A container's command: it does nothing, and ends when it is told to."""
WANTS = "WANTS_A_DEVICE"
"""A variable of the containers that the oracle looks at."""
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"


def wanting(name, tag="", *, node, resource, command=SLEEPS):
    """A pod with one device, which the scheduler sends to the node."""
    limits = {"limits": {resource: 1}}
    one = {"name": "c", "image": IMAGE, "command": command, "resources": limits, "env": [{"name": WANTS, "value": "1"}]}
    selector = {"kubernetes.io/hostname": node}
    spec = {"nodeSelector": selector, "automountServiceAccountToken": False, "containers": [one]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"churn": tag}}, "spec": spec}


@dataclass
class Life:
    """Of one pod: when things were seen, in seconds of the monotonic clock."""

    made: float
    ran: float | None = None
    refused: str = ""
    """Why it failed."""
    deleted: float | None = None
    gone: float | None = None

    def waited(self, now):
        return (self.ran or self.gone or now) - self.made

    def slow(self, now):
        return not self.refused and self.waited(now) > LONG


class Churn:
    """`make`: a pod of this name and tag. Each is deleted `lives` seconds after it ran, every eighth one by force."""

    def __init__(self, control, make, per_second, lives=2.0, most=None):
        self._control, self._make, self._pause, self._lives = control, make, 1 / per_second, lives
        self._most, self._tag = most, f"churn-{time.monotonic_ns() // 1000}"
        self.pods = {}
        """By name."""
        self._all = False
        """Whether those that haven't run are deleted, too."""
        self._over, self._ended = threading.Event(), threading.Event()
        self._threads = [threading.Thread(target=one, daemon=True) for one in (self._create, self._watch, self._delete)]

    def start(self):
        for one in self._threads:
            one.start()
        return self

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        """Of a test that failed, too: no pod is made after that."""
        self._over.set()
        self._ended.set()
        for one in self._threads:
            one.join()

    def finish(self, within=150.0):
        """No more pods are made. Waits for all to run, then for all to end."""
        self._over.set()
        with suppress(ClusterError):
            until("run of all pods", lambda: all(one.ran or one.refused or one.gone for one in self._lives_now), within)
        self._all = True
        with suppress(ClusterError):
            until("end of all pods", lambda: all(one.gone for one in self._lives_now), within)
        self._ended.set()
        return self

    @property
    def refused(self):
        return {name: one.refused for name, one in self.pods.items() if one.refused}

    @property
    def slow(self):
        """The pods that waited for longer than LONG, and how long."""
        now = time.monotonic()
        return {name: round(one.waited(now), 1) for name, one in self.pods.items() if one.slow(now)}

    @property
    def unended(self):
        """The pods that took longer than LONG to end."""
        now = time.monotonic()
        dying = {name: (one.gone or now) - one.deleted for name, one in self.pods.items() if one.deleted}
        return {name: round(took, 1) for name, took in dying.items() if took > LONG}

    def gap(self, since):
        """The longest time without a pod that began to run, in seconds; and the longest wait of a pod."""
        ran = sorted(one.ran for one in self._lives_now if one.ran and one.ran > since)
        gaps = [later - earlier for earlier, later in pairwise([since, *ran])]
        waits = [one.waited(time.monotonic()) for one in self._lives_now if one.made > since and not one.refused]
        return round(max(gaps, default=0.0), 1), round(max(waits, default=0.0), 1)

    def events(self, *reasons):
        """The events of its pods with one of these reasons: what they say, and how many do."""
        return Counter(note for _, note in self.told(*reasons))

    def told(self, *reasons):
        """The same events, each as the pod's name and what it says; without reasons all events."""
        found = self._control.api("GET", EVENTS)["items"]
        some = [(one["regarding"]["name"], one["note"]) for one in found if not reasons or one["reason"] in reasons]
        return [(name, note) for name, note in some if name in self.pods]

    @property
    def _lives_now(self):
        return list(self.pods.values())

    def _create(self):
        due = time.monotonic()
        while not self._over.wait(max(0.0, due - time.monotonic())) and len(self.pods) != self._most:
            due += self._pause
            name = f"{self._tag}-{len(self.pods):04}"
            self.pods[name] = Life(time.monotonic())
            self._control.api("POST", PODS, self._make(name, self._tag))

    def _watch(self):
        with self._control.watch(f"{PODS}?labelSelector=churn%3D{self._tag}") as events:
            threading.Thread(target=self._read, args=(events,), daemon=True).start()
            self._ended.wait()

    def _read(self, events):
        with suppress(OSError, ValueError, AttributeError):  # the connection was closed
            for event in events:
                one, status = self.pods[event["object"]["metadata"]["name"]], event["object"].get("status", {})
                now = time.monotonic()
                if event["type"] == "DELETED":
                    one.gone = now
                elif status.get("phase") == "Failed" and not one.deleted and not one.refused:
                    one.refused = f"{status.get('reason')}: {status.get('message')}"
                elif status.get("phase") == "Running" and not one.ran:
                    one.ran = now if all(container["ready"] for container in status["containerStatuses"]) else None

    def _delete(self):
        while not self._ended.wait(0.05):
            for number, (name, one) in enumerate(list(self.pods.items())):
                began, now = one.made if one.refused else one.ran, time.monotonic()
                due = self._all or (began and now - began >= self._lives)
                if due and not one.deleted and not one.gone:
                    one.deleted = now
                    grace = 0 if number % 8 == 7 else 1
                    self._control.api("DELETE", f"{PODS}/{name}?gracePeriodSeconds={grace}")


class Oracle:
    """Looks at all containers of a node again and again: at the variables and devices of their first processes.

    `prefix`: of the variables, PREFIX_ID, and in small letters of the devices, /dev/prefix-INDEX; ids end in the index.
    Without `files` it looks at the variables alone. `faults`: found by an earlier one.
    """

    def __init__(self, node, prefix, *, files=True, faults=()):
        self._cgroup = node.cgroup
        self._prefix, self._files, self._over = prefix, files, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.faults, self.looks, self.longest, self.most = [*faults], 0, 0.0, 0
        """What must not be; the looks, the longest pause between two in seconds, and the most containers in one."""

    def start(self):
        self._thread.start()
        return self

    def stop(self):
        self._over.set()
        self._thread.join()
        return self

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()

    def look(self):
        """The ids that each container has, by its process."""
        found = {}
        for folder, _, _ in os.walk(self._cgroup):
            with suppress(OSError, ValueError, StopIteration):
                pid = next(filter(is_first, map(int, (Path(folder) / "cgroup.procs").read_text().split())))
                began = _began(pid)
                if (ids := self._ids(pid, began)) is not None:
                    found[pid, began] = ids
        return found

    def _ids(self, pid, began):
        """None if it isn't a container that wants a device, or is none yet. Raises OSError, ValueError."""
        process = Path(f"/proc/{pid}")
        if (process / "comm").read_text().startswith("runc"):
            return None  # before it becomes the container's
        words = (process / "environ").read_bytes().decode(errors="replace").split("\0")
        if f"{WANTS}=1" not in words:
            return None
        prefix = f"{self._prefix}_"
        ids = {word.removeprefix(prefix).partition("=")[0] for word in words if word.startswith(prefix)}
        small = f"{self._prefix.lower()}-"
        files = {name.name.removeprefix(small) for name in (process / "root/dev").glob(f"{small}*")}
        indexes = {id_.rpartition("-")[2] for id_ in ids}
        # A process that ends loses its variables, then its files (do_exit in the kernel's exit.c).
        wrong = self._files and files != indexes
        if (len(ids) != 1 or wrong) and _lives(pid, began) and (process / "environ").read_bytes():
            self._fault(f"process {pid}: variables of {sorted(ids)}, devices {sorted(files)}")
        return ids

    def _run(self):
        try:
            self._look_on()
        except Exception as error:
            self._fault(f"it sees nothing any more: {error!r}")
            raise

    def _look_on(self):
        last = time.monotonic()
        while not self._over.wait(0.1):
            users: dict[str, list[tuple[int, int]]] = {}
            found = self.look()
            self.most = max(self.most, len(found))
            for process, ids in found.items():
                for id_ in ids:
                    users.setdefault(id_, []).append(process)
            for id_, processes in users.items():
                # They weren't looked at in the same moment: the first one may have ended before the second one began.
                if len(processes) > 1 and sum(_lives(*one) for one in processes) > 1:
                    self._fault(f"{id_} in processes {processes}")
            now = time.monotonic()
            self.looks, self.longest, last = self.looks + 1, max(self.longest, now - last), now

    def _fault(self, text):
        if text not in self.faults and len(self.faults) < MOST_FAULTS:
            self.faults.append(text)


def _stat(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _began(pid):
    """When the process began, in ticks: a pid alone may be another process' by now."""
    return int(_stat(pid)[19])


def _lives(pid, began):
    with suppress(OSError):
        return _began(pid) == began and _stat(pid)[0] != "Z"
    return False
