"""What a new version of the API costs: a folder of protos, a module and a name.

The test adds a made-up version to a copy of the source, and nothing else. A kubelet that accepts only this version then
lists the devices of a gateway that runs from the copy, and gives one to a container.
"""

import importlib.util
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dpgateway_simulator import Kubelet, behaviour
from dpgateway_simulator.wire.dialects import DIALECTS, Answer, Dialect, Options, Registration
from tests.support.gateway import Gateway
from tests.support.kubelet import registered
from tests.support.waiting import BUSY

ROOT = Path(__file__).parents[3]
RESOURCE = "example.com/thing"

# Its messages are v1beta1's with other numbers where the simulated kubelet's dialect reads them.
RENUMBERED = {
    "package v1beta1;": "package v1beta2;",
    "string endpoint = 2;": "string endpoint = 3;",
    "string resource_name = 3;": "string resource_name = 2;",
    "ContainerAllocateRequest container_requests = 1;": "ContainerAllocateRequest container_requests = 2;",
    "ContainerAllocateResponse container_responses = 1;": "ContainerAllocateResponse container_responses = 2;",
}


def add_version(root: Path) -> None:
    """The folder, the module and the name."""
    proto = (root / "protos/v1beta1/api.proto").read_text()
    for old, new in RENUMBERED.items():
        assert proto.count(old) == 1
        proto = proto.replace(old, new)
    (root / "protos/v1beta2").mkdir()
    (root / "protos/v1beta2/api.proto").write_text(proto)
    api = root / "src/dpgateway/deviceplugin/api"
    (api / "v1beta2.py").write_text((api / "v1beta1.py").read_text().replace("v1beta1", "v1beta2"))
    values = root / "src/dpgateway/config/values.py"
    text = values.read_text()
    assert text.count('"v1beta1"') == 1
    values.write_text(text.replace('"v1beta1"', '"v1beta2", "v1beta1"'))


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    """A copy of the source that has the version."""
    root: Path = tmp_path_factory.mktemp("dpgateway")
    for folder in ("protos", "tools", "src/dpgateway", "src/dpgateway_simulator"):
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
    add_version(root)
    subprocess.run([sys.executable, root / "tools/regenerate.py"], check=True, capture_output=True)
    return root / "src"


def dialect(source: Path) -> Dialect:
    """The version as the simulated kubelet speaks it, with messages of its own."""
    file = source / "dpgateway_simulator/wire/v1beta2/__init__.py"
    spec = importlib.util.spec_from_file_location("made_up_v1beta2", file)
    assert spec is not None
    assert spec.loader is not None
    wire: Any = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = wire  # betterproto looks there
    spec.loader.exec_module(wire)

    async def allocate(channel, ids):
        request = wire.AllocateRequest([wire.ContainerAllocateRequest(devices_ids=list(ids))])
        (one,) = (await wire.DevicePluginStub(channel).allocate(request)).container_responses
        return Answer().parse(bytes(one))

    def service(accept):
        async def register(request):
            asked = request.options
            options = Options(asked.pre_start_required, asked.get_preferred_allocation_available)
            await accept(Registration(request.version, request.endpoint, request.resource_name, options))
            return wire.Empty()

        served = wire.RegistrationBase()
        served.register = register
        return served

    return Dialect("v1beta2", allocate, service)


async def test_a_new_version_is_a_folder_a_module_and_a_name(source, tmp_path, monkeypatch):
    """The gateway is refused it by a kubelet of today, and then has it with a newer one."""
    monkeypatch.setitem(DIALECTS, "v1beta2", dialect(source))
    gateway = Gateway(tmp_path, tmp_path / "device-plugins")
    gateway.command = (sys.executable, "-m", "dpgateway")
    gateway.environment = {"PYTHONPATH": str(source)}
    gateway.kubelet = {"apis": ["v1beta2", "v1beta1"]}
    kubelet = Kubelet("1.37", tmp_path / "device-plugins")
    options = {"count": 2, "env_prefix": "GOT", "prepare": True}
    async with gateway, kubelet:
        await gateway.start({"name": RESOURCE, "driver": "simulated", "options": options})
        # It begins without compiled modules.
        await kubelet.wait_for(lambda: registered(kubelet, RESOURCE), BUSY)
        await kubelet.wait_for_event("registered", version="v1beta1")
        await kubelet.stop()
        kubelet.behaviour = replace(behaviour("1.37"), api="v1beta2")
        await kubelet.start()
        await kubelet.wait_for(lambda: kubelet.counts(RESOURCE) == (2, 2))
        await kubelet.wait_for_event("registered", version="v1beta2")
        reply = await kubelet.admit("p", {"c": {RESOURCE: 1}})
        assert reply["ok"], reply
        (given,) = reply["containers"]
        assert any(name.startswith("GOT") for name in given["options"]["envs"]), given
        assert await gateway.end() == 0
