"""A program for a node of the cluster: the DRA front with one resource, whose driver is here. It ends by SIGTERM.

dra_front.py SERVER CA TOKEN NODE STATE_DIR
"""

import asyncio
import logging
import os
import signal
import sys
from functools import partial
from pathlib import Path

from dpgateway import Allocation, Device, DeviceNode
from dpgateway.cdi.own import OwnSpecs
from dpgateway.cluster.account import Account
from dpgateway.cluster.server import ApiServer
from dpgateway.deviceplugin.api import LIST_LIMIT
from dpgateway.dra.front import Cluster, DraFront, NodeState
from dpgateway.dra.plugin import DraPlugin
from dpgateway.dra.publishing import Us
from dpgateway.drivers.running import CallsAfterClose, RunningDriver
from dpgateway.kit.complaint import Complaint
from dpgateway.kit.log import bind
from dpgateway.kit.observable import Observable
from dpgateway.kit.threads import Threads
from dpgateway.node.node import boot
from dpgateway.resource.orphans import Orphans
from dpgateway.resource.pools import Pools
from dpgateway.resource.resource import Common
from tests.support.holdings import node_holdings, run_both
from tests.support.resources import configured, scripted

NAME = "example.com/claimed"
DRIVER = "dra.example.com"
ROOT = Path("/var/lib/kubelet")
CDI = Path("/var/run/cdi")
DEVICES = "a", "b", "C/3"


def allocate(devices):
    nodes = tuple(DeviceNode("/dev/null", f"/dev/claimed-{number}") for number, _ in enumerate(devices))
    return Allocation(env={"DEVICES": " ".join(device.id for device in devices)}, device_nodes=nodes)


async def main(server, ca, token, node, state_dir):
    log, threads, state, plugins = bind("dra"), Threads(), Path(state_dir), ROOT / "device-plugins"
    for folder in (state, CDI):
        folder.mkdir(parents=True, exist_ok=True)
    there, stop = asyncio.Event(), asyncio.Event()
    there.set()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    driver_class = scripted(devices=lambda: map(Device, DEVICES), allocate=allocate, release=lambda _devices: None)
    config = Observable(configured(name=NAME, driver_class=driver_class))
    async with asyncio.TaskGroup() as group:
        holdings = node_holdings(plugins, [], threads)
        pools = Pools(Orphans(holdings, plugins, state, threads), CallsAfterClose())
        pools.add(config.value)
        cluster = Cluster(
            ApiServer(Account(server, Path(ca), Path(token))), OwnSpecs(state, CDI, plugins, Complaint(log))
        )
        common = Common(plugins, state, threads, pools, LIST_LIMIT)
        front = DraFront(Us(DRIVER, node), ROOT, cluster, common, NodeState(there, boot()))
        driver = RunningDriver(config, node, threads, log)
        plugin = DraPlugin(config, driver, front, group)
        front.expect(config.value)
        for runs in (partial(run_both, holdings), pools.run, front.run, driver.run, plugin.run):
            group.create_task(runs())
        await stop.wait()
        front.ending()
        await plugin.drain(0)
        await plugin.close()
        await front.close()
        os._exit(0)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    asyncio.run(main(*sys.argv[1:]))
