"""One FPGA board with two functions on a whole node, with real containers: the kernel's side of the board is a file
system of the tests, so the code that runs is the one that touches a real /sys.
"""

import asyncio
import hashlib
import signal
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from backends.fpga.tests.kernel.manager import Gate, Manager
from tests.real_kubelet.node.node import LISTED, Node
from tests.real_kubelet.node.waiting import until
from tests.scenarios.gateway import Gateway
from tests.support.fuse import Directory, Link, Text, mounted

AES, FFT = "example.com/aes", "example.com/fft"
ADDRESS = "f8007000.devcfg"
BOARD = f"devices/platform/axi/{ADDRESS}/fpga_manager/fpga0"
# one node at a time: two that start at once wait for one another too long
pytestmark = pytest.mark.xdist_group("node")
FIRST = "cat /mnt/board/state /mnt/board/runs > /tmp/new; mv /tmp/new /tmp/first"
FOREVER = "trap 'exit 0' TERM; while :; do sleep 1; done"


@pytest.fixture
def board(folder: Path) -> Iterator[Manager]:
    """Under ``host/sys``; its file ``runs`` says which image it has, which no real board does."""
    host = Directory()
    (folder / "host").mkdir()
    (folder / "firmware").mkdir()
    manager = Manager(host, f"sys/{BOARD}", [folder / "firmware"])
    host.make(f"sys/devices/platform/axi/{ADDRESS}/subsystem", Link("../../../../bus/platform"))
    host.make("sys/class/fpga_manager/fpga0", Link(f"../../{BOARD}"))
    host.make(f"sys/{BOARD}/runs", Text(lambda: f"{running(manager)}\n"))
    with mounted(host, folder / "host"):
        yield manager


def running(board: Manager) -> str:
    return board.loaded[-1][1].decode() if board.loaded else "nothing"


@pytest.fixture
async def node(folder: Path, board: Manager) -> AsyncIterator[Node]:
    async with Node(folder / "node") as node:
        yield node


@pytest.fixture
async def gateway(node: Node, folder: Path, board: Manager) -> AsyncIterator[Gateway]:
    """With the board at the kubelet under both names."""
    gateway = Gateway(folder, node.device_plugins_dir)
    await gateway.start(function(folder, AES), function(folder, FFT))
    await node.listed(2)
    async with gateway:
        yield gateway
        assert await gateway.end() == 0
    print("\n".join(gateway.log))  # noqa: T201 - pytest shows it when the scenario failed


def function(folder: Path, name: str) -> dict[str, Any]:
    image = folder / name.rpartition("/")[2]
    image.write_text(image.name)
    image.chmod(0o600)
    options = {
        "boards": [{"id": "b0", "address": ADDRESS}],
        "bitstream": {"path": str(image), "id": image.name, "sha256": hashlib.sha256(image.read_bytes()).hexdigest()},
        "programmer": "fpga-manager",
        "fpga_manager": {"firmware": str(folder / "firmware")},
        "sysfs": str(folder / "host/sys"),
        "state_dir": str(folder / "fpga"),
        "wait": "3s",  # of the kubelet's 30, because a test waits for it
    }
    mounts = [{"host_path": str(folder / "host/sys" / BOARD), "container_path": "/mnt/board", "read_only": True}]
    return {"name": name, "driver": "fpga", "pool": "boards", "options": options, "mounts": mounts}


async def run(node: Node, name: str, resource: str) -> None:
    """A pod whose container first writes down what the board runs."""
    limits = {"limits": {resource: 1}}
    container = {"name": "c", "resources": limits, "command": ["/bin/sh", "-c", f"{FIRST}; {FOREVER}"]}
    await node.run_pod(name, [container], restartPolicy="Always")


async def first(node: Node, name: str) -> str:
    """What the board ran at the first instruction of the pod's container."""
    container = (await node.wait_for_pod(name)).container_id("c")

    async def written() -> str:
        return (await node.exec(container, "cat", "/tmp/first")).output

    return await until("first words of the container", written)


async def at(gate: Gate) -> None:
    assert await asyncio.to_thread(gate.reached.wait, 30), "nothing programs the board"


async def event(node: Node, pod: str, *texts: str) -> None:
    """An event of the pod, which a kubelet without an API server writes into its log."""

    async def told() -> bool:
        lines = (line for line in node.kubelet_log().splitlines() if "Event occurred" in line and f"{pod}-node" in line)
        return any(all(text in line for text in texts) for line in lines)

    await until(f"event of {pod} with {texts}", told)


async def test_another_function_waits_for_the_first(node: Node, gateway: Gateway, board: Manager) -> None:
    gate = board.hold("write")
    await run(node, "a", AES)
    await at(gate)
    pod = await node.pod("a")
    assert pod is not None
    assert not pod.containers.get("c", {}).get("containerID"), str(pod)
    gate.open()
    assert await first(node, "a") == "operating\naes\n"

    before = (await node.wait_for_pod("a")).container_id("c")
    await node.kill_container(before)
    await node.another_container("a", before)
    assert await first(node, "a") == "operating\naes\n"
    assert len(board.loaded) == 1, "a restart programmed it again"

    await run(node, "b", FFT)
    refused = await node.wait_for_pod("b", "Failed")
    assert refused.reason == "UnexpectedAdmissionError"
    assert FFT in refused.message
    await shown(gateway, FFT, f"held as {AES} by default/a-node")
    assert running(board) == "aes"
    await node.delete_pod("a")
    await healthy(node, FFT)
    await run(node, "c", FFT)
    assert await first(node, "c") == "operating\nfft\n"
    assert board.at_once == 1


async def test_a_failed_load_is_an_event_of_the_pod(node: Node, gateway: Gateway, board: Manager) -> None:
    board.fail = "write"
    await run(node, "a", AES)
    await event(node, "a", "Failed", "b0", "Input/output error", "write error", "reconfig CRC error")
    await event(node, "a", "Failed", "b0", "Input/output error", "write error", "reconfig CRC error")
    await shown(gateway, FFT, "reconfig CRC error")
    board.fail = ""
    assert await first(node, "a") == "operating\naes\n"


@pytest.mark.parametrize("who", ["kubelet", "gateway"])
async def test_an_end_while_a_board_is_programmed(node: Node, gateway: Gateway, board: Manager, who: str) -> None:
    for number, mine, other in ((signal.SIGTERM, AES, FFT), (signal.SIGKILL, FFT, AES)):
        name, loaded = mine.rpartition("/")[2], len(board.loaded)
        gate = board.hold("write")
        await run(node, "a", mine)
        await at(gate)
        lists = node.lists
        if who == "kubelet":  # it admits the pod again, which has no container yet: then it wants the list before
            await node.restart_kubelet(number, before_pods=node.listed(lists + 2))
        else:
            await gateway.restart(number)
            await node.listed(lists + 2)
        assert len(board.loaded) == loaded
        gate.open()
        assert await first(node, "a") == f"operating\n{name}\n"
        await run(node, "b", other)
        assert (await node.wait_for_pod("b", "Failed")).reason == "UnexpectedAdmissionError"
        assert running(board) == name
        assert board.at_once == 1
        for pod in "ab":
            await node.delete_pod(pod)
        await healthy(node, other)


async def shown(gateway: Gateway, resource: str, text: str, *, there: bool = True) -> None:
    """Until `dpgateway status` says this of the resource, or doesn't any more."""
    command = (*gateway.command, "status", resource, f"--control-socket={gateway.folder / 'control.sock'}")

    async def told() -> bool:
        process = await asyncio.create_subprocess_exec(*command, "--output=json", stdout=PIPE)
        return (text in (await process.communicate())[0].decode()) == there

    await until(f"{text!r} as status of {resource}" if there else f"end of {text!r} of {resource}", told)


async def healthy(node: Node, resource: str) -> None:
    """Until the kubelet can give the resource's board away."""

    async def told() -> bool:
        lines = [line for line in node.kubelet_log().splitlines() if LISTED in line and f'"{resource}"' in line]
        return "healthyCount=1" in lines[-1]

    await until(f"board as {resource}", told, 20)  # a pod that should have a directory by now is gone after 60 s


@pytest.mark.parametrize("containers", [1, 2])
async def test_a_board_that_a_pod_wanted_twice(node: Node, gateway: Gateway, board: Manager, containers: int) -> None:
    """One container asks for both names, or each of two for one: the kubelet has given the first when it refuses."""
    wanted = [{AES: 1}, {FFT: 1}] if containers == 2 else [{AES: 1, FFT: 1}]
    await node.run_pod("a", {f"c{number}": limits for number, limits in enumerate(wanted)})
    await node.wait_for_pod("a", "Failed")
    for resource in (AES, FFT):  # the board is Unhealthy a little after it was given, until the pod is known to be over
        await shown(gateway, resource, '"held": true', there=False)
        await healthy(node, resource)
    await run(node, "b", FFT)
    assert await first(node, "b") == "operating\nfft\n"
