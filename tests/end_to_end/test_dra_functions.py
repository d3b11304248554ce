"""Functions of boards as DeviceClasses: a board is programmed for the claim of its pod, by the gateway's process."""

import shutil
import signal

import pytest

from dpgateway_simulator.cluster import SimulatedCluster
from tests.support.gateway import Gateway
from tests.support.waiting import BUSY

DRIVER, BOARD = "dra.example.com", "example.com/board"


def parameters(**options):
    document = {"apiVersion": "dpgateway/v1alpha1", "kind": "Parameters", "options": options}
    return [{"opaque": {"driver": DRIVER, "parameters": document}}]


@pytest.fixture
async def cluster(short_path):
    async with SimulatedCluster() as cluster:
        await cluster.node("1.37", root=short_path, name="node").start()
        for name, options in {"board": {}, "fft": {"function": "fft"}, "wrong": {"function": "ftf"}}.items():
            config = parameters(**options) if options else ()
            cluster.device_class(name, DRIVER, resource=f"example.com/{name}", config=config)
        await cluster.run("agent", {"c": {}}, within=BUSY)
        yield cluster


@pytest.fixture
async def gateway(cluster, short_path):
    """Two boards with two functions."""
    files = [short_path / f"{name}.bin" for name in ("aes", "fft")]
    for file in files:
        file.write_text(file.stem)
        file.chmod(0o644)
    own, other = ({"path": str(file), "id": file.stem} for file in files)
    options = {
        "boards": [{"id": "a", "nodes": ["/dev/null"]}, {"id": "b", "nodes": ["/dev/zero"]}],
        "bitstream": own,
        "functions": [other],
        "state_dir": str(short_path / "journal"),
        "simulated": {"state_dir": str(short_path / "boards"), "duration": "0s"},
    }
    async with Gateway(short_path, short_path / "device-plugins") as gateway:
        gateway.runtime = {"cdi_dirs": [str(short_path / "cdi")]}
        gateway.more = {"dra": {"driver": DRIVER}, "cluster": cluster.account(short_path)}
        await gateway.start({"name": BOARD, "driver": "fpga", "front": "dra", "options": options})
        yield gateway


def function(cluster, pod):
    return cluster.given(pod)["c"]["envs"]["FPGA_BITSTREAM"]


async def test_a_pod_has_the_function_of_its_class(cluster, gateway):
    await cluster.run("plain", {"c": {BOARD: 1}}, within=BUSY)
    await cluster.run("fft", {"c": {"example.com/fft": 1}}, within=BUSY)
    assert (function(cluster, "plain"), function(cluster, "fft")) == ("aes", "fft")
    assert cluster.nodes_of("plain").isdisjoint(cluster.nodes_of("fft"))
    (board,) = cluster.allocated("fft")
    await gateway.said(f"board {board} runs fft")

    # The board's next pod has another function.
    await cluster.end("fft", within=BUSY)
    await cluster.run("next", {"c": {BOARD: 1}}, within=BUSY)
    assert (cluster.allocated("next"), function(cluster, "next")) == ([board], "aes")


async def test_wrong_parameters_are_in_the_pods_event(cluster, gateway):
    cluster.create("lost", {"c": {"example.com/wrong": 1}})
    await cluster.until("lost", "Pending", because="function: found", within=BUSY)
    assert "found 'ftf', expected one of aes, fft" in cluster.why("lost")


async def test_the_claim_of_a_running_pod_outlives_the_state_directory(cluster, gateway, short_path):
    """Its record is made again, of what kubelet and API server know."""
    await cluster.run("fft", {"c": {"example.com/fft": 1}}, within=BUSY)
    await gateway.end(signal.SIGKILL)
    shutil.rmtree(short_path / "state")
    await gateway.start()
    await gateway.said("again: it was lost")
    await cluster.run("plain", {"c": {BOARD: 1}}, within=BUSY)
    assert cluster.nodes_of("plain").isdisjoint(cluster.nodes_of("fft"))
    await cluster.end("fft", within=BUSY)
    await gateway.said("unprepared claim default/fft")
