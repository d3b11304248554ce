"""Removes what gateways keep on a node, once none of them lives there: in place of the gateway, by `cleanUp: true`."""

import fcntl
import shutil
import time
from pathlib import Path

SOCKETS = Path("/var/lib/kubelet/device-plugins/dpgateway")
STATE = Path("/node/var-lib/dpgateway")
LAST = "no-gateway-follows"
"""A gateway that lingers, because another one may take over, ends when this file is beside its sockets."""


def lives(lock: Path) -> bool:
    """Whether a gateway holds this lock. It goes with the gateway, even with one that was killed."""
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


if SOCKETS.is_dir():
    (SOCKETS / LAST).touch()
while any(lives(lock) for lock in SOCKETS.glob("*.lock")):
    print("waiting for the gateway of this node to end", flush=True)  # noqa: T201
    time.sleep(1)
for folder in (SOCKETS, STATE):
    if folder.is_dir():
        shutil.rmtree(folder)
        print(f"removed {folder}", flush=True)  # noqa: T201
