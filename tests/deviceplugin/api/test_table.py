"""What all versions have in common (test_new_version.py: what it takes to add one)."""

import contextlib
import dataclasses
import json

import grpc.aio
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from dpgateway.config import ResourceConfig, values
from dpgateway.deviceplugin.api import APIS, Answer, Api, Call, Rpc, v1alpha2, v1beta1
from dpgateway.deviceplugin.server.handlers import Handlers
from dpgateway.deviceplugin.server.streams import ListThrottle
from dpgateway.deviceplugin.values import Grant
from dpgateway.deviceplugin.wire import v1alpha2_pb2, v1beta1_pb2
from dpgateway.kit.observable import Signal
from dpgateway.model import Allocation, Device, Health
from tests.support.resource import LOG, FakeLanes, FakeResource, nobody_holds_anything

each_api = pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
RPCS = [pytest.param(rpc, id=f"{api.name} {rpc.name}") for api in APIS for rpc in api.rpcs]


def test_the_versions_newest_first_as_kubelets_compare_them():
    assert [(api.name, api.version) for api in APIS] == [
        ("v1beta1", "v1beta1"),
        ("v1alpha2", "v1alpha2"),
        ("v1alpha1", "0.1"),
    ]
    assert [(api.service, api.register_path) for api in APIS] == [
        ("v1beta1.DevicePlugin", "/v1beta1.Registration/Register"),
        ("deviceplugin.DevicePlugin", "/deviceplugin.Registration/Register"),
        ("deviceplugin.DevicePlugin", "/deviceplugin.Registration/Register"),
    ]


@pytest.mark.parametrize("wire", [v1beta1_pb2, v1alpha2_pb2], ids=lambda wire: wire.__name__)
def test_every_rpc_of_the_service_is_a_row(wire):
    service = wire.DESCRIPTOR.services_by_name["DevicePlugin"]
    for api in APIS:
        if api.service == service.full_name:
            assert [rpc.name for rpc in api.rpcs] == [method.name for method in service.methods]


def test_only_v1beta1_can_do_everything():
    assert [[call for call in Call if call in api.by_call] for api in APIS] == [
        list(Call),
        [Call.WATCH, Call.ALLOCATE],
        [Call.WATCH, Call.ALLOCATE],
    ]


def test_the_configuration_knows_the_same_versions():
    assert tuple(api.name for api in APIS) == values.API_NAMES == values.KubeletSettings().apis


def test_a_version_pauses_lists_only_if_it_says_so():
    api = v1beta1.API
    row = Api(api.name, api.version, api.package, api.rpcs, api.to_register, api.to_offer, api.from_answer)
    assert (row.pause, row.forgetful, row.losses) == (0.0, (), ())
    assert [api.pause for api in APIS] == [0.0, 0.01, 0.01]


@each_api
@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Allocation)])
def test_what_of_an_allocation_is_lost_is_told(full, api, field):
    without = dataclasses.replace(full.allocation, **{field: getattr(Allocation(), field)})
    encode = api.by_call[Call.ALLOCATE].encode
    lost = encode((full,)) == encode((Grant(full.ids, without),))
    assert lost == (field in api.losses)


# bytes that aren't the message


@pytest.mark.parametrize("rpc", RPCS)
@given(raw=st.binary(max_size=60))
@settings(deadline=None, max_examples=60)
def test_garbage_is_a_decode_error_and_nothing_else(rpc, raw):
    with contextlib.suppress(DecodeError):
        rpc.decode(raw)


GOOD = {
    Call.OPTIONS: b"\x9a\x06\x03new",
    Call.WATCH: b"\x9a\x06\x03new",
    Call.PREFER: b"\x0a\x0b\x0a\x01a\x0a\x01b\x12\x01b\x18\x02",
    Call.ALLOCATE: b"\x0a\x06\x0a\x01a\x0a\x01b",
    Call.PREPARE: b"\x0a\x06device",
}


@pytest.mark.parametrize("rpc", RPCS)
def test_a_message_cut_short_is_a_decode_error(rpc):
    whole = GOOD[rpc.call]
    rpc.decode(whole)
    for length in range(1, len(whole)):
        with pytest.raises(DecodeError):
            rpc.decode(whole[:length])


def test_an_id_that_is_no_text_is_a_decode_error():
    with pytest.raises(DecodeError):
        v1beta1.from_prepare(b"\x0a\x01\xff")
    with pytest.raises(DecodeError):
        v1alpha2.from_allocate(b"\x0a\x01\xff")


# a made-up version, whose bytes aren't even protobuf


def _json_allocations(grants):
    return json.dumps([{"ids": grant.ids, "env": dict(grant.allocation.env)} for grant in grants]).encode()


V1BETA2 = Api(
    name="v1beta2",
    version="v1beta2",
    package="v1beta2",
    rpcs=(
        Rpc("Watch", Call.WATCH, lambda raw: None, lambda _: b""),
        Rpc("Give", Call.ALLOCATE, lambda raw: tuple(map(tuple, json.loads(raw))), _json_allocations),
        Rpc("Ready", Call.PREPARE, lambda raw: tuple(json.loads(raw)), lambda _: b"ready"),
    ),
    to_register=lambda registration: registration.resource.encode(),
    to_offer=lambda offer: f"{offer.id}={offer.health.ok};".encode(),
    from_answer=lambda raw: Answer(env=json.loads(raw)),
)


def named(devices):
    return Allocation(env={"DEVICES": ",".join(device.id for device in devices)})


def opened(agent):
    raise AssertionError("this client isn't a kubelet")


@pytest.fixture
async def channel(tmp_path):
    """To a gateway's resource that is served in all versions and the made-up one."""
    devices = Device("a"), Device("b", Health.unhealthy("wet"))
    lanes, holdings = FakeLanes("prepare", allocation=named), nobody_holds_anything()
    resource = FakeResource(ResourceConfig("example.com/thing", "x"), lanes, devices=devices, holdings=holdings)
    resource.list()
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(
        tuple(Handlers(resource.calls, (V1BETA2, *APIS), opened, ListThrottle(Signal()), LOG).generic())
    )
    server.add_insecure_port(f"unix:{tmp_path}/plugin.sock")
    await server.start()
    async with grpc.aio.insecure_channel(f"unix:{tmp_path}/plugin.sock") as channel:
        yield channel
    await server.stop(None)
    resource.end()


async def test_a_new_version_is_served_beside_the_others(channel):
    stream = channel.unary_stream("/v1beta2.DevicePlugin/Watch")(b"")
    assert await stream.read() == b"a=True;b=False;"
    stream.cancel()
    answer = await channel.unary_unary("/v1beta2.DevicePlugin/Give")(b'[["a"]]')
    assert json.loads(answer) == [{"ids": ["a"], "env": {"DEVICES": "a"}}]
    assert await channel.unary_unary("/v1beta2.DevicePlugin/Ready")(b'["a"]') == b"ready"
    grant = Grant(("a",), Allocation(env={"DEVICES": "a"}))
    answer = await channel.unary_unary("/v1beta1.DevicePlugin/Allocate")(b"\x0a\x03\x0a\x01a")
    assert answer == APIS[0].rpcs[3].encode((grant,))
