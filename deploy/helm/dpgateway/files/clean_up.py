"""Removes what gateways keep on a node, once none of them lives there: in place of the gateway, by `cleanUp: true`."""

import fcntl
import hashlib
import shutil
import sys
import time
from pathlib import Path

SOCKETS = Path("/var/lib/kubelet/device-plugins/dpgateway")
STATE = Path("/node/var-lib/dpgateway")
KUBELET = Path("/node/kubelet")
DRIVERS = sys.argv[1:]
"""The DRA driver, if there is one."""
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


plugins = [KUBELET / "plugins" / driver for driver in DRIVERS]
while True:
    if SOCKETS.is_dir():
        (SOCKETS / LAST).touch()  # each time, because a gateway that has just begun removes it: that one did follow
    if not any(lives(lock) for folder in (SOCKETS, *plugins) for lock in folder.rglob("*.lock")):
        break
    print("waiting for the gateway of this node to end", flush=True)  # noqa: T201
    time.sleep(1)
# A pod with a device by DRA ends only once a gateway, by this record, has ended its claim.
if claims := list((STATE / "dra" / "claims").glob("*.json")):
    sys.exit(
        f"found {len(claims)} claims with devices, expected none: their pods can't end without a gateway. Install it "
        "again (cleanUp: false) with dra.withdraw: true, end these pods, and clean up then"
    )
for folder in (SOCKETS, STATE, *plugins):
    if folder.is_dir():
        shutil.rmtree(folder)
        print(f"removed {folder}", flush=True)  # noqa: T201
for driver in DRIVERS:
    for left in (KUBELET / "plugins_registry").glob(f"dpgateway-{hashlib.sha256(driver.encode()).hexdigest()[:8]}-*"):
        left.unlink()
