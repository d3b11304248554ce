"""Two sticks that swap their numbers while a container has one of them, under the kubelets of all releases."""

from pathlib import Path

import pytest

from dpgateway.testing import FakeTree
from tests.scenarios.gateway import Gateway
from tests.scenarios.kubelet import RESOURCE, Kubelet
from tests.scenarios.sticks import USB, plug

ONE = {"c": {RESOURCE: 1}}
PORTS = {"A": "1-1", "B": "1-2"}
"""By serial number."""


def unplug(tree: FakeTree, serial: str, number: int) -> None:
    for path in (f"/sys/class/tty/ttyUSB{number}", f"/dev/ttyUSB{number}", f"{USB}/{PORTS[serial]}"):
        tree.remove(path)


@pytest.mark.parametrize("again", [False, True], ids=["", "the gateway restarts"])
async def test_a_container_never_starts_with_the_other_stick(
    kubelet: Kubelet, gateway: Gateway, folder: Path, again: bool
) -> None:
    tree = FakeTree(folder)
    plug(tree, PORTS["A"], "A", 0)
    plug(tree, PORTS["B"], "B", 1)
    gateway.resource |= {"driver": "chardev", "refresh": "100ms"}
    gateway.resource["options"] = {
        "match": {"subsystem": "tty", "attrs": {"idVendor": "0403"}},
        "id": "{attrs:serial}",
        "container_path": "/dev/modem",
        **tree.roots,
    }
    await kubelet.start()
    await gateway.start()
    await kubelet.wait_for_devices(2, 0)
    admitted = await kubelet.admit("p1", ONE)
    assert admitted["ok"], admitted
    given = admitted["containers"][0]["options"]["devices"][0]["host_path"]
    own = "A" if given == "/dev/ttyUSB0" else "B"
    now = "/dev/ttyUSB1" if own == "A" else "/dev/ttyUSB0"
    await kubelet.noted()

    if again:
        await gateway.end()
    unplug(tree, "A", 0)
    unplug(tree, "B", 1)
    plug(tree, PORTS["A"], "A", 1)
    plug(tree, PORTS["B"], "B", 0)
    if again:
        await gateway.start()
    said = f"this container was given {given}, and it is {now} now: delete the pod"
    if kubelet.minor != 8:  # it keeps no answer
        await gateway.said(said)
    # the container that runs has the number that is the other stick's now
    await gateway.said(f"char 188:{given[-1]} is held as {own}")

    started = await kubelet.start_container("p1")
    if kubelet.minor == 8:  # it allocates again
        assert started["options"]["devices"][0]["host_path"] == now
    elif kubelet.minor == 9:  # it asks nobody, so the log tells
        assert started["options"]["devices"][0]["host_path"] == given
    else:
        assert not started["ok"]
        assert said in started["error"]
    await kubelet.remove("p1")
    admitted = await kubelet.admit("p2", ONE)  # the other stick isn't known to be free before the kubelet gives again
    assert admitted["ok"], admitted
    assert admitted["containers"][0]["options"]["devices"][0]["host_path"] in {given, now}
