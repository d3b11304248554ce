"""How many files and functions of the gateway one thing crosses: an Allocate, a change of health, a reload, a Prepare.

``python -m tools.crossings`` runs a gateway and a simulated kubelet 1.37 in this process, with one resource of two
devices, without a pool, CDI or preparing. It counts what runs of ``src/dpgateway`` on all threads: for an Allocate
until 10 ms after its answer, for a change of health from the driver's word until 10 ms after the kubelet has the list,
for a reload of one changed ``env`` from ``Gateway.apply`` on. For a Prepare the resource is offered by DRA, and the
claim is read from a simulated API server. ``--list`` names the functions, in the order in which they ran first, with a
line where the answer was there: below it are those that the kubelet doesn't wait for, such as reading its checkpoint.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import grpc
import grpc.aio

import dpgateway
from dpgateway import Allocation, Context, Device, Health
from dpgateway.config import ClusterSettings, Configuration, DraSettings
from dpgateway.config import KubeletSettings as KubeletConfig
from dpgateway.config.changes import changes
from dpgateway.config.values import RuntimeSettings
from dpgateway.dra.wire import dra_pb2 as wire
from dpgateway.gateway import Gateway
from dpgateway_simulator.apiserver import SimulatedApiServer
from dpgateway_simulator.kubelet.kubelet import Kubelet
from tests.dra.test_front import US, V1, Node
from tests.support.resources import NAME, NoOptions, configured
from tests.support.waiting import until

SOURCE = f"{Path(dpgateway.__file__).parent}/"
BEFORE, AFTER = 1.5, 0.01
"""Seconds for earlier work to end, such as the journal's save, and seconds for which later work still counts."""
RESOURCE = "example.com/thing"


@dataclass
class Crossing:
    """The calls, and the functions in the order of their first call."""

    calls: int = 0
    functions: dict[CodeType, None] = field(default_factory=dict)
    answered: int = 0
    """The number of functions at the answer."""

    @property
    def files(self) -> list[str]:
        return list(dict.fromkeys(_file(code) for code in self.functions))


def _file(code: CodeType) -> str:
    return code.co_filename.removeprefix(SOURCE)


class Counter:
    """Profiles all calls of this thread, and of threads started later."""

    def __init__(self) -> None:
        self._crossing: Crossing | None = None
        threading.setprofile(self._see)
        sys.setprofile(self._see)

    def _see(self, frame: FrameType, event: str, _: object) -> None:
        crossing, code = self._crossing, frame.f_code
        if crossing is None or event != "call" or not code.co_filename.startswith(SOURCE):
            return
        crossing.calls += 1
        crossing.functions[code] = None

    async def count(self, work: Callable[[], Awaitable[Any]]) -> Crossing:
        await asyncio.sleep(BEFORE)
        self._crossing = crossing = Crossing()
        await work()
        crossing.answered = len(crossing.functions)
        await asyncio.sleep(AFTER)
        self._crossing = None
        return crossing


class Driver:
    """A driver of two devices; one can become Unhealthy."""

    Options = NoOptions
    running: Driver

    def __init__(self, options: NoOptions, context: Context) -> None:
        self.context = context
        self.sick = False
        Driver.running = self

    def devices(self) -> list[Device]:
        return [Device("a"), Device("b", Health.unhealthy("sick") if self.sick else Health.healthy())]

    def allocate(self, devices: Sequence[Device]) -> Allocation:
        return Allocation(env={"DEVICES": ",".join(one.id for one in devices)})

    def fall_sick(self) -> None:
        self.sick = True
        self.context.changed()


async def prepare(counter: Counter, folder: Path) -> Crossing:
    """A claim of one device, from the kubelet's call on."""
    directory, api = folder / "device-plugins", SimulatedApiServer()
    await api.up()
    api.store.create("nodes", "", {"metadata": {"name": US.node}})
    node = Node(folder, api)
    (folder / "token").write_text("token")
    first = Configuration(
        (configured(name=NAME, driver_class=Driver, front="dra"),),
        KubeletConfig(device_plugins_dir=directory),
        folder / "state",
        runtime=RuntimeSettings(cdi_dirs=(folder / "cdi",)),
        dra=DraSettings(US.driver),
        cluster=ClusterSettings(server=api.url, token=folder / "token"),
    )
    async with Kubelet("1.37", directory) as kubelet, asyncio.TaskGroup() as group:
        await kubelet.admit("other", {"c": {}})  # a kubelet that lists no pod may not know its pods yet
        gateway = Gateway(first, US.node, group)
        await gateway.start()
        await node.register()
        await until(lambda: len(node.devices) == 2)
        request = wire.NodePrepareResourcesRequest(claims=[node.allocate("c", "a")])
        async with grpc.aio.insecure_channel(f"unix:{node.endpoint}") as channel:
            call = channel.unary_unary(f"{V1}/NodePrepareResources")
            crossing = await counter.count(lambda: call(request.SerializeToString()))
        await gateway.close()
    await api.down()
    return crossing


async def crossings(folder: Path) -> dict[str, Crossing]:
    # The counter comes first: a thread takes over the profile function at its start.
    counter, directory = Counter(), folder / "device-plugins"
    config = configured(name=RESOURCE, driver_class=Driver)
    first = Configuration((config,), KubeletConfig(device_plugins_dir=directory), folder / "state")
    async with Kubelet("1.37", directory) as kubelet, asyncio.TaskGroup() as group:
        gateway = Gateway(first, "node-a", group)
        await gateway.start()
        await kubelet.wait_for(lambda: kubelet.counts(RESOURCE) == (2, 2))

        async def fall_sick() -> None:
            Driver.running.fall_sick()
            await kubelet.wait_for(lambda: kubelet.counts(RESOURCE) == (2, 1))

        new = replace(first, resources=(replace(config, env={"A": "1"}),))
        changed = changes(gateway.resources, new.resources)
        found = {
            "Allocate": await counter.count(lambda: kubelet.admit("p", {"c": {RESOURCE: 1}}, start=False)),
            "health": await counter.count(fall_sick),
            "reload": await counter.count(lambda: gateway.apply(changed, new)),
        }
        await gateway.close()
    (folder / "dra").mkdir()
    return found | {"Prepare": await prepare(counter, folder / "dra")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="name the functions")
    parser.add_argument("--output", choices=("table", "json"), default="table")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(crossings(Path(folder)))
    if arguments.output == "json":
        figures = {
            what: {"files": one.files, "functions": len(one.functions), "calls": one.calls}
            for what, one in found.items()
        }
        print(json.dumps(figures, indent=1))
        return
    print(f"{'':10}{'files':>8}{'functions':>11}{'calls':>8}")
    for what, one in found.items():
        print(f"{what:10}{len(one.files):8}{len(one.functions):11}{one.calls:8}")
        if arguments.list:
            for number, code in enumerate(one.functions):
                if number == one.answered:
                    print("    -- the answer is there --")
                print(f"    {_file(code)}: {code.co_qualname}")


if __name__ == "__main__":
    main()
