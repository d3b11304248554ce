"""A node changes its front under pods that come and go, again and again, on a real kubelet that is exchanged in place.

``python -m tests.cluster.dra.switches`` (as root, after ``make test-cluster`` has built the programs) prints, for each
change, how long no pod began to run, and how many pods were refused or waited for long. It fails if a device was in two
containers, a container had none, or a pod that stayed lost its device. Only the pods by DRA that a kubelet 1.34 rejects
when it starts, because the Node has the resource with the number 0, are counted apart. What changes is one of:

upgrade   the kubelet, from 1.34 to 1.37: to DRA
rollback  from 1.37 to 1.34: back to the device plugin
class     the DeviceClass is deleted, and made again, under 1.37
reload    ``front`` in the configuration, to DRA and back, under 1.37: without ``front: auto``

Between two changes the gateway is restarted, and forgets the earlier ones: else the third within ten minutes is held
up.
"""

# ruff: noqa: T201 - it prints, as a program does

import argparse
import json
import random
import signal
import sys
import time
from functools import partial

from tests.cluster.dra.churn import WANTS, Churn, Oracle, wanting
from tests.cluster.dra.node import (
    CLASSES,
    DraNode,
    account,
    class_of,
    device_class,
    pod,
)
from tests.cluster.machine.box import ClusterError, until
from tests.cluster.machine.cluster import PODS, WAITS, Cluster

THING, PREFIX = "example.com/thing", "THING"
DEVICES = 48
HOLDERS = 4
"""Pods that stay while the front changes."""
STEADY, AFTER = 8.0, 12.0
"""Seconds with pods before a change begins, and after the front has changed."""
BEFORE = 40
"""Pods, at most, that are made before a change begins."""
FORGET = r"""sed -i 's/"changes": \[[^]]*\]/"changes": []/' /var/lib/dpgateway/dra/fronts/*.json 2>/dev/null || true"""
"""A shell's command: what is remembered of earlier changes."""
REJECTED = "rejected"
"""What became of a pod that no gateway can keep."""
WITHIN = 240.0
"""Seconds that a change may take."""
SYSTEM_PODS = "/api/v1/namespaces/kube-system/pods"


class SwitchNode(DraNode):
    """A node with one resource."""

    def __init__(self, cluster, name, token, front):
        self.front = front
        super().__init__(cluster, name, token)

    def prepare(self):
        nodes = [f"mknod -m 666 /dev/thing-{index} c 1 5" for index in range(DEVICES)]
        self.node.run("sh", "-c", "; ".join(nodes))

    def set_front(self, front):
        self.front = front
        self._write()

    @property
    def fronts(self):
        """The front that offers devices, as the scheduler sees it; both or none, if so."""
        slices = "dra" if self.devices(THING) else ""
        return " ".join(filter(None, (slices, "deviceplugin" if self.node.allocatable(THING) else "")))

    def until_front(self, front):
        until(f"front {front}", lambda: self.fronts == front, WITHIN)

    def _configuration(self):
        made = super()._configuration()
        options = {"count": DEVICES, "env_prefix": PREFIX, "device_file_prefix": "thing", "release": True}
        made["defaults"] = {"front": self.front}
        made["resources"] = [{"name": THING, "driver": "simulated", "options": options}]
        return made


class Switches:
    """One cluster of one node, and what happens there."""

    def __init__(self, cluster, front, dice):
        self.cluster, self.api, self.dice = cluster, cluster.control.api, dice
        self.dra = SwitchNode(cluster, "node", account(cluster), front)
        self.api("POST", CLASSES, device_class(THING))
        # A gateway with a new state_dir waits for 30 s where the kubelet has no pod.
        self.api("POST", SYSTEM_PODS, pod("agent", "node", automountServiceAccountToken=False))
        cluster.wait_for_pod("agent", "kube-system")
        self.dra.prepare()
        self.dra.start()

    def change(self, what, rate, *, kills="", most=None):
        """One change with pods at a rate, and `most` in all. `kills`: what is killed meanwhile. Returns what was
        seen.
        """
        start, to, act = getattr(self, f"_{what}")()
        self.dra.until_front(start)
        holders = self._hold()
        oracle = Oracle(self.dra.node, PREFIX).start()
        make = partial(wanting, node="node", resource=THING)
        churn = Churn(self.cluster.control, make, rate, most=most).start()
        time.sleep(min(STEADY, BEFORE / rate))
        began = time.monotonic()
        act(signal.SIGKILL if kills else signal.SIGTERM)
        if kills == "gateway":
            self._kill_gateway()
        elif kills == "node":
            oracle.stop()
            self._power_off()
            oracle = Oracle(self.dra.node, PREFIX, faults=oracle.faults).start()
        stuck = ""
        try:
            self.dra.until_front(to)
        except ClusterError as error:
            stuck = str(error)
        changed = round(time.monotonic() - began, 1)
        time.sleep(AFTER)
        gap, wait = churn.gap(began)
        churn.finish()
        oracle.stop()
        lost = {name: self._lost(name, had, booted=kills == "node") for name, had in holders.items()}
        return {
            "what": f"{what}, to {to}",
            "rate": rate,
            "killed": kills,
            "changed": stuck or changed,
            "gap": gap,
            "longest wait": wait,
            "pods": len(churn.pods),
            "refused": len(churn.refused),
            "why": sorted({text.partition("node")[0][:160] for text in churn.refused.values()}),
            "slow": churn.slow,
            "slow ones' events": sorted({note for name, note in churn.told() if name in churn.slow}),
            "unended": churn.unended,
            "rejected": [*lost.values()].count(REJECTED),
            "faults": [*oracle.faults, *(text for text in lost.values() if text not in ("", REJECTED))],
            "looks": (oracle.looks, round(oracle.longest, 2), oracle.most),
            "events": dict(churn.events("FailedPrepareDynamicResources")),
        }

    # what changes: the front before, the front afterwards, and the change

    def _upgrade(self):
        return "deviceplugin", "dra", partial(self._exchange, "1.37")

    def _rollback(self):
        return "dra", "deviceplugin", partial(self._exchange, "1.34")

    def _class(self):
        path = f"{CLASSES}/{class_of(THING)}"
        if self.api("GET", path) is not None:
            return "dra", "deviceplugin", lambda _: self.api("DELETE", path)
        return "deviceplugin", "dra", lambda _: self.api("POST", CLASSES, device_class(THING))

    def _reload(self):
        to = "deviceplugin" if self.dra.front == "dra" else "dra"
        return self.dra.front, to, lambda _: self.dra.set_front(to)

    def _exchange(self, release, number):
        """`number`: the signal that ends the kubelet."""
        self.dra.node.stop_kubelet(number)
        self.dra.node.start_kubelet(release)

    def _forget(self):
        """So that one change after the other isn't held up; then the gateway counts them anew. The Node shows the
        devices while it is away, but the kubelet has none.
        """
        self.dra.stop()
        if self.dra.front == "auto":
            self.dra.node.run("sh", "-c", FORGET)
        self.dra.start()
        until("a gateway that serves", lambda: self.dra.serves(THING), WITHIN)

    def _kill_gateway(self):
        time.sleep(self.dice.uniform(0, 14))
        self.dra.kill()
        time.sleep(self.dice.uniform(0.2, 3))
        self.dra.start()

    def _power_off(self):
        time.sleep(self.dice.uniform(0, 14))
        self.dra.node.power_off()
        self.dra.node.up()
        self.dra.prepare()
        self.dra.start()

    # the pods that stay

    def _hold(self):
        for number in range(HOLDERS):
            one = wanting(f"holder-{number}", node="node", resource=THING, command=WAITS)
            self.cluster.create(one)
        return {name: self._of(name) for name in (f"holder-{number}" for number in range(HOLDERS))}

    def _of(self, name):
        """The device of a pod, and its container."""
        status = self.cluster.wait_for_pod(name)["status"]["containerStatuses"][0]
        words = self.cluster.kubectl("exec", name, "--", "env").split()
        assert f"{WANTS}=1" in words
        return [word for word in words if word.startswith(f"{PREFIX}_")], status["containerID"]

    def _lost(self, name, before, *, booted):
        """What became of a pod that was to stay; empty if it did. `booted`: its container is another one by now."""
        # After a boot a kubelet refuses a pod that comes before the plugin.
        known = ("OutOf", "UnexpectedAdmission") if booted else ("OutOf",)
        if any(one in str(self.cluster.pod(name)["status"].get("reason")) for one in known):
            return REJECTED
        try:
            now = self._of(name)
        except ClusterError as error:
            return f"{name} doesn't run: {error}"
        (device, container), (had, was) = now, before
        return "" if device == had and (container != was) == booted else f"{name} had {before}, and has {now}"

    def restore(self):
        """After a change: nothing is left of its pods."""
        for name in (f"holder-{number}" for number in range(HOLDERS)):
            self.api("DELETE", f"{PODS}/{name}?gracePeriodSeconds=1")
        until("end of the pods", lambda: not self.api("GET", PODS)["items"], WITHIN)
        self._forget()


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.dra.switches", description=__doc__)
    parser.add_argument("changes", nargs="*", default=["upgrade", "rollback"], help="in this order")
    parser.add_argument("--rates", type=float, nargs="+", default=[1, 4], help="pods a second, one after the other")
    what = "kill the kubelet, and at a random moment the gateway, or switch the node off and on"
    parser.add_argument("--kill", choices=["gateway", "node"], default="", help=what)
    parser.add_argument("--most", type=int, help="pods of one change; then the rest of it has none")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log", help="a file for the gateway's log")
    words = parser.parse_args()
    auto = "reload" not in words.changes
    first = "1.34" if words.changes[0] == "upgrade" else "1.37"
    cluster, bad = Cluster({"node": (first, True)}), False
    cluster.up()
    try:
        switches = Switches(cluster, "auto" if auto else "deviceplugin", random.Random(words.seed))  # noqa: S311
        for rate in words.rates:
            for what in words.changes:
                seen = switches.change(what, rate, kills=words.kill, most=words.most)
                bad |= bool(seen["faults"] or isinstance(seen["changed"], str))
                print(json.dumps(seen), flush=True)
                switches.restore()
    finally:
        if words.log:
            with open(words.log, "w") as file:  # noqa: PTH123
                file.write(switches.dra.log)
        cluster.down()
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
