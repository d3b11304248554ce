"""A registration, as a kubelet asks for it."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dpgateway.errors import KubeletError
from dpgateway.kit.channel import Channel
from dpgateway.kit.log import bind
from dpgateway.registry.socket import FOLDER, RegisteredPlugin, RegistrationSocket
from dpgateway.registry.wire import pluginregistration_pb2 as wire

LOG = bind("test")
PLUGIN = RegisteredPlugin(
    "DRAPlugin", "dra.example.com", Path("/plugins/dra.sock"), ("v1.DRAPlugin", "v1beta1.DRAPlugin")
)


@pytest.fixture
def root(short_path: Path) -> Path:
    (short_path / FOLDER).mkdir()
    return short_path


@pytest.fixture
async def registration(root: Path) -> AsyncIterator[RegistrationSocket]:
    one = RegistrationSocket(root, PLUGIN, LOG)
    await one.open()
    yield one
    await one.close()


def sockets(root: Path) -> list[str]:
    return sorted(path.name for path in (root / FOLDER).iterdir())


async def notify(path: Path, *, registered: bool, error: str = "") -> None:
    said = wire.RegistrationStatus(plugin_registered=registered, error=error)
    async with Channel(path) as channel:
        await channel.unary_unary("/pluginregistration.Registration/NotifyRegistrationStatus")(said.SerializeToString())


async def test_the_kubelet_is_told_what_it_asks(registration: RegistrationSocket) -> None:
    async with Channel(registration.path) as channel:
        raw = await channel.unary_unary("/pluginregistration.Registration/GetInfo")(b"")
    info = wire.PluginInfo.FromString(raw)
    assert (info.type, info.name, info.endpoint) == ("DRAPlugin", "dra.example.com", "/plugins/dra.sock")
    assert list(info.supported_versions) == ["v1.DRAPlugin", "v1beta1.DRAPlugin"]


async def test_a_refusal_keeps_its_reason(registration: RegistrationSocket) -> None:
    await notify(registration.path, registered=False, error="no handler registered for plugin type: DRAPlugin")
    answer = registration.answer.value
    assert answer is not None
    assert (answer.accepted, answer.reason) == (False, "no handler registered for plugin type: DRAPlugin")


async def test_a_second_acceptance_is_news(registration: RegistrationSocket) -> None:
    await notify(registration.path, registered=True)
    first = registration.answer.version
    await notify(registration.path, registered=True)
    assert registration.answer.version == first + 1


async def test_only_its_owner_may_dial_it(root: Path, registration: RegistrationSocket) -> None:
    assert registration.path.stat().st_mode & 0o777 == 0o600
    assert sockets(root) == [registration.path.name]


async def test_nothing_is_left_at_the_end(root: Path, registration: RegistrationSocket) -> None:
    await registration.close()
    assert sockets(root) == []


async def test_a_killed_gateway_is_swept_and_nobody_else(root: Path, registration: RegistrationSocket) -> None:
    for name in ("dpgateway-00000000-00000001.sock", ".dpgateway-00000000-00000001.sock", "other.sock"):
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(root / FOLDER / name))
    second = RegistrationSocket(root, PLUGIN, LOG)
    await second.open()
    assert sockets(root) == sorted(["other.sock", registration.path.name, second.path.name])
    await second.close()


async def test_a_path_that_no_kubelet_can_dial(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100)
    (deep / FOLDER).mkdir(parents=True)
    with pytest.raises(KubeletError, match="expected at most"):
        await RegistrationSocket(deep, PLUGIN, LOG).open()


async def test_no_directory_is_made(short_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await RegistrationSocket(short_path, PLUGIN, LOG).open()
    assert not (short_path / FOLDER).exists()
