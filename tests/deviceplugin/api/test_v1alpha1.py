"""Kubernetes 1.8's answer to Allocate; the rest is 1.9's."""

from dpgateway.deviceplugin.api import v1alpha2
from dpgateway.deviceplugin.api.v1alpha1 import API, to_allocations, to_register
from dpgateway.deviceplugin.values import Grant, Options, Registration
from dpgateway.deviceplugin.wire import v0_1_pb2 as ours
from dpgateway.deviceplugin.wire import v1alpha2_pb2
from dpgateway.model import Allocation, DeviceNode, Mount
from dpgateway_simulator.wire import deviceplugin as theirs
from dpgateway_simulator.wire.deviceplugin import v0_1 as their_answers

REGISTRATION = Registration("example.com/thing", "dpgateway/0.sock", Options(prepare=True, prefer=True))


def test_register_fills_every_field(unset):
    assert unset(v1alpha2_pb2.RegisterRequest.FromString(to_register(REGISTRATION))) == []


def test_register_is_read_by_another_implementation():
    assert theirs.RegisterRequest().parse(to_register(REGISTRATION)) == theirs.RegisterRequest(
        version="0.1", endpoint="dpgateway/0.sock", resource_name="example.com/thing"
    )


def test_register_in_known_bytes():
    assert to_register(Registration("e.x/r", "s", Options())) == b"\x0a\x030.1\x12\x01s\x1a\x05e.x/r"


def test_an_allocation_fills_every_field(full, unset):
    first, second = ours.AllocateResponse.FromString(to_allocations((full,))).spec
    assert unset(first) == []
    assert second == ours.DeviceRuntimeSpec(ID="a::1")


def test_an_allocation_is_read_by_another_implementation(full):
    assert their_answers.AllocateResponse().parse(to_allocations((full,))) == their_answers.AllocateResponse(
        spec=[
            their_answers.DeviceRuntimeSpec(
                id="a",
                envs={"COLOUR": "red", "SIZE": "large"},
                mounts=[
                    their_answers.Mount("/inside/one", "/host/one", read_only=True),
                    their_answers.Mount("/inside/two", "/host/two", read_only=True),
                ],
                devices=[
                    their_answers.DeviceSpec("/dev/inside1", "/dev/host1", "r"),
                    their_answers.DeviceSpec("/dev/inside2", "/dev/host2", "rwm"),
                ],
            ),
            their_answers.DeviceRuntimeSpec(id="a::1"),
        ]
    )


def test_an_allocation_in_known_bytes():
    allocation = Allocation({"K": "V"}, (DeviceNode("/d", "/c", "r"),), (Mount("/h", "/m"),))
    spec = (
        b"\x0a\x01a\x12\x06\x0a\x01K\x12\x01V\x1a\x0a\x0a\x02/m\x12\x02/h\x18\x01\x22\x0b\x0a\x02/c\x12\x02/d\x1a\x01r"
    )
    raw = to_allocations((Grant(("a", "b"), allocation),))
    assert raw == b"\x0a" + bytes([len(spec)]) + spec + b"\x0a\x03\x0a\x01b"


def test_an_allocation_without_ids_arrives():
    answer = ours.AllocateResponse.FromString(to_allocations((Grant((), Allocation(env={"K": "V"})),)))
    assert [(spec.ID, dict(spec.envs)) for spec in answer.spec] == [("", {"K": "V"})]


def test_it_differs_from_1_9_in_two_messages():
    assert (API.service, API.register_path) == (v1alpha2.API.service, v1alpha2.API.register_path)
    assert API.to_offer is v1alpha2.API.to_offer
    differing = [new.name for new, old in zip(API.rpcs, v1alpha2.API.rpcs, strict=True) if new != old]
    assert differing == ["Allocate"]
