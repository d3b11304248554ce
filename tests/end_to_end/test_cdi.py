"""The same driver's CDI names under an old and a new kubelet, with the process itself."""

import json
import shutil
import signal

import pytest

from dpgateway_simulator import PluginError
from tests.support.containerd import containerd
from tests.support.specs import of, write
from tests.support.waiting import until

R, GPU = "example.com/thing", "vendor.example/gpu=node-0"


@pytest.fixture
async def knows(short_path):
    """The socket of a runtime that knows CDI."""
    async with containerd(short_path / "c.sock") as socket:
        yield socket


async def given(kubelet):
    await kubelet.wait_for(lambda: kubelet.resources().get(R, {}).get("allocatable"))
    return await kubelet.allocate(R, ["node-0"])


@pytest.mark.parametrize("kubelet", ["1.24"], indirect=True)
async def test_names_for_an_old_kubelet_and_a_new_one(process, kubelet, short_path, knows):
    specs = short_path / "cdi"
    process.runtime = {"socket": str(knows), "cdi_dirs": [str(specs)]}
    options = {"count": 1, "cdi_kind": "vendor.example/gpu"}
    await process.start({"name": R, "driver": "simulated", "options": options})
    with pytest.raises(PluginError, match=f"no spec has the CDI device {GPU}; looked in {specs}"):
        await given(kubelet)
    write(specs / "a.json", of({"node-0": {"env": ["GPU=1"], "deviceNodes": [{"path": "/dev/null"}]}}))
    answer = await given(kubelet)
    assert (answer.envs["GPU"], [one.host_path for one in answer.devices]) == ("1", ["/dev/null"])
    assert not answer.cdi_devices
    await kubelet.upgrade("1.31")
    answer = await given(kubelet)
    assert [one.name for one in answer.cdi_devices] == [GPU]
    assert "GPU" not in answer.envs


@pytest.mark.parametrize("kubelet", ["1.37"], indirect=True)
@pytest.mark.parametrize("cdi", ["auto", "always"])
async def test_no_name_for_an_unknown_runtime(process, kubelet, short_path, cdi):
    """As in a pod that doesn't see the runtime's socket, on a node whose containerd drops names in silence."""
    write(short_path / "cdi" / "a.json", of({"node-0": {"env": ["GPU=1"], "hooks": []}}))
    process.runtime = {"socket": str(short_path / "none.sock"), "cdi_dirs": [str(short_path / "cdi")]}
    options = {"count": 1, "cdi_kind": "vendor.example/gpu", "env_prefix": "GOT"}
    await process.start({"name": R, "driver": "simulated", "options": options, "cdi": cdi})
    answer = await given(kubelet)
    assert not answer.cdi_devices
    assert answer.envs["GPU"] == "1"
    hook = {"hookName": "createRuntime", "path": "/bin/h"}
    write(short_path / "cdi" / "a.json", of({"node-0": {"hooks": [hook]}}))
    with pytest.raises(PluginError, match=r"it isn't known whether .* tell the gateway .*: runtime\.socket in its"):
        await given(kubelet)


@pytest.mark.parametrize("kubelet", ["1.37"], indirect=True)
async def test_a_spec_outlives_the_gateway_and_a_reboot(process, kubelet, short_path, knows):
    """Any driver's answer can be one."""
    specs = short_path / "cdi"
    process.runtime = {"socket": str(knows), "cdi_dirs": [str(specs)]}
    options = {"count": 1, "env_prefix": "GOT"}
    await process.start({"name": R, "driver": "simulated", "options": options, "cdi": "always"})
    answer = await given(kubelet)
    (spec,) = specs.iterdir()
    document = json.loads(spec.read_text())
    (device,) = document["devices"]
    assert [one.name for one in answer.cdi_devices] == [f"{document['kind']}={device['name']}"]
    assert not answer.envs
    assert device["containerEdits"]["env"][0].startswith("GOT")
    await process.end(signal.SIGKILL)
    shutil.rmtree(specs)
    await process.start({"name": R, "driver": "simulated", "options": options, "cdi": "auto"})
    await until(spec.exists)
    assert json.loads(spec.read_text()) == document
