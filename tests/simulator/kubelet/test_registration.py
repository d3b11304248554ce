"""Register: what is refused and in which words, and what happens before it answers."""

import grpc
import pytest

from dpgateway_simulator import behaviour
from dpgateway_simulator.kubelet.errors import RefusedError
from dpgateway_simulator.kubelet.registration import check, extended, quoted
from tests.simulator.rig import UNIMPLEMENTED, UNKNOWN, Rig, refusal

WRONG = 'requested API version "v0" is not supported by kubelet. Supported version'


@pytest.mark.parametrize(
    ("version", "text"),
    [
        ("1.8", "unsupported API version by the Kubelet registry"),
        ("1.9", f'{WRONG} is "v1alpha2"'),
        ("1.10", f'{WRONG}s are ["v1beta1"]'),
        ("1.11", f'{WRONG}s are ["v1beta1"]'),
        ("1.12", f'{WRONG} is ["v1beta1"]'),
        ("1.37", f'{WRONG} is ["v1beta1"]'),
    ],
)
async def test_a_wrong_version(rig: Rig, version: str, text: str) -> None:
    plugin = rig.plugin(await rig.kubelet(version))
    assert await refusal(plugin.register(version="v0")) == (UNKNOWN, text)


async def test_a_bad_name_after_a_good_version(rig: Rig, era: str) -> None:
    plugin = rig.plugin(await rig.kubelet(era))
    text = "the ResourceName is invalid" if era == "1.8" else 'the ResourceName "nodomain" is invalid'
    assert await refusal(plugin.register(resource="nodomain")) == (UNKNOWN, text)


async def test_the_other_service_is_unknown(rig: Rig, era: str) -> None:
    kubelet = await rig.kubelet(era)
    plugin = rig.plugin(kubelet)
    other = "v1alpha2" if kubelet.behaviour.api == "v1beta1" else "v1beta1"
    service = "deviceplugin" if other == "v1alpha2" else "v1beta1"
    assert await refusal(plugin.register(api=other)) == (UNIMPLEMENTED, f"unknown service {service}.Registration")


async def test_an_unknown_method_is_named(rig: Rig) -> None:
    kubelet = await rig.kubelet("1.37")
    async with grpc.aio.insecure_channel(f"unix:{kubelet.directory}/kubelet.sock") as channel:
        code, text = await refusal(channel.unary_unary("/v1beta1.Registration/Nope")(b""))
    assert (code, text) == (UNIMPLEMENTED, "unknown method Nope for service v1beta1.Registration")


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("example.com/x", True, True),
        ("nodomain", False, False),
        ("kubernetes.io/x", False, False),
        ("sub.kubernetes.io/x", False, False),
        ("Example.com/x", True, False),
        ("example.com/x/y", True, False),
        ("example.com/", True, False),
        ("example.com/-x", True, False),
        ("requests.example.com/x", True, False),
        ("example.com/" + "x" * 63, True, True),
        ("example.com/" + "x" * 64, True, False),
        ("e" * 244 + "/x", True, True),
        ("e" * 245 + "/x", True, False),
    ],
)
def test_stricter_names_from_1_10(name: str, old: bool, new: bool) -> None:
    assert extended(name, qualified=False) == old
    assert extended(name, qualified=True) == new


def test_the_version_is_checked_first() -> None:
    with pytest.raises(RefusedError, match="requested API version"):
        check(behaviour("1.37"), "v1", "nodomain")


def test_1_8_names_empty_resources() -> None:
    with pytest.raises(RefusedError, match=r"^invalid Empty ResourceName$"):
        check(behaviour("1.8"), "0.1", "")


@pytest.mark.parametrize(("text", "go"), [("a", '"a"'), ('a"b\\', '"a\\"b\\\\"'), ("a\n", '"a\\n"')])
def test_quoting_as_go_does(text: str, go: str) -> None:
    assert quoted(text) == go
